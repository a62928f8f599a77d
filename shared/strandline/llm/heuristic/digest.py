"""A run of events in short: the sentences that matter, what they are about, how much it matters."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.llm.heuristic.words import WORD, bare, listed, sentences, stem, stems
from strandline.llm.types import Said

SUMMARY_CHARACTERS = 700
MERGED_CHARACTERS = 1400
_SENTENCE_CHARACTERS = 240
_PROSE = 4000
"""Characters of an event that are looked at."""
_TABLE_LINES = 20
"""A text of more lines is a log or a table: it is named, not told."""
_PHRASE = 4
"""Words of a phrase at most."""
_WORD_CHARACTERS = 48
"""A longer word is an address, a code or a key, and names no topic."""
_ENGLISH = 0.2
"""Share of words that say nothing, below which a text is not taken for English."""

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
_WEIGHS = re.compile(
    r"\b(?:allerg\w+|emergenc\w+|urgent\w*|important|critical|never|must|password|secret|private|"
    r"fail(?:ed|s|ure)?|broken?|lost|risk|danger\w*|warning|wrong|bug|surgery|operation|married|"
    r"wedding|died|born|offer(?:ed)?|contract|budget|grant)\b",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\d")
_MARKS = re.compile(r"(?<![.,:;!?()\"“”…\n—–])[.,:;!?()\"“”…\n—–]+(?:\s|$)")  # noqa: RUF001
"""What ends a phrase. It begins where marks begin: a run of them is read once."""


class _Line(NamedTuple):
    """A sentence, its place, and what it is worth."""

    place: int
    who: str
    text: str
    worth: float


def summary(said: Sequence[Said]) -> str:
    """The weightiest sentences in order, with who said them, in at most SUMMARY_CHARACTERS."""
    lines = list(_lines(said))
    told = _told(_chosen(lines, SUMMARY_CHARACTERS))
    spoken = next((f"{_who(one)}: {text}" for one in said if (text := one.text.strip())), None)
    return told or (spoken or f"{len(said)} events without text.")[:SUMMARY_CHARACTERS]


def merged(earlier: str, later: str) -> str:
    """Two summaries as one, in at most MERGED_CHARACTERS: what is said twice is kept once."""
    both = [part for text in (earlier, later) for part in sentences(text)]
    weights = Counter(found for part in both for found in set(stems(part)))
    lines = [
        _Line(place, "", part, _worth(part, weights, 1.0))
        for place, part in enumerate(dict.fromkeys(both))
    ]
    return _told(_chosen(lines, MERGED_CHARACTERS))


def importance(said: Sequence[Said]) -> float:
    """From 0 to 1: one minus the product of what each sign leaves open (docs/chains.md)."""
    texts = [_prose(one) for one in said if one.type != "thought"]
    asked = [text.rstrip().endswith("?") for text in texts]
    answered = sum(asks and not also for asks, also in pairwise(asked))
    two, three = (max(1, min(most, len(texts))) for most in (2, 3))  # of one event one is enough
    signs = (
        (0.35, sum(bool(_DECIDES.search(text)) for text in texts) / two),
        (0.25, sum(len(_FIGURE.findall(text)) > 1 for text in texts) / three),
        (0.25, sum(bool(_WEIGHS.search(text)) for text in texts) / two),
        (0.15, sum(bool(_COMMITS.search(text)) for text in texts) / two),
        (0.10, answered),
        (0.15, sum(map(len, texts)) / 1500),
    )
    return round(1 - math.prod(1 - weight * min(1.0, size) for weight, size in signs), 4)


def topic(said: Sequence[Said]) -> str:
    """What a run is about, as a phrase from it of at most six words or so."""
    texts = [text for one in said if one.type != "thought" and (text := _prose(one))]
    words = [word for text in texts for word in WORD.findall(text)]
    if sum(bare(word) in listed("stop") for word in words) < _ENGLISH * len(words):
        return _opening(texts)
    weights = _weights(texts)
    speakers = {_who(one).lower() for one in said}
    found: dict[str, tuple[float, tuple[str, ...]]] = {}
    for place, text in enumerate(texts):
        for phrase, noun in _phrases(text, speakers):
            keys = [stem(bare(word)) for word in phrase]
            value = sum(weights[key] for key in keys) / len(keys) ** 0.6
            value *= (1.25 if noun else 1.0) * (1.0 if place else 1.3)
            known = found.get(" ".join(keys), (0.0, phrase))
            found[" ".join(keys)] = max(known, (value, phrase))
    return _named(sorted(found.values(), key=lambda one: -one[0])) or _opening(texts)


def _lines(said: Sequence[Said]) -> Iterator[_Line]:
    texts = [_prose(one) for one in said]
    weights = Counter(found for text in texts for found in set(stems(text)))
    place = 0
    for one, text in zip(said, texts, strict=True):
        trust = {"thought": 0.5, "action": 0.7, "observation": 0.8}.get(one.type, 1.0)
        for part in sentences(text):
            place += 1
            yield _Line(place, _who(one), part[:_SENTENCE_CHARACTERS], _worth(part, weights, trust))


def _worth(sentence: str, weights: Counter[str], trust: float) -> float:
    """Of a sentence: its words' share in the run, and what it decides, promises and counts."""
    found = set(stems(sentence))
    if not found:
        return 0.0
    central = sum(math.log(1 + weights[one]) for one in found) / math.sqrt(len(found) + 4)
    signs = (
        0.8 * bool(_DECIDES.search(sentence))
        + 0.6 * bool(_FIGURE.search(sentence))
        + 0.4 * bool(_COMMITS.search(sentence))
        + 0.4 * bool(_WEIGHS.search(sentence))
        - 0.5 * sentence.endswith("?")
    )
    return trust * (central + signs)


def _chosen(lines: Sequence[_Line], room: int) -> list[_Line]:
    kept: list[_Line] = []
    for line in sorted(lines, key=lambda one: (-one.worth, one.place)):
        size = len(line.text) + len(line.who) + 3
        if line.worth > 0 and size <= room:
            kept.append(line)
            room -= size
    return sorted(kept, key=lambda one: one.place)


def _told(lines: Sequence[_Line]) -> str:
    told: list[str] = []
    who = ""
    for line in lines:
        told.append(line.text if line.who == who else f"{line.who}: {line.text}")
        who = line.who
    return " ".join(told)


def _who(said: Said) -> str:
    return said.speaker.split(":", 1)[-1] if said.speaker else said.role


def _prose(said: Said) -> str:
    """What is said; of a log or a table its first line."""
    table = said.type == "upload" or said.text.count("\n") > _TABLE_LINES
    return said.text.strip().split("\n", 1)[0][:80] if table else said.text[:_PROSE]


def _weights(texts: Sequence[str]) -> Counter[str]:
    """How much a stem says about the run: the events that hold it, the first of them twice."""
    weights = Counter(found for text in texts for found in set(stems(text)))
    weights.update(set(stems(texts[0])) if texts else ())
    return weights


def _phrases(text: str, without: set[str]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Runs of words that can stand in a name for a topic, and whether an article leads them."""
    for part in _MARKS.split(text):
        run: list[str] = []
        lead = ""
        for word in [*WORD.findall(part), ""]:
            if word and _tells(word) and bare(word) not in without:
                run.append(word)
                continue
            if run:
                yield tuple(run[-_PHRASE:]), lead in listed("articles")
            run, lead = [], word.lower()


def _tells(word: str) -> bool:
    """A word that can be part of a topic's name: as far as its form shows, a noun or what describes
    one."""
    plain = bare(word)
    return (
        2 < len(plain) <= _WORD_CHARACTERS
        and not plain[0].isdigit()
        and "'" not in plain
        and not any(plain in listed(words) for words in ("stop", "openers", "does", "calendar"))
        and not (plain.endswith(("ed", "ly")) and len(plain) > 4 and word.islower())
    )


def _named(ranked: Sequence[tuple[float, tuple[str, ...]]]) -> str:
    """The best phrase; a single word with the best that shares none with it."""
    if not ranked:
        return ""
    best = ranked[0][1]
    if len(best) > 1:
        return _shown(best)
    heads = {stem(bare(word)) for word in best}
    for value, phrase in ranked[1:]:
        if value >= ranked[0][0] / 3 and not heads & {stem(bare(word)) for word in phrase}:
            return f"{_shown(best)} and {_shown(phrase)}"
    return _shown(best)


def _shown(phrase: Iterable[str]) -> str:
    return " ".join(re.sub(r"['’]s$", "", word) for word in phrase)  # noqa: RUF001


def _opening(texts: Sequence[str]) -> str:
    """The first words that were said, where no phrase is found."""
    words = texts[0].split() if texts else []
    return " ".join(words[:6]).strip(".,:;!?")[:200] or "Untitled"
