"""Fill an embedding space with vectors of all that a tenant has, beside the space that it reads.

Where a space ends is read from the database each time, so that whoever is killed loses one batch.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from strandline.background import missing_vectors, store_switches
from strandline.background.compute_event_vectors import compute_vectors, take_events_to_embed
from strandline.background.embed_scopes import BATCH, embed_nodes_beside
from strandline.db.database import Caller, TenantDb
from strandline.embeddings.embedder import Embedder, Purpose
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_work
from strandline.log.store_erasure_marks import list_scopes_with_events_being_erased
from strandline.personas import store_memories

_SCOPES = 100
"""How many scopes are filled together."""


class CountedEmbedder:
    """A model, and what it was given since it was last asked. For one thread."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.space, self.dimensions = embedder.space, embedder.dimensions
        self._texts = self._characters = 0

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """As the model's own, and counted where it answers."""
        vectors = self._embedder.embed(texts, timeout=timeout, purpose=purpose)
        self._texts += len(texts)
        self._characters += sum(map(len, texts))
        return vectors

    def take_counts(self) -> tuple[int, int]:
        """The texts and characters since the last call."""
        counts = self._texts, self._characters
        self._texts = self._characters = 0
        return counts


def fill_space(worker: WorkerResources, tenant: str, now: datetime) -> tuple[int, bool]:
    """Compute the vectors that the tenant lacks in the space of the worker's model, which is
    counted: of events, summaries of chains, nodes of the graph, and the sums of sonas. Returns how
    many, and whether none is lacking any more. Events of scopes of which something is being erased
    wait. Raises EmbeddingUnavailable; what was stored before stays."""
    model = CountedEmbedder(worker.embedder)
    filler = _Filler(worker, tenant, model)
    try:
        events, has_all_events = filler.fill_events()
        if not has_all_events:
            return events, False
        chains, has_all_chains = missing_vectors.embed_chain_summaries(
            filler.worker, tenant, now, resolves_failures=False
        )
        nodes, has_all_nodes = embed_nodes_beside(filler.worker, tenant)
        has_all_sums = filler.fill_sums()
        return events + chains + nodes, has_all_chains and has_all_nodes and has_all_sums
    finally:
        with filler.access.transaction():
            filler.record_use()


class _Filler:
    """Fills the space of one model for one tenant."""

    def __init__(self, worker: WorkerResources, tenant: str, model: CountedEmbedder) -> None:
        self.worker = replace(worker, embedder=model)
        self._model = model
        self.access = worker.database.connect_as(Caller.background(tenant))

    def record_use(self) -> None:
        """Add what the model was given to the tenant's open switch. In a transaction."""
        texts, characters = self._model.take_counts()
        if texts:
            store_switches.record_use(self.access, texts, characters)

    def fill_events(self) -> tuple[int, bool]:
        """Embed the events that lack a vector, scope by scope."""
        count, last_scope, has_all = 0, UUID(int=0), True
        while scopes := store_switches.list_scopes_behind(
            self.access, self._model.space, last_scope, _SCOPES
        ):
            scope_ids = [scope.scope_id for scope in scopes]
            marked_scopes = list_scopes_with_events_being_erased(self.access, scope_ids)
            readable = [scope_id for scope_id in scope_ids if scope_id not in marked_scopes]
            stored_count, is_complete = self._fill_scopes(readable)
            count += stored_count
            if not is_complete:
                return count, False
            has_all &= not marked_scopes
            last_scope = scope_ids[-1]
        return count, has_all

    def _fill_scopes(self, scope_ids: Sequence[UUID]) -> tuple[int, bool]:
        count, space = 0, self._model.space
        while events := store_work.list_unembedded_events(self.access, scope_ids, space, BATCH):
            if self.worker.is_out_of_time():
                return count, False
            events = take_events_to_embed(events)
            vectors = compute_vectors(self.worker, self.access, events)
            with self.access.transaction():
                store_work.store_event_vectors(self.access, space, vectors, events)
                self.record_use()
            count += len(events)
        return count, True

    def fill_sums(self) -> bool:
        """Count the vectors in the sums of the sonas that were active in these events."""
        return count_in_sums(self.worker, self.access, self._model.space)


def count_in_sums(worker: WorkerResources, access: TenantDb, space: str) -> bool:
    """Count vectors of this space in the sums of the sonas that were active in their events.
    Returns whether all are."""
    while event_ids := store_memories.list_events_missing_in_centroids(access, space, BATCH):
        if worker.is_out_of_time():
            return False
        with access.transaction():
            store_memories.add_vectors_to_centroids(access, event_ids, space)
    return True
