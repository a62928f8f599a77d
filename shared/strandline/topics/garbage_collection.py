"""Delete the rows of the topic index that no kept snapshot needs. Runs under the builder's lease,
so that no build runs at the same time."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from strandline.config import get_settings
from strandline.db.database import TenantDb
from strandline.jobs import store_runs
from strandline.jobs.runner import Lease
from strandline.jobs.store_runs import LEASE_SECONDS

_ROWS_PER_COMMIT = 2000
_SCOPES_PER_COMMIT = 20
"""How many staged trees one transaction deletes. Each may have thousands of slots."""
_MAX_SECONDS = LEASE_SECONDS / 2
"""The maximum duration of a collection, which must end before its lease does."""


@dataclass(frozen=True)
class _VersionNumber:
    version: int | None


def find_first_kept_version(access: TenantDb, before: datetime) -> int | None:
    """Find the first version to keep: the first one published at `before` or later, or the active
    one if that is earlier. None if no version was published."""
    (row,) = access.fetch(
        _VersionNumber,
        """
        select least(a.version, (
            select s.version from snapshots s where s.published_at >= %(before)s
            order by s.version limit 1)) as version
        from (select max(version) as version from active_snapshot) a
        """,
        {"before": before},
    )
    return row.version


@dataclass(frozen=True)
class _DeletedSlot:
    slot: UUID
    node_id: UUID
    is_leaf: bool


def delete_slots_of_old_versions(access: TenantDb, first_kept: int, limit: int) -> int:
    """Delete up to `limit` slots that no kept version has, with the contents and the links to
    events that only they referenced. Returns how many. In a transaction."""
    rows = access.fetch(
        _DeletedSlot,
        """
        with ended as materialized (
            select scope_id, slot, from_version from topic_tree
            where to_version <= %(first_kept)s order by to_version limit %(limit)s)
        delete from topic_tree t using ended e
        where t.scope_id = e.scope_id and t.slot = e.slot and t.from_version = e.from_version
        returning t.slot, t.node_id, t.is_leaf
        """,
        {"first_kept": first_kept, "limit": limit},
    )
    _delete_unreferenced_contents(
        access, [row.node_id for row in rows], [row.slot for row in rows if row.is_leaf]
    )
    return len(rows)


def delete_trees_of_old_versions(access: TenantDb, first_kept: int, limit: int) -> int:
    """Delete up to `limit` rows of trees that no kept version has. Returns how many. In a
    transaction, before their slots are deleted."""
    return access.execute(
        """
        delete from snapshot_scopes t using (
            select scope_id, from_version from snapshot_scopes
            where to_version <= %(first_kept)s order by to_version limit %(limit)s) ended
        where t.scope_id = ended.scope_id and t.from_version = ended.from_version
        """,
        {"first_kept": first_kept, "limit": limit},
    )


def delete_old_snapshots(access: TenantDb, first_kept: int) -> int:
    """Delete the versions before the first kept one, with the stored answers that rest on them.
    Returns how many. In a transaction, after their trees and slots are deleted."""
    params: dict[str, object] = {"first_kept": first_kept}
    access.execute(
        "delete from reference_answers where version > 0 and version < %(first_kept)s", params
    )
    return access.execute("delete from snapshots where version < %(first_kept)s", params)


def delete_old_repeatable_answers(access: TenantDb, before: datetime, limit: int) -> int:
    """Delete up to `limit` answers given before this time. Returns how many. In a transaction."""
    return access.execute(
        "delete from reference_answers where answer_id in (select answer_id from reference_answers"
        " where answered_at < %(before)s order by answered_at limit %(limit)s)",
        {"before": before, "limit": limit},
    )


@dataclass(frozen=True)
class _DeletedStagedTree:
    scope_id: UUID
    node_ids: list[UUID]
    slots: list[UUID]


def delete_trees_of_unpublished_builds(access: TenantDb, limit: int) -> int:
    """Delete the staged trees of up to `limit` scopes of builds that ended without publishing, with
    the contents that only they referenced. Returns how many. In a transaction."""
    rows = access.fetch(
        _DeletedStagedTree,
        """
        with staged as materialized (
            select b.tenant_id, b.job_id, b.scope_id, b.tree from topic_build_scopes b
            join jobs j using (tenant_id, job_id)
            where b.tree is not null and j.state in ('done', 'failed')
            order by b.job_id, b.scope_id limit %(limit)s),
        cleared as (
            update topic_build_scopes b set tree = null from staged s
            where b.job_id = s.job_id and b.scope_id = s.scope_id)
        select s.scope_id, array(select r.node_id
                from jsonb_to_recordset(s.tree -> 'rows') r (node_id uuid)) as node_ids,
            array(select r.slot from jsonb_to_recordset(s.tree -> 'rows') r
                (slot uuid, is_leaf boolean) where r.is_leaf) as slots
        from staged s
        """,
        {"limit": limit},
    )
    for row in rows:
        _delete_unreferenced_contents(access, row.node_ids, row.slots)
    return len(rows)


def _delete_unreferenced_contents(
    access: TenantDb, node_ids: Sequence[UUID], slots: Sequence[UUID]
) -> None:
    """Delete those of these contents that no slot references, and those event links of these leaves
    that no version of the leaf needs."""
    params: dict[str, object] = {"node_ids": list(node_ids), "slots": list(slots)}
    access.execute(
        """
        delete from topic_nodes n where n.node_id = any (%(node_ids)s) and not exists (
            select from topic_tree t where t.tenant_id = n.tenant_id and t.node_id = n.node_id)
        """,
        params,
    )
    access.execute(
        """
        delete from topic_events e where e.chain_id = any (%(slots)s) and not exists (
            select from topic_tree t
            where t.tenant_id = e.tenant_id and t.scope_id = e.scope_id and t.slot = e.chain_id
                and t.is_leaf and t.chain_version >= e.since_version)
        """,
        params,
    )


def delete_lease_job(access: TenantDb, job_id: UUID) -> None:
    """Delete the job that held the builder's lease for a collection. In a transaction."""
    access.execute("delete from jobs where job_id = %(job_id)s", {"job_id": job_id})


def collect_garbage(lease: Lease, now: datetime) -> Mapping[str, int]:
    """Delete the inactive snapshots of the lease's tenant that are older than the setting, the rows
    that only they referenced, old answers, and the staged rows of unpublished builds. Does nothing
    while a build is running. Returns counts."""
    access, run = lease.access, f"collect-{lease.shard_lease.job_id}"
    with lease.transaction():
        store_runs.fail_expired_jobs(access, "builder", now)
        job_id = store_runs.queue_job_for_run(access, "builder", run, now)
    if job_id is None:
        return {}
    try:
        return _delete_in_batches(lease, now - timedelta(days=get_settings().snapshot_days))
    finally:
        with access.transaction():
            delete_lease_job(access, job_id)


def _delete_in_batches(lease: Lease, before: datetime) -> dict[str, int]:
    access, end = lease.access, time.monotonic() + _MAX_SECONDS
    first_kept = find_first_kept_version(access, before)
    totals: dict[str, int] = {}

    def run(name: str, size: int, batch: Callable[[], int]) -> bool:
        """Run batches until one is not full. Returns whether everything was deleted."""
        while time.monotonic() < end and not lease.is_out_of_time():
            with lease.transaction():
                count = batch()
            totals[name] = totals.get(name, 0) + count
            if count < size:
                return True
        return False

    rows = _ROWS_PER_COMMIT
    scopes = _SCOPES_PER_COMMIT
    run("answers_removed", rows, lambda: delete_old_repeatable_answers(access, before, rows))
    run("builds_collected", scopes, lambda: delete_trees_of_unpublished_builds(access, scopes))
    if first_kept is None:
        return totals
    steps = {
        "trees_collected": delete_trees_of_old_versions,
        "slots_collected": delete_slots_of_old_versions,
    }
    is_done = all(
        run(name, rows, functools.partial(step, access, first_kept, rows))
        for name, step in steps.items()
    )
    if is_done:
        with lease.transaction():
            totals["snapshots_removed"] = delete_old_snapshots(access, first_kept)
    return {name: count for name, count in totals.items() if count}
