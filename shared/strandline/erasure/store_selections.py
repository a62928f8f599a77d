"""SQL of the events that an erasure concerns: selections of events, and marks, which hide many
events until they are tombstones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.erasure.schemas import ErasurePreview

type Kind = Literal["event", "events", "session", "participant", "scope", "tenant"]


@dataclass(frozen=True)
class EventSelection:
    """Which events to erase. A field that is None does not narrow the selection."""

    kind: Kind
    event_ids: Sequence[UUID] | None = None
    scope_id: UUID | None = None
    session_id: str | None = None
    participant: str | None = None
    """Who said it."""
    until: datetime | None = None
    """Only events recorded up to this time."""
    snapshot: str | None = None
    """Only events that this database snapshot shows."""

    @property
    def covers_whole_sessions(self) -> bool:
        """Whether it covers whole sessions, which are deleted with their events."""
        return self.participant is None and self.kind in ("session", "scope", "tenant")


@dataclass(frozen=True)
class ErasureCandidate:
    """An event that a selection names; it may be erased already."""

    event_id: UUID
    scope_id: UUID
    said_by: str | None
    writer: str | None
    """The user whose bound credential wrote it; None: an unbound credential wrote it."""
    is_erased: bool


def list_erasure_candidates(
    access: TenantDb, event_ids: Sequence[UUID]
) -> Sequence[ErasureCandidate]:
    """Those of these events that the caller can see, including erased ones."""
    return access.fetch(
        ErasureCandidate,
        """
        select e.event_id, e.scope_id, coalesce(e.speaker, nullif(e.writer, '*')) as said_by,
            nullif(e.writer, '*') as writer, e.erased_at is not null as is_erased
        from events e
        where e.tenant_id = current_tenant() and e.event_id = any (%(event_ids)s::uuid[])
        """,
        {"event_ids": list(event_ids)},
    )


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


_MATCHES = """
    e.tenant_id = current_tenant() and e.erased_at is null
        and (%(event_ids)s::uuid[] is null or e.event_id = any (%(event_ids)s::uuid[]))
        and (%(scope_ids)s::uuid[] is null or e.scope_id = any (%(scope_ids)s::uuid[]))
        and (%(session_id)s::text is null or e.session_id = %(session_id)s)
        and (%(participant)s::text is null
            or coalesce(e.speaker, nullif(e.writer, '*')) = %(participant)s)
        and (%(until)s::timestamptz is null or e.recorded_at <= %(until)s)
        and (%(snapshot)s::pg_snapshot is null
            or pg_visible_in_snapshot(e.xid, %(snapshot)s::pg_snapshot))
"""
"""The events of a selection that the caller can see, without erased ones."""


def list_event_ids(access: TenantDb, selection: EventSelection, limit: int) -> list[UUID]:
    """Up to `limit` events of a selection, in any order."""
    rows = access.fetch(
        _EventId,
        f"select e.event_id from events e where {_MATCHES} limit %(limit)s",  # noqa: S608 - a constant
        {**_make_match_params(selection, _list_possible_scopes(access, selection)), "limit": limit},
    )
    return [row.event_id for row in rows]


def list_event_ids_in_order(access: TenantDb, selection: EventSelection, limit: int) -> list[UUID]:
    """The first `limit` events of a selection, by scope and seq."""
    rows = access.fetch(
        _EventId,
        f"select e.event_id from events e where {_MATCHES}"  # noqa: S608 - a constant
        " order by e.scope_id, e.seq limit %(limit)s",
        {**_make_match_params(selection, _list_possible_scopes(access, selection)), "limit": limit},
    )
    return [row.event_id for row in rows]


@dataclass(frozen=True)
class _ScopeId:
    scope_id: UUID


def _list_possible_scopes(access: TenantDb, selection: EventSelection) -> list[UUID] | None:
    """The scopes that a selection can match, found by index; None: any scope. Speakers and writers
    are members of their scopes."""
    if selection.scope_id is not None:
        return [selection.scope_id]
    if selection.session_id is None and selection.participant is None:
        return None
    rows = access.fetch(
        _ScopeId,
        """
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = %(session_id)s
        union
        select m.scope_id from scope_members m
        where m.tenant_id = current_tenant() and %(session_id)s::text is null
            and m.participant = %(participant)s
        """,
        _make_match_params(selection),
    )
    return [row.scope_id for row in rows]


def preview_erasure(access: TenantDb, selection: EventSelection) -> ErasurePreview:
    """Count the events of a selection, and what rests on them."""
    (row,) = access.fetch(
        ErasurePreview,
        f"""
        with selected as materialized (
            select e.event_id, e.scope_id, e.blob_cid from events e where {_MATCHES})
        select count(*) as events, count(distinct s.scope_id) as scopes,
            count(distinct c.chain_id) as chains, count(distinct s.blob_cid) as payloads
        from selected s left join chain_events c
            on c.tenant_id = current_tenant() and c.event_id = s.event_id
        """,  # noqa: S608 - a constant
        _make_match_params(selection, _list_possible_scopes(access, selection)),
    )
    return row


def _make_match_params(
    selection: EventSelection, scope_ids: Sequence[UUID] | None = None
) -> dict[str, object]:
    return {
        "event_ids": None if selection.event_ids is None else list(selection.event_ids),
        "scope_id": selection.scope_id,
        "scope_ids": None if scope_ids is None else list(scope_ids),
        "until": selection.until,
        "snapshot": selection.snapshot,
        "session_id": selection.session_id,
        "participant": selection.participant,
    }


# marks --------------------------------------------------------------------------------------------


def hide_selected_events(access: TenantDb, erasure_id: UUID, selection: EventSelection) -> int:
    """Hide the events of a selection, and everything that rests on them, from all readers until
    they are tombstones. Returns the number of marks: one, or one for each scope that has a session
    of this name. In a transaction."""
    members = {*access.caller.viewer, *([selection.participant] if selection.participant else ())}
    return access.execute(
        """
        insert into erasure_marks
            (tenant_id, erasure_id, n, members, scope_id, session_id, said_by, recorded_until)
        select current_tenant(), %(erasure_id)s, row_number() over (order by t.scope_id),
            %(members)s::text[], t.scope_id, %(session_id)s, %(participant)s,
            -- by the scopes' clocks, which never go back
            greatest(clock_timestamp(), (
                select max(s.last_recorded_at) from scopes s
                where s.tenant_id = current_tenant()
                    and (t.scope_id is null or s.scope_id = t.scope_id)))
        from (
            select %(scope_id)s::uuid
            where %(session_id)s::text is null or %(scope_id)s::uuid is not null
            union
            select s.scope_id from sessions s
            where s.tenant_id = current_tenant() and s.session_id = %(session_id)s
                and %(scope_id)s::uuid is null) t (scope_id)
        """,
        {**_make_match_params(selection), "erasure_id": erasure_id, "members": sorted(members)},
    )


@dataclass(frozen=True)
class ErasureMark:
    """Part of an erasure's selection: events that are being erased."""

    n: int
    scope_id: UUID | None
    session_id: str | None
    said_by: str | None
    recorded_until: datetime
    snapshot: str


def list_erasure_marks(access: TenantDb, erasure_id: UUID) -> Sequence[ErasureMark]:
    """The marks of an erasure that are not cleared."""
    return access.fetch(
        ErasureMark,
        "select n, scope_id, session_id, said_by, recorded_until, snapshot::text"
        " from erasure_marks"
        " where tenant_id = current_tenant() and erasure_id = %(erasure_id)s order by n",
        {"erasure_id": erasure_id},
    )


def delete_finished_mark(access: TenantDb, erasure_id: UUID, n: int) -> None:
    """Record that all events of a mark are tombstones, and that scopes which waited for it are due.
    In a transaction."""
    access.execute(
        "delete from erasure_marks where erasure_id = %(erasure_id)s and n = %(n)s",
        {"erasure_id": erasure_id, "n": n},
    )
    access.execute(
        """
        update scope_work w set due_at = now()
        from (
            select scope_id from scope_work
            where last_error = 'erasing' and due_at > now() for update skip locked) waiting
        where w.scope_id = waiting.scope_id
        """,
        {},
    )
