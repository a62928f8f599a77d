"""SQL for what people state of themselves: the messages, and the folds' decisions about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.llm.heuristic.slots import MAX_CHARACTERS

_MAX_DECISIONS = 200
"""How many of the newest decisions about one person are read."""
_MAX_TAIL_SCOPES, _MAX_TAIL_EVENTS = 100, 200
"""How many scopes with events that are not folded yet, and of these events, are read: the
newest."""


@dataclass(frozen=True)
class SlotEvent:
    """A user message."""

    event_id: UUID
    scope_id: UUID
    seq: int
    speaker: str
    origin: str
    said_at: datetime
    recorded_at: datetime
    text: str
    statements: list[dict[str, Any]] | None
    """What it states, as the fold decided; None if it is not folded yet."""


def read_spoken(access: TenantDb, event_ids: Sequence[UUID]) -> Sequence[SlotEvent]:
    """Those of these events that are messages of users with a text, by seq."""
    if not event_ids:
        return []
    return access.fetch(
        SlotEvent,
        """
        select e.event_id, e.scope_id, e.seq, e.speaker, e.origin,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            left(e.content, %(max_chars)s) as text, null::jsonb as statements
        from events e
        where e.event_id = any (%(event_ids)s) and e.role = 'user' and e.type = 'message'
            and starts_with(e.speaker, 'user:') and e.content is not null
            and e.erased_at is null
        order by e.seq
        """,
        {"event_ids": list(event_ids), "max_chars": MAX_CHARACTERS},
    )


def list_events(
    access: TenantDb, subjects: Sequence[str], scope_id: UUID | None
) -> Sequence[SlotEvent]:
    """The visible messages in which these people state something of themselves, in no order; and
    the newest messages of anybody that are not folded yet. With `scope_id` only the folded ones of
    this scope."""
    return access.fetch(
        SlotEvent,
        """
        with told as (
            select d.event_id, d.body -> 'statements' as statements
            from unnest(%(subjects)s::text[]) s (name)
            cross join lateral (
                select d.event_id, d.body from decisions d
                where d.tenant_id = current_tenant() and d.subject = s.name
                    and (%(scope_id)s::uuid is null or d.scope_id = %(scope_id)s)
                order by d.decided_at desc limit %(max_decisions)s) d),
        tail as (
            select e.event_id from (
                select w.scope_id from scope_work w
                where w.tenant_id = current_tenant() and %(scope_id)s::uuid is null
                order by w.due_at desc limit %(max_scopes)s) w
            cross join lateral (
                select s.max_folded_seq from scopes s
                where s.tenant_id = current_tenant() and s.scope_id = w.scope_id offset 0) s
            cross join lateral (
                select e.event_id, e.recorded_at from events e
                where e.tenant_id = current_tenant() and e.scope_id = w.scope_id
                    and e.seq > s.max_folded_seq and e.role = 'user' and e.type = 'message'
                order by e.seq desc limit %(max_events)s) e
            order by e.recorded_at desc limit %(max_events)s)
        select e.event_id, e.scope_id, e.seq, e.speaker, e.origin,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            left(e.content, %(max_chars)s) as text, t.statements
        from (
            select event_id, statements from told
            union all
            select event_id, null::jsonb from tail) t
        cross join lateral (
            select * from events e
            where e.tenant_id = current_tenant() and e.event_id = t.event_id
                and starts_with(e.speaker, 'user:') and e.content is not null
                and e.erased_at is null offset 0) e
        """,
        {
            "subjects": list(subjects),
            "scope_id": scope_id,
            "max_decisions": _MAX_DECISIONS,
            "max_scopes": _MAX_TAIL_SCOPES,
            "max_events": _MAX_TAIL_EVENTS,
            "max_chars": MAX_CHARACTERS,
        },
    )
