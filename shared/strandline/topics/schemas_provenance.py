"""Responses of provenance: from a derived row down to its events, and from an event up."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from strandline.schemas import Count, PagingQuery, ResponseModel


class ProvenanceQuery(PagingQuery):
    """Query string of provenance."""

    limit: Count = Field(default=100, ge=1, le=500)
    """The most entries of the list that is paged: of an event the events that cite it, of a chain,
    a topic, a node and a graph's edge the events below it, of a snapshot its scopes."""


class ProvenanceTopic(ResponseModel):
    """A place in a scope's tree."""

    kind: Literal["inner", "leaf"]
    slot: UUID
    """Of a leaf its chain."""
    node_id: UUID
    """Its content in that snapshot."""


class ProvenanceChain(ResponseModel):
    """A version of a chain."""

    chain_id: UUID
    version: int
    is_current: bool
    first_seq: int
    last_seq: int
    event_count: int
    created_at_seq: int
    """How far the scope was folded when this version replaced the last."""


class ProvenanceEvent(ResponseModel):
    """An event that something rests on."""

    event_id: UUID
    scope_id: UUID
    seq: int
    chain_id: UUID | None
    """The chain through which something rests on it; null where the event says it itself."""


class ProvenanceEdge(ResponseModel):
    """An edge of a later event that cites the event."""

    event_id: UUID
    """The later event."""
    weight: float


class ProvenanceVector(ResponseModel):
    """A vector of an event."""

    space: str
    embedded_at: datetime
    is_refused: bool
    """Whether the embedding model refused its text."""


class ProvenanceGraphItem(ResponseModel):
    """What the knowledge graph holds because of an event or a chain."""

    kind: Literal["node", "graph_edge"]
    id: str
    """Of a node with its type before it, as in the graph's answers."""
    type: str
    """The node's, or the edge's."""


class ProvenanceScope(ResponseModel):
    """A scope's tree in a snapshot."""

    scope_id: UUID
    participants: list[str]
    root_slot: UUID
    root_id: UUID
    cutoff: int
    """Every event up to this seq, but statements, is under a leaf."""
    leaf_count: int
    event_count: int


class ProvenanceOut(ResponseModel):
    """What rests on an event, or what a chain, a topic, a snapshot, a node or an edge of the
    knowledge graph rests on."""

    kind: Literal["event", "chain", "topic", "snapshot", "node", "graph_edge"]
    id: UUID
    scope_id: UUID | None
    """Null for a snapshot."""
    snapshot_version: int | None
    """The snapshot of `topics`: the active one, and of a topic that it does not have any more the
    last one that had it. Null where nothing is published."""
    topics: list[ProvenanceTopic]
    """From the leaf, or from the topic itself, up to the root."""
    chains: list[ProvenanceChain]
    """Of an event the current version of its chain, of a chain its versions, newest first, 100 at
    most."""
    events: list[ProvenanceEvent]
    """Of a chain and of a topic those below it; of a node and an edge of the graph those that it
    cites."""
    edges: list[ProvenanceEdge]
    """Of an event the edges that cite it."""
    graph: list[ProvenanceGraphItem]
    """Of an event and of a chain what the knowledge graph took from it, 100 at most."""
    vectors: list[ProvenanceVector]
    """Of an event."""
    scopes: list[ProvenanceScope]
    """Of a snapshot those in view."""
    next_cursor: str | None
