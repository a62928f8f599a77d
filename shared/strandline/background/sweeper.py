"""The sweeper job: do the work that no queue message named, the work that time makes due, and
remove what is no longer needed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.background import missing_vectors, process_events, switch_spaces
from strandline.background.calibrate_space import ensure_calibrated
from strandline.background.embed_scopes import embed_tenant_nodes_without_vector
from strandline.chains import fold_recalls_into_heat, fold_scope, retry_enrichment
from strandline.config import get_settings
from strandline.graph.fields.store_write import raise_salience_of_used_fields
from strandline.jobs import store_failures, store_runs, store_sweeps
from strandline.jobs.runner import JobResources, Lease, Shard, error_code
from strandline.jobs.worker_resources import WorkerResources
from strandline.llm import store_calls
from strandline.log import presigned_uploads, store_uploads, store_work
from strandline.observability import logger
from strandline.personas import store_deferred_answers, turn_redelivery
from strandline.recall import importance
from strandline.tenants import quotas
from strandline.tenants.store_spaces import read_space
from strandline.tenants.store_tuning import read_tuning

name = "sweeper"
_EXPORT_RETENTION = timedelta(days=1)  # an address is valid for an hour at most
_ROWS_PER_COMMIT = 1000
"""How many rows one commit prunes or folds at most."""
_FILL_SECONDS = 120.0
"""How long a sweep fills a new embedding space at most: a tenant's other steps wait for its end."""
_MAX_RETRIES = 20
"""How many failures a sweep retries; each calls a model."""


def plan_shards(resources: JobResources, now: datetime, only_tenant: str | None) -> Sequence[Shard]:
    """List one shard per tenant where anything is due. With `only_tenant`, only that tenant,
    whether or not it has work."""
    if only_tenant is not None:
        return [Shard(only_tenant)]
    connection = resources.database.connection()
    tenants = {
        *store_sweeps.list_tenants_to_sweep(connection, resources.embedder.space, now),
        *store_sweeps.list_tenants_with_implausible_due_times(connection, now),
        *store_uploads.list_tenants_with_expired_uploads(connection),
        *quotas.list_tenants_to_recount(connection),
        *fold_recalls_into_heat.list_due_tenants(connection, get_settings().tuning, now),
        *store_deferred_answers.list_due_tenants(connection, now),
    }
    return [Shard(tenant) for tenant in sorted(tenants)]


def work_on_shard(
    resources: JobResources, lease: Lease, shard: Shard, now: datetime
) -> Mapping[str, int]:
    """Do all steps for one tenant. Returns the count of each step, without zeros. A failed step
    does not stop the others; the first error is raised once all have run."""
    del shard
    totals: dict[str, int] = {}
    failures: list[Exception] = []
    for count, step in _STEPS.items():
        if lease.is_out_of_time():
            break
        try:
            totals[count] = step(resources, lease, now)
        except Exception as error:
            logger.warning("sweep step failed", extra={"step": count, "reason": error_code(error)})
            failures.append(error)
    if failures:
        raise failures[0]
    totals["events_embedded"] = lease.tally.embedded_events
    return {count: total for count, total in totals.items() if total}


def clean_up_after_run(resources: JobResources, now: datetime) -> None:
    """Remove the files of exports whose addresses are no longer valid."""
    resources.blobs.delete_old_exports(now - _EXPORT_RETENTION)


def _fail_expired_jobs(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    # Not `lease.transaction`, which locks the shard: a job is locked before its shards.
    with lease.access.transaction():
        return store_runs.fail_expired_jobs(lease.access, None, now)


def _reset_implausible_due_times(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    with lease.transaction():
        return store_sweeps.reset_implausible_due_times(lease.access, now)


def _resend_unanswered_chat_turns(resources: JobResources, lease: Lease, now: datetime) -> int:
    return turn_redelivery.notify_worker_of_due_answers(lease.access, resources.work_queue, now)


def _calibrate_space(resources: JobResources, lease: Lease, now: datetime) -> int:
    """Measure the space that the tenant reads, before topics end and chains merge by it. One that
    it switches to is measured with its switch, so that a new model that fails fails no sweep."""
    del now
    ensure_calibrated(
        lease.access, _make_worker_for_reading_space(resources, lease).embedder, lease.deadline
    )
    return 0


def _embed_and_fold_due_scopes(resources: JobResources, lease: Lease, now: datetime) -> int:
    worker, space = (
        _make_worker_resources(resources, lease),
        _make_worker_for_reading_space(resources, lease).embedder.space,
    )
    scan_all = store_sweeps.is_full_scan_due(lease.access, space, now)
    outcome = process_events.embed_and_fold_due_scopes(worker, lease.tenant, scan_all)
    _send_scope_retry_hints(resources, lease, outcome)
    return outcome.finished_count


def _send_scope_retry_hints(
    resources: JobResources, lease: Lease, outcome: process_events.EmbedAndFoldOutcome
) -> None:
    """Hint at the scopes that are to be tried again, each when it is due."""
    resources.work_queue.send_later(lease.tenant, outcome.retry_delays)


def _embed_chains_and_nodes(resources: JobResources, lease: Lease, now: datetime) -> int:
    """Embed chains and nodes of the graph without a vector, if a full scan is due; record the scan
    once none is left."""
    worker = _make_worker_for_reading_space(resources, lease)
    space = worker.embedder.space
    if not store_sweeps.is_full_scan_due(lease.access, space, now):
        return 0
    embedded_count, is_complete = missing_vectors.embed_chain_summaries(worker, lease.tenant, now)
    if is_complete and embed_tenant_nodes_without_vector(worker, lease.tenant):
        with lease.transaction():
            store_work.enqueue_unfinished_scopes(
                lease.access, space
            )  # the previous step may have failed to
            store_sweeps.record_full_scan(lease.access, space, now)
    return embedded_count


def _close_idle_lanes(resources: JobResources, lease: Lease, now: datetime) -> int:
    # Half of the time left: the rest is for the other steps.
    step_deadline = (time.monotonic() + lease.deadline) / 2
    worker = replace(_make_worker_for_reading_space(resources, lease), deadline=step_deadline)
    return fold_scope.close_idle_lanes(worker, lease.tenant, now)


def _retry_queued_failures(resources: JobResources, lease: Lease, now: datetime) -> int:
    """Retry the failures that an admin has queued. A retry that fails records its own reason, and
    does not stop the others."""
    retried_count = 0
    for job in store_failures.list_failures_queued_for_retry(lease.access, _MAX_RETRIES):
        if lease.is_out_of_time():
            break
        try:
            _retry_failure(resources, lease, job, now)
            store_failures.resolve_retried_failure(lease.access, job.job_id, now)
            retried_count += 1
        except Exception as error:  # unexpected ones too: the others are still retried
            store_failures.record_failed_retry(lease.access, job.job_id, error_code(error), now)
    return retried_count


def _retry_failure(
    resources: JobResources, lease: Lease, job: store_failures.FailureQueuedForRetry, now: datetime
) -> None:
    """Retry one failure. Raises whatever it fails with."""
    worker = _make_worker_for_reading_space(resources, lease)
    tenant, subject_id = lease.tenant, UUID(job.ref)
    match job.kind:
        case store_failures.FOLD_KIND:
            outcome = process_events.embed_and_fold_scope_now(
                _make_worker_resources(resources, lease), tenant, subject_id
            )
            _send_scope_retry_hints(resources, lease, outcome)
            outcome.require_finished()
        case store_failures.EMBED_KIND:
            missing_vectors.retry_refused_vectors(worker, tenant, subject_id)
        case _:
            retry_enrichment.retry_enrichment(worker, tenant, subject_id, now)


def _fold_recalls_into_heat(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    tuning = read_tuning(lease.access, get_settings().tuning)
    while (
        fold_recalls_into_heat.recompute_heat_times(lease.access, _ROWS_PER_COMMIT, tuning)
        == _ROWS_PER_COMMIT
        and not lease.is_out_of_time()
    ):
        continue
    return _run_batches(
        lease,
        lambda: fold_recalls_into_heat.fold_tenant_recalls_into_heat(
            lease.access, now, _ROWS_PER_COMMIT, tuning
        ),
    )


def _fold_uses_into_importance(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    return _run_batches(
        lease,
        lambda: importance.fold_answers_into_event_uses(
            lease.access, now, _ROWS_PER_COMMIT, raise_salience_of_used_fields
        ),
    )


def _remove_expired_uploads(resources: JobResources, lease: Lease, now: datetime) -> int:
    del now
    return presigned_uploads.remove_expired_uploads(
        resources.database, resources.blobs, lease.tenant, lease.is_out_of_time
    )


def _recount_stored_usage(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources, now
    return quotas.recount_stored_usage_if_due(lease.access)


def _prune_recalls(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    return _run_batches(
        lease,
        lambda: fold_recalls_into_heat.delete_old_recalls(
            lease.access, now - fold_recalls_into_heat.RETENTION, _ROWS_PER_COMMIT
        ),
    )


def _prune_memory_uses(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    return _run_batches(
        lease, lambda: importance.delete_expired_event_uses(lease.access, now, _ROWS_PER_COMMIT)
    )


def _prune_model_calls(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources
    before = now - timedelta(days=store_runs.RETENTION_DAYS)

    def prune() -> int:
        with lease.transaction():
            return store_calls.delete_old_calls_and_rates(lease.access, before, _ROWS_PER_COMMIT)

    return _run_batches(lease, prune)


def _prune_chat_turns(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources

    def prune() -> int:
        with lease.transaction():
            return store_deferred_answers.prune_deferred_answers(
                lease.access, now - store_deferred_answers.RETENTION, _ROWS_PER_COMMIT
            )

    return _run_batches(lease, prune)


def _prune_jobs(resources: JobResources, lease: Lease, now: datetime) -> int:
    del resources

    def prune() -> int:
        with lease.access.transaction():  # as in `_fail_expired_jobs`
            return store_runs.prune_finished_jobs(lease.access, now, _ROWS_PER_COMMIT)

    return _run_batches(lease, prune)


def _fill_space(resources: JobResources, lease: Lease, now: datetime) -> int:
    """Go on with the tenant's switch to the configured embedding space."""
    worker = _make_worker_resources(resources, lease)
    step_deadline = min((time.monotonic() + lease.deadline) / 2, time.monotonic() + _FILL_SECONDS)
    return switch_spaces.advance(replace(worker, deadline=step_deadline), lease.tenant, now)


type _Step = Callable[[JobResources, Lease, datetime], int]
_STEPS: Mapping[str, _Step] = {
    "jobs_expired": _fail_expired_jobs,
    "times_put_back": _reset_implausible_due_times,
    "turns_resent": _resend_unanswered_chat_turns,
    "spaces_measured": _calibrate_space,
    "scopes_embedded": _embed_and_fold_due_scopes,
    "chains_embedded": _embed_chains_and_nodes,
    "lanes_closed": _close_idle_lanes,
    "failures_retried": _retry_queued_failures,
    "recalls_folded": _fold_recalls_into_heat,
    "uses_folded": _fold_uses_into_importance,
    "uploads_removed": _remove_expired_uploads,
    "bytes_counted": _recount_stored_usage,
    "recalls_pruned": _prune_recalls,
    "uses_pruned": _prune_memory_uses,
    "calls_pruned": _prune_model_calls,
    "turns_pruned": _prune_chat_turns,
    "jobs_pruned": _prune_jobs,
    "vectors_filled": _fill_space,
}
"""The steps by the names of their counts, in order of urgency: work that somebody waits for comes
first."""


def _run_batches(lease: Lease, batch: Callable[[], int]) -> int:
    """Run batches until one is not full or the time is up. Returns the sum of their counts."""
    total = 0
    while not lease.is_out_of_time():
        row_count = batch()
        total += row_count
        if row_count < _ROWS_PER_COMMIT:
            break
    return total


def _make_worker_for_reading_space(resources: JobResources, lease: Lease) -> WorkerResources:
    """The worker with the model of the embedding space that the tenant reads."""
    reading_space = read_space(lease.access).reading_space
    return _make_worker_resources(resources, lease).for_reader_of(reading_space)


def _make_worker_resources(resources: JobResources, lease: Lease) -> WorkerResources:
    """The worker with the configured embedding model."""
    return WorkerResources(
        resources.database,
        resources.blobs,
        resources.embedder,
        lease.deadline,
        lease.tally,
        resources.llm,
        get_settings().tuning,
        str(lease.shard_lease.job_id),
        lease.clock,
        lease.renew,
        embedders=resources.embedders,
    )
