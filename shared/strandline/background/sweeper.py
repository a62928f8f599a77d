"""Sweep: what no hint named, what time has brought about, and what nobody needs any more."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.background import embed
from strandline.background.embed_chains import embed_chains
from strandline.chains import fold_recalls, form
from strandline.config import settings
from strandline.jobs import store as jobs_store
from strandline.jobs.context import Worker
from strandline.jobs.runner import Lease, Shard, Tools, reason_of
from strandline.llm import store as llm_store
from strandline.log import store_uploads, store_work
from strandline.log import uploads as log_uploads
from strandline.observability import logger
from strandline.tenants import recount_usage
from strandline.tenants.store import tuning_of

name = "sweeper"
_ROWS = 1000
"""Pruned or folded between two commits."""
_RETRIES = 20
"""Failures tried again in a sweep, which asks a model for each."""


def plan(tools: Tools, now: datetime, tenant: str | None) -> Sequence[Shard]:
    """Tenants where anything is due."""
    if tenant is not None:
        return [Shard(tenant)]
    connection = tools.database.connection()
    due = {
        *jobs_store.tenants_to_sweep(connection, tools.embedder.space, now),
        *store_uploads.tenants(connection),
        *recount_usage.due(connection),
        *fold_recalls.due(connection, settings().tuning, now),
    }
    return [Shard(tenant) for tenant in sorted(due)]


def shard(tools: Tools, lease: Lease, shard: Shard, now: datetime) -> Mapping[str, int]:
    """All of one tenant's. A step that fails holds up none of the others; the first failure is the
    shard's, once all had their turn."""
    del shard
    totals: dict[str, int] = {}
    failures: list[Exception] = []
    for step in _STEPS:
        if lease.out_of_time():
            break
        try:
            totals[step.__name__.strip("_")] = step(tools, lease, now)
        except Exception as error:
            logger.warning(
                "sweep failed", extra={"step": step.__name__.strip("_"), "reason": reason_of(error)}
            )
            failures.append(error)
    if failures:
        raise failures[0]
    totals["events_embedded"] = lease.tally.events
    return {step: total for step, total in totals.items() if total}


def finish(tools: Tools, now: datetime) -> None:
    """Nothing is left to tidy up."""
    del tools, now


def _jobs_expired(tools: Tools, lease: Lease, now: datetime) -> int:
    del tools
    with lease.access.transaction():  # without our part: a job is locked before its parts
        return jobs_store.expire(lease.access, None, now)


def _scopes_embedded(tools: Tools, lease: Lease, now: datetime) -> int:
    look = jobs_store.look_is_due(lease.access, tools.embedder.space, now)
    return embed.embed_tenant(_worker(tools, lease), lease.tenant, look)


def _chains_embedded(tools: Tools, lease: Lease, now: datetime) -> int:
    """Where a look through all is due; it is done with once nothing is left of it."""
    space = tools.embedder.space
    if not jobs_store.look_is_due(lease.access, space, now):
        return 0
    embedded, all_of_them = embed_chains(_worker(tools, lease), lease.tenant, now)
    if all_of_them:
        with lease.transaction():
            store_work.name_unembedded(lease.access, space)  # the step before may have failed at it
            jobs_store.looked(lease.access, space, now)
    return embedded


def _lanes_closed(tools: Tools, lease: Lease, now: datetime) -> int:
    half = (time.monotonic() + lease.deadline) / 2  # of what is left: the other steps have theirs
    worker = replace(_worker(tools, lease), deadline=half)
    return form.close_idle(worker, lease.tenant, now)


def _failures_retried(tools: Tools, lease: Lease, now: datetime) -> int:
    """Model failures that somebody asked to try again: one that fails once more says so itself, and
    one that cannot be tried is refused alone."""
    retried = 0
    for waiting in jobs_store.waiting(lease.access, _RETRIES):
        if lease.out_of_time():
            break
        try:
            _retry(_worker(tools, lease), lease.tenant, waiting, now)
            jobs_store.settle(lease.access, waiting.job_id, now)
            retried += 1
        except Exception as error:  # a fault of ours as well: what waits behind it is not at fault
            jobs_store.refuse(lease.access, waiting.job_id, reason_of(error), now)
    return retried


def _retry(worker: Worker, tenant: str, waiting: jobs_store.Waiting, now: datetime) -> None:
    """Try one failure again. Raises whatever it fails by."""
    about = UUID(waiting.ref)
    match waiting.kind:
        case jobs_store.STUCK:
            embed.work_off_now(worker, tenant, about)
        case jobs_store.NOT_EMBEDDED:
            embed.retry_refused(worker, tenant, about)
        case _:
            form.retry_enrichment(worker, tenant, about, now)


def _recalls_folded(tools: Tools, lease: Lease, now: datetime) -> int:
    del tools
    tuning = tuning_of(lease.access, settings().tuning)
    while fold_recalls.rewarm(lease.access, _ROWS, tuning) == _ROWS and not lease.out_of_time():
        continue
    return _all(lease, lambda: fold_recalls.fold(lease.access, now, _ROWS, tuning))


def _uploads_removed(tools: Tools, lease: Lease, now: datetime) -> int:
    del now
    return log_uploads.remove_due(tools.database, tools.blobs, lease.tenant, lease.out_of_time)


def _bytes_counted(tools: Tools, lease: Lease, now: datetime) -> int:
    del tools, now
    return recount_usage.measure(lease.access)


def _recalls_pruned(tools: Tools, lease: Lease, now: datetime) -> int:
    del tools
    return _all(lease, lambda: fold_recalls.prune(lease.access, now - fold_recalls.KEPT, _ROWS))


def _calls_pruned(tools: Tools, lease: Lease, now: datetime) -> int:
    del tools
    before = now - timedelta(days=jobs_store.KEPT_DAYS)

    def prune() -> int:
        with lease.transaction():
            return llm_store.prune(lease.access, before, _ROWS)

    return _all(lease, prune)


def _jobs_pruned(tools: Tools, lease: Lease, now: datetime) -> int:
    del tools

    def prune() -> int:
        with lease.access.transaction():  # as above
            return jobs_store.prune(lease.access, now, _ROWS)

    return _all(lease, prune)


type _Step = Callable[[Tools, Lease, datetime], int]
_STEPS: tuple[_Step, ...] = (
    _jobs_expired,
    _scopes_embedded,
    _chains_embedded,
    _lanes_closed,
    _failures_retried,
    _recalls_folded,
    _uploads_removed,
    _bytes_counted,
    _recalls_pruned,
    _calls_pruned,
    _jobs_pruned,
)
"""In this order: what somebody waits for comes first."""


def _all(lease: Lease, batch: Callable[[], int]) -> int:
    """A batch after the other until one is not full, or the time is over; gives the sum."""
    total = 0
    while not lease.out_of_time():
        done = batch()
        total += done
        if done < _ROWS:
            break
    return total


def _worker(tools: Tools, lease: Lease) -> Worker:
    return Worker(
        tools.database,
        tools.blobs,
        tools.embedder,
        lease.deadline,
        lease.tally,
        tools.reasoner,
        settings().tuning,
        str(lease.held.job_id),
        lease.clock,
        lease.renew,
    )
