"""Whether what an extraction states is in the words of the chain's events."""

import re
from collections.abc import Collection, Iterable, Iterator

from strandline.graph.nodes.identity import normalise_name
from strandline.graph.promotion.store import EvidenceEvent
from strandline.llm.heuristic.statements import capitalize_display_name
from strandline.llm.heuristic.words import WORD, iter_stems
from strandline.llm.types import GraphExtraction

_MIN_GROUNDED = 0.5
"""The least share of a statement's stems that its events must hold."""
_MAX_FREE_NUMBER = 100
"""Numbers up to this one may be people's words, or parts of a date that the model worked out."""
_YEARS = range(1900, 2101)
_NUMBER = re.compile(r"\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\d{3})+(?!\d)|\d+")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^\w]+(?=\d)")


def list_invented_words(
    extraction: GraphExtraction, events: Collection[EvidenceEvent], participants: Iterable[str]
) -> frozenset[str]:
    """The capitalised words of names in an extraction that are in none of the chain's events, which
    the name of no participant or role explains either."""
    roles = {word for event in events for word in (event.role, event.type, event.origin)}
    known = normalise_name(" ".join([*(event.text for event in events), *participants, *roles]))
    return frozenset(
        word
        for name in _iter_names(extraction)
        for token in WORD.findall(name)
        if token[0].isupper()
        and any(iter_stems(token))
        and (word := normalise_name(token)) not in known
    )


def is_grounded(
    text: str, events: Collection[EvidenceEvent], invented_words: frozenset[str]
) -> bool:
    """Whether the events hold at least half of a statement's words, and its larger numbers, and
    whether the statement has no invented word."""
    speakers = {capitalize_display_name(event.speaker) for event in events if event.speaker}
    source = " ".join([*speakers, *(event.text for event in events)])
    stems = set(iter_stems(text))
    return (
        len(stems & set(iter_stems(source))) >= _MIN_GROUNDED * len(stems)
        and all(number in _BETWEEN_DIGITS.sub("", source) for number in _iter_large_numbers(text))
        and invented_words.isdisjoint(map(normalise_name, WORD.findall(text)))
    )


def _iter_names(extraction: GraphExtraction) -> Iterator[str]:
    yield from (entity.name for entity in extraction.entities)
    for statement in (*extraction.facts, *extraction.decisions):
        yield from statement.about
    for relation in extraction.relations:
        yield from (relation.source, relation.target)


def _iter_large_numbers(text: str) -> Iterator[str]:
    """The digits of a text's whole numbers; small ones and years are left out."""
    for number in _NUMBER.findall(text):
        digits = re.sub(r"\D", "", number)
        if len(digits) > 4 or (int(digits) > _MAX_FREE_NUMBER and int(digits) not in _YEARS):
            yield digits


def contains_name(text: str, name: str) -> bool:
    """Whether a text contains a name as whole words. Both must be normalised."""
    start = text.find(name)
    while start >= 0:
        around = text[max(0, start - 1) : start] + text[start + len(name) :][:1]
        if not any(letter.isalnum() for letter in around):
            return True
        start = text.find(name, start + 1)
    return False


def is_speaker(event: EvidenceEvent, name: str) -> bool:
    """Whether somebody of this normalised name says the event."""
    return (
        event.speaker is not None and normalise_name(capitalize_display_name(event.speaker)) == name
    )
