"""Describes a run of events: the sentence that says most, a noun phrase that names it, and how
important it is."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from strandline.llm.heuristic.sentences import MAX_EVENT_CHARACTERS, is_log_or_table
from strandline.llm.heuristic.words import (
    GENITIVE,
    WORD,
    is_english,
    iter_stems,
    lowercase_without_genitive,
    lowercase_word,
    split_sentences,
    tokenize,
    word_list,
)
from strandline.llm.types import MAX_TOPIC_CHARACTERS, PromptEvent

SUMMARY_CHARACTERS = 240
_MIN_STATEMENT_STEMS = 3
"""A sentence with fewer of them says nothing by itself: Noted, thanks."""
_MAX_PHRASE_WORDS = 5
"""Most words of a topic."""
_MIN_WEIGHT = 3
"""Least weight of a phrase that is a topic; a single word needs one more."""
_WORD_SHARE = 0.5
_NAME_SHARE = 0.75
"""How much a single word, and a name, count beside a phrase as a topic."""
_MAX_WORD_CHARACTERS = 48
"""A longer word is an address, a code or a key, and not part of a topic."""
_TRUST = {"thought": 0.5, "action": 0.7, "observation": 0.8}
"""How much a sentence counts by its event's type; others count 1."""
_PREPOSITIONS = frozenset({"of", "for", "with"})
_NO_TOPIC_LISTS = ("stop", "openers", "does", "calendar", "hails")
_NO_WORD = re.compile(r"[\d_/.']")

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
_IS_KEPT = re.compile(
    r"(?i:\b(?:remember|note|(?:keep|bear) in mind|don['’]t forget)(?: that\b|:)"  # noqa: RUF001
    r"|\bfor (?:the record|emergenc\w+)|\bemergency (?:note|contact)s?\b"
    r"|\b(?:allerg|intoleran|medicat|diagnos)\w+|\bblood (?:type|group)\b"
    r"|\b(?:birthday|anniversary|wedding|funeral)s?\b|\b(?:was|were) born\b|\bg[eo]t\w* married\b)"
    r"|\b[Mm]y [a-z]+(?:-in-law)?,? [A-Z][a-z]+"
)
"""What people want kept long after it was said: what they ask to be remembered, health, the days of
a life, and who somebody is to them by name (my sister Linnea). Once is enough."""
_FIGURE = re.compile(r"\d")
MARKUP = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*(?:#{1,6}|>+|[-*+•]|\d{1,2}[.)])[ \t]+"
    r"|\*\*|__|`|\[([^\[\]\n]{1,200})\]\(\S{1,200}\)",
    re.DOTALL | re.MULTILINE,
)
"""Blocks of code, and Markdown's marks; of a link, its words are the group."""
_CODE = re.compile(r"://|\d:\d\d:\d\d|[{}<>|=\\\[\]]|^\W*[A-Z]{4,}\b")
"""What addresses, log lines, tables and code have, and sentences seldom."""
_MARKS = re.compile(r"(?<![.,:;!?()\"“”…\n—–])[.,:;!?()\"“”…\n—–]+(?:\s|$)")  # noqa: RUF001
"""The end of a phrase. A match begins where marks begin, so a run of marks is read once."""
_PHRASE = re.compile(r"[\w &'’-]+")  # noqa: RUF001


def choose_summary_sentence(events: Sequence[PromptEvent]) -> str:
    """The sentence of the run that says most, in at most SUMMARY_CHARACTERS."""
    texts = [(_strip_markup(event), _TRUST.get(event.type, 1.0)) for event in events]
    first_text = next((text for event in events if (text := event.text.strip())), "")
    return (
        _choose_most_telling_sentence(texts)
        or _shorten_to_summary_length(first_text)
        or f"{len(events)} events without text."
    )


def choose_best_sentence(earlier: str, later: str) -> str:
    """The sentence of both that says most."""
    return _choose_most_telling_sentence([(earlier, 1.0), (later, 1.0)])


def score_importance(events: Sequence[PromptEvent]) -> float:
    """Importance from 0 to 1: one minus the product of (1 - each sign) (docs/chains.md)."""
    texts = [_read_excerpt(event) for event in events if event.type != "thought"]
    is_question = [text.rstrip().endswith("?") for text in texts]
    answered_count = sum(asks and not next_asks for asks, next_asks in pairwise(is_question))
    cap_two, cap_three = (
        max(1, min(cap, len(texts))) for cap in (2, 3)
    )  # for a single event one is enough
    signs = (
        (0.35, sum(bool(_DECIDES.search(text)) for text in texts) / cap_two),
        (0.30, float(any(_IS_KEPT.search(text) for text in texts))),
        (0.25, sum(len(_FIGURE.findall(text)) > 1 for text in texts) / cap_three),
        (0.25, sum(bool(_IS_WEIGHTY.search(text)) for text in texts) / cap_two),
        (0.15, sum(bool(_COMMITS.search(text)) for text in texts) / cap_two),
        (0.10, answered_count),
        (0.15, sum(map(len, texts)) / 1500),
    )
    return round(1 - math.prod(1 - weight * min(1.0, size) for weight, size in signs), 4)


def choose_topic_phrase(events: Sequence[PromptEvent]) -> str | None:
    """The noun phrase of the run that its words support most; None if none has enough support."""
    texts = [text for item in events if item.type != "thought" and (text := _strip_markup(item))]
    if not is_english(texts):
        return None
    weights = _count_texts_by_stem([*texts, choose_summary_sentence(events)])
    speakers = {event.speaker.split(":", 1)[-1].lower() for event in events if event.speaker}
    best_score, topic = 0.0, None
    for position, text in enumerate(texts):
        for phrase in _find_noun_phrases(text, speakers):
            stems = set(iter_stems(phrase))
            weight = sum(weights[key] for key in stems)
            score = weight / (len(stems) + 1) ** 0.6 * (1.0 if position else 1.3)
            score *= _WORD_SHARE if " " not in phrase else _NAME_SHARE if phrase.istitle() else 1.0
            if weight >= _MIN_WEIGHT + (" " not in phrase) and score > best_score:
                best_score, topic = score, phrase
    return topic


def _choose_most_telling_sentence(texts: Sequence[tuple[str, float]]) -> str:
    """The sentence that says most, of texts with how much each counts; "" if there is none."""
    weights = _count_texts_by_stem([text for text, _ in texts])
    ranks = {
        sentence: _rank_sentence(sentence, weights, trust)
        for text, trust in texts
        for sentence in split_sentences(text)
    }
    return _shorten_to_summary_length(max(ranks, key=lambda sentence: ranks[sentence], default=""))


def _rank_sentence(sentence: str, weights: Counter[str], trust: float) -> tuple[bool, float]:
    """Whether it states something, and its score: its words' share in the run; decisions, promises
    and figures; that it is understood by itself."""
    stems = set(iter_stems(sentence))
    is_question_or_code = sentence.endswith(("?", "？", "؟")) or _CODE.search(sentence)  # noqa: RUF001
    central = sum(math.log(1 + weights[key]) for key in stems) / math.sqrt(len(stems) + 4)
    signs = (
        0.8 * bool(_DECIDES.search(sentence))
        + 0.6 * bool(_FIGURE.search(sentence))
        + 0.4 * bool(_COMMITS.search(sentence))
        + 0.4 * bool(_IS_WEIGHTY.search(sentence))
        - 0.8 * (not word_list("pointers").isdisjoint(tokenize(sentence)[:2]))
        - 0.6 * (len(sentence) > SUMMARY_CHARACTERS)
    )
    is_statement = len(stems) >= _MIN_STATEMENT_STEMS and not is_question_or_code
    return is_statement, trust * (central + signs)


def _shorten_to_summary_length(text: str) -> str:
    """The text in at most SUMMARY_CHARACTERS, cut at a word where it has words."""
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    head = text[: SUMMARY_CHARACTERS - 1]
    return f"{head.rpartition(' ')[0] or head}…"


def _read_excerpt(event: PromptEvent) -> str:
    """The text of an event; of a log or a table, its first line."""
    if is_log_or_table(event):
        return event.text.strip().split("\n", 1)[0][:80]
    return event.text[:MAX_EVENT_CHARACTERS]


def _strip_markup(event: PromptEvent) -> str:
    """The readable text of an event without markup."""
    return MARKUP.sub(r"\1", _read_excerpt(event))


def _count_texts_by_stem(texts: Sequence[str]) -> Counter[str]:
    """Weight of each stem: the number of texts that contain it; the first text counts twice."""
    return Counter(token for text in (*texts, *texts[:1]) for token in set(iter_stems(text)))


def _find_noun_phrases(text: str, exclusions: set[str]) -> Iterator[str]:
    """Noun phrases as they stand in the text: names, and the words after an article, a genitive or
    a preposition. A phrase is too long for a topic where its words are, or what stands between
    them, such as a row of hyphens."""
    for part in _MARKS.split(text):
        matches = list(WORD.finditer(part))
        words = [match[0] for match in matches]
        for start in range(1, len(words)):
            end = _find_end_of_noun_phrase(words, start, exclusions)
            phrase = part[matches[start].start() : matches[end - 1].end()]
            fits = len(phrase) <= MAX_TOPIC_CHARACTERS
            if end > start and fits and _PHRASE.fullmatch(phrase):
                yield phrase


def _find_end_of_noun_phrase(words: Sequence[str], start: int, exclusions: set[str]) -> int:
    """The end of the noun phrase that begins at `start`, which is not 0; `start` if none does."""
    before, word_before = words[start - 1], lowercase_word(words[start - 1])
    opens_name = words[start][0].isupper() and not before[0].isupper()
    is_introduced = (
        bool(GENITIVE.search(before)) or _is_determiner(word_before) or _is_preposition(word_before)
    )
    is_question = start == 2 and lowercase_word(words[0]) in word_list("auxiliaries")
    if is_question or not (is_introduced or opens_name):
        return start
    end = start
    while end < min(len(words), start + _MAX_PHRASE_WORDS) and (
        _is_topic_word(words[end], exclusions) and (is_introduced or words[end][0].isupper())
    ):
        end += 1
        is_name = end > start + 1 and words[end - 1][0].isupper() and words[end - 2][0].isupper()
        is_introduced = is_introduced and not is_name
        if _looks_plural(words[end - 1]):
            break
    return end - (end > start and _may_be_verb(words, end - 1, opens_clause=start == 1))


def _may_be_verb(words: Sequence[str], index: int, *, opens_clause: bool) -> bool:
    """Whether a word looks like a verb by what follows: jams again, leaks 2, owns the."""
    word, after = words[index], lowercase_word("".join(words[index + 1 : index + 2]))
    if after in word_list("auxiliaries") | {"is", "are"}:
        return False
    if _looks_plural(word) and (opens_clause or (after and not _is_preposition(after))):
        return True
    return _is_determiner(after) or after[:1].isdigit() or bool(after and word.endswith("ing"))


def _is_determiner(word: str) -> bool:
    """Whether what follows is a noun. Of some, such as "that", it need not be."""
    is_article = word in word_list("articles") and word not in word_list("pointers")
    return is_article and word not in _PREPOSITIONS


def _is_preposition(word: str) -> bool:
    return word in _PREPOSITIONS or word in word_list("where")


def _looks_plural(word: str) -> bool:
    return word.islower() and word.endswith("s") and not word.endswith(("ss", "us", "is"))


def _is_topic_word(word: str, exclusions: set[str]) -> bool:
    """Whether a word can be part of a topic: by its form, a noun or an attribute of one."""
    bare_word = lowercase_without_genitive(word)
    return (
        2 < len(bare_word) <= _MAX_WORD_CHARACTERS
        and bare_word not in exclusions
        and not _NO_WORD.search(lowercase_word(word))
        and not any(
            {bare_word, bare_word.removesuffix("s")} & word_list(name) for name in _NO_TOPIC_LISTS
        )
        and not (bare_word.endswith(("ed", "ly")) and len(bare_word) > 4 and word.islower())
    )
