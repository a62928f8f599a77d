"""Echoes: events that mostly repeat what a recall gave their participants shortly before. What came
out of memory is no new evidence when it comes back in."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains.decisions import Decision

ECHO_WINDOW = timedelta(hours=24)
"""How long after a recall its answer's words may echo."""
MIN_TRIPLES = 4
"""A text of fewer different triples of words is never an echo: too little tells it from chance."""
MIN_SHARE = 0.5
"""A text is an echo if more than this share of its triples was given."""
NO_USER = "*"
"""The writer of credentials that are bound to nobody."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class EventText:
    """An event to be folded."""

    event_id: UUID
    seq: int
    writer: str
    recorded_at: datetime
    text: str


@dataclass(frozen=True)
class RecalledText:
    """An event that recalls by one writer gave, and when."""

    event_id: UUID
    writer: str
    times: Sequence[datetime]
    text: str


def triples(text: str) -> set[int]:
    """The hashes of all three words that follow each other; of no use in another process."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return {hash(triple) for triple in zip(words, words[1:], words[2:], strict=False)}


def find_echoes(
    texts: Sequence[EventText], sources: Sequence[RecalledText]
) -> dict[UUID, Decision]:
    """The decisions about those events that are echoes, by event.

    A user's recall gives to this user alone, and to those who write for anybody; a recall that was
    made for anybody gives to all.
    """
    places: Mapping[int, list[int]] = defaultdict(list)
    for n, source in enumerate(sources):
        for triple in triples(source.text):
            places[triple].append(n)
    decisions: dict[UUID, Decision] = {}
    for item in texts:
        numbers = {n for n, source in enumerate(sources) if _was_given_to(source, item)}
        own = triples(item.text) if numbers else set[int]()
        if len(own) < MIN_TRIPLES:
            continue
        share = sum(any(n in numbers for n in places.get(triple, ())) for triple in own) / len(own)
        if share > MIN_SHARE:
            body = {"share": round(share, 4)}
            decisions[item.event_id] = Decision(item.event_id, "echo", 0, item.seq, body)
    return decisions


def _was_given_to(source: RecalledText, item: EventText) -> bool:
    if source.event_id == item.event_id:
        return False
    if source.writer != item.writer and NO_USER not in (source.writer, item.writer):
        return False
    return any(item.recorded_at - ECHO_WINDOW < at <= item.recorded_at for at in source.times)
