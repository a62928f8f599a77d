"""SQL for erasure marks: which events are being erased, and what was erased since a list was begun.

While many events are being erased, marks hide them and everything derived from them; see
`docs/erasure.md`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Gone, Unavailable


@dataclass(frozen=True)
class Tombstone:
    """What is left of an erased event."""

    event_id: UUID
    scope_id: UUID
    seq: int
    erased_at: datetime
    """When it became invisible."""


def find_tombstone(access: TenantDb, event_id: UUID) -> Tombstone | None:
    """An event of a visible scope that is erased, or being erased; else None."""
    rows = access.fetch(
        Tombstone,
        """
        select event_id, scope_id, seq, erased_at from events
        where tenant_id = current_tenant() and event_id = %(event_id)s and erased_at is not null
        union all
        select event_id, scope_id, seq, erased_at from events_marked(array[%(event_id)s::uuid])
        """,
        {"event_id": event_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class EventBeingErased:
    """An event that is being erased."""

    event_id: UUID
    erasure_id: UUID


def list_events_being_erased(
    access: TenantDb, event_ids: Sequence[UUID]
) -> Sequence[EventBeingErased]:
    """Those of these events that are being erased, and that the caller could see before."""
    return access.fetch(
        EventBeingErased,
        "select event_id, erasure_id from events_marked(%(event_ids)s::uuid[])",
        {"event_ids": list(event_ids)},
    )


@dataclass(frozen=True)
class _ItemNumberRow:
    n: int


def find_items_with_erased_key(access: TenantDb, keys: Mapping[int, tuple[str, str]]) -> set[int]:
    """The numbers of those (channel, key) that are keys of the writer's erased events."""
    rows = access.fetch(
        _ItemNumberRow,
        """
        select i.n from unnest(%(numbers)s::int[], %(hashes)s::text[]) i (n, key_hash)
        join erased_keys k on k.tenant_id = current_tenant() and k.writer = current_writer()
            and k.key_hash = decode(i.key_hash, 'hex')
        """,
        {
            "numbers": list(keys),
            "hashes": [access.sealer.hash_key(access.caller.writer, *key) for key in keys.values()],
        },
    )
    return {row.n for row in rows}


@dataclass(frozen=True)
class _BooleanRow:
    is_set: bool


def has_events_being_erased(access: TenantDb, scope_id: UUID) -> bool:
    """Whether events of a visible scope are being erased: they are no tombstones yet."""
    (row,) = access.fetch(
        _BooleanRow,
        """
        select coalesce(bool_or(is_erasing() and is_scope_marked(s.scope_id, s.participants)),
            false) as is_set
        from scopes s
        where s.tenant_id = current_tenant() and s.scope_id = %(scope_id)s
        """,
        {"scope_id": scope_id},
    )
    return row.is_set


@dataclass(frozen=True)
class _ScopeIdRow:
    scope_id: UUID


def list_scopes_with_events_being_erased(access: TenantDb, scope_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these scopes that the caller may see and that have events which are being erased."""
    rows = access.fetch(
        _ScopeIdRow,
        """
        select s.scope_id from scopes s
        where s.tenant_id = current_tenant() and s.scope_id = any (%(scope_ids)s::uuid[])
            and is_scope_marked(s.scope_id, s.participants)
        """,
        {"scope_ids": list(scope_ids)},
    )
    return {row.scope_id for row in rows}


def require_no_events_being_erased(access: TenantDb, scope_ids: Collection[UUID]) -> None:
    """Raise Unavailable while events of these scopes are being erased: rows written beside the log
    would conflict with rows that are hidden. A mark that is set later does not apply to the rest of
    this transaction, which holds the locks of the scopes."""
    (row,) = access.fetch(
        _BooleanRow,
        """
        select set_config('strandline.sees_erased', 'on', true) as sees_erased,
            coalesce(bool_or(is_erasing() and is_scope_marked(s.scope_id, s.participants)), false)
                as is_set
        from scopes s
        where s.tenant_id = current_tenant() and s.scope_id = any (%(scope_ids)s::uuid[])
        """,
        {"scope_ids": list(scope_ids)},
    )
    if row.is_set:
        raise Unavailable("Events of these participants are being erased. Try again in a minute.")


def decode_cursor_unless_erased_since(
    access: TenantDb, cursors: Cursors, cursor: str | None
) -> Position | None:
    """The position of a list's cursor; None for the first page. Raises Malformed, and Gone where an
    event in view was erased since the list was begun."""
    position = cursors.decode(cursor)
    if position is not None:
        require_nothing_erased_since(access, position.pg_snapshot)
    return position


def require_nothing_erased_since(access: TenantDb, pg_snapshot: str) -> None:
    """Raise Gone for a cursor if an event in view was erased that this database snapshot still
    shows."""
    if is_any_event_erased_since(access, pg_snapshot):
        raise Gone(
            "cursor: an event in view was erased since this list was begun. Begin it again without"
            " a cursor.",
            field="cursor",
        )


def is_any_event_erased_since(access: TenantDb, pg_snapshot: str) -> bool:
    """Whether an event in view was erased, or marked, that this database snapshot still shows."""
    (row,) = access.fetch(
        _BooleanRow,
        """
        select exists (
                select from erased_events d
                where d.tenant_id = current_tenant()
                    and d.xid >= pg_snapshot_xmin(%(pg_snapshot)s::pg_snapshot)
                    and not pg_visible_in_snapshot(d.xid, %(pg_snapshot)s::pg_snapshot))
            or exists (
                select from erasure_marks m
                where m.tenant_id = current_tenant()
                    and not pg_visible_in_snapshot(m.xid, %(pg_snapshot)s::pg_snapshot)
                    -- everybody sees the marks: only those count that are about a scope in view
                    and (current_viewer() = '{}' and m.members = '{}' or exists (
                        select from scope_members s
                        where s.tenant_id = current_tenant() and s.participant = coalesce(
                                (current_viewer())[cardinality(current_viewer())], m.members[1])
                            and (m.scope_id is null or s.scope_id = m.scope_id)
                            and s.participants @> m.members))) as is_set
        """,
        {"pg_snapshot": pg_snapshot},
    )
    return row.is_set
