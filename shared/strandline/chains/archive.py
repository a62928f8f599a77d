"""Archive: cold chains leave mid-term memory, payloads that nobody cites leave the store."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from strandline.chains import store_garbage
from strandline.config import settings
from strandline.jobs.runner import Lease, Shard, Tools

name = "archiver"
_CHAINS = 500
"""Archived between two commits."""
_RUNS_KEPT = timedelta(days=7)
"""How long the lists of a run's shards stay in the bucket."""


def plan(tools: Tools, now: datetime, tenant: str | None) -> Sequence[Shard]:
    """Tenants with cold chains, or whose payloads are to be looked through."""
    if tenant is not None:
        return [Shard(tenant)]
    grace = timedelta(seconds=settings().blob_grace_seconds)
    due = store_garbage.tenants(tools.database.connection(), now, grace)
    return [Shard(tenant) for tenant in due]


def shard(tools: Tools, lease: Lease, shard: Shard, now: datetime) -> Mapping[str, int]:
    """One tenant's. What is to happen to a chain before it leaves comes before this."""
    del shard
    chains = _archive_chains(lease, now)
    return {"chains_archived": chains, "payloads_removed": _collect(tools, lease, now)}


def finish(tools: Tools, now: datetime) -> None:
    """Lists of runs that never came to their end go."""
    tools.blobs.forget_runs(now - _RUNS_KEPT)


def _archive_chains(lease: Lease, now: datetime) -> int:
    """All that are cold, as many as there is time for."""
    archived = 0
    while not lease.out_of_time():
        with lease.transaction():
            gone = store_garbage.archive(lease.access, now, _CHAINS)
        archived += gone
        if gone < _CHAINS:
            break
    return archived


def _collect(tools: Tools, lease: Lease, now: datetime) -> int:
    """Look through the tenant's payloads, a page at a time, from where the last look ended."""
    removed = 0
    with lease.transaction():
        position = store_garbage.pass_begins(lease.access)
    grace = timedelta(seconds=settings().blob_grace_seconds)
    while not lease.out_of_time():
        page = tools.blobs.stored(lease.tenant, position)
        old = [one.cid for one in page if one.put_at < now - grace]
        removed += _remove(tools, lease, old)
        position = page[-1].cid if page else ""
        with lease.transaction():
            store_garbage.pass_goes_on(lease.access, position, now)
        if not page:
            break
    return removed


def _remove(tools: Tools, lease: Lease, old: Sequence[str]) -> int:
    """Of a page's old payloads those that may go. The order is what keeps every citation whole: the
    removal is committed, then the bytes go, then appends may put them anew."""
    if not old:
        return 0
    with lease.transaction():
        doomed = store_garbage.begin_removal(lease.access, old)
    if not doomed:
        return 0
    gone = tools.blobs.remove(lease.tenant, doomed)
    with lease.transaction():
        store_garbage.end_removal(lease.access, gone)
    return len(gone)
