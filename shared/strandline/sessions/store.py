"""SQL for sessions: begin, find, end and list them, and read their recent events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.cursors import Position
from strandline.db.database import SnapshotRead, TenantDb
from strandline.log.store import MAX_LISTED_SCOPES, Event

MAX_SAME_NAME = 20
"""The maximum number of sessions with the same name that a search returns."""
MAX_RECENT = 500
"""The number of a session's newest events that are read for coalescing."""


@dataclass(frozen=True)
class Session:
    """A session that the caller can see."""

    session_id: str
    scope_id: UUID
    participants: list[str]
    writer: str
    created_at: datetime
    ended_at: datetime | None
    metadata: dict[str, Any]
    tuning: dict[str, Any]
    """The tenant's overrides of `tuning.Tuning`, by field."""
    is_marked: bool = False
    """Whether all of its events are being erased, in which case nobody sees it."""


def list_sessions_by_name(
    access: TenantDb, session_id: str, scope_id: UUID | None
) -> Sequence[Session]:
    """The visible sessions with this name, in this scope if given: the caller's own first, then
    those that an unbound credential began, open ones before ended ones. At most MAX_SAME_NAME."""
    return access.fetch(
        Session,
        """
        with view as materialized (
            select case when %(scope_id)s::uuid is not null then array[%(scope_id)s::uuid]
                else scopes_in_view_up_to(%(max_scopes)s + 1) end as scope_ids),
        view_size as materialized (select cardinality(scope_ids) <= %(max_scopes)s as is_small
            from view),
        matches as (  -- a name may exist in as many scopes as the tenant has users
            select s.* from unnest((select scope_ids from view)::uuid[]) view (scope_id)
            cross join lateral (  -- by key: a plan that is kept knows no name
                select s.* from sessions s
                where s.tenant_id = current_tenant() and s.session_id = %(session_id)s
                    and s.scope_id = view.scope_id offset 0) s
            where (select is_small from view_size)
            union all
            select s.* from sessions s
            where (select is_small from view_size) is not true
                and s.tenant_id = current_tenant() and s.session_id = %(session_id)s)
        select s.session_id, s.scope_id, s.participants, s.writer, s.created_at, s.ended_at,
            s.metadata, t.tuning,
            (select is_erasing()) and is_session_marked(s.scope_id, s.participants, s.session_id)
                as is_marked
        from (
            select * from matches s
            order by s.writer = current_writer() desc, s.writer = '*' desc,
                s.ended_at nulls first, s.scope_id
            limit %(limit)s) s
        join tenants t on t.tenant_id = current_tenant()
        order by s.writer = current_writer() desc, s.writer = '*' desc,
            s.ended_at nulls first, s.scope_id
        """,
        {
            "session_id": session_id,
            "scope_id": scope_id,
            "limit": MAX_SAME_NAME,
            "max_scopes": MAX_LISTED_SCOPES,
        },
    )


def lock_name_and_find_collision(
    access: TenantDb, session_id: str, scope_id: UUID
) -> Session | None:
    """Lock a session name and find the session that a new one with this name and scope would
    collide with, preferring the same scope. Until the transaction ends, nobody else can begin a
    session with that name, because appends take the same lock. Must be called in a transaction."""
    access.execute(
        "select pg_advisory_xact_lock("
        "hashtextextended(current_tenant() || '/' || %(session_id)s, 0))",
        {"session_id": session_id},
    )
    rows = access.fetch(
        Session,
        """
        select s.session_id, s.scope_id, s.participants, s.writer, s.created_at, s.ended_at,
            s.metadata, t.tuning
        from sessions s join tenants t on t.tenant_id = s.tenant_id
        where s.tenant_id = current_tenant() and s.session_id = %(session_id)s
            and (s.scope_id = %(scope_id)s or s.writer in (current_writer(), '*'))
        order by s.scope_id = %(scope_id)s desc limit 1
        """,
        {"session_id": session_id, "scope_id": scope_id},
    )
    return rows[0] if rows else None


def insert_session_and_scope(
    access: TenantDb,
    session_id: str,
    scope_id: UUID,
    participants: Sequence[str],
    metadata: str,
) -> Session:
    """Create a session that collides with no other, and its scope if that is new. `metadata` is
    JSON. Must be called in a transaction."""
    params: dict[str, object] = {
        "session_id": session_id,
        "scope_id": scope_id,
        "participants": list(participants),
        "metadata": metadata,
    }
    access.execute(
        """
        with new_scope as (
            insert into scopes (tenant_id, scope_id, participants, last_recorded_at)
            values (current_tenant(), %(scope_id)s, %(participants)s, now())
            on conflict do nothing
            returning scope_id, participants)
        insert into scope_members (tenant_id, participant, scope_id, participants)
        select current_tenant(), member, new_scope.scope_id, new_scope.participants
        from new_scope, unnest(new_scope.participants) member
        """,
        params,
    )
    (session,) = access.fetch(
        Session,
        """
        insert into sessions (tenant_id, session_id, scope_id, participants, writer, metadata)
        values (current_tenant(), %(session_id)s, %(scope_id)s, %(participants)s, current_writer(),
            %(metadata)s)
        returning session_id, scope_id, participants, writer, created_at, ended_at, metadata,
            '{}'::jsonb as tuning
        """,
        params,
    )
    return session


@dataclass(frozen=True)
class _EventCountRow:
    events: int


def end_session(access: TenantDb, session_id: str, scope_id: UUID, now: datetime) -> int:
    """End a session, if it has not ended. Returns the number of its events, which are kept."""
    (row,) = access.fetch(
        _EventCountRow,
        """
        with ended_session as (
            update sessions set ended_at = %(now)s
            where tenant_id = current_tenant() and session_id = %(session_id)s
                and scope_id = %(scope_id)s and ended_at is null)
        select count(*) as events from events
        where tenant_id = current_tenant() and scope_id = %(scope_id)s
            and session_id = %(session_id)s and erased_at is null
        """,
        {"session_id": session_id, "scope_id": scope_id, "now": now},
    )
    return row.events


@dataclass(frozen=True)
class OpenSessionRow:
    """A session that has not ended, on a page of the list."""

    session_id: str
    scope_id: UUID
    participants: list[str]
    created_at: datetime
    metadata: dict[str, Any]
    place: UUID
    """A tie-breaker for sessions that began at the same time."""


def list_newest_open_sessions(
    access: TenantDb, after: Position | None, limit: int
) -> SnapshotRead[OpenSessionRow]:
    """The visible sessions that have not ended, newest first. One row more than `limit` means that
    there is a next page."""
    return access.read_snapshot(
        OpenSessionRow,
        """
        with view as materialized (select scopes_in_view() as scope_ids)
        select session.* from (
            select s.* from (select unnest(scope_ids) as scope_id from view) v
            cross join lateral (
                select s.session_id, s.scope_id, s.participants, s.created_at, s.metadata,
                    md5(s.scope_id::text || s.session_id)::uuid as place
                from sessions s
                where s.tenant_id = current_tenant() and s.scope_id = v.scope_id
                    and s.ended_at is null
                    and not ((select is_erasing())
                        and is_session_marked(s.scope_id, s.participants, s.session_id))
                    and (%(at)s::timestamptz is null
                        or (s.created_at, md5(s.scope_id::text || s.session_id)::uuid)
                            < (%(at)s, %(place)s::uuid))
                order by s.created_at desc, place desc limit %(limit)s + 1) s
            union all
            (select s.session_id, s.scope_id, s.participants, s.created_at, s.metadata,
                md5(s.scope_id::text || s.session_id)::uuid as place
            from sessions s
            where (select scope_ids from view) is null and s.tenant_id = current_tenant()
                and s.ended_at is null
                and not ((select is_erasing())
                    and is_session_marked(s.scope_id, s.participants, s.session_id))
                and (%(at)s::timestamptz is null
                    or (s.created_at, md5(s.scope_id::text || s.session_id)::uuid)
                        < (%(at)s, %(place)s::uuid))
            order by s.created_at desc, place desc limit %(limit)s + 1)) session
        order by session.created_at desc, session.place desc limit %(limit)s + 1
        """,
        {"at": after and after.at, "place": after and after.row_id, "limit": limit},
    )


@dataclass(frozen=True)
class RecentEventExecution:
    """The fields of a recent event that decide whether a newer one replaces it."""

    event_id: UUID
    type: str
    workflow_id: str | None
    execution_id: str | None


def list_recent_session_events(
    access: TenantDb, session_id: str, scope_id: UUID, since: datetime
) -> Sequence[RecentEventExecution]:
    """A session's newest events that were recorded after `since`, newest first; at most
    MAX_RECENT."""
    return access.fetch(
        RecentEventExecution,
        """
        select e.event_id, e.type, e.metadata ->> 'workflow_id' as workflow_id,
            e.metadata ->> 'execution_id' as execution_id
        from (  -- newest first: events older than the window are not scanned
            select * from events e
            where e.tenant_id = current_tenant() and e.scope_id = %(scope_id)s
                and e.session_id = %(session_id)s and e.erased_at is null
            order by e.seq desc limit %(limit)s) e
        where e.recorded_at > %(since)s
        order by e.seq desc
        """,
        {"session_id": session_id, "scope_id": scope_id, "since": since, "limit": MAX_RECENT},
    )


def list_recent_visible_events(access: TenantDb, since: datetime) -> Sequence[RecentEventExecution]:
    """The newest events of all visible scopes that were recorded after `since`, newest first,
    without statements; at most MAX_RECENT. The caller's viewer must not be empty."""
    return access.fetch(
        RecentEventExecution,
        """
        select e.event_id, e.type, e.metadata ->> 'workflow_id' as workflow_id,
            e.metadata ->> 'execution_id' as execution_id
        from (  -- of many scopes only those are read whose newest event is among the result's
            select head.scope_id
            from unnest((select scopes_in_view())) view (scope_id)
            cross join lateral (
                select e.scope_id, e.recorded_at from events e
                where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                    and e.erased_at is null and not is_statement(e.type)
                order by e.seq desc limit 1) head
            where head.recorded_at > %(since)s
            order by head.recorded_at desc, head.scope_id desc limit %(limit)s) recent
        cross join lateral (
            select * from events e
            where e.tenant_id = current_tenant() and e.scope_id = recent.scope_id
                and e.erased_at is null and not is_statement(e.type)
            order by e.seq desc limit %(limit)s) e
        where e.recorded_at > %(since)s
        order by e.recorded_at desc, e.scope_id desc, e.seq desc limit %(limit)s
        """,
        {"since": since, "limit": MAX_RECENT},
    )


@dataclass
class ShortTermEvent(Event):
    """An event of short-term memory, with the chain that contains it, if any."""

    chain_id: UUID | None
    topic: str | None
    """The topic of that chain, if it has one."""
    summary: str | None
    """The summary of that chain."""
    topic_by: dict[str, Any] | None
    """The model and prompt that named the topic."""
    trust: str | None
    """The least trusted origin of that chain's events."""


def read_short_term_events(access: TenantDb, event_ids: Sequence[UUID]) -> Sequence[ShortTermEvent]:
    """Read these events, newest first, with the chains that contain them."""
    return access.fetch(
        ShortTermEvent,
        """
        select e.*, k.source_event_key, h.chain_id, v.topic, v.summary,
            v.models -> 'topic' as topic_by, v.trust
        from event_rows e
        left join event_keys k on k.tenant_id = current_tenant() and k.event_id = e.event_id
        left join chain_events c on c.tenant_id = current_tenant() and c.event_id = e.event_id
        left join chains h on h.tenant_id = c.tenant_id and h.chain_id = c.chain_id
        left join chain_versions v
            on v.tenant_id = h.tenant_id and v.chain_id = h.chain_id and v.version = h.version
        where e.event_id = any (%(event_ids)s)
        order by e.recorded_at desc, e.scope_id desc, e.seq desc
        """,
        {"event_ids": list(event_ids)},
    )
