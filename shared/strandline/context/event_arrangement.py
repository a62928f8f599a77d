"""Which events a context shows beside those that answer the question, and in which order."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from strandline.chains.slot_decisions import (
    EarlierText,
    StatementInMessage,
    find_later_statements,
    put_each_after_its_change,
)
from strandline.db.database import TenantDb
from strandline.graph.search.store_knowledge import list_statements_of_ended_facts
from strandline.log.store import Event
from strandline.recall.store import SessionNeighbour, read_visible_events

_LONG_CHARS = 400
"""A longer event says enough on its own: what stands beside it takes the room of another."""
_SHORT_CHARS = 40
"""A shorter event is shown with the one before it, because it says little on its own."""
_REPLY_CHARS = 100
"""A shorter event that follows a question is shown with it, because it may be its answer."""
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_MAX_EVENTS = 50
"""How many of the best events are looked at."""


def find_outdated_statement_ids(
    access: TenantDb, events: Iterable[Event], as_of: datetime | None
) -> set[UUID]:
    """Those of these events that are statements of facts which hold no longer, now or at
    `as_of`."""
    event_ids = [event.event_id for event in events if event.type == "statement"]
    return list_statements_of_ended_facts(access, event_ids, as_of)


def find_statements_changing_events(
    access: TenantDb,
    event_ids: Sequence[UUID],
    events: Mapping[UUID, Event],
    as_of: datetime | None,
) -> Mapping[UUID, StatementInMessage]:
    """The newest visible statement, by `as_of`, that may have changed what one of the first of
    these events states, by event."""
    shown_events = [events[event_id] for event_id in event_ids[:_MAX_EVENTS] if event_id in events]
    texts = [
        EarlierText(
            event.event_id, event.speaker, get_occurred_or_recorded_time(event), event.content
        )
        for event in shown_events
        if event.content
    ]
    return find_later_statements(access, texts, as_of)


def get_occurred_or_recorded_time(event: Event) -> datetime:
    """When an event happened; if it does not state this, when it was recorded."""
    return event.occurred_at or event.recorded_at


def put_events_after_their_changes(
    access: TenantDb,
    event_ids: Sequence[UUID],
    events: dict[UUID, Event],
    later: Mapping[UUID, StatementInMessage],
) -> list[UUID]:
    """The events in their order of preference, without statements that repeat one before them. Each
    is directly after the one of `later` that may have changed what it states, so that a budget cuts
    off neither alone. Adds such events to `events` if they are missing there."""
    joined_ids = _insert_changing_statements(access, event_ids, events, later)
    return _drop_repeated_statements(joined_ids, events)


def _drop_repeated_statements(
    event_ids: Iterable[UUID], events: Mapping[UUID, Event]
) -> list[UUID]:
    id_by_content: dict[object, UUID] = {}
    for event_id in event_ids:
        event = events[event_id]
        is_statement = event.type == "statement" and event.content
        id_by_content.setdefault(
            (event.speaker, event.content) if is_statement else event_id, event_id
        )
    return list(id_by_content.values())


def _insert_changing_statements(
    access: TenantDb,
    event_ids: Sequence[UUID],
    events: dict[UUID, Event],
    later: Mapping[UUID, StatementInMessage],
) -> list[UUID]:
    changed_by = {one: said.event.event_id for one, said in later.items()}
    missing = set(changed_by.values()) - events.keys()
    if missing:
        events.update(read_visible_events(access, sorted(missing)))
    return put_each_after_its_change(event_ids, changed_by, events)


def add_neighbours(
    best: Sequence[UUID],
    events: Mapping[UUID, Event],
    neighbours: Sequence[SessionNeighbour],
    around: int,
) -> list[UUID]:
    """The best events with their neighbours: each of the first `around` events with the one before
    it and the two after it, because an answer is often found there in other words than the
    question's; each of the others, unless it is long, with the one before it only if it is short,
    or rather short and follows a question, and with the one after it only if it asks a question
    itself. A neighbour that says nothing is left out, unless it is the question before."""
    near = {
        (event.of_id, event.place): event
        for event in neighbours
        if not event.says_nothing or (event.place < 0 and _is_question(event))
    }
    ids: list[UUID] = []
    for n, event_id in enumerate(best):
        event, earlier = events.get(event_id), near.get((event_id, -1))
        if event is None:
            continue
        ids.append(event_id)
        text = (event.content or "").strip()
        if n >= around and len(text) > _LONG_CHARS:
            continue
        is_unclear = bool(text) and (
            len(text) < _SHORT_CHARS or (len(text) < _REPLY_CHARS and _is_question(earlier))
        )
        if earlier and (n < around or is_unclear):
            ids.append(earlier.event_id)
        later = [near.get((event_id, 1)), near.get((event_id, 2))]
        ids += [event.event_id for event in later if event]
    return list(dict.fromkeys(ids))


def _is_question(event: Event | None) -> bool:
    return event is not None and (event.content or "").rstrip().endswith(_QUESTION_MARKS)
