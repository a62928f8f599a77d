"""Form chains: fold what a scope's log has past its mark; close lanes in which nobody speaks; say a
chain anew; forget all of it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import store, store_decisions, store_lanes
from strandline.chains.enrichment import Enriched, Settings, enrich, task_of
from strandline.chains.fold import Fold, read
from strandline.chains.open_lanes import read_lanes
from strandline.chains.segmentation import Lane
from strandline.chains.store_decisions import Decision
from strandline.chains.versions import Again
from strandline.db.database import Access, Asker
from strandline.errors import NotFound, Unavailable
from strandline.jobs.context import NotYet, Overtaken, Worker, reason_of
from strandline.observability import logger

_BATCH = 200
"""Events read, and committed, at a time at most."""
_TRIES = 8
"""So often the same step may be overtaken by another worker before it is left to that one."""
_IDLE = 500
"""Idle lanes looked at together, and"""
_OF_A_SCOPE = 20
"""of these so many of one scope before the next one's turn."""


def form(worker: Worker, access: Access, scope_id: UUID, now: datetime) -> bool:
    """Fold a scope's log past its mark, until its end, the worker's, a user message whose vector is
    not there yet, a question to a model that has to wait (`worker.tally.waits` says for what), or
    the end of its turn (`worker.tally.more` names it);
    gives whether the end was reached. Right whoever else does the same at the same time. `access`
    is of background work, and in no transaction.

    Raises Unavailable where others were always faster, and what the embedder raises while it is
    worth waiting for a summary's vector. What was committed before stays.
    """
    started = time.monotonic()
    worker.tally.waits.pop(scope_id, None)
    try:
        return _form(worker, access, scope_id, now)
    finally:
        worker.tally.folds.append(round((time.monotonic() - started) * 1000, 1))
        worker.tally.counts.update(worker.reasoner.counted())


def _form(worker: Worker, access: Access, scope_id: UUID, now: datetime) -> bool:
    overtaken = folded = 0
    ends = time.monotonic() + worker.turn_seconds
    while overtaken < _TRIES:
        fold, turns = _read(worker, access, scope_id, now)
        try:
            through = fold.go(turns)
        except Overtaken:
            moved = fold.fold_no > fold.mark.fold_no
            overtaken = 1 if moved else overtaken + 1
            continue
        overtaken = 0
        if through and fold.committed >= fold.mark.last_seq:
            return True  # what was appended meanwhile is due by itself
        if not through or worker.out_of_time():
            return False
        folded += fold.committed - fold.mark.folded_seq
        if folded >= worker.turn or time.monotonic() > ends:
            worker.tally.more.add(scope_id)
            return False
    raise Unavailable("Other workers fold this scope. Nothing is lost: it stays due.")


def _read(
    worker: Worker, access: Access, scope_id: UUID, now: datetime
) -> tuple[Fold, Sequence[store_lanes.LoggedTurn]]:
    mark = store_lanes.mark(access, scope_id)
    if mark is None:
        raise NotFound
    space = worker.embedder.space
    turns = store_lanes.turns(access, scope_id, space, mark.folded_seq, _BATCH)
    return read(worker, access, mark, turns, now), turns


def close_idle(worker: Worker, tenant: str, now: datetime) -> int:
    """Close a tenant's lanes in which nobody has spoken for the gap, by our clock; gives how many.
    Only in scopes that are folded to their end: what waits to be folded may be what was said. One
    scope's failure holds up no other: all of its lanes are passed over."""
    access = worker.database.access(Asker.background(tenant))
    closed, broken = 0, set[UUID]()
    after: store_lanes.IdleOnPage | None = None
    while page := store_lanes.idle(access, now, after, sorted(broken), _IDLE):
        after = page[-1]
        for scope_id, names in _in_turns(page):
            if worker.out_of_time():
                return closed
            if scope_id in broken:
                continue
            try:
                closed += _close_idle(worker, access, scope_id, names, now)
            except Exception as error:
                broken.add(scope_id)
                worker.tally.failures += 1
                shown = {"scopes": [scope_id], "error": reason_of(error)}
                logger.warning("idle lanes not closed", extra=shown)
    return closed


def _in_turns(page: Sequence[store_lanes.Idle]) -> Iterator[tuple[UUID, list[str]]]:
    """Lanes by scope, a few of each scope's after a few of every other's."""
    sessions: dict[UUID, list[str]] = {}
    for lane in page:
        sessions.setdefault(lane.scope_id, []).append(lane.session_id)
    for first in range(0, max(map(len, sessions.values())), _OF_A_SCOPE):
        for scope_id, names in sessions.items():
            if some := names[first : first + _OF_A_SCOPE]:
                yield scope_id, some


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
    still = [lane.session_id for lane in store_lanes.idle_of(access, scope_id, sessions, now)]
    found = read_lanes(access, scope_id, worker.embedder.space, still)
    for place, name in enumerate(still):
        last = found.get(name, Lane()).last
        if last is None:  # all of it was erased
            fold.keep(name, Lane())
            continue
        body = {"session": name, "fold": fold.fold_no, "place": place}
        fold.decided.append(Decision(last.event_id, "idle", 0, fold.at, body))
    try:
        fold.commit()
    except Overtaken:  # somebody spoke, or closed them
        return 0
    return len(found) if form(worker, access, scope_id, now) else 0


def retry_enrichment(worker: Worker, tenant: str, chain_id: UUID, now: datetime) -> int:
    """Ask the models again about a chain's events; gives the number of the version that says what
    they answered. It becomes part of no other chain, and an archived one stays archived.

    Raises NotFound for a chain that is not there, Unavailable while its scope is being folded or
    the model may not be asked yet.
    """
    access = worker.database.access(Asker.background(tenant))
    for _ in range(_TRIES):
        head = store.head(access, chain_id)
        if head is None:
            raise NotFound
        form(worker, access, head.scope_id, now)
        try:
            return _retry(worker, access, head.scope_id, chain_id, now)
        except Overtaken:
            continue
        except NotYet as wait:
            worker.reasoner.flush(access)
            raise Unavailable(
                f"The model may not be asked yet ({wait.reason}). Try again later."
            ) from None
    raise Unavailable("Other workers fold this chain's scope. Try again.")


def _retry(worker: Worker, access: Access, scope_id: UUID, chain_id: UUID, now: datetime) -> int:
    fold, _ = _read(worker, access, scope_id, now)
    head = store.head(access, chain_id)  # after the mark: whoever changes it moves that
    if head is None:
        raise NotFound
    if fold.at < fold.mark.settled_seq:
        raise Unavailable("This chain's scope is being folded again. Try later.")
    settings = fold.settings or Settings.of(worker.embedder.space, fold.tuning)
    asking = replace(worker, job="retry")
    task = task_of(asking, access, scope_id, fold.mark.participants)
    ids = store.linked(access, chain_id)
    made = enrich(asking, access, task, settings, ids, now, patience=timedelta.max, merge=False)
    if made is None:
        raise NotFound
    fold.decided.append(_reformed(access, fold, chain_id, ids[-1], head.version + 1, made))
    fold.commit(again=Again(chain_id, head.version + 1, made))
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
    attempt = store_decisions.attempts(access, last, "reformed")
    return Decision(last, "reformed", attempt, fold.at, body)


def drop(access: Access, scope_ids: Sequence[UUID]) -> None:
    """Forget what was folded in these scopes, and have it folded again: the same chains come out,
    because decisions stay, as strong and as cold as they were, because what use made of them does.
    """
    with access.transaction():
        store.drop(access, scope_ids)
