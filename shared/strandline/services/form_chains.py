"""Form chains: fold what a scope's log has past its mark; close lanes in which nobody speaks; say a
chain anew; forget all of it."""

import time
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from strandline.db import Access, Asker
from strandline.errors import NotFound, Unavailable
from strandline.observability import logger
from strandline.segmentation import Lane
from strandline.services.enrich import Enriched, Settings, enrich, task_of
from strandline.services.folding import Fold, Overtaken, read
from strandline.services.open_lanes import read_lanes
from strandline.services.worker import Worker, reason_of
from strandline.store import chains, decisions, lanes
from strandline.store.decisions import Decision

_BATCH = 200
"""Events read, and committed, at a time at most."""
_TRIES = 8
"""So often the same step may be overtaken by another worker before it is left to that one."""
_IDLE = 500
"""Lanes closed in a call at most."""


def form(worker: Worker, access: Access, scope_id: UUID, now: datetime) -> bool:
    """Fold a scope's log past its mark, until its end, the worker's, or a user message whose vector
    is not there yet; gives whether the end was reached. Right whoever else does the same at the
    same time. `access` is of background work, and in no transaction.

    Raises Unavailable where others were always faster, and what the embedder raises while it is
    worth waiting for a summary's vector. What was committed before stays.
    """
    started = time.monotonic()
    try:
        return _form(worker, access, scope_id, now)
    finally:
        worker.tally.folds.append(round((time.monotonic() - started) * 1000, 1))
        worker.tally.counts.update(worker.reasoner.counted())


def _form(worker: Worker, access: Access, scope_id: UUID, now: datetime) -> bool:
    overtaken = 0
    while overtaken < _TRIES:
        fold, turns = _read(worker, access, scope_id, now)
        try:
            through = fold.go(turns)
        except Overtaken:
            overtaken += 1
            continue
        if fold.committed >= fold.mark.last_seq:
            return True  # what was appended meanwhile is due by itself
        if not through or worker.out_of_time():
            return False
    raise Unavailable("Other workers fold this scope. Nothing is lost: it stays due.")


def _read(
    worker: Worker, access: Access, scope_id: UUID, now: datetime
) -> tuple[Fold, Sequence[lanes.LoggedTurn]]:
    mark = lanes.mark(access, scope_id)
    if mark is None:
        raise NotFound
    space = worker.embedder.space
    turns = lanes.turns(access, scope_id, space, mark.folded_seq, _BATCH)
    return read(worker, access, mark, turns, now), turns


def close_idle(worker: Worker, tenant: str, now: datetime) -> int:
    """Close a tenant's lanes in which nobody has spoken for the gap, by our clock; gives how many.
    Only in scopes that are folded to their end: what waits to be folded may be what was said. One
    scope's failure holds up no other."""
    access = worker.database.access(Asker.background(tenant))
    sessions: dict[UUID, list[str]] = {}
    for lane in lanes.idle(access, now, _IDLE):
        sessions.setdefault(lane.scope_id, []).append(lane.session_id)
    closed = 0
    for scope_id, names in sessions.items():
        if worker.out_of_time():
            break
        try:
            closed += _close_idle(worker, access, scope_id, names, now)
        except Exception as error:
            worker.tally.failures += 1
            shown = {"scopes": [scope_id], "error": reason_of(error)}
            logger.warning("idle lanes not closed", extra=shown)
    return closed


def _close_idle(
    worker: Worker, access: Access, scope_id: UUID, sessions: Sequence[str], now: datetime
) -> int:
    """Decide that these lanes are idle, and fold by it: two steps, so that a worker that dies in
    between leaves a decision that the next goes by."""
    if not form(worker, access, scope_id, now):
        return 0
    fold, turns = _read(worker, access, scope_id, now)
    if turns:
        return 0
    still = [lane.session_id for lane in lanes.idle_of(access, scope_id, sessions, now)]
    found = read_lanes(access, scope_id, worker.embedder.space, still)
    for place, name in enumerate(still):
        if name not in found:  # all of it was erased
            fold.keep(name, Lane())
            continue
        body = {"session": name, "fold": fold.fold_no, "place": place}
        fold.decided.append(Decision(found[name].open[-1].event_id, "idle", 0, fold.at, body))
    try:
        fold.commit()
    except Overtaken:  # somebody spoke, or closed them
        return 0
    form(worker, access, scope_id, now)
    return len(found)


def retry_enrichment(worker: Worker, tenant: str, chain_id: UUID, now: datetime) -> int:
    """Ask the models again about a chain's events; gives the number of the version that says what
    they answered. It becomes part of no other chain, and an archived one stays archived.

    Raises NotFound for a chain that is not there, Unavailable while its scope is being folded.
    """
    access = worker.database.access(Asker.background(tenant))
    for _ in range(_TRIES):
        head = chains.head(access, chain_id)
        if head is None:
            raise NotFound
        form(worker, access, head.scope_id, now)
        try:
            return _retry(worker, access, chain_id, now)
        except Overtaken:
            continue
    raise Unavailable("Other workers fold this chain's scope. Try again.")


def _retry(worker: Worker, access: Access, chain_id: UUID, now: datetime) -> int:
    head = chains.head(access, chain_id)
    if head is None:
        raise NotFound
    fold, _ = _read(worker, access, head.scope_id, now)
    if fold.at < fold.mark.settled_seq:
        raise Unavailable("This chain's scope is being folded again. Try later.")
    settings = fold.settings or Settings.of(worker.embedder.space, fold.tuning)
    task = task_of(worker, access, head.scope_id, fold.mark.participants)
    ids = chains.linked(access, chain_id)
    made = enrich(worker, access, task, settings, ids, now, merge=False)
    if made is None:
        raise NotFound
    fold.decided.append(_reformed(access, fold, chain_id, ids[-1], head.version + 1, made))
    fold.commit(again=(chain_id, made))
    return head.version + 1


def _reformed(
    access: Access, fold: Fold, chain_id: UUID, last: UUID, version: int, made: Enriched
) -> Decision:
    body = {
        "chain_id": str(chain_id),
        "version": version,
        "formed": made.formed.model_dump(mode="json"),
        "fold": fold.fold_no,
        "place": 0,
    }
    attempt = decisions.attempts(access, last, "reformed")
    return Decision(last, "reformed", attempt, fold.at, body)


def drop(access: Access, scope_ids: Sequence[UUID]) -> None:
    """Forget what was folded in these scopes, and have it folded again: the same chains come out,
    because decisions stay. The use that was recorded is counted anew."""
    with access.transaction():
        chains.drop(access, scope_ids)
