"""Digests a run of events: its important sentences, its topic and its importance."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.llm.heuristic.words import (
    WORD,
    iter_stems,
    split_sentences,
    stem,
    strip_genitive,
    word_list,
)
from strandline.llm.types import PromptEvent

SUMMARY_CHARACTERS = 700
MERGED_CHARACTERS = 1400
_SENTENCE_CHARACTERS = 240
_MAX_EVENT_CHARACTERS = 4000
"""Characters of an event that are read."""
_MAX_PROSE_LINES = 20
"""A text with more lines is a log or a table: only its first line is used."""
_MAX_PHRASE_WORDS = 4
"""Most words of a phrase."""
_MAX_WORD_CHARACTERS = 48
"""A longer word is an address, a code or a key, and not part of a topic."""
_MIN_STOP_WORD_SHARE = 0.2
"""A text with a smaller share of stop words is not considered English."""

_DECIDES = re.compile(
    r"\b(?:decided?|decision|agreed?|approved?|approvals?|go(?:ing)? (?:with|for)|settled|chosen?|"
    r"chose|pick(?:ed)?|book(?:ed)?|order(?:ed)?|confirm(?:ed|s)?|cancel(?:l?ed)?|moved|changed|"
    r"replace[sd]?|switch(?:ed)?|instead|from now on|deal|closed|signed|rejected|declined|"
    r"\w+ it is)\b",
    re.IGNORECASE,
)
_COMMITS = re.compile(
    r"\b(?:i|we)(?:['’]ll| will| promise| shall)\b|\b(?:due|deadline|until|remind|by (?:mon|tues|"  # noqa: RUF001
    r"wednes|thurs|fri|satur|sun)day)\b",
    re.IGNORECASE,
)
_IS_WEIGHTY = re.compile(
    r"\b(?:allerg\w+|emergenc\w+|urgent\w*|important|critical|never|must|password|secret|private|"
    r"fail(?:ed|s|ure)?|broken?|lost|risk|danger\w*|warning|wrong|bug|surgery|operation|married|"
    r"wedding|died|born|offer(?:ed)?|contract|budget|grant)\b",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\d")
_MARKS = re.compile(r"(?<![.,:;!?()\"“”…\n—–])[.,:;!?()\"“”…\n—–]+(?:\s|$)")  # noqa: RUF001
"""The end of a phrase. A match begins where marks begin, so a run of marks is read once."""


class _Line(NamedTuple):
    """A sentence with its position and score."""

    position: int
    speaker: str
    text: str
    score: float


def summarise(events: Sequence[PromptEvent]) -> str:
    """The best sentences in order, with their speakers, in at most SUMMARY_CHARACTERS."""
    lines = list(_score_lines(events))
    narrative = _join_lines(_select_lines(lines, SUMMARY_CHARACTERS))
    first_words = next(
        (f"{_speaker_name(event)}: {text}" for event in events if (text := event.text.strip())),
        None,
    )
    return narrative or (first_words or f"{len(events)} events without text.")[:SUMMARY_CHARACTERS]


def merge_summaries(earlier: str, later: str) -> str:
    """Two summaries as one, in at most MERGED_CHARACTERS, without repeated sentences."""
    parts = [part for text in (earlier, later) for part in split_sentences(text)]
    weights = Counter(token for part in parts for token in set(iter_stems(part)))
    lines = [
        _Line(position, "", part, _score_sentence(part, weights, 1.0))
        for position, part in enumerate(dict.fromkeys(parts))
    ]
    return _join_lines(_select_lines(lines, MERGED_CHARACTERS))


def score_importance(events: Sequence[PromptEvent]) -> float:
    """Importance from 0 to 1: one minus the product of (1 - each sign) (docs/chains.md)."""
    texts = [_readable_text(event) for event in events if event.type != "thought"]
    is_question = [text.rstrip().endswith("?") for text in texts]
    answered_count = sum(asks and not next_asks for asks, next_asks in pairwise(is_question))
    cap_two, cap_three = (
        max(1, min(cap, len(texts))) for cap in (2, 3)
    )  # for a single event one is enough
    signs = (
        (0.35, sum(bool(_DECIDES.search(text)) for text in texts) / cap_two),
        (0.25, sum(len(_FIGURE.findall(text)) > 1 for text in texts) / cap_three),
        (0.25, sum(bool(_IS_WEIGHTY.search(text)) for text in texts) / cap_two),
        (0.15, sum(bool(_COMMITS.search(text)) for text in texts) / cap_two),
        (0.10, answered_count),
        (0.15, sum(map(len, texts)) / 1500),
    )
    return round(1 - math.prod(1 - weight * min(1.0, size) for weight, size in signs), 4)


def name_topic(events: Sequence[PromptEvent]) -> str:
    """The topic of a run, as a phrase from it of about six words at most."""
    texts = [text for item in events if item.type != "thought" and (text := _readable_text(item))]
    words = [word for text in texts for word in WORD.findall(text)]
    if sum(
        strip_genitive(word) in word_list("stop") for word in words
    ) < _MIN_STOP_WORD_SHARE * len(words):
        return _first_words(texts)
    weights = _stem_weights(texts)
    speakers = {_speaker_name(item).lower() for item in events}
    best_phrases: dict[str, tuple[float, tuple[str, ...]]] = {}
    for position, text in enumerate(texts):
        for phrase, after_article in _find_phrases(text, speakers):
            keys = [stem(strip_genitive(word)) for word in phrase]
            value = sum(weights[key] for key in keys) / len(keys) ** 0.6
            value *= (1.25 if after_article else 1.0) * (1.0 if position else 1.3)
            best = best_phrases.get(" ".join(keys), (0.0, phrase))
            best_phrases[" ".join(keys)] = max(best, (value, phrase))
    return _format_topic(sorted(best_phrases.values(), key=lambda item: -item[0])) or _first_words(
        texts
    )


def _score_lines(events: Sequence[PromptEvent]) -> Iterator[_Line]:
    texts = [_readable_text(event) for event in events]
    weights = Counter(token for text in texts for token in set(iter_stems(text)))
    position = 0
    for event, text in zip(events, texts, strict=True):
        trust = {"thought": 0.5, "action": 0.7, "observation": 0.8}.get(event.type, 1.0)
        for part in split_sentences(text):
            position += 1
            yield _Line(
                position,
                _speaker_name(event),
                part[:_SENTENCE_CHARACTERS],
                _score_sentence(part, weights, trust),
            )


def _score_sentence(sentence: str, weights: Counter[str], trust: float) -> float:
    """The score of a sentence: its words' share in the run; decisions, promises and figures."""
    tokens = set(iter_stems(sentence))
    if not tokens:
        return 0.0
    central = sum(math.log(1 + weights[token]) for token in tokens) / math.sqrt(len(tokens) + 4)
    signs = (
        0.8 * bool(_DECIDES.search(sentence))
        + 0.6 * bool(_FIGURE.search(sentence))
        + 0.4 * bool(_COMMITS.search(sentence))
        + 0.4 * bool(_IS_WEIGHTY.search(sentence))
        - 0.5 * sentence.endswith("?")
    )
    return trust * (central + signs)


def _select_lines(lines: Sequence[_Line], budget: int) -> list[_Line]:
    selected: list[_Line] = []
    for line in sorted(lines, key=lambda line_: (-line_.score, line_.position)):
        size = len(line.text) + len(line.speaker) + 3
        if line.score > 0 and size <= budget:
            selected.append(line)
            budget -= size
    return sorted(selected, key=lambda line_: line_.position)


def _join_lines(lines: Sequence[_Line]) -> str:
    texts: list[str] = []
    speaker = ""
    for line in lines:
        texts.append(line.text if line.speaker == speaker else f"{line.speaker}: {line.text}")
        speaker = line.speaker
    return " ".join(texts)


def _speaker_name(event: PromptEvent) -> str:
    return event.speaker.split(":", 1)[-1] if event.speaker else event.role


def _readable_text(event: PromptEvent) -> str:
    """The text of an event; of a log or a table, its first line."""
    is_table = event.type == "upload" or event.text.count("\n") > _MAX_PROSE_LINES
    return (
        event.text.strip().split("\n", 1)[0][:80]
        if is_table
        else event.text[:_MAX_EVENT_CHARACTERS]
    )


def _stem_weights(texts: Sequence[str]) -> Counter[str]:
    """Weight of each stem: the number of events that contain it; the first event counts twice."""
    weights = Counter(token for text in texts for token in set(iter_stems(text)))
    weights.update(set(iter_stems(texts[0])) if texts else ())
    return weights


def _find_phrases(text: str, excluded: set[str]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Runs of words that can be part of a topic, and whether an article precedes them."""
    for part in _MARKS.split(text):
        run: list[str] = []
        previous = ""
        for word in [*WORD.findall(part), ""]:
            if word and _is_topic_word(word) and strip_genitive(word) not in excluded:
                run.append(word)
                continue
            if run:
                yield tuple(run[-_MAX_PHRASE_WORDS:]), previous in word_list("articles")
            run, previous = [], word.lower()


def _is_topic_word(word: str) -> bool:
    """Whether a word can be part of a topic: by its form, a noun or an attribute of one."""
    bare_word = strip_genitive(word)
    return (
        2 < len(bare_word) <= _MAX_WORD_CHARACTERS
        and not bare_word[0].isdigit()
        and "'" not in bare_word
        and not any(
            bare_word in word_list(words) for words in ("stop", "openers", "does", "calendar")
        )
        and not (bare_word.endswith(("ed", "ly")) and len(bare_word) > 4 and word.islower())
    )


def _format_topic(ranked: Sequence[tuple[float, tuple[str, ...]]]) -> str:
    """The best phrase. A single word is joined with the best phrase that does not contain it."""
    if not ranked:
        return ""
    best_phrase = ranked[0][1]
    if len(best_phrase) > 1:
        return _format_phrase(best_phrase)
    heads = {stem(strip_genitive(word)) for word in best_phrase}
    for value, phrase in ranked[1:]:
        if value >= ranked[0][0] / 3 and not heads & {
            stem(strip_genitive(word)) for word in phrase
        }:
            return f"{_format_phrase(best_phrase)} and {_format_phrase(phrase)}"
    return _format_phrase(best_phrase)


def _format_phrase(phrase: Iterable[str]) -> str:
    return " ".join(re.sub(r"['’]s$", "", word) for word in phrase)  # noqa: RUF001


def _first_words(texts: Sequence[str]) -> str:
    """The first words of the run, for use without a phrase."""
    words = texts[0].split() if texts else []
    return " ".join(words[:6]).strip(".,:;!?")[:200] or "Untitled"
