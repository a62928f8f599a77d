"""Vectors that are missing: of chains, in a new embedding space or after the model was unavailable,
and of events that the model refused."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from strandline.background.compute_event_vectors import (
    compute_vectors,
    embed_texts,
    take_events_to_embed,
)
from strandline.background.embed_scopes import BATCH
from strandline.chains import store_decisions, store_summary_vectors
from strandline.chains.decisions import make_vector_given_up_decision
from strandline.chains.store_summary_vectors import SummaryVector
from strandline.db.database import Caller, TenantDb
from strandline.embeddings.vector_formats import pack_vector
from strandline.errors import EmbeddingRefused
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_refused_vectors
from strandline.log.store_work import EventVector


def embed_chain_summaries(
    worker: WorkerResources, tenant: str, now: datetime, *, resolves_failures: bool = True
) -> tuple[int, bool]:
    """Embed the summaries of a tenant's active chains that have no vector in the current space.
    Returns how many vectors were stored, and whether all chains are done. A summary that the model
    refuses stays without one. With `resolves_failures`, the failures for want of the vector are
    resolved: the space is the one that the tenant reads.

    Raises EmbeddingUnavailable; what was stored before stays.
    """
    access = worker.database.connect_as(Caller.background(tenant))
    space, last_chain_id, embedded_count = worker.embedder.space, None, 0
    while chains := store_summary_vectors.list_chains_without_summary_vector(
        access, space, last_chain_id, BATCH
    ):
        if worker.is_out_of_time():
            return embedded_count, False
        vector_by_chain = embed_texts(worker, {chain.chain_id: chain.summary for chain in chains})
        embedded_count += _store_summary_vectors_and_resolve_failures(
            access,
            space,
            [
                SummaryVector(chain.chain_id, chain.version, pack_vector(vector))
                for chain in chains
                if not isinstance(vector := vector_by_chain[chain.chain_id], str)
            ],
            now if resolves_failures else None,
        )
        worker.renew()
        last_chain_id = chains[-1].chain_id
    return embedded_count, True


def _store_summary_vectors_and_resolve_failures(
    access: TenantDb, space: str, vectors: list[SummaryVector], resolved_at: datetime | None
) -> int:
    with access.transaction():
        stored_count = store_summary_vectors.insert_summary_vectors(access, space, vectors)
        if resolved_at is not None:
            store_failures.resolve_failures_by_reason(
                access, "enrich", "no_vector", [item.chain_id for item in vectors], resolved_at
            )
    return stored_count


def retry_refused_vectors(worker: WorkerResources, tenant: str, scope_id: UUID) -> int:
    """Ask the embedding model again for the events of a scope that it refused. Returns how many
    vectors were stored. Chains and trees stay as they are: what was decided without a vector stays
    decided, and a replay decides the same. Raises EmbeddingRefused where a whole batch is still
    refused, and EmbeddingUnavailable."""
    access = worker.database.connect_as(Caller.background(tenant))
    stored_count = 0
    while events := store_refused_vectors.list_events_with_refused_vector(
        access, scope_id, worker.embedder.space, BATCH
    ):
        events = take_events_to_embed(events)
        vectors = compute_vectors(worker, access, events)
        with access.transaction():
            _record_decisions_made_without_vector(access, scope_id, vectors)
            replaced_count = store_refused_vectors.replace_refusals_by_vectors(
                access, worker.embedder.space, vectors
            )
        stored_count += replaced_count
        worker.renew()
        if replaced_count == 0:
            raise EmbeddingRefused(f"The model still refuses {len(events)} events of this scope.")
    return stored_count


def _record_decisions_made_without_vector(
    access: TenantDb, scope_id: UUID, vectors: Sequence[EventVector]
) -> None:
    """Record for events that now have a vector that their chains and trees were formed without
    it."""
    events = [vector.event for vector in vectors if vector.embedding and not vector.event.is_erased]
    if events:
        store_decisions.insert_new_decisions(
            access,
            scope_id,
            events[0].participants,
            [
                make_vector_given_up_decision(event.event_id, event.seq, "refused")
                for event in events
            ],
        )
