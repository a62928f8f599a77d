"""Fold a scope: its new events, and the lanes in which nothing was said for long."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from strandline.chains import fold_writer, store_fold_progress
from strandline.chains.decisions import FoldDecision
from strandline.chains.fold import fold_and_commit_events
from strandline.chains.fold_state import FoldOutcome, load_fold_state_and_next_events
from strandline.chains.lane_row_conversion import read_open_lanes
from strandline.chains.segmentation import Lane
from strandline.db.database import Caller, TenantDb
from strandline.errors import Unavailable
from strandline.jobs.worker_resources import ConcurrentUpdate, WorkerResources, describe_error
from strandline.log.store_erasure_marks import list_scopes_with_events_being_erased
from strandline.observability import logger

_MAX_ATTEMPTS = 8
"""How many times in a row a step may lose against another worker before it gives up."""
_IDLE_LANES_PER_PAGE = 500
"""How many idle lanes are listed at a time."""
_LANES_PER_SCOPE = 20
"""How many of them are closed in one scope before continuing with the next scope."""


def fold_scope(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, now: datetime
) -> FoldOutcome:
    """Fold a scope's events past its `folded_seq`, to the end of the log or until it has to stop.
    Several workers may fold the same scope at once. `access` is a background caller's, outside of
    any transaction.

    Raises Unavailable if other workers always committed first, and EmbeddingUnavailable while a
    summary's vector should still be waited for. Earlier commits stay.
    """
    start = time.monotonic()
    try:
        return _fold_scope_with_retries(worker, access, scope_id, now)
    finally:
        worker.tally.fold_ms.append(round((time.monotonic() - start) * 1000, 1))
        worker.tally.counters.update(worker.llm.take_metrics())


def _fold_scope_with_retries(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, now: datetime
) -> FoldOutcome:
    conflicts = folded_events = 0
    slice_end = time.monotonic() + worker.slice_seconds
    while conflicts < _MAX_ATTEMPTS:
        state, turns = load_fold_state_and_next_events(worker, access, scope_id, now)
        try:
            outcome = fold_and_commit_events(state, turns)
        except ConcurrentUpdate:
            has_moved = state.fold_no > state.scope.fold_no
            conflicts = 1 if has_moved else conflicts + 1
            continue
        conflicts = 0
        if outcome is not None:
            return outcome
        if state.committed_seq >= state.scope.last_seq:
            return FoldOutcome("finished")  # events appended meanwhile have their own row of work
        if worker.is_out_of_time():
            return FoldOutcome("out_of_time")
        folded_events += state.committed_seq - state.scope.folded_seq
        if folded_events >= worker.slice_events or time.monotonic() > slice_end:
            return FoldOutcome("unfinished")
    raise Unavailable("Other workers are folding this scope. Nothing is lost: its work stays due.")


def close_idle_lanes(worker: WorkerResources, tenant: str, now: datetime) -> int:
    """Close a tenant's lanes whose last event is older than the gap, by the server's clock. Returns
    how many were closed.

    Only scopes that are folded to the end of their log are considered: an unfolded event may belong
    to the lane. A failure in one scope skips only the other lanes of that scope.
    """
    access = worker.database.connect_as(Caller.background(tenant))
    closed_count, failed_scopes = 0, set[UUID]()
    after: store_fold_progress.ListedIdleLane | None = None
    while page := store_fold_progress.list_idle_lanes(
        access, now, after, sorted(failed_scopes), _IDLE_LANES_PER_PAGE
    ):
        after = page[-1]
        for scope_id, session_ids in _batch_lanes_by_scope_round_robin(page):
            if worker.is_out_of_time():
                return closed_count
            if scope_id in failed_scopes:
                continue
            try:
                closed_count += _close_idle_lanes_of_scope(
                    worker, access, scope_id, session_ids, now
                )
            except Exception as error:
                failed_scopes.add(scope_id)
                worker.tally.failures += 1
                log_fields = {"scopes": [scope_id], "error": describe_error(error)}
                logger.warning("idle lanes not closed", extra=log_fields)
    return closed_count


def _batch_lanes_by_scope_round_robin(
    page: Sequence[store_fold_progress.IdleLane],
) -> Iterator[tuple[UUID, list[str]]]:
    """Batches of lanes by scope: up to _LANES_PER_SCOPE of each scope, then the next ones of
    each."""
    sessions: dict[UUID, list[str]] = {}
    for lane in page:
        sessions.setdefault(lane.scope_id, []).append(lane.session_id)
    for first in range(0, max(map(len, sessions.values())), _LANES_PER_SCOPE):
        for scope_id, session_ids in sessions.items():
            if batch := session_ids[first : first + _LANES_PER_SCOPE]:
                yield scope_id, batch


def _close_idle_lanes_of_scope(
    worker: WorkerResources,
    access: TenantDb,
    scope_id: UUID,
    sessions: Sequence[str],
    now: datetime,
) -> int:
    """Record that these lanes are idle, then fold by that decision. The decision commits first, so
    that if a worker crashes in between, the next one follows it. A scope with a running erasure
    waits."""
    if list_scopes_with_events_being_erased(access, [scope_id]):
        return 0
    if not fold_scope(worker, access, scope_id, now).is_finished:
        return 0
    state, turns = load_fold_state_and_next_events(worker, access, scope_id, now)
    if turns:
        return 0
    idle_sessions = [
        lane.session_id
        for lane in store_fold_progress.list_idle_lanes_of_scope(access, scope_id, sessions, now)
    ]
    lane_by_session = read_open_lanes(access, scope_id, worker.embedder.space, idle_sessions)
    for position, session_id in enumerate(idle_sessions):
        last = lane_by_session.get(session_id, Lane()).last_event
        if last is None:  # all of it was erased
            state.set_lane(session_id, Lane())
            continue
        body = {"session": session_id, "fold": state.fold_no, "place": position}
        state.pending_decisions.append(
            FoldDecision(last.event_id, "idle", 0, state.current_seq, body)
        )
    try:
        fold_writer.commit_fold_changes(state)
    except ConcurrentUpdate:  # an event came, or another worker closed them
        return 0
    is_closed = fold_scope(worker, access, scope_id, now).is_finished
    return len(lane_by_session) if is_closed else 0
