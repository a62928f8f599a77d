"""The archiver job: promote and archive cold chains, remove payloads that no event cites, and
garbage-collect old snapshots."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from strandline.chains import archive
from strandline.config import get_settings
from strandline.graph.promotion import promoter
from strandline.jobs.runner import JobResources, Lease, Shard
from strandline.tenants.store_tuning import read_tuning
from strandline.topics import garbage_collection

name = "archiver"
_SHARD_LIST_RETENTION = timedelta(days=7)
"""How long a run's list of shards stays in the bucket."""


def plan_shards(resources: JobResources, now: datetime, only_tenant: str | None) -> Sequence[Shard]:
    """List one shard per tenant with something to archive or to collect. With `only_tenant`,
    only that tenant, whether or not it has work."""
    tenants = archive.list_due_tenants(resources, now) if only_tenant is None else [only_tenant]
    return [Shard(tenant) for tenant in tenants]


def work_on_shard(
    resources: JobResources, lease: Lease, shard: Shard, now: datetime
) -> Mapping[str, int]:
    """Archive one tenant's cold chains, remove its uncited payloads, then collect its old
    snapshots. Returns counts. Chains that were not promoted yet are promoted first, if the tenant
    keeps long-term memory: left to the promoter, each would wait for two runs."""
    del shard
    keeps_graph = read_tuning(lease.access, get_settings().tuning).ltm_enabled
    promotion_counts: Mapping[str, int] = (
        promoter.promote_cold_chains(resources, lease, now) if keeps_graph else {}
    )
    archived_count = archive.archive_chains(lease, now, is_promotion_needed=keeps_graph)
    return {
        **promotion_counts,
        "chains_archived": archived_count,
        "payloads_removed": archive.remove_uncited_payloads(resources, lease, now),
        **garbage_collection.collect_garbage(lease, now),
    }


def clean_up_after_run(resources: JobResources, now: datetime) -> None:
    """Delete the shard lists of runs that never finished."""
    resources.blobs.delete_old_shards(now - _SHARD_LIST_RETENTION)
