"""What was said later in the same slot stands beside the events of a context."""

from collections.abc import Sequence
from uuid import UUID

from strandline.chains.later_statements import EarlierText, find_later_statements
from strandline.db.database import TenantDb
from strandline.recall.store import HitEvent, read_hits

_MAX_EVENTS = 40
"""How many of the best events are looked at."""


def put_later_first(
    access: TenantDb, event_ids: Sequence[UUID], events: dict[UUID, HitEvent]
) -> list[UUID]:
    """The events in their order of preference, each directly after the visible event that may have
    changed what it states, so that a budget cuts off neither alone. Adds such events to `events`
    if they are missing there."""
    shown = [events[event_id] for event_id in event_ids[:_MAX_EVENTS] if event_id in events]
    texts = [
        EarlierText(
            event.event_id, event.speaker, event.occurred_at or event.recorded_at, event.content
        )
        for event in shown
        if event.content
    ]
    later = {one: said.event.event_id for one, said in find_later_statements(access, texts).items()}
    missing = set(later.values()) - events.keys()
    if missing:
        events.update(read_hits(access, sorted(missing)))
    ordered = [
        one
        for event_id in event_ids
        for one in (later.get(event_id), event_id)
        if one is not None and one in events
    ]
    return list(dict.fromkeys(ordered))
