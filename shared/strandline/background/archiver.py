"""The archiver job: archive cold chains, remove payloads that no event cites, and collect what is
left of old snapshots."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from strandline.chains import archive
from strandline.jobs.runner import JobResources, Lease, Shard
from strandline.topics import collection

name = "archiver"


def plan(resources: JobResources, now: datetime, tenant: str | None) -> Sequence[Shard]:
    """List one shard per tenant with something to archive or to collect. With `tenant`, only that
    tenant, whether or not it has work."""
    return archive.plan(resources, now, tenant)


def shard(resources: JobResources, lease: Lease, shard: Shard, now: datetime) -> Mapping[str, int]:
    """Archive one tenant's cold chains, remove its uncited payloads, then collect its old
    snapshots. Returns counts."""
    return {**archive.shard(resources, lease, shard, now), **collection.collect(lease, now)}


def finish(resources: JobResources, now: datetime) -> None:
    """Delete the shard lists of runs that never finished."""
    archive.finish(resources, now)
