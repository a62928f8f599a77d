"""Request and response types of provenance."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from strandline.schemas import Count, PagedReadQuery, ResponseModel


class ProvenanceQuery(PagedReadQuery):
    """Query parameters of provenance."""

    limit: Count = Field(default=100, ge=1, le=500)
    """The maximum number of entries of the paged list: for an event, the events that cite it; for a
    chain, a topic, or a node or edge of the graph, its events; for a snapshot, its scopes."""


class ProvenanceTopicSlot(ResponseModel):
    """A slot of a scope's tree."""

    kind: Literal["inner", "leaf"]
    slot: UUID
    """The slot's id; for a leaf, the id of its chain."""
    node_id: UUID
    """The id of the slot's content in that snapshot."""


class ProvenanceChainVersion(ResponseModel):
    """A version of a chain."""

    chain_id: UUID
    version: int
    is_current: bool
    first_seq: int
    last_seq: int
    event_count: int
    created_at_seq: int
    """The seq up to which the scope was folded when this version replaced the previous one."""


class ProvenanceEventReference(ResponseModel):
    """An event that the traced row is derived from."""

    event_id: UUID
    scope_id: UUID
    seq: int
    chain_id: UUID | None
    """The chain through which the row is derived from this event; null if it cites the event
    directly."""


class ProvenanceCitingEdge(ResponseModel):
    """An edge of a later event that cites the event."""

    event_id: UUID
    """The id of the later event."""
    weight: float


class ProvenanceVector(ResponseModel):
    """A vector of an event."""

    space: str
    embedded_at: datetime
    is_refused: bool
    """Whether the embedding model refused its text."""


class ProvenanceGraphItem(ResponseModel):
    """A node or an edge of the knowledge graph that is derived from the event or chain."""

    kind: Literal["node", "graph_edge"]
    id: str
    """The id. A node's id is prefixed with its type, as in the graph's responses."""
    type: str
    """The type of the node or edge."""


class ProvenanceScopeTree(ResponseModel):
    """A scope's tree in a snapshot."""

    scope_id: UUID
    participants: list[str]
    root_slot: UUID
    root_id: UUID
    cutoff: int
    """Every event up to this seq, except statements, is under a leaf."""
    leaf_count: int
    event_count: int


class ProvenanceOut(ResponseModel):
    """The rows derived from an event, or the sources of a chain, a topic, a snapshot, or a node or
    edge of the knowledge graph."""

    kind: Literal["event", "chain", "topic", "snapshot", "node", "graph_edge"]
    id: UUID
    scope_id: UUID | None
    """The scope; null for a snapshot."""
    snapshot_version: int | None
    """The version of the snapshot that `topics` is read from: the active one, or, for a topic that
    the active one no longer has, the last one that had it. Null if no snapshot is published."""
    topics: list[ProvenanceTopicSlot]
    """The topics from the leaf, or from the traced topic, up to the root."""
    chains: list[ProvenanceChainVersion]
    """For an event, the current version of its chain. For a chain, its versions, newest first, at
    most 100."""
    events: list[ProvenanceEventReference]
    """For a chain or a topic, the events below it. For a node or an edge of the graph, the events
    that it cites."""
    edges: list[ProvenanceCitingEdge]
    """For an event, the edges that cite it."""
    graph: list[ProvenanceGraphItem]
    """For an event or a chain, the knowledge graph items derived from it, at most 100."""
    vectors: list[ProvenanceVector]
    """For an event, its vectors."""
    scopes: list[ProvenanceScopeTree]
    """For a snapshot, its scopes that are visible to the caller."""
    next_cursor: str | None
