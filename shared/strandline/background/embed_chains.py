"""Embed chains without a vector: in a new embedding space, or after the model was unavailable."""

from datetime import datetime

from strandline.background.compute_event_vectors import embed_texts
from strandline.background.embed_scopes import BATCH
from strandline.chains import store_summary_vectors
from strandline.chains.store_summary_vectors import SummaryVector
from strandline.db.database import Caller, TenantDb
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_work


def embed_chains(worker: WorkerResources, tenant: str, now: datetime) -> tuple[int, bool]:
    """Embed the summaries of a tenant's active chains that have no vector in the current space.
    Returns how many vectors were stored, and whether all chains are done. A summary that the model
    refuses stays without one.

    Raises EmbeddingUnavailable; what was stored before stays.
    """
    access = worker.database.connect_as(Caller.background(tenant))
    space, last_chain_id, embedded_count = worker.embedder.space, None, 0
    while chains := store_summary_vectors.list_unindexed(access, space, last_chain_id, BATCH):
        if worker.is_out_of_time():
            return embedded_count, False
        vector_by_chain = embed_texts(worker, {chain.chain_id: chain.summary for chain in chains})
        embedded_count += _store_vectors(
            access,
            space,
            [
                SummaryVector(chain.chain_id, chain.version, store_work.vector_to_text(vector))
                for chain in chains
                if not isinstance(vector := vector_by_chain[chain.chain_id], str)
            ],
            now,
        )
        worker.renew()
        last_chain_id = chains[-1].chain_id
    return embedded_count, True


def _store_vectors(
    access: TenantDb, space: str, vectors: list[SummaryVector], now: datetime
) -> int:
    with access.transaction():
        stored_count = store_summary_vectors.store_vectors(access, space, vectors)
        store_failures.resolve_failures_by_reason(
            access, "enrich", "no_vector", [item.chain_id for item in vectors], now
        )
    return stored_count
