"""Vectors of events: their texts, the cache, and calls of the embedding model."""

import hashlib
import itertools
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from strandline.aws.payload_texts import is_text_type
from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector
from strandline.embeddings.vector_formats import pack_vector
from strandline.errors import EmbeddingRefused
from strandline.jobs.worker_resources import (
    EMBED_SECONDS,
    WorkerResources,
    probe_embedding_model,
    read_payload_text_head,
)
from strandline.log import indexed_text, store_work
from strandline.log.passage_spans import MAX_PASSAGES, split_into_passages
from strandline.log.store_work import EventVector, UnembeddedEvent
from strandline.observability import logger
from strandline.permanent_failures import is_permanent_failure

_MAX_PAYLOAD_BYTES = 10_000
"""How many bytes of a text payload are embedded: what its passages hold."""
_MAX_TEXT_CHARS = 4000
"""How many characters of a text its one vector is made of: more than the local model reads (256
tokens)."""
_MAX_PASSAGES = 256
"""How many passages are embedded between two commits, but those of one event in any case: a few
seconds of the local model."""
_PASSAGE_BATCH = 64
"""How many passages are embedded in one call."""


def take_events_to_embed(candidates: Sequence[UnembeddedEvent]) -> Sequence[UnembeddedEvent]:
    """The first of these events, as many as are embedded between two commits; at least one."""
    passage_count = 0
    for n, event in enumerate(candidates):
        passage_count += (
            MAX_PASSAGES
            if _is_text_payload(event)
            else len(split_into_passages(event.content or ""))
        )
        if n and passage_count > _MAX_PASSAGES:
            return candidates[:n]
    return candidates


def compute_vectors(
    worker: WorkerResources, access: TenantDb, candidates: Sequence[UnembeddedEvent]
) -> list[EventVector]:
    """A vector, or the reason of a refusal, for each event that is not erased: from the cache or
    from the model; of a long text also the vectors of its passages. Outside of any transaction."""
    events = [
        _with_payload_text(worker, access.caller.tenant, event)
        for event in candidates
        if not event.is_erased
    ]
    texts = [_choose_text_to_embed(event) for event in events]
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
            vector_by_hash[text_hash] = pack_vector(vector)
    embedded_events = [
        event
        for event, text_hash in zip(events, hashes, strict=True)
        if text_hash not in refusal_by_hash
    ]
    passages = _embed_passages(worker, embedded_events)
    return [
        EventVector(
            event,
            text_hash,
            vector_by_hash.get(text_hash),
            refusal_by_hash.get(text_hash),
            passages.get(event.event_id),
        )
        for event, text_hash in zip(events, hashes, strict=True)
    ]


def _embed_passages(
    worker: WorkerResources, events: Sequence[UnembeddedEvent]
) -> dict[UUID, list[PackedVector]]:
    """The vectors of the passages of long texts, by event; without those of an event of whose
    passages the model refuses one."""
    texts = {
        (event.event_id, n): indexed_text.format_event_for_model(
            event.said_at, event.speaker, event.content[start:end]
        )
        for event in events
        if event.content
        for n, (start, end) in enumerate(split_into_passages(event.content))
    }
    vectors: dict[UUID, list[PackedVector]] = defaultdict(list)
    refused_ids: set[UUID] = set()
    for keys in itertools.batched(texts, _PASSAGE_BATCH, strict=False):
        for (event_id, _), vector in embed_texts(worker, {key: texts[key] for key in keys}).items():
            if isinstance(vector, str):
                refused_ids.add(event_id)
            else:
                vectors[event_id].append(pack_vector(vector))
        worker.renew()
    return {event_id: own for event_id, own in vectors.items() if event_id not in refused_ids}


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


def _is_text_payload(event: UnembeddedEvent) -> bool:
    is_payload = event.content is None and event.blob_cid is not None
    return is_payload and is_text_type(event.mime_type)


def _with_payload_text(
    worker: WorkerResources, tenant: str, event: UnembeddedEvent
) -> UnembeddedEvent:
    """The event of a text payload with the beginning of its text; any other as it is."""
    if not _is_text_payload(event) or event.blob_cid is None:
        return event
    text = read_payload_text_head(
        worker, tenant, event.blob_cid, _MAX_PAYLOAD_BYTES, event.mime_type
    )
    return replace(event, content=text)


def _choose_text_to_embed(event: UnembeddedEvent) -> str:
    """The text of an event's one vector. A payload that is no text is represented by its file name
    or MIME type."""
    text = event.content
    body = text[:_MAX_TEXT_CHARS] if text is not None else event.file_name or event.mime_type or ""
    return indexed_text.format_event_for_model(event.said_at, event.speaker, body)
