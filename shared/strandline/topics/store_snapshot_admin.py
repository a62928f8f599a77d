"""SQL for the admin's view of snapshots: lists, differences, and repeating an older one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.topics.schemas_admin import ScopeWithFailedTree


@dataclass(frozen=True)
class SnapshotRecord:
    """A published version of a tenant's trees."""

    version: int
    snapshot_id: UUID
    is_active: bool
    base_version: int
    repeats_version: int | None
    job_id: UUID | None
    published_at: datetime
    scope_count: int
    leaf_count: int
    node_count: int
    event_count: int
    scopes_changed: int
    scopes_failed: list[dict[str, str]]
    configuration: Mapping[str, str]
    erased_at: datetime | None
    """When one of its events was erased: it cannot be made active again."""


def list_newest_snapshots(
    access: TenantDb, before: int | None, limit: int
) -> Sequence[SnapshotRecord]:
    """List the tenant's snapshots, newest first; with `before`, only lower versions."""
    return access.fetch(
        SnapshotRecord,
        """
        select s.version, s.snapshot_id, s.version = a.version as is_active, s.base_version,
            s.repeats_version, s.job_id, s.published_at, s.scope_count, s.leaf_count,
            s.node_count, s.event_count, s.scopes_changed, s.scopes_failed, s.configuration,
            s.erased_at
        from snapshots s left join active_snapshot a using (tenant_id)
        where %(before)s::bigint is null or s.version < %(before)s
        order by s.version desc limit %(limit)s
        """,
        {"before": before, "limit": limit},
    )


def get_snapshot(access: TenantDb, version: int) -> SnapshotRecord | None:
    """Get one snapshot, or None."""
    rows = list_newest_snapshots(access, version + 1, 1)
    return rows[0] if rows and rows[0].version == version else None


@dataclass(frozen=True)
class _StoredSize:
    stored_bytes: int


def measure_snapshot_bytes(access: TenantDb, version: int) -> int:
    """The stored size in bytes of the contents of a snapshot's slots. Contents that are shared with
    other snapshots count in each of them."""
    (row,) = access.fetch(
        _StoredSize,
        """
        select coalesce(sum(pg_column_size(n)), 0)::bigint as stored_bytes
        from topic_tree t join topic_nodes n using (tenant_id, node_id)
        where t.from_version <= %(version)s
            and (t.to_version is null or t.to_version > %(version)s)
        """,
        {"version": version},
    )
    return row.stored_bytes


@dataclass(frozen=True)
class _VersionNumber:
    version: int


def read_active_version(access: TenantDb) -> int:
    """The active version; 0: none was published."""
    (row,) = access.fetch(
        _VersionNumber, "select coalesce(max(version), 0) as version from active_snapshot", {}
    )
    return row.version


def repeat_trees_of_version(access: TenantDb, version: int, new_version: int) -> int:
    """Make the new version repeat all trees of an older one. Returns how many scopes are changed.
    In a transaction, after `activate_next_version`."""
    params: dict[str, object] = {"version": version, "new": new_version}
    changed_count = access.execute(_END_SCOPES, params)
    changed_count = max(changed_count, access.execute(_REPEAT_SCOPES, params))
    access.execute(_END_SLOTS, params)
    access.execute(_REPEAT_SLOTS, params)
    return changed_count


_END_SCOPES: LiteralString = (
    "update snapshot_scopes set to_version = %(new)s"
    " where to_version is null and from_version > %(version)s"
)
_REPEAT_SCOPES: LiteralString = """
    insert into snapshot_scopes (tenant_id, scope_id, participants, from_version, root_slot,
        root_id, cutoff, position, slots, space, leaf_count, node_count, event_count)
    select tenant_id, scope_id, participants, %(new)s, root_slot, root_id, cutoff, position, slots,
        space, leaf_count, node_count, event_count
    from snapshot_scopes where from_version <= %(version)s and to_version > %(version)s
"""
_END_SLOTS: LiteralString = (
    "update topic_tree set to_version = %(new)s"
    " where to_version is null and from_version > %(version)s"
)
_REPEAT_SLOTS: LiteralString = """
    insert into topic_tree (tenant_id, scope_id, participants, slot, parent_slot, node_id, is_leaf,
        chain_version, from_version)
    select tenant_id, scope_id, participants, slot, parent_slot, node_id, is_leaf, chain_version,
        %(new)s
    from topic_tree where from_version <= %(version)s and to_version > %(version)s
"""


@dataclass(frozen=True)
class SlotDifference:
    """A slot whose content or place differs between two versions."""

    scope_id: UUID
    slot: UUID
    change: str
    """`added`, `gone` or `changed`."""
    is_leaf: bool
    node_before: UUID | None
    node_after: UUID | None
    parent_before: UUID | None
    parent_after: UUID | None


_CHANGES: LiteralString = """
    with before as materialized (
        select * from topic_tree
        where from_version <= %(before)s and (to_version is null or to_version > %(before)s)
            and not (from_version <= %(after)s and (to_version is null or to_version > %(after)s))),
    after as materialized (
        select * from topic_tree
        where from_version <= %(after)s and (to_version is null or to_version > %(after)s)
            and not (from_version <= %(before)s
                and (to_version is null or to_version > %(before)s))),
    changes as (
        select scope_id, slot, coalesce(a.is_leaf, b.is_leaf) as is_leaf,
            case when b.slot is null then 'added' when a.slot is null then 'gone'
                else 'changed' end as change,
            b.node_id as node_before, a.node_id as node_after,
            b.parent_slot as parent_before, a.parent_slot as parent_after
        from before b full join after a using (scope_id, slot)
        where (b.node_id, b.parent_slot) is distinct from (a.node_id, a.parent_slot))
"""


def list_slot_differences(
    access: TenantDb, before: int, after: int, last_slot: UUID | None, limit: int
) -> Sequence[SlotDifference]:
    """List the slots that differ between two versions, ordered by slot; with `last_slot`, those
    after it."""
    return access.fetch(
        SlotDifference,
        "".join(
            (
                _CHANGES,
                """
        select scope_id, slot, change, is_leaf, node_before, node_after, parent_before,
            parent_after
        from changes where %(last_slot)s::uuid is null or slot > %(last_slot)s
        order by slot limit %(limit)s
        """,
            )
        ),
        {"before": before, "after": after, "last_slot": last_slot, "limit": limit},
    )


@dataclass(frozen=True)
class SlotDifferenceCounts:
    """The number of slots that differ between two versions, by kind of change."""

    added: int
    gone: int
    changed: int
    scopes: int


def count_slot_differences(access: TenantDb, before: int, after: int) -> SlotDifferenceCounts:
    """Count the slots that differ between two versions, and the scopes that they belong to."""
    (row,) = access.fetch(
        SlotDifferenceCounts,
        "".join(
            (
                _CHANGES,
                """
        select count(*) filter (where change = 'added') as added,
            count(*) filter (where change = 'gone') as gone,
            count(*) filter (where change = 'changed') as changed,
            count(distinct scope_id) as scopes
        from changes
        """,
            )
        ),
        {"before": before, "after": after},
    )
    return row


@dataclass(frozen=True)
class BuildBacklog:
    """The chain versions and scopes that wait for the tenant's next build."""

    scopes: int
    versions: int
    next_versions: int
    """How many of these versions the next build would insert."""
    oldest_at: datetime | None
    due_at: datetime | None
    """When the next build is due; None: nothing is waiting."""


def read_build_backlog(access: TenantDb, max_versions: int) -> BuildBacklog:
    """Read the backlog of the next build, which inserts at most `max_versions` of each scope."""
    (row,) = access.fetch(
        BuildBacklog,
        """
        select count(*) as scopes, coalesce(sum(w.waiting), 0)::bigint as versions,
            coalesce(sum(least(w.waiting, %(max_versions)s)), 0)::bigint as next_versions,
            min(w.oldest_at) as oldest_at,
            least(min(w.oldest_at) + interval '15 minutes',
                case when sum(w.waiting) >= 20 then max(w.newest_at) end) as due_at
        from topic_work w
        """,
        {"max_versions": max_versions},
    )
    return row


def list_failed_scopes(access: TenantDb, limit: int) -> Sequence[ScopeWithFailedTree]:
    """List the scopes that failed in the newest build, ordered by id."""
    return access.fetch(
        ScopeWithFailedTree,
        """
        select s.scope_id, s.reason from topic_build_scopes s
        where s.state = 'failed' and s.job_id = (
            select b.job_id from topic_builds b order by b.begun_at desc, b.job_id desc limit 1)
        order by s.scope_id limit %(limit)s
        """,
        {"limit": limit},
    )


@dataclass(frozen=True)
class WaitingScope:
    """A scope that is waiting for a build."""

    scope_id: UUID
    waiting: int
    oldest_at: datetime
    position: int
    """The position of the last chain version in its published tree."""


def list_waiting_scopes(access: TenantDb, limit: int) -> Sequence[WaitingScope]:
    """List the scopes that are waiting for a build, those waiting longest first."""
    return access.fetch(
        WaitingScope,
        """
        select w.scope_id, w.waiting, w.oldest_at, coalesce(t.position, 0) as position
        from topic_work w
        left join snapshot_scopes t on t.scope_id = w.scope_id and t.to_version is null
        order by w.oldest_at, w.scope_id limit %(limit)s
        """,
        {"limit": limit},
    )
