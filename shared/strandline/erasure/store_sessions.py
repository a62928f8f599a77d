"""SQL that clears the sessions of an erasure."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.erasure.store_selections import EventSelection

_SESSIONS = """
    s.tenant_id = current_tenant()
        and (%(scope_id)s::uuid is null or s.scope_id = %(scope_id)s::uuid)
        and (%(session_id)s::text is null or s.session_id = %(session_id)s)
"""
"""The sessions of a selection."""
_HAS_EVENTS = """
    coalesce((
        select not is_event_marked(e.scope_id, e.participants, e.session_id, e.recorded_at, e.xid,
            e.speaker, e.writer)
        from events e
        where e.tenant_id = s.tenant_id and e.scope_id = s.scope_id
            and e.session_id = s.session_id and e.erased_at is null
        order by e.seq desc limit 1), false)
"""
"""Whether a session has an event that stays: a mark covers all events up to
a time, so the newest event decides."""


@dataclass(frozen=True)
class _ScopeId:
    scope_id: UUID


def lock_session_scopes(
    access: TenantDb, selection: EventSelection, event_ids: Sequence[UUID]
) -> list[UUID]:
    """Lock the scopes of a selection's sessions and of these events, in the order in which appends
    lock them, so that no append is in progress. Returns their ids. In a transaction, before other
    locks."""
    rows = access.fetch(
        _ScopeId,
        f"""
        select c.scope_id from scopes c
        where c.tenant_id = current_tenant() and c.scope_id in (
            select s.scope_id from sessions s where {_SESSIONS}
            union all
            select e.scope_id from events e
            where e.tenant_id = current_tenant() and e.event_id = any (%(event_ids)s::uuid[]))
        order by c.scope_id for no key update
        """,  # noqa: S608 - a constant
        {**_make_session_params(selection), "event_ids": list(event_ids)},
    )
    return [row.scope_id for row in rows]


def delete_sessions(access: TenantDb, selection: EventSelection, scope_ids: Sequence[UUID]) -> int:
    """Delete the sessions of a selection in these scopes. A later event with a session's name
    starts a new session. A session that got new events in the meantime stays, without its metadata.
    Returns how many were deleted. In a transaction, with these scopes locked."""
    params = {**_make_session_params(selection), "scope_ids": list(scope_ids)}
    deleted = access.execute(
        f"delete from sessions s where {_SESSIONS} and s.scope_id = any (%(scope_ids)s::uuid[])"  # noqa: S608 - a constant
        f" and not {_HAS_EVENTS}",
        params,
    )
    access.execute(
        f"update sessions s set metadata = '{{}}' where {_SESSIONS}"  # noqa: S608 - a constant
        " and s.scope_id = any (%(scope_ids)s::uuid[]) and s.metadata <> '{}'",
        params,
    )
    return deleted


def _make_session_params(selection: EventSelection) -> dict[str, object]:
    return {"scope_id": selection.scope_id, "session_id": selection.session_id}
