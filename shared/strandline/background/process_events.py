"""Process a scope's new events: embed them, then fold them."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from strandline.background.compute_event_vectors import compute_vectors
from strandline.background.defer_scopes_under_erasure import defer_scopes_under_erasure
from strandline.background.embed_nodes import embed_new_nodes
from strandline.background.substring_index import index_scopes
from strandline.chains.form import fold_scope
from strandline.db.database import Caller, TenantDb
from strandline.errors import Unavailable
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import WorkDeferred, WorkerResources, describe_error
from strandline.log import store_work
from strandline.log.store_tenant_counts import read_due_work
from strandline.log.store_work import EventVector
from strandline.observability import logger
from strandline.personas.sona_mentions import record_named_sonas
from strandline.personas.store_memories import update_centroids

BATCH = 128
"""How many events are embedded between two commits: about a second of the local model."""
_SCOPES_PER_LEASE = 100
"""How many scopes a sweep leases at a time."""
_MAX_FAILURES_IN_A_ROW = 3
"""After this many failed scopes in a row the model, not a text, is taken to be at fault."""
_MAX_RETRY_SECONDS = 300
"""The longest pause before failed work is tried again."""


def process_scopes(worker: WorkerResources, tenant: str, scope_ids: Sequence[UUID]) -> int:
    """Embed and fold the scopes that a queue message names. Returns how many are not finished;
    their work stays due. Not counted: nothing due, held by another worker, waiting for a model."""
    access = worker.database.connect_as(Caller.background(tenant))
    failed_count = 0
    # In a loop, because an append during the last step sent no message. A scope whose turn is over
    # is left out: a new message is sent for it.
    while remaining := [
        scope_id for scope_id in scope_ids if scope_id not in worker.tally.unfinished_scopes
    ]:
        leases = store_work.lease_due_scopes(access, remaining, len(remaining))
        if not leases:
            break
        outcome = _process_leases(worker, access, leases)
        failed_count += outcome.failed_count
        if worker.is_out_of_time():
            return (
                failed_count
                + len(leases)
                - outcome.finished_count
                - outcome.failed_count
                - outcome.waiting_count
            )
    return failed_count


def process_tenant(worker: WorkerResources, tenant: str, scan_all: bool = True) -> int:
    """Embed and fold whatever is due in one tenant. Returns how many scopes were finished. With
    `scan_all`, all scopes are first scanned for work that no row names."""
    access = worker.database.connect_as(Caller.background(tenant))
    finished_count = 0
    with access.transaction():
        if scan_all:
            store_work.enqueue_unfinished_scopes(access, worker.embedder.space)
        worker.tally.due_work.append(read_due_work(access, worker.embedder.space))
    while not worker.is_out_of_time():
        leases = store_work.lease_due_scopes(access, None, _SCOPES_PER_LEASE)
        if not leases:
            break
        finished_count += _process_leases(worker, access, leases).finished_count
    return finished_count


def process_scope_now(worker: WorkerResources, tenant: str, scope_id: UUID) -> None:
    """Process one scope at once, even if its work is postponed. Raises Unavailable where it fails
    again, waits for a model, or is leased by another worker; a killed worker's lease holds until it
    runs out."""
    access = worker.database.connect_as(Caller.background(tenant))
    with access.transaction():
        is_due = store_work.make_due_now(access, scope_id)
    leases = store_work.lease_due_scopes(access, [scope_id], 1)
    if is_due and not leases:
        raise Unavailable("Another worker has this scope; try again later.")
    outcome = _process_leases(worker, access, leases) if leases else _ScopeCounts(0, 0, 0)
    if outcome.waiting_count:
        raise Unavailable("This scope waits for a model; try again later.")
    is_unfinished = len(leases) > outcome.finished_count and worker.is_out_of_time()
    if outcome.failed_count or is_unfinished or process_scopes(worker, tenant, [scope_id]):
        raise Unavailable("This scope failed again. Look for the reason in the log.")


class _ScopeCounts(NamedTuple):
    """How many of the leased scopes were finished, failed, or have to wait."""

    finished_count: int
    failed_count: int
    waiting_count: int
    """Nothing failed, but nothing can be done for a while."""


def _process_leases(
    worker: WorkerResources, access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> _ScopeCounts:
    """Embed and fold leased scopes, then release them as finished, due again, or postponed. Scopes
    with events that are being erased wait."""
    before = worker.tally.embedded_events, worker.tally.counters["EventsFolded"]
    _record_stuck_before_retry(access, leases)
    readable = defer_scopes_under_erasure(worker, access, leases)
    failures = _embed_leases(worker, access, readable) if readable else {}
    unready_ids = _fold_leases(worker, access, readable, failures)
    has_progressed = before != (worker.tally.embedded_events, worker.tally.counters["EventsFolded"])
    if not has_progressed:  # and no vector will come by itself
        failures |= {
            scope_id: Unavailable("A message's vector is missing.") for scope_id in unready_ids
        }
    deferrals = _pop_deferred_scopes(worker, leases, failures)
    healthy_leases = [
        lease
        for lease in leases
        if lease.scope_id not in failures and lease.scope_id not in deferrals
    ]
    finished_count = _release_leases(
        worker, access, healthy_leases, deferrals, made_progress=has_progressed
    )
    worker.tally.retry_delays |= {
        scope_id: deferral.seconds
        for scope_id, deferral in deferrals.items()
        if not deferral.is_out_of_time
    }
    _postpone_failed(
        worker, access, [lease for lease in leases if lease.scope_id in failures], failures
    )
    cut_off_count = sum(deferral.is_out_of_time for deferral in deferrals.values())
    return _ScopeCounts(
        finished_count, len(failures) + cut_off_count, len(deferrals) - cut_off_count
    )


def _release_leases(
    worker: WorkerResources,
    access: TenantDb,
    healthy_leases: Sequence[store_work.ScopeLease],
    deferrals: Mapping[UUID, WorkDeferred],
    *,
    made_progress: bool,
) -> int:
    """Release scopes that did not fail as finished or due again, and postpone deferred ones.
    Returns how many are finished."""
    healthy_scopes = [lease.scope_id for lease in healthy_leases]
    recovered_scopes = [
        lease.scope_id for lease in healthy_leases if lease.attempts >= store_work.STUCK_ATTEMPTS
    ]
    finished_count = 0
    with access.transaction():
        if healthy_scopes:
            finished_count = store_work.release_leases(
                access, healthy_scopes, worker.embedder.space, made_progress=made_progress
            )
        if recovered_scopes:
            store_failures.resolve_failures(
                access, store_failures.FOLD_KIND, recovered_scopes, worker.clock()
            )
        for scope_id, deferral in deferrals.items():
            seconds = max(1, math.ceil(deferral.seconds))
            store_work.postpone(access, [scope_id], seconds, deferral.reason, failed=False)
    return finished_count


def _embed_leases(
    worker: WorkerResources, access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> dict[UUID, Exception]:
    """Index and embed leased scopes together, with one statement for all. Where that fails they are
    tried one by one, so that only the scope at fault fails. Returns the error of each failed
    scope."""
    try:
        index_scopes(worker, access, [lease.scope_id for lease in leases])
        _embed_scopes(worker, access, [lease.scope_id for lease in leases])
        embed_new_nodes(worker, access, [lease.scope_id for lease in leases])
        return {}
    except Exception as error:  # unexpected ones too: else its scope would be the first due again
        if len(leases) == 1:
            return {leases[0].scope_id: error}
        failure = error
    failures: dict[UUID, Exception] = {}
    failures_in_a_row = 0
    for position, lease in enumerate(leases):
        if (
            failures_in_a_row == _MAX_FAILURES_IN_A_ROW or worker.is_out_of_time()
        ):  # it is not the scope's fault
            return failures | {other.scope_id: failure for other in leases[position:]}
        new_failures = _embed_leases(worker, access, [lease])
        failures |= new_failures
        failures_in_a_row = failures_in_a_row + 1 if new_failures else 0
    return failures


def _embed_scopes(worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    space, embedded_counts, remaining = worker.embedder.space, Counter[UUID](), list(scope_ids)
    slice_end = time.monotonic() + worker.slice_seconds
    while remaining and (events := store_work.list_unembedded(access, remaining, space, BATCH)):
        vectors = compute_vectors(worker, access, events)
        event_ids = [event.event_id for event in events]
        record_named_sonas(worker.database, access.caller.tenant, event_ids, space)
        with access.transaction():
            store_work.store_vectors(access, space, vectors, events)
            update_centroids(access, event_ids, space)
            _record_refusal_failures(access, vectors)
        worker.renew()
        worker.tally.embedded_events += len(vectors)
        scopes = sorted({str(event.scope_id) for event in events})
        logger.info("events embedded", extra={"scopes": scopes, "events": len(vectors)})
        embedded_counts.update(event.scope_id for event in events)
        worker.tally.unfinished_scopes |= {
            scope_id for scope_id in remaining if embedded_counts[scope_id] >= worker.slice_events
        }
        remaining = [
            scope_id for scope_id in remaining if embedded_counts[scope_id] < worker.slice_events
        ]
        if time.monotonic() > slice_end:
            worker.tally.unfinished_scopes |= set(remaining)
            break
        if worker.is_out_of_time():
            break


def _record_refusal_failures(access: TenantDb, vectors: Sequence[EventVector]) -> None:
    """Record a visible failure for each scope with events whose vector will never come by
    itself."""
    for vector in {item.event.scope_id: item for item in vectors if item.refusal}.values():
        store_failures.record_failure(
            access,
            kind=store_failures.EMBED_KIND,
            scope_id=vector.event.scope_id,
            participants=vector.event.participants,
            reason="embedding_refused",
            advice="Some events of this scope are found by their words alone. Retry this job with a"
            " model that accepts them.",
            ref=vector.event.scope_id,
        )


def _fold_leases(
    worker: WorkerResources,
    access: TenantDb,
    leases: Sequence[store_work.ScopeLease],
    failures: dict[UUID, Exception],
) -> list[UUID]:
    """Fold leased scopes, also those without new vectors: the fold decides how long it waits for a
    vector. Returns the scopes that wait for one, and adds errors to `failures`."""
    unready_ids: list[UUID] = []
    for lease in leases:
        if worker.is_out_of_time():
            break
        try:
            reached_end = fold_scope(worker, access, lease.scope_id, worker.clock())
            must_wait = lease.scope_id in worker.tally.deferrals or worker.is_out_of_time()
            must_wait = must_wait or lease.scope_id in worker.tally.unfinished_scopes
            if not reached_end and not must_wait and lease.scope_id not in failures:
                unready_ids.append(lease.scope_id)
        except Exception as error:
            failures.setdefault(lease.scope_id, error)
    return unready_ids


def _pop_deferred_scopes(
    worker: WorkerResources,
    leases: Sequence[store_work.ScopeLease],
    failures: Mapping[UUID, Exception],
) -> dict[UUID, WorkDeferred]:
    """The leased scopes whose fold was deferred and did not fail, with the reasons."""
    all_deferrals = worker.tally.deferrals
    deferrals = {
        lease.scope_id: all_deferrals.pop(lease.scope_id)
        for lease in leases
        if lease.scope_id in all_deferrals
    }
    for scope_id, deferral in deferrals.items():
        logger.info("fold deferred", extra={"scopes": [scope_id], "reason": deferral.reason})
    return {
        scope_id: deferral for scope_id, deferral in deferrals.items() if scope_id not in failures
    }


def _postpone_failed(
    worker: WorkerResources,
    access: TenantDb,
    leases: Sequence[store_work.ScopeLease],
    failures: Mapping[UUID, Exception],
) -> None:
    """Release failed scopes for a later attempt, those with the same reason together."""
    worker.tally.failures += len(leases)
    leases_by_reason: dict[str, list[store_work.ScopeLease]] = {}
    for lease in leases:
        leases_by_reason.setdefault(describe_error(failures[lease.scope_id]), []).append(lease)
    for reason, group in leases_by_reason.items():
        attempts = max(lease.attempts for lease in group)
        seconds = min(_MAX_RETRY_SECONDS, 2 ** min(attempts, 16))
        scope_ids = [lease.scope_id for lease in group]
        log_fields = {"scopes": scope_ids, "error": reason, "attempts": attempts}
        logger.warning("scopes postponed", extra=log_fields)
        with access.transaction():
            store_work.postpone(access, scope_ids, seconds, reason)
    failed_leases = [replace(lease, attempts=lease.attempts + 1) for lease in leases]
    _record_stuck(
        access,
        failed_leases,
        {lease.scope_id: describe_error(failures[lease.scope_id]) for lease in failed_leases},
    )


def _record_stuck_before_retry(access: TenantDb, leases: Sequence[store_work.ScopeLease]) -> None:
    """Record stuck scopes as visible failures before they are tried again, as the attempt may kill
    this worker too. Failures that are already recorded are left alone: the end of the attempt has a
    better reason, and counts it."""
    stuck_leases = [lease for lease in leases if lease.attempts >= store_work.STUCK_ATTEMPTS]
    if stuck_leases:
        noted_scopes = store_failures.list_unresolved_refs(
            access, store_failures.FOLD_KIND, [lease.scope_id for lease in stuck_leases]
        )
        _record_stuck(
            access, [lease for lease in stuck_leases if str(lease.scope_id) not in noted_scopes], {}
        )


def _record_stuck(
    access: TenantDb, leases: Sequence[store_work.ScopeLease], reasons: Mapping[UUID, str]
) -> None:
    """Record a visible failure for each of these scopes whose work has failed STUCK_ATTEMPTS times
    in a row or more. If its workers were killed each time there is no reason but `worker_ended`."""
    for lease in leases:
        if lease.attempts < store_work.STUCK_ATTEMPTS:
            continue
        reason = reasons.get(lease.scope_id) or lease.last_error or "worker_ended"
        with access.transaction():
            store_failures.record_failure(
                access,
                kind=store_failures.FOLD_KIND,
                scope_id=lease.scope_id,
                participants=lease.participants,
                reason=reason,
                advice="The scope's work is retried automatically, every five minutes at most. Its"
                " events are safe. If the reason stays, search the log for the scope's id.",
                ref=lease.scope_id,
            )
