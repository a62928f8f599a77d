"""What an append costs, and its charge to the tenant's quotas."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from strandline.config_quotas import Quota
from strandline.db.database import TenantDb
from strandline.errors import OutcomeUnknown, QuotaExceeded, TooLarge
from strandline.log import store
from strandline.log.append_state import AppendBatch
from strandline.log.event_builder import NewEvent
from strandline.tenants.quotas import QuotaManager


def charge_quotas_and_store(
    quotas: QuotaManager,
    access: TenantDb,
    batch: AppendBatch,
    store_batch: Callable[[AppendBatch], AppendBatch],
    deadline: float | None,
) -> AppendBatch:
    """Charge the quotas, store the batch by `store_batch`, and refund items that created no event.

    After OutcomeUnknown nothing is refunded: the items may be in the log. When a quota is
    exhausted, items that the log already has or would refuse still get their result: they cost
    nothing.
    """
    batch, costs = _count_stored_bytes_by_item(batch)
    costs_by_quota: Mapping[Quota, Mapping[int, int]] = {
        "appends": dict.fromkeys(costs, 1),
        "stored_bytes": costs,
    }
    tenant = access.caller.tenant
    debits: list[Quota] = []
    unused: Collection[int] = costs.keys()
    try:
        try:
            for quota, amounts in costs_by_quota.items():
                quotas.spend(tenant, quota, sum(amounts.values()), deadline)
                debits.append(quota)
        except (QuotaExceeded, TooLarge):
            if not _would_create_no_event(access, batch):
                raise
        stored_batch = store_batch(batch)
        results = stored_batch.results
        unused = [n for n in costs if n not in results or not results[n].is_new]
        return stored_batch
    except OutcomeUnknown:
        unused = ()
        raise
    finally:
        for quota in debits if unused else ():
            amounts = costs_by_quota[quota]
            quotas.refund(tenant, quota, sum(amounts[n] for n in unused))


def _would_create_no_event(access: TenantDb, batch: AppendBatch) -> bool:
    """Whether the log already has, or would refuse, every item."""
    events = list(batch.events.values())
    if any(event.source_event_key is None for event in events):
        return False
    return len(store.preview_rejections(access, events)) == len(events)


def _count_stored_bytes_by_item(batch: AppendBatch) -> tuple[AppendBatch, Mapping[int, int]]:
    """Count the payloads that the batch brings as bytes of their events, and give the stored bytes
    that each item costs, by item number. A payload counts once per request, for the first item that
    brings it. An upload was charged when it began."""
    events: dict[int, NewEvent] = {}
    costs: dict[int, int] = {}
    counted_cids: set[str | None] = set()
    for n, event in batch.events.items():
        events[n], costs[n] = event, event.bytes
        if event.blob_stored and event.blob_cid not in counted_cids:
            counted_cids.add(event.blob_cid)
            size = event.blob_size or 0
            events[n] = replace(event, bytes=event.bytes + size)
            costs[n] += 0 if batch.drafts[n].payload is None else size
    return replace(batch, events=events), costs
