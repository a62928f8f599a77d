"""Whether what an extraction states is in the words of the chain's events."""

import re
from collections.abc import Collection, Iterable, Iterator

from strandline.graph.nodes.identity import normalise_name
from strandline.graph.promotion.store import EvidenceEvent
from strandline.llm.heuristic.statements import capitalize_display_name
from strandline.llm.heuristic.words import (
    GENITIVE,
    WORD,
    is_ordinary,
    is_script_without_spaces,
    iter_stems,
    lowercase_word,
)
from strandline.llm.types import GraphExtraction

_MIN_GROUNDED = 0.5
"""The least share of a statement's stems that its events must hold."""
_MAX_FREE_NUMBER = 100
"""Numbers up to this one may be people's words, or parts of a date that the model worked out."""
_YEARS = range(1900, 2101)
_NUMBER = re.compile(r"\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\d{3})+(?!\d)|\d+")
_SCALED = re.compile(
    r"(?<![\d.,])(\d{1,6}(?:[.,]\d{1,2})?) ?"
    r"(?:(k|thousand|tausend|mil)|mio|mln|milli[o\u00f3]n\w*)\b",
    re.IGNORECASE,
)
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_DIGIT = re.compile(r"\d")
_JOINT = re.compile(r"[-./_]")
_MIN_INFLECTED = 4
"""From so many letters on, a word may differ in its last one."""
_LONGEST_ENDING = 3
"""Letters that a case may add to a name."""
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^\w]+(?=\d)")


def list_invented_words(
    extraction: GraphExtraction, events: Collection[EvidenceEvent], participants: Iterable[str]
) -> frozenset[str]:
    """The capitalised words of names in an extraction that are in none of the chain's events, which
    the name of no participant or role explains either."""
    roles = {word for event in events for word in (event.role, event.type, event.origin)}
    known = lowercase_word(
        normalise_name(" ".join([*(event.text for event in events), *participants, *roles]))
    )
    return frozenset(
        word
        for name in _iter_names(extraction)
        for part in _iter_words(name)
        if part[0].isupper() and any(iter_stems(part))
        if not _is_known(word := _to_compared_word(part), known)
    )


def is_grounded(
    text: str, events: Collection[EvidenceEvent], invented_words: frozenset[str]
) -> bool:
    """Whether the events hold at least half of a statement's words, and its larger numbers, and
    whether the statement has no invented word."""
    speakers = {capitalize_display_name(event.speaker) for event in events if event.speaker}
    source = " ".join([*speakers, *(event.text for event in events)])
    numbers = _write_ascii_digits(source)
    digits = " ".join([_BETWEEN_DIGITS.sub("", numbers), *_iter_scaled_numbers(numbers)])
    stems = set(iter_stems(text))
    return (
        len(stems & set(iter_stems(source))) >= _MIN_GROUNDED * len(stems)
        and all(number in digits for number in _iter_large_numbers(text))
        and invented_words.isdisjoint(
            _to_compared_word(part)
            for part in _iter_words(text)
            # What stands for a name in a list may be an ordinary word in a sentence.
            if part[0].isupper() or not is_ordinary(part)
        )
    )


def _iter_words(text: str) -> Iterator[str]:
    """The words of a text without genitives; of a compound its parts, unless it has a number, as in
    GPT-4."""
    for token in WORD.findall(text):
        word = GENITIVE.sub("", token)
        yield from [word] if _DIGIT.search(word) else filter(None, _JOINT.split(word))


def _to_compared_word(word: str) -> str:
    return lowercase_word(normalise_name(word))


def _is_known(word: str, known: str) -> bool:
    """Whether a text has a word, or one with letters beyond ASCII in another case, where the last
    letter differs: Мария, Марии."""
    return _strip_case_ending(word) in known


def _strip_case_ending(word: str) -> str:
    return word[:-1] if len(word) >= _MIN_INFLECTED and not word.isascii() else word


def list_words(texts: Iterable[str]) -> frozenset[str]:
    """The different words of normalised texts."""
    return frozenset(lowercase_word(word) for text in texts for word in _iter_words(text))


def has_forms_of_name(words: Collection[str], name: str) -> bool:
    """Whether each word of a normalised name is among these, there perhaps with an ending."""
    parts = [part for part in map(lowercase_word, _iter_words(name)) if any(iter_stems(part))]
    return bool(parts) and all(
        any(
            word.startswith(_strip_case_ending(part)) and len(word) <= len(part) + _LONGEST_ENDING
            for word in words
        )
        for part in parts
    )


def _iter_names(extraction: GraphExtraction) -> Iterator[str]:
    yield from (entity.name for entity in extraction.entities)
    for statement in (*extraction.facts, *extraction.decisions):
        yield from statement.about
    for relation in extraction.relations:
        yield from (relation.source, relation.target)


def _iter_large_numbers(text: str) -> Iterator[str]:
    """The digits of a text's whole numbers; small ones and years are left out."""
    for number in _NUMBER.findall(_write_ascii_digits(text)):
        digits = re.sub(r"\D", "", number)
        if len(digits) > 4 or (int(digits) > _MAX_FREE_NUMBER and int(digits) not in _YEARS):
            yield digits


def _iter_scaled_numbers(text: str) -> Iterator[str]:
    """The digits of numbers with a word for thousands or millions, as in 1.5k."""
    for number, thousand in _SCALED.findall(text):
        yield f"{float(number.replace(',', '.')) * (1e3 if thousand else 1e6):.0f}"


def _write_ascii_digits(text: str) -> str:
    """A text with the digits of every script as 0 to 9."""
    return _OTHER_DIGIT.sub(lambda digit: str(int(digit[0])), text)


def contains_name(text: str, name: str) -> bool:
    """Whether a text contains a name as whole words, where its script has spaces between words.
    Both must be normalised."""
    text, name = lowercase_word(text), lowercase_word(name)  # also with straight apostrophes
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not any(
            side.isalnum() and not is_script_without_spaces(side + edge)
            for side, edge in (
                (text[max(0, start - 1) : start], name[:1]),
                (text[end:][:1], name[-1:]),
            )
        ):
            return True
        start = text.find(name, start + 1)
    return False


def is_speaker(event: EvidenceEvent, name: str) -> bool:
    """Whether somebody of this normalised name says the event."""
    return (
        event.speaker is not None and normalise_name(capitalize_display_name(event.speaker)) == name
    )
