"""Echoes: events that mostly repeat what a recall returned to their participants shortly before.
Recalled memory that is written back is not new evidence."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains.decisions import Decision

ECHO_WINDOW = timedelta(hours=24)
"""How long after a recall an event may count as an echo of its answer."""
MIN_TRIPLES = 4
"""A text with fewer distinct word triples than this is never an echo: it cannot be told apart from
chance."""
MIN_SHARE = 0.5
"""A text is an echo if more than this share of its triples was in recalled events."""
NO_USER = "*"
"""The writer of credentials that are not bound to a user."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class EventText:
    """An event to fold."""

    event_id: UUID
    seq: int
    writer: str
    recorded_at: datetime
    text: str


@dataclass(frozen=True)
class RecalledText:
    """An event that recalls returned to one writer, and the times."""

    event_id: UUID
    writer: str
    times: Sequence[datetime]
    text: str


def hash_trigrams(text: str) -> set[int]:
    """The hashes of all sequences of three words. They are valid only in this process."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return {hash(triple) for triple in zip(words, words[1:], words[2:], strict=False)}


def find_echoes(
    texts: Sequence[EventText], sources: Sequence[RecalledText]
) -> dict[UUID, Decision]:
    """Decide which events are echoes. Returns the decisions by event.

    The answer of a user's recall counts as given to this user and to unbound writers; that of an
    unbound writer's recall counts as given to everyone.
    """
    places: Mapping[int, list[int]] = defaultdict(list)
    for n, source in enumerate(sources):
        for triple in hash_trigrams(source.text):
            places[triple].append(n)
    decisions: dict[UUID, Decision] = {}
    for item in texts:
        numbers = {n for n, source in enumerate(sources) if _was_given_to_writer(source, item)}
        own = hash_trigrams(item.text) if numbers else set[int]()
        if len(own) < MIN_TRIPLES:
            continue
        share = sum(any(n in numbers for n in places.get(triple, ())) for triple in own) / len(own)
        if share > MIN_SHARE:
            body = {"share": round(share, 4)}
            decisions[item.event_id] = Decision(item.event_id, "echo", 0, item.seq, body)
    return decisions


def _was_given_to_writer(source: RecalledText, item: EventText) -> bool:
    if source.event_id == item.event_id:
        return False
    if source.writer != item.writer and NO_USER not in (source.writer, item.writer):
        return False
    return any(item.recorded_at - ECHO_WINDOW < at <= item.recorded_at for at in source.times)
