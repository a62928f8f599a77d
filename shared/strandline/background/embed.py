"""Work off what is new in scopes: embed it, from the last vector to the log's end, and fold it."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from strandline.aws.blobs import is_text
from strandline.chains.form import form
from strandline.db.database import Access, Asker
from strandline.errors import EmbeddingRefused, Unavailable
from strandline.failures import recurs
from strandline.jobs import store as jobs_store
from strandline.jobs.context import (
    EMBED_SECONDS,
    NotYet,
    Worker,
    head_text,
    reason_of,
    require_embedding,
)
from strandline.log import store_counts, store_work, words_index
from strandline.log.store_work import Unembedded, Vector
from strandline.observability import logger

BATCH = 128
"""Events between two commits: about a second of the local model."""
_SHOWN_BYTES = 4000
"""What a model is shown of a large text: more than the local one reads (256 tokens)."""
_SCOPES = 100
"""Scopes a sweep takes at a time."""
_HOPELESS = 3
"""So many scopes that fail in a row say that the model is away, not that their texts are odd."""
_LATEST_SECONDS = 300
"""The longest pause before work that failed is tried again."""


def embed_scopes(worker: Worker, tenant: str, scope_ids: Sequence[UUID]) -> int:
    """Embed the scopes that were hinted at; gives how many are not done, whose work stays due. A
    scope that somebody works on, that has nothing due or that waits for a model is none of ours."""
    access = worker.database.access(Asker.background(tenant))
    failed = 0
    # Again, because an append that came during the last step was hinted by nobody. What has had its
    # turn is not: it is hinted anew.
    while rest := [one for one in scope_ids if one not in worker.tally.more]:
        leases = store_work.lease(access, rest, len(rest))
        if not leases:
            break
        done = _work_off(worker, access, leases)
        failed += done.failed
        if worker.out_of_time():
            return failed + len(leases) - done.finished - done.failed - done.waiting
    return failed


def embed_tenant(worker: Worker, tenant: str, look: bool = True) -> int:
    """Embed whatever is due in one tenant; gives how many scopes were finished. `look`: through all
    scopes, for work that no row names."""
    access = worker.database.access(Asker.background(tenant))
    finished = 0
    with access.transaction():
        if look:
            store_work.name_unembedded(access, worker.embedder.space)
        worker.tally.due.append(store_counts.due(access, worker.embedder.space))
    while not worker.out_of_time():
        leases = store_work.lease(access, None, _SCOPES)
        if not leases:
            break
        finished += _work_off(worker, access, leases).finished
    return finished


def work_off_now(worker: Worker, tenant: str, scope_id: UUID) -> None:
    """Try one scope's work, whenever it is due. Raises Unavailable where it fails once more, waits
    for a model or is somebody else's now: a worker that was killed has it till its lease ends."""
    access = worker.database.access(Asker.background(tenant))
    with access.transaction():
        is_due = store_work.bring_forward(access, scope_id)
    leases = store_work.lease(access, [scope_id], 1)
    if is_due and not leases:
        raise Unavailable("Its scope is being worked on; try again later.")
    done = _work_off(worker, access, leases) if leases else _Done(0, 0, 0)
    if done.waiting:
        raise Unavailable("Its scope waits for a model; try again later.")
    unfinished = len(leases) > done.finished and worker.out_of_time()
    if done.failed or unfinished or embed_scopes(worker, tenant, [scope_id]):
        raise Unavailable("It failed once more. Look for the reason in the log.")


class _Done(NamedTuple):
    finished: int
    failed: int
    waiting: int
    """Nothing failed, and nothing can be done before a while."""


def _work_off(worker: Worker, access: Access, leases: Sequence[store_work.Lease]) -> _Done:
    """Embed leased scopes, fold them, and give them back: done, due again, or put off."""
    before = worker.tally.events, worker.tally.counts["EventsFolded"]
    _note_killed(access, leases)
    failures = _embed_leased(worker, access, leases)
    stuck = _form_leased(worker, access, leases, failures)
    moved = before != (worker.tally.events, worker.tally.counts["EventsFolded"])
    if not moved:  # and nothing will by itself
        failures |= {scope_id: Unavailable("A message's vector is missing.") for scope_id in stuck}
    waits = _waits(worker, leases, failures)
    fine = [o.scope_id for o in leases if o.scope_id not in failures and o.scope_id not in waits]
    fine_again = [o.scope_id for o in leases if o.attempts >= store_work.STUCK_ATTEMPTS]
    fine_again = [scope_id for scope_id in fine_again if scope_id in fine]
    with access.transaction():
        finished = (
            store_work.settle(access, fine, worker.embedder.space, moved=moved) if fine else 0
        )
        if fine_again:
            jobs_store.end_failures(access, jobs_store.STUCK, fine_again, worker.clock())
        for scope_id, wait in waits.items():
            seconds = max(1, math.ceil(wait.seconds))
            store_work.put_off(access, [scope_id], seconds, wait.reason, failed=False)
    worker.tally.later |= {
        scope_id: wait.seconds for scope_id, wait in waits.items() if not wait.out_of_time
    }
    _put_off(worker, access, [taken for taken in leases if taken.scope_id in failures], failures)
    cut_off = sum(wait.out_of_time for wait in waits.values())
    return _Done(finished, len(failures) + cut_off, len(waits) - cut_off)


def _embed_leased(
    worker: Worker, access: Access, leases: Sequence[store_work.Lease]
) -> dict[UUID, Exception]:
    """Embed leased scopes together: a statement serves them all. Where that fails they are tried
    one by one, so that the one at fault fails alone. Gives those that failed, and why."""
    try:
        _embed_together(worker, access, [taken.scope_id for taken in leases])
        return {}
    except Exception as error:  # a fault of ours as well: its scope would be the first due again
        if len(leases) == 1:
            return {leases[0].scope_id: error}
        failure = error
    failures: dict[UUID, Exception] = {}
    in_a_row = 0
    for place, taken in enumerate(leases):
        if in_a_row == _HOPELESS or worker.out_of_time():  # it is not the scope's fault
            return failures | {other.scope_id: failure for other in leases[place:]}
        failed = _embed_leased(worker, access, [taken])
        failures |= failed
        in_a_row = in_a_row + 1 if failed else 0
    return failures


def _embed_together(worker: Worker, access: Access, scope_ids: Sequence[UUID]) -> None:
    space, embedded, left = worker.embedder.space, Counter[UUID](), list(scope_ids)
    ends = time.monotonic() + worker.turn_seconds
    while left and (events := store_work.unembedded(access, left, space, BATCH)):
        vectors = _vectors(worker, access, events)
        with access.transaction():
            store_work.store_vectors(access, space, vectors, events)
            _note_refused(access, vectors)
        worker.renew()
        worker.tally.events += len(vectors)
        scopes = sorted({str(event.scope_id) for event in events})
        logger.info("events embedded", extra={"scopes": scopes, "events": len(vectors)})
        embedded.update(event.scope_id for event in events)
        worker.tally.more |= {one for one in left if embedded[one] >= worker.turn}
        left = [one for one in left if embedded[one] < worker.turn]
        if time.monotonic() > ends:
            worker.tally.more |= set(left)
            break
        if worker.out_of_time():
            break


def _note_refused(access: Access, vectors: Sequence[Vector]) -> None:
    """Make visible which scopes hold events without a vector that will not come by itself."""
    for vector in {one.event.scope_id: one for one in vectors if one.refusal}.values():
        jobs_store.note_failure(
            access,
            kind=jobs_store.NOT_EMBEDDED,
            scope_id=vector.event.scope_id,
            participants=vector.event.participants,
            reason="embedding_refused",
            advice="Events of this scope are found by their words alone. Retry this job with a"
            " model that takes them.",
            ref=vector.event.scope_id,
        )


def retry_refused(worker: Worker, tenant: str, scope_id: UUID) -> int:
    """Ask the embedding model again for what it refused of a scope; gives how many vectors there
    are now. Chains stay as they are: what was decided without a vector stays decided. Raises
    EmbeddingRefused while one of the first events is refused still, and EmbeddingUnavailable."""
    access = worker.database.access(Asker.background(tenant))
    stored = 0
    while events := store_work.refused(access, scope_id, worker.embedder.space, BATCH):
        vectors = _vectors(worker, access, events)
        with access.transaction():
            replaced = store_work.replace_refusals(access, worker.embedder.space, vectors)
        stored += replaced
        worker.renew()
        if replaced == 0:
            raise EmbeddingRefused(f"{len(events)} events of this scope are refused still.")
    return stored


def _form_leased(
    worker: Worker,
    access: Access,
    leases: Sequence[store_work.Lease],
    failures: dict[UUID, Exception],
) -> list[UUID]:
    """Fold leased scopes, those without new vectors as well: it is for the fold to say how long it
    waits for one. Gives those that wait for one; failures are added to the ones there are."""
    stuck: list[UUID] = []
    for taken in leases:
        if worker.out_of_time():
            break
        try:
            through = form(worker, access, taken.scope_id, worker.clock())
            waits = taken.scope_id in worker.tally.waits or worker.out_of_time()
            waits = waits or taken.scope_id in worker.tally.more
            if not through and not waits and taken.scope_id not in failures:
                stuck.append(taken.scope_id)
        except Exception as error:
            failures.setdefault(taken.scope_id, error)
    return stuck


def _waits(
    worker: Worker, leases: Sequence[store_work.Lease], failures: Mapping[UUID, Exception]
) -> dict[UUID, NotYet]:
    """Of leased scopes those whose fold waits for a model, and for what."""
    waits = worker.tally.waits
    found = {one.scope_id: waits.pop(one.scope_id) for one in leases if one.scope_id in waits}
    for scope_id, wait in found.items():
        logger.info("fold waits", extra={"scopes": [scope_id], "reason": wait.reason})
    return {scope_id: wait for scope_id, wait in found.items() if scope_id not in failures}


def _put_off(
    worker: Worker,
    access: Access,
    leases: Sequence[store_work.Lease],
    failures: Mapping[UUID, Exception],
) -> None:
    """Give scopes back that failed, those with the same failure together."""
    worker.tally.failures += len(leases)
    alike: dict[str, list[store_work.Lease]] = {}
    for taken in leases:
        alike.setdefault(reason_of(failures[taken.scope_id]), []).append(taken)
    for reason, group in alike.items():
        attempts = max(taken.attempts for taken in group)
        seconds = min(_LATEST_SECONDS, 2 ** min(attempts, 16))
        scope_ids = [taken.scope_id for taken in group]
        shown = {"scopes": scope_ids, "error": reason, "attempts": attempts}
        logger.warning("scopes put off", extra=shown)
        with access.transaction():
            store_work.put_off(access, scope_ids, seconds, reason)
    tried = [replace(taken, attempts=taken.attempts + 1) for taken in leases]
    _note_stuck(access, tried, {one.scope_id: reason_of(failures[one.scope_id]) for one in tried})


def _note_killed(access: Access, leases: Sequence[store_work.Lease]) -> None:
    """Make visible what is stuck before it is tried again, which may kill this worker too. What is
    known is left: the try's own end says more, and counts it."""
    stuck = [taken for taken in leases if taken.attempts >= store_work.STUCK_ATTEMPTS]
    if stuck:
        known = jobs_store.noted(access, jobs_store.STUCK, [taken.scope_id for taken in stuck])
        _note_stuck(access, [taken for taken in stuck if str(taken.scope_id) not in known], {})


def _note_stuck(
    access: Access, leases: Sequence[store_work.Lease], reasons: Mapping[UUID, str]
) -> None:
    """Make visible which of these scopes' work got no further five times in a row, or more. Whose
    workers were killed each time has no reason of its own."""
    for taken in leases:
        if taken.attempts < store_work.STUCK_ATTEMPTS:
            continue
        reason = reasons.get(taken.scope_id) or taken.last_error or "worker_ended"
        with access.transaction():
            jobs_store.note_failure(
                access,
                kind=jobs_store.STUCK,
                scope_id=taken.scope_id,
                participants=taken.participants,
                reason=reason,
                advice="The scope's work is tried again by itself, every five minutes at most; its"
                " events are safe. If the reason stays, look for it in the log by the scope's id.",
                ref=taken.scope_id,
            )


def _vectors(worker: Worker, access: Access, found: Sequence[Unembedded]) -> list[Vector]:
    """A vector for each event that is not erased: from the cache, or from the model, outside of any
    transaction."""
    events = [event for event in found if not event.erased]
    texts = [_text(worker, access.asker.tenant, event) for event in events]
    hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
    known = dict(store_work.cached(access, worker.embedder.space, hashes))
    missing = {h: text for h, text in zip(hashes, texts, strict=True) if h not in known}
    refused: dict[bytes, str] = {}
    for text_hash, vector in embed_texts(worker, missing).items():
        if isinstance(vector, str):
            refused[text_hash] = vector
        else:
            known[text_hash] = store_work.as_text(vector)
    return [
        Vector(event, h, known.get(h), refused.get(h))
        for event, h in zip(events, hashes, strict=True)
    ]


def embed_texts[Key](worker: Worker, texts: Mapping[Key, str]) -> dict[Key, list[float] | str]:
    """Vectors by key; for a text that the model will never take, the reason in its place. Raises
    EmbeddingUnavailable."""
    if not texts:
        return {}
    started = time.monotonic()
    try:
        vectors = worker.embedder.embed(list(texts.values()), timeout=EMBED_SECONDS)
        worker.tally.calls.append(round((time.monotonic() - started) * 1000, 1))
        return dict(zip(texts, vectors, strict=True))
    except EmbeddingRefused as error:
        refusal = error.message
    except Exception as error:  # the model's own rules broke on a text, and would again
        if not recurs(error):
            raise
        logger.warning("embedding failed", extra={"error": type(error).__name__})
        refusal = f"The embedding model failed: {type(error).__name__}."
    if len(texts) == 1:
        require_embedding(worker)
        return {key: refusal for key in texts}
    found: dict[Key, list[float] | str] = {}
    for key, text in texts.items():  # one of them is refused: learn which
        worker.renew()
        found |= embed_texts(worker, {key: text})
    return found


def _text(worker: Worker, tenant: str, event: Unembedded) -> str:
    """What the model is shown of an event; of a payload the beginning, if it is text."""
    text = event.content
    if text is None and event.blob_cid and is_text(event.mime_type):
        text = head_text(worker, tenant, event.blob_cid, _SHOWN_BYTES)
    shown = text if text is not None else event.file_name or event.mime_type or ""
    return words_index.context(event.said_at, event.speaker, shown)
