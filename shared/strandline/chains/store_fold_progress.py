"""SQL for the fold's progress: how far scopes are folded, and which events of their lanes are
open."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class ScopeFoldProgress:
    """How far a scope is folded, read at one moment."""

    scope_id: UUID
    participants: list[str]
    fold_no: int
    """Incremented by each commit of a fold. A commit requires the value that was read."""
    folded_seq: int
    max_folded_seq: int
    """The furthest seq that was ever folded: everything up to it is decided."""
    last_seq: int
    tuning: dict[str, Any]
    """The tenant's own overrides."""
    settings: dict[str, Any] | None
    """The body of the latest `settings` decision."""


def read_scope_fold_progress(access: TenantDb, scope_id: UUID) -> ScopeFoldProgress | None:
    """A scope's progress; None for a scope that does not exist."""
    rows = access.fetch(
        ScopeFoldProgress,
        """
        select s.scope_id, s.participants, s.fold_no, s.folded_seq, s.max_folded_seq, s.last_seq,
            t.tuning, (
                select d.body from decisions d
                where d.scope_id = s.scope_id and d.kind = 'settings' and d.at_seq <= s.folded_seq
                order by d.at_seq desc limit 1) as settings
        from scopes s join tenants t using (tenant_id) where s.scope_id = %(scope_id)s
        """,
        {"scope_id": scope_id},
    )
    return rows[0] if rows else None


def try_advance_folded_seq(access: TenantDb, scope_id: UUID, fold_no: int, folded_seq: int) -> bool:
    """Move a scope's `folded_seq` if its `fold_no` is unchanged since it was read. Returns whether
    it was unchanged. This is the first statement of a fold's transaction: until it ends, no other
    worker folds or appends to this scope."""
    return (
        access.execute(
            """
        update scopes set fold_no = fold_no + 1, folded_seq = %(folded_seq)s,
            max_folded_seq = greatest(max_folded_seq, %(folded_seq)s)
        where scope_id = %(scope_id)s and fold_no = %(fold_no)s
        """,
            {"scope_id": scope_id, "fold_no": fold_no, "folded_seq": folded_seq},
        )
        == 1
    )


@dataclass(frozen=True)
class EventToFold:
    """An event, with the columns that the fold needs."""

    event_id: UUID
    seq: int
    session_id: str
    role: str
    type: str
    said_at: datetime
    recorded_at: datetime
    flows: dict[str, Any]
    """Its workflow and execution ids."""
    vector: bytes | None
    """A user message's vector, in the format of `halfvec_send`."""
    is_refused: bool
    """Whether the embedding model refused its text."""
    is_given_up: bool
    """Whether a stored decision says that its vector is no longer waited for."""
    is_erased: bool

    @property
    def is_in_lane(self) -> bool:
        """Whether it is part of its lane. Erased events and statements are not."""
        return not self.is_erased and self.type != "statement"


def read_next_events(
    access: TenantDb, scope_id: UUID, space: str, after: int, limit: int
) -> Sequence[EventToFold]:
    """The next `limit` events of a scope after a seq."""
    return access.fetch(
        EventToFold,
        """
        select e.event_id, e.seq, e.session_id, e.role, e.type,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            jsonb_build_object('workflow_id', e.metadata -> 'workflow_id',
                'execution_id', e.metadata -> 'execution_id') as flows,
            halfvec_send(v.embedding) as vector, v.refusal is not null as is_refused,
            -- only of a user's message, so that nothing is read for others
            e.role = 'user' and e.type = 'message' and exists (
                select from decisions d where d.scope_id = e.scope_id and d.event_id = e.event_id
                    and d.kind = 'vector_given_up') as is_given_up,
            e.erased_at is not null as is_erased
        from events e
        left join lateral (  -- by key: the planner may read all vectors for a join
            select v.embedding, v.refusal from event_vectors v
            where e.role = 'user' and e.type = 'message' and v.tenant_id = e.tenant_id
                and v.space = %(space)s and v.scope_id = e.scope_id and v.event_id = e.event_id
            offset 0) v on true
        -- seq has no gaps: the range bounds the number of events, and the planner reads no more.
        where e.scope_id = %(scope_id)s and e.seq > %(after)s and e.seq <= %(after)s + %(limit)s
        order by e.seq
        """,
        {"scope_id": scope_id, "space": space, "after": after, "limit": limit},
    )


@dataclass(frozen=True)
class LaneEventRow(EventToFold):
    """An event that is still needed for a lane."""

    is_open: bool
    """If False, it is only the message with which the next user message is compared."""
    is_ahead: bool
    """Whether it is not judged yet."""
    is_user: bool
    """Whether it is the message with which the next user message is compared."""


def read_open_lane_events(
    access: TenantDb, scope_id: UUID, space: str, sessions: Sequence[str]
) -> Sequence[LaneEventRow]:
    """The open events of these lanes, by seq, without erased events and statements."""
    return access.fetch(
        LaneEventRow,
        """
        select e.event_id, e.seq, e.session_id, e.role, e.type,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at,
            jsonb_build_object('workflow_id', e.metadata -> 'workflow_id',
                'execution_id', e.metadata -> 'execution_id') as flows,
            halfvec_send(v.embedding) as vector, v.refusal is not null as is_refused,
            -- only of a user's message, so that nothing is read for others
            e.role = 'user' and e.type = 'message' and exists (
                select from decisions d where d.scope_id = e.scope_id and d.event_id = e.event_id
                    and d.kind = 'vector_given_up') as is_given_up,
            false as is_erased, e.is_open, e.is_ahead, e.is_user
        from lanes l
        cross join lateral (
            select o.*, true as is_open, o.event_id = (l.open ->> 'user')::uuid is true as is_user,
                coalesce(o.seq > (l.open ->> 'judged')::bigint, false) as is_ahead
            from events o
            where o.scope_id = l.scope_id and o.session_id = l.session_id
                and o.seq > (l.open ->> 'after')::bigint and o.seq <= l.folded_seq
                and not is_statement(o.type)
            union all
            select u.*, false, true, false from events u
            where u.event_id = (l.open ->> 'user')::uuid and u.seq <= (l.open ->> 'after')::bigint
        ) e
        left join lateral (
            select v.embedding, v.refusal from event_vectors v
            where (e.is_user or e.is_ahead and e.role = 'user' and e.type = 'message')
                and v.tenant_id = e.tenant_id and v.space = %(space)s
                and v.scope_id = e.scope_id and v.event_id = e.event_id
            offset 0) v on true
        where l.scope_id = %(scope_id)s and l.session_id = any (%(sessions)s)
            and e.erased_at is null
        order by e.seq
        """,
        {"scope_id": scope_id, "space": space, "sessions": list(sessions)},
    )


@dataclass(frozen=True)
class LaneRow:
    """A lane as stored."""

    session_id: str
    folded_seq: int
    open_after_seq: int
    """Its events after this seq are open."""
    judged_seq: int
    """Its events after this seq are not judged yet."""
    user_event_id: UUID | None
    """The message with which the next user message is compared."""
    idle_at: datetime


def save_lanes(
    access: TenantDb,
    scope_id: UUID,
    participants: Sequence[str],
    lanes: Sequence[LaneRow],
    closed_sessions: Sequence[str],
) -> None:
    """Store these lanes, and delete those without open events."""
    params: dict[str, object] = {
        "scope_id": scope_id,
        "participants": list(participants),
        "session_ids": list(closed_sessions),
        "rows": json.dumps([_to_lane_json(lane) for lane in lanes]),
    }
    if lanes:
        access.execute(
            """
            insert into lanes
                (tenant_id, scope_id, session_id, participants, folded_seq, open, idle_at)
            select current_tenant(), %(scope_id)s, r.session_id, %(participants)s, r.folded_seq,
                r.open, r.idle_at
            from jsonb_to_recordset(%(rows)s::jsonb) r
                (session_id text, folded_seq bigint, open jsonb, idle_at timestamptz)
            on conflict (tenant_id, scope_id, session_id) do update
            set folded_seq = excluded.folded_seq, open = excluded.open, idle_at = excluded.idle_at
            """,
            params,
        )
    if closed_sessions:
        access.execute(
            "delete from lanes where scope_id = %(scope_id)s"
            " and session_id = any (%(session_ids)s)",
            params,
        )


def _to_lane_json(lane: LaneRow) -> dict[str, object]:
    return {
        "session_id": lane.session_id,
        "folded_seq": lane.folded_seq,
        "open": {
            "after": lane.open_after_seq,
            "judged": lane.judged_seq,
            "user": lane.user_event_id and str(lane.user_event_id),
        },
        "idle_at": lane.idle_at.isoformat(),
    }


@dataclass(frozen=True)
class IdleLane:
    """A lane that is idle: its last event is older than the gap."""

    scope_id: UUID
    session_id: str


@dataclass(frozen=True)
class ListedIdleLane(IdleLane):
    """An idle lane on a page. The next page begins after the last one."""

    idle_at: datetime


def list_idle_lanes(
    access: TenantDb,
    now: datetime,
    after: ListedIdleLane | None,
    excluded_scopes: Sequence[UUID],
    limit: int,
) -> Sequence[ListedIdleLane]:
    """List the next idle lanes after `after`, longest idle first, without those in
    `excluded_scopes` and in scopes that are not folded to the end of their log."""
    return access.fetch(
        ListedIdleLane,
        """
        select l.scope_id, l.session_id, l.idle_at
        from lanes l join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
        where l.tenant_id = current_tenant() and l.idle_at <= %(now)s
            and s.folded_seq >= s.last_seq and l.scope_id <> all (%(excluded_scope_ids)s::uuid[])
            and (%(at)s::timestamptz is null or l.idle_at >= %(at)s
                and (l.idle_at, l.scope_id, l.session_id) > (%(at)s, %(scope)s::uuid, %(name)s))
        order by l.idle_at, l.scope_id, l.session_id limit %(limit)s
        """,
        {
            "now": now,
            "at": after and after.idle_at,
            "scope": after and after.scope_id,
            "name": after and after.session_id,
            "excluded_scope_ids": list(excluded_scopes),
            "limit": limit,
        },
    )


def list_idle_lanes_of_scope(
    access: TenantDb, scope_id: UUID, sessions: Sequence[str], now: datetime
) -> Sequence[IdleLane]:
    """List those of a scope's lanes that are still idle."""
    return access.fetch(
        IdleLane,
        "select scope_id, session_id from lanes where scope_id = %(scope_id)s"
        " and session_id = any (%(sessions)s) and idle_at <= %(now)s order by session_id",
        {"scope_id": scope_id, "sessions": list(sessions), "now": now},
    )
