"""Embed nodes of the graph: a scope's new nodes, and all nodes of a tenant in a new embedding
space."""

import time
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from strandline.background.compute_event_vectors import embed_texts
from strandline.db.database import Caller, TenantDb
from strandline.graph.nodes import store_missing_vectors
from strandline.graph.nodes.store_missing_vectors import EmbeddedNode, UnembeddedNode
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_work

BATCH = 128
"""How many nodes are embedded between two commits."""


class NewNodesOutcome(NamedTuple):
    """What became of the new nodes of scopes."""

    embedded_count: int
    is_turn_over: bool
    """The scopes' slice of time was too short."""


def embed_new_nodes(
    worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]
) -> NewNodesOutcome:
    """Embed the nodes of these scopes that have no vector, for at most a slice of time. Nodes that
    a writer has locked stay due. A node whose text the model refuses stays without a vector. Raises
    EmbeddingUnavailable; what was stored before stays."""
    embedded_count, is_turn_over = 0, False
    slice_end = time.monotonic() + worker.slice_seconds
    while nodes := store_missing_vectors.list_unembedded_in_scopes(access, scope_ids, BATCH):
        stored_count = _embed(worker, access, nodes)
        embedded_count += stored_count
        worker.renew()
        if stored_count == 0 or worker.is_out_of_time():
            break
        if time.monotonic() > slice_end:
            is_turn_over = True
            break
    if embedded_count:
        worker.tally.counters["NodesEmbedded"] += embedded_count
    return NewNodesOutcome(embedded_count, is_turn_over)


def embed_all_nodes(worker: WorkerResources, tenant: str) -> bool:
    """Embed the nodes of a tenant that have no vector in the current space. Returns whether all are
    done. Raises EmbeddingUnavailable; what was stored before stays."""
    access = worker.database.connect_as(Caller.background(tenant))
    last_node_id: UUID | None = None
    while nodes := store_missing_vectors.list_unembedded_in_space(
        access, worker.embedder.space, last_node_id, BATCH
    ):
        if worker.is_out_of_time():
            return False
        worker.tally.counters["NodesEmbedded"] += _embed(worker, access, nodes)
        worker.renew()
        last_node_id = nodes[-1].node_id
    return True


def _embed(worker: WorkerResources, access: TenantDb, nodes: Sequence[UnembeddedNode]) -> int:
    vector_by_node = embed_texts(worker, {node.node_id: node.text for node in nodes})
    vectors: list[EmbeddedNode] = []
    for node in nodes:
        vector = vector_by_node[node.node_id]
        is_refused = isinstance(vector, str)
        vectors.append(
            EmbeddedNode(node, None if is_refused else store_work.vector_to_text(vector))
        )
    with access.transaction():
        return store_missing_vectors.store_vectors(access, worker.embedder.space, vectors)
