"""Vectors of events: their texts, the cache, and calls of the embedding model."""

import hashlib
import time
from collections.abc import Mapping, Sequence

from strandline.aws.blobs import is_utf8_text_type
from strandline.db.database import TenantDb
from strandline.errors import EmbeddingRefused
from strandline.jobs.worker_resources import (
    EMBED_SECONDS,
    WorkerResources,
    probe_embedding_model,
    read_payload_text_head,
)
from strandline.log import indexed_text, store_work
from strandline.log.store_work import EventVector, UnembeddedEvent
from strandline.observability import logger
from strandline.permanent_failures import is_permanent_failure

_MAX_TEXT_BYTES = 4000
"""How many bytes of a text payload are embedded: more than the local model reads (256 tokens)."""


def compute_vectors(
    worker: WorkerResources, access: TenantDb, candidates: Sequence[UnembeddedEvent]
) -> list[EventVector]:
    """A vector, or the reason of a refusal, for each event that is not erased: from the cache or
    from the model. Outside of any transaction."""
    events = [event for event in candidates if not event.is_erased]
    texts = [_text_to_embed(worker, access.caller.tenant, event) for event in events]
    hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
    vector_by_hash = dict(store_work.read_cached_vectors(access, worker.embedder.space, hashes))
    missing_texts = {
        text_hash: text
        for text_hash, text in zip(hashes, texts, strict=True)
        if text_hash not in vector_by_hash
    }
    refusal_by_hash: dict[bytes, str] = {}
    for text_hash, vector in embed_texts(worker, missing_texts).items():
        if isinstance(vector, str):
            refusal_by_hash[text_hash] = vector
        else:
            vector_by_hash[text_hash] = store_work.vector_to_text(vector)
    return [
        EventVector(event, text_hash, vector_by_hash.get(text_hash), refusal_by_hash.get(text_hash))
        for event, text_hash in zip(events, hashes, strict=True)
    ]


def embed_texts[Key](
    worker: WorkerResources, texts: Mapping[Key, str]
) -> dict[Key, list[float] | str]:
    """Embed texts. Returns a vector by key, or, for a text that the model will never accept, the
    reason. Raises EmbeddingUnavailable."""
    if not texts:
        return {}
    start = time.monotonic()
    try:
        vectors = worker.embedder.embed(list(texts.values()), timeout=EMBED_SECONDS)
        worker.tally.embedding_ms.append(round((time.monotonic() - start) * 1000, 1))
        return dict(zip(texts, vectors, strict=True))
    except EmbeddingRefused as error:
        refusal = error.message
    except Exception as error:  # the model fails on a text, and would again
        if not is_permanent_failure(error):
            raise
        logger.warning("embedding failed", extra={"error": type(error).__name__})
        refusal = f"The embedding model failed: {type(error).__name__}."
    if len(texts) == 1:
        probe_embedding_model(worker)
        return {key: refusal for key in texts}
    vector_by_key: dict[Key, list[float] | str] = {}
    for key, text in texts.items():  # one of them is refused: find out which
        worker.renew()
        vector_by_key |= embed_texts(worker, {key: text})
    return vector_by_key


def _text_to_embed(worker: WorkerResources, tenant: str, event: UnembeddedEvent) -> str:
    """The text that is embedded for an event. A text payload is represented by its beginning, any
    other payload by its file name or MIME type."""
    text = event.content
    if text is None and event.blob_cid and is_utf8_text_type(event.mime_type):
        text = read_payload_text_head(worker, tenant, event.blob_cid, _MAX_TEXT_BYTES)
    body = text if text is not None else event.file_name or event.mime_type or ""
    return indexed_text.format_event_for_model(event.said_at, event.speaker, body)
