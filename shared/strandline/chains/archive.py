"""Archive: cold chains leave mid-term memory, payloads that nobody cites leave the store."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from strandline.chains import store_garbage
from strandline.config import get_settings
from strandline.jobs.runner import JobResources, Lease, Shard

name = "archiver"
_CHAINS_PER_COMMIT = 500
"""Archived between two commits."""
_SHARD_LIST_RETENTION = timedelta(days=7)
"""How long the lists of a run's shards stay in the bucket."""


def plan(resources: JobResources, now: datetime, tenant: str | None) -> Sequence[Shard]:
    """Tenants with cold chains, or whose payloads are to be looked through."""
    if tenant is not None:
        return [Shard(tenant)]
    grace = timedelta(seconds=get_settings().blob_grace_seconds)
    tenants = store_garbage.list_tenants(resources.database.connection(), now, grace)
    return [Shard(tenant) for tenant in tenants]


def shard(resources: JobResources, lease: Lease, shard: Shard, now: datetime) -> Mapping[str, int]:
    """One tenant's. What is to happen to a chain before it leaves comes before this."""
    del shard
    archived_count = _archive_chains(lease, now)
    return {
        "chains_archived": archived_count,
        "payloads_removed": _collect_garbage(resources, lease, now),
    }


def finish(resources: JobResources, now: datetime) -> None:
    """Lists of runs that never came to their end go."""
    resources.blobs.delete_old_shards(now - _SHARD_LIST_RETENTION)


def _archive_chains(lease: Lease, now: datetime) -> int:
    """All that are cold, as many as there is time for."""
    archived_count = 0
    while not lease.is_out_of_time():
        with lease.transaction():
            batch_count = store_garbage.archive_cold_chains(lease.access, now, _CHAINS_PER_COMMIT)
        archived_count += batch_count
        if batch_count < _CHAINS_PER_COMMIT:
            break
    return archived_count


def _collect_garbage(resources: JobResources, lease: Lease, now: datetime) -> int:
    """Look through the tenant's payloads, a page at a time, from where the last look ended."""
    removed_count = 0
    with lease.transaction():
        position = store_garbage.begin_scan(lease.access)
    grace = timedelta(seconds=get_settings().blob_grace_seconds)
    while not lease.is_out_of_time():
        page = resources.blobs.list_payloads(lease.tenant, position)
        old_cids = [blob.cid for blob in page if blob.stored_at < now - grace]
        removed_count += _remove_payloads(resources, lease, old_cids)
        position = page[-1].cid if page else ""
        with lease.transaction():
            store_garbage.advance_scan(lease.access, position, now)
        if not page:
            break
    return removed_count


def _remove_payloads(resources: JobResources, lease: Lease, old_cids: Sequence[str]) -> int:
    """Of a page's old payloads those that may go. The order is what keeps every citation whole: the
    removal is committed, then the bytes go, then appends may put them anew."""
    if not old_cids:
        return 0
    with lease.transaction():
        removable_cids = store_garbage.begin_removal(lease.access, old_cids)
    if not removable_cids:
        return 0
    removed_cids = resources.blobs.remove(lease.tenant, removable_cids)
    with lease.transaction():
        store_garbage.end_removal(lease.access, removed_cids)
    return len(removed_cids)
