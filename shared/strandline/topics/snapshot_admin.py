"""Admin operations on the topic index: list snapshots, compare two, make one active again, and
describe the next build."""

from datetime import datetime
from uuid import UUID

from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import NotFound, StateConflict
from strandline.jobs import store_runs
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext
from strandline.topics import build_limits, store_publish, store_snapshot_admin
from strandline.topics.schemas_admin import (
    DifferencePage,
    NextBuildForecast,
    SlotDifferenceOut,
    SnapshotDetail,
    SnapshotDifferenceQuery,
    SnapshotOut,
    SnapshotsPage,
    TopicIndexState,
    WaitingScopeOut,
)
from strandline.topics.store_publish import NewSnapshot
from strandline.topics.store_snapshot_admin import SnapshotRecord

_PG_SNAPSHOT = "1:1:"
"""A constant in place of a database snapshot: versions are immutable, so their lists do not need
one."""
_MAX_SCOPES = 100
"""The maximum number of waiting scopes listed."""


def list_snapshots(
    access: TenantDb, cursor: str | None, limit: int, now: datetime
) -> SnapshotsPage:
    """List a page of the tenant's snapshots, newest first. Raises Malformed for an invalid
    cursor."""
    cursors = Cursors(access.sealer, access.caller.tenant, "snapshots")
    after = cursors.decode(cursor)
    rows = store_snapshot_admin.list_newest_snapshots(access, after and after.seq, limit)
    last = rows[-1] if len(rows) == limit else None
    position = last and Position(_PG_SNAPSHOT, last.published_at, last.snapshot_id, last.version)
    return SnapshotsPage(
        snapshots=[_to_snapshot_out(row, now) for row in rows],
        next_cursor=position and cursors.encode(position),
    )


def get_snapshot_with_size(access: TenantDb, version: int, now: datetime) -> SnapshotDetail:
    """Get one snapshot with its size. Raises NotFound."""
    out = _to_snapshot_out(_require_snapshot(access, version), now)
    size = store_snapshot_admin.measure_snapshot_bytes(access, version)
    return SnapshotDetail(**out.model_dump(), stored_bytes=size)


def republish_old_snapshot(
    access: TenantDb, audit_context: AuditContext, version: int, now: datetime
) -> SnapshotOut:
    """Publish a new version that repeats an older one. Returns it. Raises NotFound, and
    StateConflict if the version is already active, if a build published meanwhile, or if it holds
    an event that was erased."""
    with access.transaction():
        snapshot = _require_snapshot(access, version)
        active_version = store_snapshot_admin.read_active_version(access)
        if version == active_version:
            raise StateConflict("This snapshot is the active one already.", version=version)
        if snapshot.erased_at is not None:
            raise StateConflict(
                "This snapshot holds an event that was erased since. It stays inactive.",
                version=version,
            )
        new_version = store_publish.activate_next_version(access, active_version)
        if new_version is None:
            raise StateConflict(
                "Another snapshot was published meanwhile. Look at the list, and try again.",
                version=version,
            )
        changed_count = store_snapshot_admin.repeat_trees_of_version(access, version, new_version)
        new_snapshot = NewSnapshot(
            version=new_version,
            base_version=active_version,
            repeats_version=version,
            job_id=None,
            published_at=now,
            scopes_changed=changed_count,
            scopes_failed=[],
            configuration=snapshot.configuration,
        )
        store_publish.insert_snapshot(access, new_snapshot)
        target = {"version": str(version), "new_version": str(new_version)}
        store_audit.add_audit_entry(access, audit_context, target)
    return _to_snapshot_out(_require_snapshot(access, new_version), now)


def compare_snapshots(
    access: TenantDb, version: int, query: SnapshotDifferenceQuery
) -> DifferencePage:
    """List the differences between `query.from_version` and this version. Raises NotFound if one of
    them does not exist, and Malformed for an invalid cursor."""
    before, after = (
        _require_snapshot(access, query.from_version),
        _require_snapshot(access, version),
    )
    cursors = Cursors(
        access.sealer, access.caller.tenant, "difference", before.version, after.version
    )
    last = cursors.decode(query.cursor)
    rows = store_snapshot_admin.list_slot_differences(
        access, before.version, after.version, last and last.row_id, query.limit
    )
    counts = store_snapshot_admin.count_slot_differences(access, before.version, after.version)
    last_row = rows[-1] if len(rows) == query.limit else None
    position = last_row and Position(_PG_SNAPSHOT, after.published_at, last_row.slot)
    return DifferencePage(
        from_version=before.version,
        to_version=after.version,
        same_configuration=before.configuration == after.configuration,
        **vars(counts),
        changes=[
            SlotDifferenceOut.model_validate(
                {
                    "scope_id": row.scope_id,
                    "slot_id": row.slot,
                    "change": row.change,
                    "leaf": row.is_leaf,
                    "node_before": row.node_before,
                    "node_after": row.node_after,
                    "parent_before": row.parent_before,
                    "parent_after": row.parent_after,
                }
            )
            for row in rows
        ],
        next_cursor=position and cursors.encode(position),
    )


def describe_index_state(access: TenantDb, now: datetime, *, has_model: bool) -> TopicIndexState:
    """Describe what waits for a build, when it is due, and what it would do. `has_model`: whether a
    language model writes the tenant's summaries."""
    active_version = store_snapshot_admin.read_active_version(access)
    active = store_snapshot_admin.get_snapshot(access, active_version)
    waiting = store_snapshot_admin.read_build_backlog(
        access, build_limits.get_max_versions_per_scope(has_model=has_model)
    )
    scopes = store_snapshot_admin.list_waiting_scopes(access, _MAX_SCOPES)
    running: UUID | None = store_runs.find_active_job_id(access, "builder")
    return TopicIndexState(
        active_version=active_version,
        active_age_seconds=active and _compute_age_seconds(active, now),
        waiting_scopes=waiting.scopes,
        waiting_versions=waiting.versions,
        waiting_since=waiting.oldest_at,
        due_at=waiting.due_at,
        running_job_id=running,
        next_build=NextBuildForecast(
            shards=build_limits.count_shards(waiting.scopes),
            scopes=waiting.scopes,
            versions=waiting.next_versions,
        ),
        scopes=[
            WaitingScopeOut(
                scope_id=row.scope_id,
                waiting=row.waiting,
                waiting_since=row.oldest_at,
                position=row.position,
            )
            for row in scopes
        ],
        failed_scopes=[*store_snapshot_admin.list_failed_scopes(access, _MAX_SCOPES)],
    )


def _require_snapshot(access: TenantDb, version: int) -> SnapshotRecord:
    snapshot = store_snapshot_admin.get_snapshot(access, version)
    if snapshot is None:
        raise NotFound("There is no snapshot with this version; old ones are collected.")
    return snapshot


def _to_snapshot_out(snapshot: SnapshotRecord, now: datetime) -> SnapshotOut:
    fields = {name: value for name, value in vars(snapshot).items() if name != "is_active"}
    return SnapshotOut.model_validate(
        {**fields, "active": snapshot.is_active, "age_seconds": _compute_age_seconds(snapshot, now)}
    )


def _compute_age_seconds(snapshot: SnapshotRecord, now: datetime) -> int:
    """The snapshot's age in seconds; clocks may differ, so it is never below 0."""
    return max(0, int((now - snapshot.published_at).total_seconds()))
