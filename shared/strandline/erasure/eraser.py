"""The eraser job: complete an erasure once its events are unreadable. It turns marked events into
tombstones, removes payloads and exports, rebuilds chains that lost events, and signs the
receipt."""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import retry_enrichment, store_archiving
from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.erasure import (
    erase_events,
    receipts,
    store,
    store_job,
    store_selections,
    store_vacuum,
)
from strandline.erasure.store import Erasure
from strandline.erasure.store_job import ChainToRebuild, ObjectToRemove
from strandline.errors import NotFound
from strandline.jobs import store_failures
from strandline.jobs.runner import JobResources, Lease, LeaseLost, Shard, error_code, skip_clean_up
from strandline.jobs.worker_resources import WorkerResources
from strandline.observability import logger
from strandline.tenants.store_spaces import read_space

name = "eraser"
_PAGE = 200
"""How many objects or chains are listed at a time."""
_MAX_ATTEMPTS = 20
"""After this many failed attempts a chain is not rebuilt and stays without its text. The erasure
completes without it. An admin can have the scope folded again."""
_PAYLOAD_WAIT = timedelta(minutes=15, seconds=10)
"""How long a marked payload is kept. This is longer than any append that may still cite it can
run."""
_VACUUM_SPACING = timedelta(hours=1)
"""The time after a vacuum of the tables, for any tenant, before the next one: less where it is
quick. After a failed vacuum it is always this long, so that what held it back may end."""
_MAX_VACUUMS = 5
"""After this many failed vacuums an erasure completes without one, and its receipt says so.
Autovacuum removes the rows later."""
_RETRY_WAIT = timedelta(minutes=5)
"""How long to wait before a failed rebuild of a chain is tried again."""
_PAUSE_SHARE = 0.5
"""How long the job pauses after a batch of tombstones, as a share of the time that the batch took.
The pause gives others access to the scopes and the database."""
_REQUEST_TIME = timedelta(minutes=1)
"""Longer than any request runs. Whatever a request read before an erasure is stored by then."""
_REQUEST_WAIT = _REQUEST_TIME
"""An erasure completes only after every request that started before it has ended."""
_RESERVED_SECONDS = 60.0
"""With less time left than this, no further chain is started: a model call may take 20 s, twice."""
_UPLOADS = "uploads/"


def plan_shards(resources: JobResources, now: datetime, only_tenant: str | None) -> Sequence[Shard]:
    """List one shard per tenant with an erasure in progress. With `only_tenant`, list only that
    tenant, whether or not it has work."""
    if only_tenant is not None:
        return [Shard(only_tenant)]
    tenants = store_job.list_due_tenants(resources.database.connection(), now)
    return [Shard(one) for one in tenants]


def work_on_shard(
    resources: JobResources, lease: Lease, shard: Shard, now: datetime
) -> Mapping[str, int]:
    """Continue one tenant's erasures. Returns counts. Every step can be repeated."""
    del shard
    totals = Counter[str]()
    erasures = store_job.list_incomplete_erasures(lease.access)
    for erasure in erasures:
        if erasure.cleared_at is None:
            _clear_marked_events(resources, lease, erasure, now, totals)
    now = lease.clock()  # later than what was cleared just now
    has_exports = not _remove_export_files(resources, lease, erasures, totals)
    _remove_objects_of_erased_events(resources, lease, now, totals)
    _rebuild_chains(resources, lease, now, totals)
    _vacuum_if_due(resources, lease, now, totals)
    for erasure in store_job.list_incomplete_erasures(lease.access):
        _complete_or_postpone_erasure(lease, erasure, now, totals, has_exports=has_exports)
    lease.tally.counters.update(
        {metric: totals[key] for key, metric in _METRICS.items() if totals[key]}
    )
    return {key: count for key, count in totals.items() if count}


_METRICS = {
    "events_erased": "EventsErased",
    "payloads_erased": "PayloadsErased",
    "chains_renewed": "ChainsRenewed",
    "erasures_completed": "ErasuresCompleted",
    "vacuums_failed": "VacuumsFailed",
    "vacuums_given_up": "VacuumsGivenUp",
}
"""The metric for each count of a shard."""


clean_up_after_run = skip_clean_up
"""An erasure leaves nothing to clean up."""


def _clear_marked_events(
    resources: JobResources, lease: Lease, erasure: Erasure, now: datetime, totals: Counter[str]
) -> None:
    """Turn the events of an erasure's marks into tombstones, on behalf of the caller who requested
    it."""
    viewer = tuple(erasure.participants)
    caller = Caller(lease.tenant, viewer, *viewer[:1], sees_erased=True)
    access = resources.database.connect_as(caller)
    for mark in store_selections.list_erasure_marks(access, erasure.erasure_id):
        if lease.is_out_of_time():
            return
        started = time.monotonic()
        for count in erase_events.clear_marked_events(access, erasure, mark, now):
            totals["events_erased"] += count
            if lease.is_out_of_time():
                return
            time.sleep(_PAUSE_SHARE * (time.monotonic() - started))
            started = time.monotonic()


def _remove_export_files(
    resources: JobResources, lease: Lease, erasures: Sequence[Erasure], totals: Counter[str]
) -> bool:
    """Remove export files that may contain erased events, because they were read before the latest
    of these erasures. Users can export again. Returns whether all of them are gone."""
    latest = max((erasure.hidden_at for erasure in erasures), default=None)
    if latest is None:
        return True
    left_count = 0
    for erased in resources.blobs.erase_exports(lease.tenant, latest + _REQUEST_TIME):
        left_count += erased.left
        totals["exports_erased"] += erased.files
        if erased.files:
            counts = {"s3_exports": erased.files, "s3_versions": erased.versions}
            with lease.transaction():
                store.add_erasure_counts(lease.access, {one.erasure_id: counts for one in erasures})
        if lease.is_out_of_time():
            return False
    return left_count == 0


def _remove_objects_of_erased_events(
    resources: JobResources, lease: Lease, now: datetime, totals: Counter[str]
) -> None:
    """Remove all versions of the objects that only erased events cited. A payload is marked first,
    and removed once every append that may still rely on it has ended. An upload is removed at once,
    and again after its URL has expired, because until then it could be uploaded again."""
    after, expired_at = "", now - _longest_upload_url_life()
    while not lease.is_out_of_time():
        page = store_job.list_objects_to_remove(lease.access, after, _PAGE)
        if not page:
            return
        after = page[-1].object
        names = [payload.object for payload in page]
        uploads = [one for one in names if one.startswith(_UPLOADS)]
        expired = {one.object for one in page if one.marked_at and one.marked_at <= expired_at}
        cids = [one for one in names if not one.startswith(_UPLOADS)]
        cited = store_job.list_payloads_in_use(lease.access, cids)
        uncited = [cid for cid in cids if cid not in cited]
        removed = _erase_objects(resources, lease.tenant, uploads)
        ended = [one for one in uploads if one in expired and one in removed]
        with lease.transaction():
            # removals that an earlier run began, or that this one begins
            removable = store_job.list_unfinished_removals(lease.access, uncited)
            removable += store_archiving.begin_payload_removal(lease.access, uncited)
            store_job.mark_objects_for_removal(lease.access, [*uploads, *uncited], now)
            store.add_erasure_counts(lease.access, _count_removals_by_erasure(page, removed, ended))
        gone = _erase_objects(resources, lease.tenant, removable)
        with lease.transaction():
            store_archiving.end_payload_removal(lease.access, list(gone))
            done = {*ended, *cited, *gone}
            store_job.mark_objects_removed(
                lease.access, [one for one in page if one.object in done]
            )
            store.add_erasure_counts(lease.access, _count_removals_by_erasure(page, gone, gone))
        totals["payloads_erased"] += len(ended) + len(gone)
        totals["payloads_kept"] += len(cited)


def _erase_objects(resources: JobResources, tenant: str, objects: Sequence[str]) -> dict[str, int]:
    """Remove payloads and uploads. Returns those that are completely gone, each with its number of
    versions."""
    keys = {_make_object_key(tenant, one): one for one in objects}
    return {
        keys[key]: total for key, total in resources.blobs.erase_all_versions(list(keys)).items()
    }


def _make_object_key(tenant: str, name: str) -> str:
    if name.startswith(_UPLOADS):
        return f"_uploads/{tenant}/{name.removeprefix(_UPLOADS)}"
    return f"{tenant}/{name}"


def _count_removals_by_erasure(
    payloads: Sequence[ObjectToRemove], versions: Mapping[str, int], ended: Collection[str]
) -> dict[UUID, Counter[str]]:
    """The counts of each erasure for objects whose versions were removed. The objects in `ended`
    will not be removed again."""
    counts = defaultdict[UUID, Counter[str]](Counter)
    for payload in payloads:
        for erasure_id in payload.erasure_ids:
            counts[erasure_id]["s3_versions"] += versions.get(payload.object, 0)
            if payload.object in ended:
                is_upload = payload.object.startswith(_UPLOADS)
                counts[erasure_id]["s3_uploads" if is_upload else "s3_payloads"] += 1
    return counts


def _longest_upload_url_life() -> timedelta:
    """How long an upload's URL may stay valid after its row is gone."""
    return timedelta(seconds=get_settings().upload_seconds) + _REQUEST_TIME


def _rebuild_chains(
    resources: JobResources, lease: Lease, now: datetime, totals: Counter[str]
) -> None:
    """Rebuild the chains that lost events from their remaining events. A failure of one chain does
    not stop the others."""
    worker = WorkerResources(
        resources.database,
        resources.blobs,
        resources.embedder_of(read_space(lease.access).reading_space),
        lease.deadline,
        lease.tally,
        resources.llm,
        get_settings().tuning,
        str(lease.shard_lease.job_id),
        clock=resources.clock,
        renew=lease.renew,
    )
    for chain in store_job.list_chains_to_rebuild(lease.access, _PAGE, _MAX_ATTEMPTS):
        if time.monotonic() > lease.deadline - _RESERVED_SECONDS or lease.is_out_of_time():
            return
        try:
            retry_enrichment.retry_enrichment(worker, lease.tenant, chain.chain_id, now)
        except NotFound:  # it was dropped, or folded into another
            totals["chains_gone"] += 1
        except LeaseLost:
            raise
        except Exception as error:  # the other chains are still formed
            log_fields = {"scopes": [chain.scope_id], "reason": error_code(error)}
            logger.warning("chain not formed again", extra=log_fields)
            with lease.transaction():
                store_job.count_failed_rebuild(lease.access, chain.chain_id)
            continue
        else:
            totals["chains_renewed"] += 1
        with lease.transaction():
            store_job.mark_chain_rebuilt(lease.access, chain)
            if chain.was_promoted:
                _queue_promotion_retry(lease, chain)


def _queue_promotion_retry(lease: Lease, chain: ChainToRebuild) -> None:
    """Make the promoter read a chain again, whatever its heat. In a transaction."""
    job_id = store_failures.record_retryable_failure(
        lease.access,
        kind=store_failures.PROMOTE_KIND,
        scope_id=chain.scope_id,
        participants=chain.participants,
        reason="erased",
        advice="The promoter reads the chain again by itself.",
        ref=chain.chain_id,
    )
    store_job.queue_failed_job_for_retry(lease.access, job_id)


def _vacuum_if_due(
    resources: JobResources, lease: Lease, now: datetime, totals: Counter[str]
) -> None:
    """Vacuum the rows that erasures cleared, once no transaction can see them and no migration
    waits for their tables."""
    waiting = store_vacuum.list_unvacuumed_erasures(lease.access, _MAX_VACUUMS)
    last = store_vacuum.read_latest_vacuum_run(lease.access)
    ripe = [
        one
        for one in waiting
        if not one.is_seen
        and now >= one.cleared_at + _REQUEST_WAIT
        and now >= last.compute_next(now, _VACUUM_SPACING, one.vacuums)
    ]
    if not ripe or last.is_running or lease.is_out_of_time():
        return
    if store_vacuum.is_migration_waiting(resources.database.connection()):
        return
    began_at = resources.clock()
    with lease.transaction():
        store_vacuum.count_vacuum_attempt(lease.access, [one.erasure_id for one in ripe])
    try:
        vacuum = store_vacuum.vacuum_tables_with_memory(resources.database, lease.is_out_of_time)
    except Exception as error:  # the receipt waits for the next vacuum, up to _MAX_VACUUMS
        vacuum = store_vacuum.VacuumResult(None, error_code(error))
    cutoff = vacuum.cutoff
    given_up = [one.erasure_id for one in ripe if cutoff is not None and one.is_vacuumed_by(cutoff)]
    if len(given_up) < len(ripe):
        reason = vacuum.reason or "older_snapshot_is_held"
        logger.warning("tables not vacuumed", extra={"reason": reason})
        totals["vacuums_failed"] += 1
    with lease.transaction():
        store_vacuum.record_vacuum(lease.access, given_up, began_at)


def _complete_or_postpone_erasure(
    lease: Lease, erasure: Erasure, now: datetime, totals: Counter[str], *, has_exports: bool
) -> None:
    """Complete an erasure that has nothing left to wait for, or record when the job continues
    it."""
    access = lease.access
    remaining = store_job.count_remaining_work(access, erasure.erasure_id, _MAX_ATTEMPTS)
    with lease.transaction():
        if erasure.cleared_at is None or has_exports:
            store_job.postpone_erasure(access, erasure.erasure_id, now)
        elif remaining.chains:
            store_job.postpone_erasure(access, erasure.erasure_id, now + _RETRY_WAIT)
        elif remaining.payloads:
            waits = (
                (remaining.marked_at, _PAYLOAD_WAIT),
                (remaining.uploads_marked_at, _longest_upload_url_life()),
            )
            ends = [marked_at + wait for marked_at, wait in waits if marked_at is not None]
            store_job.postpone_erasure(access, erasure.erasure_id, max(now, min(ends, default=now)))
        elif now < erasure.cleared_at + _REQUEST_WAIT:
            store_job.postpone_erasure(
                access, erasure.erasure_id, erasure.cleared_at + _REQUEST_WAIT
            )
        elif erasure.vacuumed_at is None and erasure.vacuums < _MAX_VACUUMS:
            last = store_vacuum.read_latest_vacuum_run(access)
            next_at = last.compute_next(now, _VACUUM_SPACING, erasure.vacuums)
            pause = _RETRY_WAIT if erasure.vacuums else _REQUEST_WAIT
            store_job.postpone_erasure(access, erasure.erasure_id, max(now + pause, next_at))
        else:
            events = store.list_erased_events(access, erasure.erasure_id)
            settings = get_settings()
            completed_at = lease.clock()
            receipt = receipts.build_receipt(
                lease.tenant, erasure, events, completed_at, settings.backup_days
            )
            signature = receipts.sign_receipt(settings.sealing_secret, receipt)
            store_job.complete_erasure(access, erasure.erasure_id, receipt, signature, completed_at)
            totals["erasures_completed"] += 1
            totals["vacuums_given_up"] += erasure.vacuumed_at is None
