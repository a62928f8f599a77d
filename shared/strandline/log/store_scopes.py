"""SQL for scopes: their participants and the last `seq` of their logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.cursors import Position
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class Scope:
    """A scope that the caller can see."""

    scope_id: UUID
    participants: list[str]
    last_seq: int
    last_recorded_at: datetime
    created_at: datetime


@dataclass(frozen=True)
class ListedScope(Scope):
    """A scope on a page of a list, with the database snapshot that the list shows."""

    pg_snapshot: str


def get_scope(access: TenantDb, scope_id: UUID) -> Scope | None:
    """One visible scope; None if there is none with this id."""
    rows = access.fetch(
        Scope,
        "select scope_id, participants, last_seq, last_recorded_at, created_at from scopes"
        " where scope_id = %(scope_id)s",
        {"scope_id": scope_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class _HasScopeRow:
    has_scope: bool


def can_see_any_scope(access: TenantDb) -> bool:
    """Whether there is any scope that the caller can see: for a reader, one in which all whom it
    reads for took part."""
    (row,) = access.fetch(
        _HasScopeRow, "select coalesce(cardinality(scopes_in_view()), 1) > 0 as has_scope", {}
    )
    return row.has_scope


@dataclass(frozen=True)
class _ScopeIdRow:
    scope_id: UUID


def list_scope_ids_after(access: TenantDb, last: UUID | None, limit: int) -> list[UUID]:
    """The ids of up to `limit` scopes after `last`, in order; from the first for None."""
    rows = access.fetch(
        _ScopeIdRow,
        "select scope_id from scopes where tenant_id = current_tenant()"
        " and scope_id > %(last)s order by scope_id limit %(limit)s",
        {"last": last or UUID(int=0), "limit": limit},
    )
    return [row.scope_id for row in rows]


def list_newest(access: TenantDb, after: Position | None, limit: int) -> Sequence[ListedScope]:
    """The visible scopes, newest first. Later pages show the database snapshot of the first
    page."""
    return access.fetch(
        ListedScope,
        """
        with view as materialized (select scopes_in_view() as scope_ids)
        select s.scope_id, s.participants, s.last_seq, s.last_recorded_at, s.created_at,
            coalesce(%(pg_snapshot)s, pg_current_snapshot())::text as pg_snapshot
        from (
            select * from scopes where scope_id = any ((select scope_ids from view)::uuid[])
            union all
            select * from scopes where (select scope_ids from view) is null) s
        where (%(pg_snapshot)s is null or is_in_snapshot(s.xid, %(pg_snapshot)s))
            and (%(at)s::timestamptz is null
                or (s.created_at, s.scope_id) < (%(at)s, %(scope_id)s::uuid))
        order by s.created_at desc, s.scope_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "scope_id": after and after.row_id,
            "limit": limit,
        },
    )
