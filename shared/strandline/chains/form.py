"""Entry points of the fold: fold a scope's new events, close idle lanes, enrich a chain again, drop
chains."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import (
    fold_writer,
    store,
    store_chain_dropping,
    store_decisions,
    store_fold_progress,
)
from strandline.chains.decided_content import RunEnrichment
from strandline.chains.decisions import Decision
from strandline.chains.enrichment import enrich_run
from strandline.chains.fold import fold_turns
from strandline.chains.fold_settings import FoldSettings
from strandline.chains.fold_state import FoldState, load_state_and_turns
from strandline.chains.lane_row_conversion import read_lanes
from strandline.chains.model_questions import make_task_context
from strandline.chains.segmentation import Lane
from strandline.chains.versions import ChainVersionContent
from strandline.db.database import Caller, TenantDb
from strandline.errors import NotFound, Unavailable
from strandline.jobs.worker_resources import (
    ConcurrentUpdate,
    WorkDeferred,
    WorkerResources,
    describe_error,
)
from strandline.log.store_erasure_marks import list_marked_scopes
from strandline.observability import logger

_MAX_ATTEMPTS = 8
"""How many times in a row a step may lose against another worker before it gives up."""
_IDLE_LANES_PER_PAGE = 500
"""How many idle lanes are listed at a time."""
_LANES_PER_SCOPE = 20
"""How many of them are closed in one scope before continuing with the next scope."""


def fold_scope(worker: WorkerResources, access: TenantDb, scope_id: UUID, now: datetime) -> bool:
    """Fold a scope's events past its `folded_seq`. Returns whether the end of the log was reached.

    It stops before the end when the worker's time is up, when a user message has no vector yet,
    when a model call has to wait (`worker.tally.deferrals` gives the reason), or when the scope's
    share of the time is used up (`worker.tally.unfinished_scopes` names it). Several workers may
    fold the same scope at once. `access` is a background caller's, outside of any transaction.

    Raises Unavailable if other workers always committed first, and EmbeddingUnavailable while a
    summary's vector should still be waited for. Earlier commits stay.
    """
    start = time.monotonic()
    worker.tally.deferrals.pop(scope_id, None)
    try:
        return _fold_with_retries(worker, access, scope_id, now)
    finally:
        worker.tally.fold_ms.append(round((time.monotonic() - start) * 1000, 1))
        worker.tally.counters.update(worker.llm.take_metrics())


def _fold_with_retries(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, now: datetime
) -> bool:
    conflicts = folded_events = 0
    slice_end = time.monotonic() + worker.slice_seconds
    while conflicts < _MAX_ATTEMPTS:
        state, turns = load_state_and_turns(worker, access, scope_id, now)
        try:
            reached_end = fold_turns(state, turns)
        except ConcurrentUpdate:
            has_moved = state.fold_no > state.scope.fold_no
            conflicts = 1 if has_moved else conflicts + 1
            continue
        conflicts = 0
        if reached_end and state.committed_seq >= state.scope.last_seq:
            return True  # events appended meanwhile have their own row of work
        if not reached_end or worker.is_out_of_time():
            return False
        folded_events += state.committed_seq - state.scope.folded_seq
        if folded_events >= worker.slice_events or time.monotonic() > slice_end:
            worker.tally.unfinished_scopes.add(scope_id)
            return False
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
    while page := store_fold_progress.list_idle(
        access, now, after, sorted(failed_scopes), _IDLE_LANES_PER_PAGE
    ):
        after = page[-1]
        for scope_id, session_ids in _batch_round_robin(page):
            if worker.is_out_of_time():
                return closed_count
            if scope_id in failed_scopes:
                continue
            try:
                closed_count += _close_lanes(worker, access, scope_id, session_ids, now)
            except Exception as error:
                failed_scopes.add(scope_id)
                worker.tally.failures += 1
                log_fields = {"scopes": [scope_id], "error": describe_error(error)}
                logger.warning("idle lanes not closed", extra=log_fields)
    return closed_count


def _batch_round_robin(
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


def _close_lanes(
    worker: WorkerResources,
    access: TenantDb,
    scope_id: UUID,
    sessions: Sequence[str],
    now: datetime,
) -> int:
    """Record that these lanes are idle, then fold by that decision. The decision commits first, so
    that if a worker crashes in between, the next one follows it. A scope with a running erasure
    waits."""
    if list_marked_scopes(access, [scope_id]) or not fold_scope(worker, access, scope_id, now):
        return 0
    state, turns = load_state_and_turns(worker, access, scope_id, now)
    if turns:
        return 0
    idle_sessions = [
        lane.session_id
        for lane in store_fold_progress.list_idle_of_scope(access, scope_id, sessions, now)
    ]
    lane_by_session = read_lanes(access, scope_id, worker.embedder.space, idle_sessions)
    for position, session_id in enumerate(idle_sessions):
        last = lane_by_session.get(session_id, Lane()).last_turn
        if last is None:  # all of it was erased
            state.set_lane(session_id, Lane())
            continue
        body = {"session": session_id, "fold": state.fold_no, "place": position}
        state.pending_decisions.append(Decision(last.event_id, "idle", 0, state.current_seq, body))
    try:
        fold_writer.commit(state)
    except ConcurrentUpdate:  # an event came, or another worker closed them
        return 0
    return len(lane_by_session) if fold_scope(worker, access, scope_id, now) else 0


def retry_enrichment(worker: WorkerResources, tenant: str, chain_id: UUID, now: datetime) -> int:
    """Call the models again for a chain's events. Returns the number of the version with the new
    content. The chain is not merged into another, and an archived chain stays archived.

    Raises NotFound for a chain that does not exist, and Unavailable while its scope is being folded
    or the model cannot be called yet.
    """
    access = worker.database.connect_as(Caller.background(tenant))
    for _ in range(_MAX_ATTEMPTS):
        head = store.read_head(access, chain_id)
        if head is None:
            raise NotFound
        fold_scope(worker, access, head.scope_id, now)
        try:
            return _renew_enrichment(worker, access, head.scope_id, chain_id, now)
        except ConcurrentUpdate:
            continue
        except WorkDeferred as deferral:
            worker.llm.store_call_records(access)
            raise Unavailable(
                f"The model cannot be called yet ({deferral.reason}). Try again later."
            ) from None
    raise Unavailable("Other workers are folding this chain's scope. Try again.")


def _renew_enrichment(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, chain_id: UUID, now: datetime
) -> int:
    state, _ = load_state_and_turns(worker, access, scope_id, now)
    head = store.read_head(access, chain_id)  # read after fold_no, which each change increments
    if head is None:
        raise NotFound
    if state.current_seq < state.scope.max_folded_seq:
        raise Unavailable("This chain's scope is being folded again. Try again later.")
    settings = state.settings or FoldSettings.from_tuning(worker.embedder.space, state.tuning)
    retry_worker = replace(worker, job="retry")
    task = make_task_context(retry_worker, access, scope_id, state.scope.participants)
    event_ids = store.list_event_ids(access, chain_id)
    enrichment = enrich_run(
        retry_worker,
        access,
        task,
        settings,
        event_ids,
        now,
        patience=timedelta.max,
        may_merge=False,
    )
    if enrichment is None:
        raise NotFound
    state.pending_decisions.append(
        _make_revision_decision(
            access, state, chain_id, event_ids[-1], head.version + 1, enrichment
        )
    )
    fold_writer.commit(state, ChainVersionContent(chain_id, head.version + 1, enrichment))
    return head.version + 1


def _make_revision_decision(
    access: TenantDb,
    state: FoldState,
    chain_id: UUID,
    last_event_id: UUID,
    version: int,
    enrichment: RunEnrichment,
) -> Decision:
    body = {
        "chain_id": str(chain_id),
        "version": version,
        "formed": enrichment.content.model_dump(mode="json"),
        "fold": state.fold_no,
        "place": 0,
    }
    attempt = store_decisions.count_attempts(access, last_event_id, "reformed")
    return Decision(last_event_id, "reformed", attempt, state.current_seq, body)


def drop_chains(access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    """Delete the folded rows of these scopes and have them refolded. The refold produces the same
    chains, because decisions are kept, with the same strength and heat, because the effect of
    recalls is kept."""
    with access.transaction():
        store_chain_dropping.drop_chains(access, scope_ids)
