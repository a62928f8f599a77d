"""Embed what is new: scope by scope, from the last vector to the log's end."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from strandline import ranking
from strandline.blobs import Blobs, is_text
from strandline.db import Access, Asker, Database
from strandline.errors import EmbeddingRefused, StrandlineError
from strandline.models.embedding import Embedder
from strandline.observability import logger
from strandline.store import metrics, work
from strandline.store.work import Unembedded, Vector

BATCH = 128
"""Events between two commits: about a second of the local model."""
EMBED_SECONDS = 15.0
_SHOWN_BYTES = 4000
"""What a model is shown of a large text: more than the local one reads (256 tokens)."""
_SCOPES = 100
"""Scopes a sweep takes at a time."""
_HOPELESS = 3
"""So many scopes that fail in a row say that the model is away, not that their texts are odd."""
_LATEST_SECONDS = 300
"""The longest pause before work that failed is tried again."""


@dataclass
class Tally:
    """What a job did, for its metrics."""

    events: int = 0
    calls: list[float] = field(default_factory=list[float])
    """Milliseconds of each call to the model."""
    failures: int = 0
    """Scopes put off, tenants not swept, a message or a sweep broken off."""
    due: list[metrics.Due] = field(default_factory=list[metrics.Due])
    """Of each tenant that a sweep found work in, before it began."""


@dataclass(frozen=True)
class Worker:
    """What embedding needs, and until when (time.monotonic() seconds) it may take."""

    database: Database
    blobs: Blobs
    embedder: Embedder
    deadline: float
    tally: Tally = field(default_factory=Tally)

    def out_of_time(self) -> bool:
        """A batch more might not be finished in time."""
        return time.monotonic() > self.deadline - EMBED_SECONDS


def embed_scopes(worker: Worker, tenant: str, scope_ids: Sequence[UUID]) -> int:
    """Embed the scopes that were hinted at; gives how many are not done, whose work stays due. A
    scope that somebody works on, or that has nothing due, is none of ours."""
    access = worker.database.access(Asker.background(tenant))
    failed = 0
    # Again, because an append that came during the last step was hinted by nobody.
    while leases := work.lease(access, scope_ids, len(scope_ids)):
        done = _embed_leased(worker, access, leases)
        failed += done.failed
        if worker.out_of_time():
            return failed + len(leases) - done.finished - done.failed
    return failed


def embed_due(worker: Worker) -> int:
    """Embed whatever is due anywhere, longest due first; gives how many scopes were finished. One
    scope's failure is kept with its work and holds up no other, nor one tenant's another's."""
    finished = 0
    for tenant in work.tenants(worker.database.connection(), worker.embedder.space):
        try:
            finished += _embed_tenant(worker, tenant)
        except Exception as error:
            worker.tally.failures += 1
            logger.warning("tenant not swept", extra={"tenant": tenant, "error": _reason(error)})
    return finished


def _embed_tenant(worker: Worker, tenant: str) -> int:
    access = worker.database.access(Asker.background(tenant))
    finished = 0
    with access.transaction():
        work.name_unembedded(access, worker.embedder.space)
        worker.tally.due.append(metrics.due(access))
    while not worker.out_of_time():
        leases = work.lease(access, None, _SCOPES)
        if not leases:
            break
        finished += _embed_leased(worker, access, leases).finished
    return finished


class _Done(NamedTuple):
    finished: int
    failed: int


def _embed_leased(worker: Worker, access: Access, leases: Sequence[work.Lease]) -> _Done:
    """Embed leased scopes together: a statement serves them all. Where that fails they are tried
    one by one, so that the one at fault fails alone."""
    if not leases:
        return _Done(0, 0)
    try:
        return _Done(_embed_together(worker, access, leases), 0)
    except Exception as error:  # a fault of ours as well: its scope would be the first due again
        if len(leases) == 1:
            _put_off(worker, access, leases, error)
            return _Done(0, 1)
        failure = error
    finished = failed = in_a_row = 0
    for place, taken in enumerate(leases):
        if in_a_row == _HOPELESS or worker.out_of_time():  # it is not the scope's fault
            _put_off(worker, access, leases[place:], failure)
            failed += len(leases) - place
            break
        done = _embed_leased(worker, access, [taken])
        finished, failed = finished + done.finished, failed + done.failed
        in_a_row = in_a_row + 1 if done.failed else 0
    return _Done(finished, failed)


def _embed_together(worker: Worker, access: Access, leases: Sequence[work.Lease]) -> int:
    space, scope_ids = worker.embedder.space, [taken.scope_id for taken in leases]
    while events := work.unembedded(access, scope_ids, space, BATCH):
        vectors = _vectors(worker, access, events)
        with access.transaction():
            work.store_vectors(access, space, vectors, events)
        worker.tally.events += len(vectors)
        scopes = sorted({str(event.scope_id) for event in events})
        logger.info("events embedded", extra={"scopes": scopes, "events": len(vectors)})
        if worker.out_of_time():
            break
    with access.transaction():
        return work.settle(access, scope_ids, space)


def _put_off(
    worker: Worker, access: Access, leases: Sequence[work.Lease], error: Exception
) -> None:
    worker.tally.failures += len(leases)
    attempts = max(taken.attempts for taken in leases)
    seconds = min(_LATEST_SECONDS, 2 ** min(attempts, 16))
    scope_ids = [taken.scope_id for taken in leases]
    logger.warning(
        "scopes not embedded",
        extra={"scopes": scope_ids, "error": _reason(error), "attempts": attempts},
    )
    with access.transaction():
        work.put_off(access, scope_ids, seconds, _reason(error))


def _reason(error: Exception) -> str:
    """Why, without memory content: a fault's own words may quote a row."""
    if isinstance(error, StrandlineError):
        return f"{error.code}: {error.message}"
    return f"internal_error: {type(error).__name__}"


def _vectors(worker: Worker, access: Access, found: Sequence[Unembedded]) -> list[Vector]:
    """A vector for each event that is not erased: from the cache, or from the model, outside of any
    transaction."""
    events = [event for event in found if not event.erased]
    texts = [_text(worker, access.asker.tenant, event) for event in events]
    hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
    known = dict(work.cached(access, worker.embedder.space, hashes))
    missing = {h: text for h, text in zip(hashes, texts, strict=True) if h not in known}
    refused: dict[bytes, str] = {}
    for text_hash, vector in _embed(worker, missing).items():
        if isinstance(vector, str):
            refused[text_hash] = vector
        else:
            known[text_hash] = work.as_text(vector)
    return [
        Vector(event, h, known.get(h), refused.get(h))
        for event, h in zip(events, hashes, strict=True)
    ]


def _embed(worker: Worker, texts: dict[bytes, str]) -> dict[bytes, list[float] | str]:
    """Vectors by hash; for a text that the model will never take, the reason in its place."""
    if not texts:
        return {}
    started = time.monotonic()
    try:
        vectors = worker.embedder.embed(list(texts.values()), timeout=EMBED_SECONDS)
        worker.tally.calls.append(round((time.monotonic() - started) * 1000, 1))
        return dict(zip(texts, vectors, strict=True))
    except EmbeddingRefused as error:
        if len(texts) == 1:
            return {h: error.message for h in texts}
    found: dict[bytes, list[float] | str] = {}
    for text_hash, text in texts.items():  # one of them is refused: learn which
        found |= _embed(worker, {text_hash: text})
    return found


def _text(worker: Worker, tenant: str, event: Unembedded) -> str:
    """What the model is shown of an event; of a payload the beginning, if it is text."""
    text = event.content
    if text is None and event.blob_cid and is_text(event.mime_type):
        text = worker.blobs.head_text(tenant, event.blob_cid, _SHOWN_BYTES)
    shown = text if text is not None else event.file_name or event.mime_type or ""
    return ranking.context(event.said_at, event.speaker, shown)
