"""Near-duplicates in an answer: events that say the same in the same words share one place."""

import re
import string
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.recall.features import CandidateEvent, QuestionWord
from strandline.recall.relevance import ScoredEvent

_MAX_BYTES = 1_000_000
"""The maximum size of the texts that are compared, those of the best events first."""
_SIZE_SHARE, _SIZE_BYTES = 0.1, 16
_COSINE_DISTANCE = 0.1
"""How much near-duplicates differ in size and in their cosine with the question, at most."""
_MIN_CHARS = 20
"""A shorter message answers what came before it: "Yes, please." is another fact each time."""
# An id of six or more hexadecimal digits, or a number with its separators.
_NUMBER = re.compile(r"\b(?=[a-f-]*\d)[\da-f][\da-f-]{5,}\b|\d+(?:[.,:/-]\d+)*", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_SPACE_OR_DIGIT = re.compile(r"[\s\d]")
_EDGES = "\"'.,;:!…()[]“”‘’"  # noqa: RUF001
"""The punctuation that two texts may differ in, at the edges of words. A question mark is not part
of it, nor are the signs of -5, C++ and C#."""
_IGNORED_BYTES = f"{_EDGES}{string.hexdigits}{string.whitespace}\x1c\x1d\x1e\x1f.,:/-#".encode()
"""What may differ in near-duplicates, at any place."""
_ASKS_NUMBER = re.compile(
    r"\b(?:how (?:many|much|long|often|far|old|big|high)"
    r"|(?:what|which) (?:\w+ )?(?:number|price|version|amount|temperature)s?)\b",
    re.IGNORECASE,
)
_ASKS_TIME = re.compile(
    r"\b(?:when|since|until|how (?:early|late)"
    r"|(?:what|which) (?:\w+ )?(?:time|date|day|week|month|year)s?)\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\d\d?[:.]\d\d\b|\d{4}-\d\d|\d\d?[./]\d\d?[./]|\d ?(?:am|pm|o'clock|uhr)\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_RELATIVE_DAY = re.compile(
    r"\b(?:to(?:day|night|morrow)|yesterday|now|this|next|last|ago"
    r"|in \w+ (?:hour|day|week|month)s?|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|morning|afternoon|evening)\b",
    re.IGNORECASE,
)
"""Words that mean another time on another day."""


@dataclass(frozen=True)
class DeduplicatedEvents:
    """Scored events, of which near-duplicates share one place."""

    events: Sequence[ScoredEvent]
    """The events that stand in an answer, in their order. Of near-duplicates it is the newest, in
    the place and with the relevance of the best."""
    similar: Mapping[UUID, Sequence[UUID]] = field(default_factory=dict[UUID, Sequence[UUID]])
    """The near-duplicates of those that have any, newest first, by id."""
    duplicates: Sequence[ScoredEvent] = ()
    """The near-duplicates, in their order."""

    def list_events(self, *, with_duplicates: bool) -> list[ScoredEvent]:
        """The events of an answer; the near-duplicates stand last, where they are asked for."""
        return [*self.events, *(self.duplicates if with_duplicates else ())]

    @property
    def duplicate_ids(self) -> set[UUID]:
        """The ids of the near-duplicates."""
        return {event.candidate.event_id for event in self.duplicates}


@dataclass(frozen=True)
class _EventTextRow:
    event_id: UUID
    content: str


def collapse_near_duplicates(
    access: TenantDb,
    events: Sequence[ScoredEvent],
    words: Sequence[QuestionWord],
    question: str,
    limit: int,
) -> DeduplicatedEvents:
    """Put near-duplicates of scored events in one place, best first; `limit` events are shown.
    Texts are read only if one of these may have a near-duplicate, in one statement; if it has one,
    in another those of all events.

    What one speaker wrote is near-duplicate if it is equal but for upper case, white space and
    punctuation; what an agent or a tool wrote, also if it is equal but for numbers, times and ids.
    Numbers count where the question names one. Those of an agent also count where it asks for one,
    or for a time and the text holds one.
    """
    numbers = sum(1 << n for n, word in enumerate(words) if _DIGIT.search(word.text))
    possible = _list_possible_duplicates(events, numbers, limit)
    if not possible or not _may_contain_duplicates(_read_texts(access, possible)):
        return DeduplicatedEvents(events)
    asks_number, asks_time = _ASKS_NUMBER.search(question), _ASKS_TIME.search(question)
    texts = _read_texts(access, events)
    groups: dict[object, list[ScoredEvent]] = defaultdict(list)
    for event in events:
        candidate = event.candidate
        text = texts.get(candidate.event_id)
        keeps_numbers = bool(asks_number or (asks_time and text and _TIME.search(text)))
        key = text and make_near_duplicate_key(
            text, candidate.author, candidate.said_on, keeps_numbers=keeps_numbers
        )
        groups[
            (_get_traits_shared_by_duplicates(event, numbers), key) if key else candidate.event_id
        ].append(event)
    leaders: list[ScoredEvent] = []
    similar: dict[UUID, Sequence[UUID]] = {}
    for group in groups.values():
        newest_first = sorted(group, key=_get_time_and_id, reverse=True)
        newest, others = newest_first[0], newest_first[1:]
        best = max(group, key=lambda event: event.score)
        leaders.append(newest._replace(score=best.score, relevance=best.relevance))
        if others:
            similar[newest.candidate.event_id] = [event.candidate.event_id for event in others]
    duplicate_ids = {event_id for ids in similar.values() for event_id in ids}
    duplicates = [event for event in events if event.candidate.event_id in duplicate_ids]
    return DeduplicatedEvents(leaders, similar, duplicates)


def _may_contain_duplicates(texts: Mapping[UUID, str]) -> bool:
    """Whether two of these texts are equal but for what near-duplicates may differ in, and maybe
    more: that is quicker to tell than their keys are made."""
    plain = (text if text.isascii() else _SPACE_OR_DIGIT.sub("", text) for text in texts.values())
    letters = {text.casefold().encode().translate(None, _IGNORED_BYTES) for text in plain}
    return len(letters) < len(texts)


def make_near_duplicate_key(
    text: str, author: str | None, said_on: date, *, keeps_numbers: bool
) -> str:
    """What near-duplicates have in common, empty if a text has none. `author` is `agent`, `tool`
    or None for a person; `keeps_numbers` keeps an agent's numbers apart, as a person's are."""
    if author == "tool" or (author == "agent" and not keeps_numbers):
        plain = " ".join(_NUMBER.sub("#", text.casefold()).split())
        is_telling = any(map(str.isalpha, plain))
    else:
        plain = " ".join(filter(None, (word.strip(_EDGES) for word in text.casefold().split())))
        is_telling = True
    if not is_telling or (author != "tool" and len(plain) < _MIN_CHARS):
        return ""
    if author != "tool" and _RELATIVE_DAY.search(text):
        return f"{plain} {said_on}"
    return plain


def _list_possible_duplicates(
    events: Sequence[ScoredEvent], numbers: int, limit: int
) -> list[ScoredEvent]:
    """The events of the kind, about the size and about the cosine of one of the first `limit`, and
    those of these that have such. That costs no statement."""
    kinds = [_get_traits_shared_by_duplicates(event, numbers) for event in events]
    by_kind: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for n, (event, kind) in enumerate(zip(events, kinds, strict=True)):
        if event.candidate.text_bytes:
            by_kind[kind].append((event.candidate.text_bytes, n))
    for sizes in by_kind.values():
        sizes.sort()
    possible: set[int] = set()
    for n, (event, kind) in enumerate(zip(events[:limit], kinds, strict=False)):
        size = event.candidate.text_bytes
        distance, sizes = _SIZE_BYTES + _SIZE_SHARE * size, by_kind.get(kind, [])
        similar = [
            other
            for _, other in sizes[
                bisect_left(sizes, (size - distance, 0)) : bisect_left(
                    sizes, (size + distance, len(events))
                )
            ]
            if other != n and _may_be_duplicates(event.candidate, events[other].candidate)
        ]
        if similar:
            possible.update(similar, [n])
    return [events[n] for n in sorted(possible)]


def _get_traits_shared_by_duplicates(event: ScoredEvent, numbers: int) -> tuple[object, ...]:
    """What near-duplicates agree in besides their text: who speaks, which numbers of the question
    they hold, and how they match its dates."""
    candidate = event.candidate
    return (
        candidate.author,
        candidate.speaker,
        candidate.is_statement,
        candidate.word_bits & numbers,
        event.features.date,
    )


def _may_be_duplicates(one: CandidateEvent, other: CandidateEvent) -> bool:
    """Whether these two candidates hold the same words of the question, and are as near to it."""
    if one.word_bits and other.word_bits and one.word_bits != other.word_bits:
        return False
    if one.cosine is None or other.cosine is None:
        return True
    return abs(one.cosine - other.cosine) <= _COSINE_DISTANCE


def _get_time_and_id(event: ScoredEvent) -> tuple[datetime, UUID]:
    return event.candidate.said_at, event.candidate.event_id


def _read_texts(access: TenantDb, events: Sequence[ScoredEvent]) -> Mapping[UUID, str]:
    """The texts of the events, the best first, as many as may be compared."""
    event_ids: list[UUID] = []
    room = _MAX_BYTES
    for event in events:
        room -= event.candidate.text_bytes
        if room < 0:
            break
        if event.candidate.text_bytes:
            event_ids.append(event.candidate.event_id)
    rows = access.fetch(
        _EventTextRow,
        """
        select e.event_id, e.content
        from unnest(%(event_ids)s::uuid[]) wanted (event_id)
        cross join lateral (  -- by key: the planner may read all events for a join
            select e.event_id, e.content from events e
            where e.tenant_id = current_tenant() and e.event_id = wanted.event_id
                and e.erased_at is null and e.content is not null offset 0) e
        """,
        {"event_ids": event_ids},
    )
    return {row.event_id: row.content for row in rows}
