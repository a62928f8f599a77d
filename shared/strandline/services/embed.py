"""Embed what is new: scope by scope, from the last vector to the log's end."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from strandline import ranking
from strandline.blobs import Blobs
from strandline.db import Access, Asker, Database
from strandline.errors import EmbeddingRefused, StrandlineError
from strandline.models.embedding import Embedder
from strandline.observability import logger
from strandline.store import work
from strandline.store.work import Unembedded, Vector

BATCH = 128
"""Events between two commits: about a second of the local model."""
EMBED_SECONDS = 15.0
_SHOWN_BYTES = 4000
"""What a model is shown of a large text: more than the local one reads (256 tokens)."""
_SCOPES = 50
"""Scopes a sweep takes at a time."""


@dataclass(frozen=True)
class Worker:
    """What embedding needs, and until when (time.monotonic() seconds) it may take."""

    database: Database
    blobs: Blobs
    embedder: Embedder
    deadline: float

    def out_of_time(self) -> bool:
        """A batch more might not be finished in time."""
        return time.monotonic() > self.deadline - EMBED_SECONDS


def embed_scope(worker: Worker, tenant: str, scope_id: UUID) -> None:
    """Embed one scope that was hinted at. A scope that somebody works on, or that has nothing due,
    is none of ours. Raises Unavailable; the work stays due."""
    access = worker.database.access(Asker.background(tenant))
    for _ in work.lease(access, datetime.now(UTC), [scope_id], 1):
        _embed_leased(worker, access, scope_id, attempts=0)


def embed_due(worker: Worker) -> int:
    """Embed whatever is due anywhere, longest due first; gives how many scopes were finished. One
    scope's failure is kept with its work and holds up no other."""
    finished = 0
    now = datetime.now(UTC)
    tenants = work.tenants(worker.database.connection(), worker.embedder.space, now)
    for tenant in tenants:
        access = worker.database.access(Asker.background(tenant))
        with access.transaction():
            work.name_unembedded(access, worker.embedder.space, now)
        while not worker.out_of_time():
            leases = work.lease(access, datetime.now(UTC), None, _SCOPES)
            if not leases:
                break
            for taken in leases:
                finished += _embed_safely(worker, access, taken)
    return finished


def _embed_safely(worker: Worker, access: Access, taken: work.Lease) -> int:
    try:
        _embed_leased(worker, access, taken.scope_id, taken.attempts)
        return 1
    except Exception as error:  # a fault of ours as well: this scope would be the first due again
        logger.warning(
            "scope not embedded",
            extra={
                "scope": str(taken.scope_id),
                "error": _reason(error),
                "attempts": taken.attempts,
            },
        )
        return 0


def _embed_leased(worker: Worker, access: Access, scope_id: UUID, attempts: int) -> None:
    space = worker.embedder.space
    try:
        while events := work.unembedded(access, scope_id, space, BATCH):
            vectors = _vectors(worker, access, events)
            with access.transaction():
                work.store_vectors(access, space, vectors, events[-1])
            if worker.out_of_time():
                break
        with access.transaction():
            work.settle(access, scope_id, space)
    except Exception as error:
        later = datetime.now(UTC) + timedelta(seconds=min(300, 2**attempts))
        with access.transaction():
            work.put_off(access, scope_id, later, _reason(error))
        raise


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
    try:
        vectors = worker.embedder.embed(list(texts.values()), timeout=EMBED_SECONDS)
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
    if (
        text is None
        and event.blob_cid
        and (event.mime_type or "").startswith(("text/", "application/json"))
    ):
        text = worker.blobs.head_text(tenant, event.blob_cid, _SHOWN_BYTES)
    shown = text if text is not None else event.file_name or event.mime_type or ""
    return ranking.context(event.said_at, event.speaker, shown)
