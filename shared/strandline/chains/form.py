"""Form chains: fold what a scope's log has past its mark; close lanes in which nobody speaks; say a
chain anew; forget all of it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import store, store_decisions, store_lanes
from strandline.chains.enrichment import FoldSettings, RunEnrichment, enrich_run, make_task_context
from strandline.chains.fold import Fold, load_fold
from strandline.chains.open_lanes import read_lanes
from strandline.chains.segmentation import Lane
from strandline.chains.store_decisions import Decision
from strandline.chains.versions import ChainRevision
from strandline.db.database import Caller, TenantDb
from strandline.errors import NotFound, Unavailable
from strandline.jobs.context import ConcurrentUpdate, Deferred, Worker, describe_error
from strandline.observability import logger

_BATCH = 200
"""Events read, and committed, at a time at most."""
_MAX_ATTEMPTS = 8
"""So often the same step may be overtaken by another worker before it is left to that one."""
_IDLE_LANES_PER_PAGE = 500
"""Idle lanes looked at together, and"""
_LANES_PER_SCOPE = 20
"""of these so many of one scope before the next one's turn."""


def fold_scope(worker: Worker, access: TenantDb, scope_id: UUID, now: datetime) -> bool:
    """Fold a scope's log past its mark, until its end, the worker's, a user message whose vector is
    not there yet, a question to a model that has to wait (`worker.tally.waits` says for what), or
    the end of its turn (`worker.tally.more` names it);
    gives whether the end was reached. Right whoever else does the same at the same time. `access`
    is of background work, and in no transaction.

    Raises Unavailable where others were always faster, and what the embedder raises while it is
    worth waiting for a summary's vector. What was committed before stays.
    """
    start = time.monotonic()
    worker.tally.deferrals.pop(scope_id, None)
    try:
        return _fold_scope(worker, access, scope_id, now)
    finally:
        worker.tally.fold_ms.append(round((time.monotonic() - start) * 1000, 1))
        worker.tally.counters.update(worker.llm.take_metrics())


def _fold_scope(worker: Worker, access: TenantDb, scope_id: UUID, now: datetime) -> bool:
    conflicts = folded_events = 0
    slice_end = time.monotonic() + worker.slice_seconds
    while conflicts < _MAX_ATTEMPTS:
        fold, turns = _load_fold(worker, access, scope_id, now)
        try:
            reached_end = fold.run(turns)
        except ConcurrentUpdate:
            has_moved = fold.fold_no > fold.state.fold_no
            conflicts = 1 if has_moved else conflicts + 1
            continue
        conflicts = 0
        if reached_end and fold.committed_seq >= fold.state.last_seq:
            return True  # what was appended meanwhile is due by itself
        if not reached_end or worker.is_out_of_time():
            return False
        folded_events += fold.committed_seq - fold.state.folded_seq
        if folded_events >= worker.slice_events or time.monotonic() > slice_end:
            worker.tally.unfinished_scopes.add(scope_id)
            return False
    raise Unavailable("Other workers fold this scope. Nothing is lost: it stays due.")


def _load_fold(
    worker: Worker, access: TenantDb, scope_id: UUID, now: datetime
) -> tuple[Fold, Sequence[store_lanes.LoggedTurn]]:
    state = store_lanes.read_fold_state(access, scope_id)
    if state is None:
        raise NotFound
    space = worker.embedder.space
    turns = store_lanes.read_turns(access, scope_id, space, state.folded_seq, _BATCH)
    return load_fold(worker, access, state, turns, now), turns


def close_idle_lanes(worker: Worker, tenant: str, now: datetime) -> int:
    """Close a tenant's lanes in which nobody has spoken for the gap, by our clock; gives how many.
    Only in scopes that are folded to their end: what waits to be folded may be what was said. One
    scope's failure holds up no other: all of its lanes are passed over."""
    access = worker.database.connect_as(Caller.background(tenant))
    closed_count, failed_scopes = 0, set[UUID]()
    after: store_lanes.ListedIdleLane | None = None
    while page := store_lanes.list_idle(
        access, now, after, sorted(failed_scopes), _IDLE_LANES_PER_PAGE
    ):
        after = page[-1]
        for scope_id, session_ids in _round_robin(page):
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


def _round_robin(page: Sequence[store_lanes.IdleLane]) -> Iterator[tuple[UUID, list[str]]]:
    """Lanes by scope, a few of each scope's after a few of every other's."""
    sessions: dict[UUID, list[str]] = {}
    for lane in page:
        sessions.setdefault(lane.scope_id, []).append(lane.session_id)
    for first in range(0, max(map(len, sessions.values())), _LANES_PER_SCOPE):
        for scope_id, session_ids in sessions.items():
            if batch := session_ids[first : first + _LANES_PER_SCOPE]:
                yield scope_id, batch


def _close_lanes(
    worker: Worker, access: TenantDb, scope_id: UUID, sessions: Sequence[str], now: datetime
) -> int:
    """Decide that these lanes are idle, and fold by it: two steps, so that a worker that dies in
    between leaves a decision that the next goes by."""
    if not fold_scope(worker, access, scope_id, now):
        return 0
    fold, turns = _load_fold(worker, access, scope_id, now)
    if turns:
        return 0
    idle_sessions = [
        lane.session_id for lane in store_lanes.list_idle_of_scope(access, scope_id, sessions, now)
    ]
    lane_by_session = read_lanes(access, scope_id, worker.embedder.space, idle_sessions)
    for position, session_id in enumerate(idle_sessions):
        last = lane_by_session.get(session_id, Lane()).last_turn
        if last is None:  # all of it was erased
            fold.set_lane(session_id, Lane())
            continue
        body = {"session": session_id, "fold": fold.fold_no, "place": position}
        fold.pending_decisions.append(Decision(last.event_id, "idle", 0, fold.current_seq, body))
    try:
        fold.commit()
    except ConcurrentUpdate:  # somebody spoke, or closed them
        return 0
    return len(lane_by_session) if fold_scope(worker, access, scope_id, now) else 0


def retry_enrichment(worker: Worker, tenant: str, chain_id: UUID, now: datetime) -> int:
    """Ask the models again about a chain's events; gives the number of the version that says what
    they answered. It becomes part of no other chain, and an archived one stays archived.

    Raises NotFound for a chain that is not there, Unavailable while its scope is being folded or
    the model may not be asked yet.
    """
    access = worker.database.connect_as(Caller.background(tenant))
    for _ in range(_MAX_ATTEMPTS):
        head = store.read_head(access, chain_id)
        if head is None:
            raise NotFound
        fold_scope(worker, access, head.scope_id, now)
        try:
            return _enrich_again(worker, access, head.scope_id, chain_id, now)
        except ConcurrentUpdate:
            continue
        except Deferred as deferral:
            worker.llm.write_calls(access)
            raise Unavailable(
                f"The model may not be asked yet ({deferral.reason}). Try again later."
            ) from None
    raise Unavailable("Other workers fold this chain's scope. Try again.")


def _enrich_again(
    worker: Worker, access: TenantDb, scope_id: UUID, chain_id: UUID, now: datetime
) -> int:
    fold, _ = _load_fold(worker, access, scope_id, now)
    head = store.read_head(access, chain_id)  # after the mark: whoever changes it moves that
    if head is None:
        raise NotFound
    if fold.current_seq < fold.state.settled_seq:
        raise Unavailable("This chain's scope is being folded again. Try later.")
    settings = fold.settings or FoldSettings.from_tuning(worker.embedder.space, fold.tuning)
    retry_worker = replace(worker, job="retry")
    task = make_task_context(retry_worker, access, scope_id, fold.state.participants)
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
    fold.pending_decisions.append(
        _make_reformed_decision(access, fold, chain_id, event_ids[-1], head.version + 1, enrichment)
    )
    fold.commit(revision=ChainRevision(chain_id, head.version + 1, enrichment))
    return head.version + 1


def _make_reformed_decision(
    access: TenantDb,
    fold: Fold,
    chain_id: UUID,
    last_event_id: UUID,
    version: int,
    enrichment: RunEnrichment,
) -> Decision:
    body = {
        "chain_id": str(chain_id),
        "version": version,
        "formed": enrichment.content.model_dump(mode="json"),
        "fold": fold.fold_no,
        "place": 0,
    }
    attempt = store_decisions.count_attempts(access, last_event_id, "reformed")
    return Decision(last_event_id, "reformed", attempt, fold.current_seq, body)


def drop_chains(access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    """Forget what was folded in these scopes, and have it folded again: the same chains come out,
    because decisions stay, as strong and as cold as they were, because what use made of them does.
    """
    with access.transaction():
        store.drop_folded(access, scope_ids)
