"""Index and embed the new events and nodes of leased scopes; embed all nodes of a tenant in a new
embedding space."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from strandline.background.compute_event_vectors import (
    compute_vectors,
    embed_texts,
    take_events_to_embed,
)
from strandline.db.database import Caller, TenantDb
from strandline.embeddings.vector_formats import pack_vector
from strandline.graph.nodes import store_missing_vectors
from strandline.graph.nodes.store_missing_vectors import EmbeddedNode, UnembeddedNode
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_substring_index, store_work
from strandline.log.store_work import EventVector
from strandline.observability import logger
from strandline.personas.sona_mentions import record_named_sonas
from strandline.personas.store_memories import add_vectors_to_centroids

BATCH = 128
"""How many events are embedded between two commits: about a second of the local model."""
SUBSTRING_BATCH = 32
"""How many events are indexed by their substrings between two commits: seconds where each holds
64 KiB."""
_MAX_FAILURES_IN_A_ROW = 3
"""After this many failed scopes in a row the model, not a text, is taken to be at fault."""
_NODE_BATCH = 128
"""How many nodes are embedded between two commits."""


class ScopeEmbeddingOutcome(NamedTuple):
    """What became of the embedding of scopes."""

    failures: Mapping[UUID, Exception]
    """The error of each failed scope."""
    unfinished_scopes: frozenset[UUID] = frozenset()
    """Scopes whose turn ended before their work."""


def index_and_embed_leased_scopes(
    worker: WorkerResources, access: TenantDb, leases: Sequence[store_work.ScopeLease]
) -> ScopeEmbeddingOutcome:
    """Index and embed leased scopes together, with one statement for all. Where that fails they are
    tried one by one, so that only the scope at fault fails."""
    scope_ids = [lease.scope_id for lease in leases]
    if not scope_ids:
        return ScopeEmbeddingOutcome({})
    try:
        return ScopeEmbeddingOutcome({}, _index_and_embed_scopes(worker, access, scope_ids))
    except Exception as error:  # unexpected ones too: else its scope would be the first due again
        if len(scope_ids) == 1:
            return ScopeEmbeddingOutcome({scope_ids[0]: error})
        failure = error
    failures: dict[UUID, Exception] = {}
    unfinished_scopes, failures_in_a_row = frozenset[UUID](), 0
    for position, lease in enumerate(leases):
        if (
            failures_in_a_row == _MAX_FAILURES_IN_A_ROW or worker.is_out_of_time()
        ):  # it is not the scope's fault
            failures |= dict.fromkeys(scope_ids[position:], failure)
            break
        outcome = index_and_embed_leased_scopes(worker, access, [lease])
        failures |= outcome.failures
        unfinished_scopes |= outcome.unfinished_scopes
        failures_in_a_row = failures_in_a_row + 1 if outcome.failures else 0
    return ScopeEmbeddingOutcome(failures, unfinished_scopes)


def _index_and_embed_scopes(
    worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]
) -> frozenset[UUID]:
    """Index and embed scopes. Returns those whose turn ended before their work."""
    is_cut_short = index_substrings(worker, access, scope_ids)
    unfinished_scopes = _embed_events(worker, access, scope_ids)
    is_cut_short |= embed_new_graph_nodes(worker, access, scope_ids).is_turn_over
    return frozenset(scope_ids) if is_cut_short else unfinished_scopes


def _embed_events(
    worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]
) -> frozenset[UUID]:
    """Embed the events of scopes. Returns the scopes whose turn ended before their work."""
    space, embedded_counts, remaining = worker.embedder.space, Counter[UUID](), list(scope_ids)
    slice_end = time.monotonic() + worker.slice_seconds
    while remaining and (
        events := store_work.list_unembedded_events(access, remaining, space, BATCH)
    ):
        events = take_events_to_embed(events)
        vectors = compute_vectors(worker, access, events)
        event_ids = [event.event_id for event in events]
        record_named_sonas(worker.database, access.caller.tenant, event_ids, space)
        with access.transaction():
            store_work.store_event_vectors(access, space, vectors, events)
            store_work.extend_leases(access, {event.scope_id for event in events})
            add_vectors_to_centroids(access, event_ids, space)
            _record_refusal_failures(access, vectors)
        worker.renew()
        worker.tally.embedded_events += len(vectors)
        scopes = sorted({str(event.scope_id) for event in events})
        logger.info("events embedded", extra={"scopes": scopes, "events": len(vectors)})
        embedded_counts.update(event.scope_id for event in events)
        remaining = [
            scope_id for scope_id in remaining if embedded_counts[scope_id] < worker.slice_events
        ]
        if time.monotonic() > slice_end:
            return frozenset(scope_ids)
        if worker.is_out_of_time():
            break
    return frozenset(scope_ids) - frozenset(remaining)


def _record_refusal_failures(access: TenantDb, vectors: Sequence[EventVector]) -> None:
    """Record a visible failure for each scope with events whose vector will never come by
    itself."""
    for vector in {item.event.scope_id: item for item in vectors if item.refusal}.values():
        store_failures.record_retryable_failure(
            access,
            kind=store_failures.EMBED_KIND,
            scope_id=vector.event.scope_id,
            participants=vector.event.participants,
            reason="embedding_refused",
            advice="Some events of this scope are found by their words alone. Retry this job with a"
            " model that accepts them.",
            ref=vector.event.scope_id,
        )


def index_substrings(worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]) -> bool:
    """Index the events of these scopes that are not indexed yet, for at most a slice of time.
    Returns whether that slice was too short."""
    slice_end = time.monotonic() + worker.slice_seconds
    while True:
        with access.transaction():
            event_count = store_substring_index.index_substrings_of_next_events(
                access, scope_ids, SUBSTRING_BATCH
            )
        if event_count < SUBSTRING_BATCH or worker.is_out_of_time():
            return False
        if time.monotonic() > slice_end:
            return True


class NodeEmbeddingOutcome(NamedTuple):
    """What became of the new nodes of scopes."""

    embedded_count: int
    is_turn_over: bool
    """The scopes' slice of time was too short."""


def embed_new_graph_nodes(
    worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]
) -> NodeEmbeddingOutcome:
    """Embed the nodes of these scopes that have no vector, for at most a slice of time. Nodes that
    a writer has locked stay due. A node whose text the model refuses stays without a vector. Raises
    EmbeddingUnavailable; what was stored before stays."""
    embedded_count, is_turn_over = 0, False
    slice_end = time.monotonic() + worker.slice_seconds
    while nodes := store_missing_vectors.list_unembedded_in_scopes(access, scope_ids, _NODE_BATCH):
        stored_count = _embed_and_store_nodes(worker, access, nodes)
        embedded_count += stored_count
        worker.renew()
        if stored_count == 0 or worker.is_out_of_time():
            break
        if time.monotonic() > slice_end:
            is_turn_over = True
            break
    if embedded_count:
        worker.tally.counters["NodesEmbedded"] += embedded_count
    return NodeEmbeddingOutcome(embedded_count, is_turn_over)


def embed_tenant_nodes_without_vector(worker: WorkerResources, tenant: str) -> bool:
    """Embed the nodes of a tenant that have no vector in the current space. Returns whether all are
    done. Raises EmbeddingUnavailable; what was stored before stays."""
    _, is_complete = _embed_missing_nodes(worker, tenant, store_missing_vectors.store_node_vectors)
    return is_complete


def embed_nodes_beside(worker: WorkerResources, tenant: str) -> tuple[int, bool]:
    """Like `embed_tenant_nodes_without_vector`, in a space that is not read yet: these vectors
    stand beside those that are. Also returns how many were stored. A node that a writer has locked
    is not done."""
    return _embed_missing_nodes(worker, tenant, store_missing_vectors.store_next_vectors)


def _embed_missing_nodes(
    worker: WorkerResources, tenant: str, store: "_StoreVectors"
) -> tuple[int, bool]:
    access = worker.database.connect_as(Caller.background(tenant))
    last_node_id: UUID | None = None
    count = 0
    while nodes := store_missing_vectors.list_unembedded_in_space(
        access, worker.embedder.space, last_node_id, _NODE_BATCH
    ):
        if worker.is_out_of_time():
            return count, False
        count += (stored_count := _embed_and_store_nodes(worker, access, nodes, store))
        worker.tally.counters["NodesEmbedded"] += stored_count
        worker.renew()
        last_node_id = nodes[-1].node_id
    return count, True


type _StoreVectors = Callable[[TenantDb, str, Sequence[EmbeddedNode]], int]


def _embed_and_store_nodes(
    worker: WorkerResources,
    access: TenantDb,
    nodes: Sequence[UnembeddedNode],
    store: _StoreVectors = store_missing_vectors.store_node_vectors,
) -> int:
    vector_by_node = embed_texts(worker, {node.node_id: node.text for node in nodes})
    vectors: list[EmbeddedNode] = []
    for node in nodes:
        vector = vector_by_node[node.node_id]
        is_refused = isinstance(vector, str)
        vectors.append(EmbeddedNode(node, None if is_refused else pack_vector(vector)))
    with access.transaction():
        return store(access, worker.embedder.space, vectors)
