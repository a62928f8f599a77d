"""SQL for deferred answers, the turns of the API: what a request asked of the model and did not
wait for, and answers that are stored already."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb

RETENTION = timedelta(days=1)
"""How long a turn is kept after it was finished, or after it was asked for if it was never
answered."""
LEASE_SECONDS = 90
"""How long a worker's lease of a turn lasts: longer than a model may take."""


@dataclass(frozen=True)
class StoredEvent:
    """The contents of an event."""

    event_id: UUID
    scope_id: UUID
    speaker: str | None
    content: str | None
    said_at: datetime
    metadata: dict[str, Any]


def find_event_by_key(access: TenantDb, channel: str, key: str) -> StoredEvent | None:
    """The event that the caller's writer stored under this key; None if there is none."""
    rows = access.fetch(
        StoredEvent,
        """
        select e.event_id, e.scope_id, e.speaker, e.content,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.metadata
        from event_keys k
        join events e on e.tenant_id = k.tenant_id and e.event_id = k.event_id
        where k.tenant_id = current_tenant() and k.writer = current_writer()
            and k.channel = %(channel)s and k.source_event_key = %(key)s
            and e.erased_at is null
        """,
        {"channel": channel, "key": key},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class DeferredAnswer:
    """A turn: what was asked of the model, by whom, its progress, and the answer once it exists."""

    turn_id: UUID
    kind: str
    participants: list[str]
    asked_by: str
    request: dict[str, Any]
    state: str
    reason: str
    attempts: int
    answer: dict[str, Any] | None
    is_leased: bool
    input_id: UUID | None
    answer_id: UUID | None


_TURN = """
    t.turn_id, t.kind, t.participants, t.asked_by, t.request, t.state, t.reason, t.attempts,
    t.answer, coalesce(t.leased_until > now(), false) as is_leased,
    (select e.event_id from turn_events e where e.tenant_id = t.tenant_id
        and e.turn_id = t.turn_id and e.part = 'input') as input_id,
    (select e.event_id from turn_events e where e.tenant_id = t.tenant_id
        and e.turn_id = t.turn_id and e.part = 'answer') as answer_id
"""


def insert_deferred_answer(
    access: TenantDb,
    turn_id: UUID,
    kind: str,
    participants: Sequence[str],
    request: Mapping[str, object],
    input_id: UUID | None,
) -> None:
    """Store a turn to be answered later. In a transaction."""
    params: dict[str, object] = {
        "turn_id": turn_id,
        "kind": kind,
        "participants": list(participants),
        "request": json.dumps(request),
        "input_id": input_id,
    }
    access.execute(
        """
        insert into turns (tenant_id, turn_id, kind, participants, asked_by, request)
        values (current_tenant(), %(turn_id)s, %(kind)s, %(participants)s::text[],
            current_writer(), %(request)s::jsonb)
        """,
        params,
    )
    access.execute(
        """
        insert into turn_events (tenant_id, turn_id, event_id, part, participants)
        select current_tenant(), %(turn_id)s, %(input_id)s::uuid, 'input', %(participants)s::text[]
        where %(input_id)s::uuid is not null
        """,
        params,
    )


def get_deferred_answer(access: TenantDb, turn_id: UUID) -> DeferredAnswer | None:
    """The turn that the caller's writer asked for; None if there is none in view."""
    rows = access.fetch(
        DeferredAnswer,
        f"select {_TURN} from turns t where t.tenant_id = current_tenant()"  # noqa: S608 - a constant
        " and t.turn_id = %(turn_id)s and t.asked_by = current_writer()",
        {"turn_id": turn_id},
    )
    return rows[0] if rows else None


def find_deferred_answer_to_event(access: TenantDb, input_id: UUID) -> DeferredAnswer | None:
    """The newest turn that answers this event; None if there is none in view."""
    rows = access.fetch(
        DeferredAnswer,
        f"select {_TURN} from turns t where t.tenant_id = current_tenant()"  # noqa: S608 - a constant
        " and t.asked_by = current_writer() and t.turn_id in ("
        "select e.turn_id from turn_events e where e.tenant_id = current_tenant()"
        " and e.event_id = %(input_id)s and e.part = 'input')"
        " order by t.created_at desc, t.turn_id desc limit 1",
        {"input_id": input_id},
    )
    return rows[0] if rows else None


def lease_deferred_answer(access: TenantDb, turn_id: UUID) -> DeferredAnswer | None:
    """Lease a waiting turn. Returns None if it is not waiting, or another worker has it. The
    attempt is counted now, so that one that kills its worker counts too."""
    rows = access.fetch(
        DeferredAnswer,
        f"""
        with leased as (
            update turns u set leased_until = now() + make_interval(secs => %(seconds)s),
                due_at = now() + make_interval(secs => %(seconds)s), attempts = u.attempts + 1
            where u.tenant_id = current_tenant() and u.turn_id = %(turn_id)s
                and u.state = 'waiting' and (u.leased_until is null or u.leased_until <= now())
            returning u.*)
        select {_TURN} from leased t
        """,  # noqa: S608 - a constant
        {"turn_id": turn_id, "seconds": LEASE_SECONDS},
    )
    return rows[0] if rows else None


def release_deferred_answer(access: TenantDb, turn_id: UUID) -> None:
    """Release a turn for another worker. In a transaction."""
    access.execute(
        "update turns set leased_until = null, due_at = now() + interval '2 minutes'"
        " where tenant_id = current_tenant() and turn_id = %(turn_id)s and state = 'waiting'",
        {"turn_id": turn_id},
    )


def finish_deferred_answer(
    access: TenantDb,
    turn: DeferredAnswer,
    *,
    reason: str = "",
    answer: Mapping[str, object] | None = None,
    answer_id: UUID | None = None,
    source_ids: Sequence[UUID] = (),
) -> None:
    """Record the outcome of a turn, and the events that it rests on. With a `reason` the turn has
    failed. A turn that is already finished does not change. In a transaction."""
    row_count = access.execute(
        """
        update turns set state = case when %(reason)s = '' then 'done' else 'failed' end,
            reason = %(reason)s, answer = %(answer)s::jsonb, leased_until = null, due_at = null,
            finished_at = now()
        where tenant_id = current_tenant() and turn_id = %(turn_id)s and state = 'waiting'
        """,
        {
            "turn_id": turn.turn_id,
            "reason": reason,
            "answer": None if answer is None else json.dumps(answer),
        },
    )
    parts = [{"event_id": str(event_id), "part": "source"} for event_id in source_ids]
    if answer_id is not None:
        parts.append({"event_id": str(answer_id), "part": "answer"})
    if row_count and parts:
        access.execute(
            """
            insert into turn_events (tenant_id, turn_id, event_id, part, participants)
            select current_tenant(), %(turn_id)s, p.event_id, p.part, %(participants)s::text[]
            from jsonb_to_recordset(%(parts)s::jsonb) p (event_id uuid, part text)
            order by p.event_id
            on conflict do nothing
            """,
            {
                "turn_id": turn.turn_id,
                "participants": turn.participants,
                "parts": json.dumps(parts),
            },
        )


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


def list_events_of_same_chains(access: TenantDb, event_ids: Sequence[UUID]) -> list[UUID]:
    """All events of the visible chains that contain these events."""
    rows = access.fetch(
        _EventId,
        """
        with told as materialized (
            select distinct l.chain_id
            from unnest(%(event_ids)s::uuid[]) w (event_id)
            cross join lateral (  -- by key: the planner may read all links for a join
                select l.chain_id from chain_events l
                where l.tenant_id = current_tenant() and l.event_id = w.event_id offset 0) l)
        select l.event_id from told
        cross join lateral (
            select l.event_id from chain_events l
            where l.tenant_id = current_tenant() and l.chain_id = told.chain_id offset 0) l
        """,
        {"event_ids": list(event_ids)},
    )
    return [row.event_id for row in rows]


def list_due_tenants(connection: Connection, now: datetime) -> list[str]:
    """Ids of the tenants that have turns of which the worker must be notified again."""
    return fetch_tenant_ids(connection, "select * from tenants_with_turns(%s)", (now,))


@dataclass(frozen=True)
class _TurnId:
    turn_id: UUID


def postpone_due_answers(
    access: TenantDb, now: datetime, until: datetime, limit: int
) -> list[UUID]:
    """At most `limit` turns of which the worker must be notified again. They are not due again
    before `until`. In a transaction."""
    rows = access.fetch(
        _TurnId,
        """
        update turns t set due_at = %(until)s
        where t.tenant_id = current_tenant() and t.turn_id in (
            select d.turn_id from turns d
            where d.tenant_id = current_tenant() and d.due_at <= %(now)s
            order by d.due_at, d.turn_id limit %(limit)s for update skip locked)
        returning t.turn_id
        """,
        {"now": now, "until": until, "limit": limit},
    )
    return sorted(row.turn_id for row in rows)


def prune_deferred_answers(access: TenantDb, before: datetime, limit: int) -> int:
    """Delete at most `limit` turns that were finished, or asked for and never answered, before
    `before`. Returns how many. In a transaction."""
    return access.execute(
        """
        delete from turns t using (
            select o.turn_id from turns o
            where o.tenant_id = current_tenant() and o.state <> 'waiting'
                and o.finished_at < %(before)s
            union all
            select o.turn_id from turns o
            where o.tenant_id = current_tenant() and o.state = 'waiting'
                and o.created_at < %(before)s
            limit %(limit)s) old
        where t.tenant_id = current_tenant() and t.turn_id = old.turn_id
        """,
        {"before": before, "limit": limit},
    )
