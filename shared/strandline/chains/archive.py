"""Archive cold chains, and remove payloads that no event cites."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from strandline.chains import store_archiving
from strandline.config import get_settings
from strandline.jobs.runner import JobResources, Lease

_CHAINS_PER_COMMIT = 500
"""The maximum number of chains that one transaction archives."""


def list_due_tenants(resources: JobResources, now: datetime) -> Sequence[str]:
    """List the tenants that have cold chains, payloads that are due for a scan, or old
    snapshots."""
    settings = get_settings()
    return store_archiving.list_due_tenants(
        resources.database.connection(),
        now,
        timedelta(seconds=settings.blob_grace_seconds),
        timedelta(days=settings.snapshot_days),
    )


def archive_chains(lease: Lease, now: datetime, *, is_promotion_needed: bool) -> int:
    """Archive the tenant's cold chains until none is left or time is up. Returns how many. Whatever
    must happen to a chain before it is archived has to run first. With `is_promotion_needed`,
    chains that are not promoted are kept."""
    archived_count = 0
    while not lease.is_out_of_time():
        with lease.transaction():
            batch_count = store_archiving.archive_cold_chains(
                lease.access, now, _CHAINS_PER_COMMIT, is_promotion_needed=is_promotion_needed
            )
        archived_count += batch_count
        if batch_count < _CHAINS_PER_COMMIT:
            break
    return archived_count


def remove_uncited_payloads(resources: JobResources, lease: Lease, now: datetime) -> int:
    """Scan the tenant's payloads page by page, starting where the last scan stopped. Returns how
    many were removed."""
    removed_count = 0
    with lease.transaction():
        position = store_archiving.begin_payload_scan(lease.access)
    grace = timedelta(seconds=get_settings().blob_grace_seconds)
    while not lease.is_out_of_time():
        page = resources.blobs.list_payloads(lease.tenant, position)
        old_cids = [blob.cid for blob in page if blob.stored_at < now - grace]
        removed_count += _remove_uncited_payloads_of_page(resources, lease, old_cids)
        position = page[-1].cid if page else ""
        with lease.transaction():
            store_archiving.record_payload_scan(lease.access, position, now, grace)
        if not page:
            break
    return removed_count


def _remove_uncited_payloads_of_page(
    resources: JobResources, lease: Lease, old_cids: Sequence[str]
) -> int:
    """Remove those old payloads of a page that are safe to remove. Returns how many. The order
    keeps every citation valid: the removal is committed, then the bytes are deleted, and only then
    may an append store them again."""
    if not old_cids:
        return 0
    with lease.transaction():
        removable_cids = store_archiving.begin_payload_removal(lease.access, old_cids)
    if not removable_cids:
        return 0
    removed_cids = resources.blobs.remove(lease.tenant, removable_cids)
    with lease.transaction():
        store_archiving.end_payload_removal(lease.access, removed_cids)
    return len(removed_cids)
