"""Ask again for the vectors of events that the embedding model refused."""

from collections.abc import Sequence
from uuid import UUID

from strandline.background.compute_event_vectors import compute_vectors
from strandline.background.embed_scopes import BATCH
from strandline.chains import store_decisions
from strandline.chains.decisions import give_up_vector
from strandline.db.database import Caller, TenantDb
from strandline.errors import EmbeddingRefused
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_work
from strandline.log.store_work import EventVector


def retry_refused_vectors(worker: WorkerResources, tenant: str, scope_id: UUID) -> int:
    """Ask the embedding model again for the events of a scope that it refused. Returns how many
    vectors were stored. Chains and trees stay as they are: what was decided without a vector stays
    decided, and a replay decides the same. Raises EmbeddingRefused where a whole batch is still
    refused, and EmbeddingUnavailable."""
    access = worker.database.connect_as(Caller.background(tenant))
    stored_count = 0
    while events := store_work.list_refused(access, scope_id, worker.embedder.space, BATCH):
        vectors = compute_vectors(worker, access, events)
        with access.transaction():
            _record_formed_without_vectors(access, scope_id, vectors)
            replaced_count = store_work.replace_refusals(access, worker.embedder.space, vectors)
        stored_count += replaced_count
        worker.renew()
        if replaced_count == 0:
            raise EmbeddingRefused(f"The model still refuses {len(events)} events of this scope.")
    return stored_count


def _record_formed_without_vectors(
    access: TenantDb, scope_id: UUID, vectors: Sequence[EventVector]
) -> None:
    """Record for events that now have a vector that their chains and trees were formed without
    it."""
    events = [vector.event for vector in vectors if vector.embedding and not vector.event.is_erased]
    if events:
        store_decisions.add_new_decisions(
            access,
            scope_id,
            events[0].participants,
            [give_up_vector(event.event_id, event.seq, "refused") for event in events],
        )
