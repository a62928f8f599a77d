"""Process a scope's new events: embed them, then fold them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from strandline.background.embed_scopes import index_and_embed_leased_scopes
from strandline.chains.fold_scope import fold_scope
from strandline.chains.fold_state import FoldOutcome
from strandline.db.database import Caller, TenantDb
from strandline.errors import Unavailable
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import Deferral, WorkerResources, describe_error
from strandline.log import store_work
from strandline.log.store_erasure_marks import list_scopes_with_events_being_erased
from strandline.log.store_tenant_counts import read_due_work
from strandline.observability import logger
from strandline.tenants.store_spaces import pin_space, read_space

_SCOPES_PER_LEASE = 100
"""How many scopes a sweep leases at a time."""
_ERASURE_SECONDS = 30.0
"""When a scope with events that are being erased is tried again."""
_MAX_RETRY_SECONDS = 300
"""The longest pause before failed work is tried again."""


@dataclass(frozen=True)
class EmbedAndFoldOutcome:
    """What became of the work of scopes. Not counted: nothing due, held by another worker."""

    finished_count: int = 0
    failed_count: int = 0
    """Failed, or not done in this worker's time. Their work stays due."""
    waiting_count: int = 0
    """Nothing failed, but nothing can be done for a while."""
    retry_delays: Mapping[UUID, float] = field(default_factory=dict[UUID, float])
    """The scopes that wait for something but this worker's time, and for how many seconds."""
    unfinished_scopes: frozenset[UUID] = frozenset()
    """Scopes whose turn ended before their work: they queue up behind all other work."""

    def __add__(self, other: "EmbedAndFoldOutcome") -> "EmbedAndFoldOutcome":
        return EmbedAndFoldOutcome(
            self.finished_count + other.finished_count,
            self.failed_count + other.failed_count,
            self.waiting_count + other.waiting_count,
            {**self.retry_delays, **other.retry_delays},
            self.unfinished_scopes | other.unfinished_scopes,
        )

    def require_finished(self) -> None:
        """Raise Unavailable if a scope waits or failed."""
        if self.waiting_count:
            raise Unavailable("This scope waits for a model; try again later.")
        if self.failed_count:
            raise Unavailable("This scope failed again. Look for the reason in the log.")


def embed_and_fold_scopes(
    worker: WorkerResources, tenant: str, scope_ids: Sequence[UUID]
) -> EmbedAndFoldOutcome:
    """Embed and fold the scopes that a queue message names."""
    access = worker.database.connect_as(Caller.background(tenant))
    total = EmbedAndFoldOutcome()
    # In a loop, because an append during the last step sent no message. A scope whose turn is over
    # is left out: a new message is sent for it.
    while remaining := [
        scope_id for scope_id in scope_ids if scope_id not in total.unfinished_scopes
    ]:
        leases = store_work.lease_due_scopes(access, remaining, len(remaining))
        if not leases:
            break
        outcome = _embed_fold_and_release(worker, access, leases)
        total += outcome
        if worker.is_out_of_time():
            done_count = outcome.finished_count + outcome.failed_count + outcome.waiting_count
            return total + EmbedAndFoldOutcome(failed_count=len(leases) - done_count)
    return total


def embed_and_fold_due_scopes(
    worker: WorkerResources, tenant: str, scan_all: bool = True
) -> EmbedAndFoldOutcome:
    """Embed and fold whatever is due in one tenant. With `scan_all`, all scopes are first scanned
    for work that no row names."""
    access = worker.database.connect_as(Caller.background(tenant))
    total = EmbedAndFoldOutcome()
    space = worker.for_reader_of(read_space(access).reading_space).embedder.space
    with access.transaction():
        if scan_all:
            store_work.enqueue_unfinished_scopes(access, space)
        worker.tally.due_work.append(read_due_work(access, space))
    while not worker.is_out_of_time():
        leases = store_work.lease_due_scopes(access, None, _SCOPES_PER_LEASE)
        if not leases:
            break
        total += _embed_fold_and_release(worker, access, leases)
    return total


def embed_and_fold_scope_now(
    worker: WorkerResources, tenant: str, scope_id: UUID
) -> EmbedAndFoldOutcome:
    """Process one scope at once, even if its work is postponed. Raises Unavailable where it is
    leased by another worker; a killed worker's lease holds until it runs out."""
    access = worker.database.connect_as(Caller.background(tenant))
    with access.transaction():
        is_due = store_work.make_scope_due_now(access, scope_id)
    leases = store_work.lease_due_scopes(access, [scope_id], 1)
    if is_due and not leases:
        raise Unavailable("Another worker has this scope; try again later.")
    outcome = _embed_fold_and_release(worker, access, leases) if leases else EmbedAndFoldOutcome()
    if outcome.waiting_count or outcome.failed_count:
        return outcome
    if len(leases) > outcome.finished_count and worker.is_out_of_time():
        return replace(outcome, failed_count=1)
    if scope_id in outcome.unfinished_scopes:
        return outcome
    appended_meanwhile = embed_and_fold_scopes(worker, tenant, [scope_id])
    return replace(outcome + appended_meanwhile, waiting_count=0)


def _embed_fold_and_release(
    worker: WorkerResources, access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> EmbedAndFoldOutcome:
    """Embed and fold leased scopes, then release them as finished, due again, or postponed. All of
    it is in the space that the tenant read when they were leased."""
    worker, reading_space = _pin_space(worker, access, leases[0].reading_space)
    before = worker.tally.embedded_events, worker.tally.counters["EventsFolded"]
    _record_stuck_scopes_before_retry(access, leases)
    ends = _embed_and_fold_leased(worker, access, leases)
    has_progressed = before != (worker.tally.embedded_events, worker.tally.counters["EventsFolded"])
    failures, deferrals = dict(ends.failures), ends.deferrals
    if not has_progressed:  # and no vector will come by itself
        failures |= {
            scope_id: Unavailable("A message's vector is missing.") for scope_id in ends.unready_ids
        }
    healthy_leases = [
        lease
        for lease in leases
        if lease.scope_id not in failures and lease.scope_id not in deferrals
    ]
    finished_count = _release_or_postpone_scopes(
        worker,
        access,
        healthy_leases,
        deferrals,
        reading_space=reading_space,
        made_progress=has_progressed,
    )
    _postpone_failed_scopes(
        worker, access, [lease for lease in leases if lease.scope_id in failures], failures
    )
    retry_delays = {
        scope_id: deferral.seconds
        for scope_id, deferral in deferrals.items()
        if not deferral.is_out_of_time
    }
    cut_off_count = len(deferrals) - len(retry_delays)
    return EmbedAndFoldOutcome(
        finished_count,
        len(failures) + cut_off_count,
        len(retry_delays),
        retry_delays,
        ends.unfinished_scopes,
    )


def _pin_space(
    worker: WorkerResources, access: TenantDb, reading_space: str | None
) -> tuple[WorkerResources, str]:
    """The worker with the model of the space that the tenant reads, and this space. A tenant of
    which nothing was ever embedded reads the configured space from now on."""
    reader = worker.for_reader_of(reading_space)
    if reading_space is None:
        with access.transaction():
            pin_space(access, reader.embedder.space)
    return reader, reading_space or reader.embedder.space


class _LeaseResults(NamedTuple):
    """How the embedding and the fold of leased scopes ended."""

    failures: Mapping[UUID, Exception]
    deferrals: Mapping[UUID, Deferral]
    """The scopes that have to wait, without those that failed."""
    unready_ids: Sequence[UUID]
    """The scopes that wait for a vector, which is not known to come."""
    unfinished_scopes: frozenset[UUID]


def _embed_and_fold_leased(
    worker: WorkerResources, access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> _LeaseResults:
    """Embed and fold leased scopes. Those with events that are being erased wait, so that no model
    gets the texts."""
    marked_ids = list_scopes_with_events_being_erased(access, [lease.scope_id for lease in leases])
    readable = [lease for lease in leases if lease.scope_id not in marked_ids]
    embedding = index_and_embed_leased_scopes(worker, access, readable)
    outcomes, fold_failures = _fold_leased_scopes(worker, access, readable)
    failures = {**fold_failures, **embedding.failures}
    deferrals = dict.fromkeys(marked_ids, Deferral("erasing", _ERASURE_SECONDS)) | {
        scope_id: outcome.deferral for scope_id, outcome in outcomes.items() if outcome.deferral
    }
    for scope_id, deferral in deferrals.items():
        logger.info("fold deferred", extra={"scopes": [scope_id], "reason": deferral.reason})
    unfinished_scopes = embedding.unfinished_scopes | {
        scope_id for scope_id, outcome in outcomes.items() if outcome.end == "unfinished"
    }
    unready_ids = [
        scope_id
        for scope_id, outcome in outcomes.items()
        if outcome.end == "waits_for_vector"
        and scope_id not in unfinished_scopes
        and scope_id not in failures
    ]
    return _LeaseResults(
        failures,
        {scope_id: reason for scope_id, reason in deferrals.items() if scope_id not in failures},
        unready_ids,
        unfinished_scopes,
    )


def _fold_leased_scopes(
    worker: WorkerResources, access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> tuple[dict[UUID, FoldOutcome], dict[UUID, Exception]]:
    """Fold leased scopes, also those without new vectors: the fold decides how long it waits for a
    vector. Returns how each fold ended, or its error."""
    outcomes: dict[UUID, FoldOutcome] = {}
    failures: dict[UUID, Exception] = {}
    for lease in leases:
        if worker.is_out_of_time():
            break
        try:
            outcome = fold_scope(worker, access, lease.scope_id, worker.clock())
            if outcome.end == "waits_for_vector" and worker.is_out_of_time():
                outcome = FoldOutcome("out_of_time")  # there was none to compute the vector
            outcomes[lease.scope_id] = outcome
        except Exception as error:
            failures[lease.scope_id] = error
    return outcomes, failures


def _release_or_postpone_scopes(
    worker: WorkerResources,
    access: TenantDb,
    healthy_leases: Sequence[store_work.ScopeLease],
    deferrals: Mapping[UUID, Deferral],
    *,
    reading_space: str,
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
            finished_count = store_work.release_scope_leases(
                access,
                healthy_scopes,
                worker.embedder.space,
                reading_space=reading_space,
                made_progress=made_progress,
            )
        if recovered_scopes:
            store_failures.resolve_failures(
                access, store_failures.FOLD_KIND, recovered_scopes, worker.clock()
            )
        for scope_id, deferral in deferrals.items():
            seconds = max(1, math.ceil(deferral.seconds))
            store_work.postpone_scopes(access, [scope_id], seconds, deferral.reason, failed=False)
    return finished_count


def _postpone_failed_scopes(
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
            store_work.postpone_scopes(access, scope_ids, seconds, reason)
    failed_leases = [replace(lease, attempts=lease.attempts + 1) for lease in leases]
    _record_stuck_scopes(
        access,
        failed_leases,
        {lease.scope_id: describe_error(failures[lease.scope_id]) for lease in failed_leases},
    )


def _record_stuck_scopes_before_retry(
    access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> None:
    """Record stuck scopes as visible failures before they are tried again, as the attempt may kill
    this worker too. Failures that are already recorded are left alone: the end of the attempt has a
    better reason, and counts it."""
    stuck_leases = [lease for lease in leases if lease.attempts >= store_work.STUCK_ATTEMPTS]
    if stuck_leases:
        noted_scopes = store_failures.list_refs_with_unresolved_failure(
            access, store_failures.FOLD_KIND, [lease.scope_id for lease in stuck_leases]
        )
        _record_stuck_scopes(
            access, [lease for lease in stuck_leases if str(lease.scope_id) not in noted_scopes], {}
        )


def _record_stuck_scopes(
    access: TenantDb, leases: Sequence[store_work.ScopeLease], reasons: Mapping[UUID, str]
) -> None:
    """Record a visible failure for each of these scopes whose work has failed STUCK_ATTEMPTS times
    in a row or more. If its workers were killed each time there is no reason but `worker_ended`."""
    for lease in leases:
        if lease.attempts < store_work.STUCK_ATTEMPTS:
            continue
        reason = reasons.get(lease.scope_id) or lease.last_error or "worker_ended"
        with access.transaction():
            store_failures.record_retryable_failure(
                access,
                kind=store_failures.FOLD_KIND,
                scope_id=lease.scope_id,
                participants=lease.participants,
                reason=reason,
                advice="The scope's work is retried automatically, every five minutes at most. Its"
                " events are safe. If the reason stays, search the log for the scope's id.",
                ref=lease.scope_id,
            )
