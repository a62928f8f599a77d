"""The state of the graph in view."""

from datetime import datetime

from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.schemas import RelationType
from strandline.schemas import ResponseModel


class NodeCounts(ResponseModel):
    """Nodes of one type, counted in each scope: a name that two scopes have counts twice."""

    total: int
    current: int
    """Nodes that hold, are not archived and are not merged into another one."""
    ended: int
    """Facts that were invalidated."""
    archived: int
    merged: int
    """Nodes that are read as another node of their scope."""


class EdgeCounts(ResponseModel):
    """Edges of one type."""

    total: int
    current: int
    ended: int


class GraphByteSizes(ResponseModel):
    """Bytes of stored data, without the overhead of rows and indexes."""

    nodes: int
    """Names, properties and searchable text."""
    vectors: int
    edges: int
    observations: int
    revisions: int


class GraphHealth(ResponseModel):
    """The progress of background work in the scopes in view."""

    promoted_at: datetime | None
    """When a chain was last extracted. Null: never."""
    chains_due: int
    """Chains that are warm enough for the graph, but whose newest version is not in it yet."""
    promotions_failed: int
    """Open failures. GET /api/v1/admin/jobs?kind=promote lists the reasons."""
    analysed_at: datetime | None
    """When communities were last analysed. Null: never."""
    scopes_to_analyse: int
    """Scopes whose graph has changed since its analysis."""
    analyses_failed: int
    nodes_without_vector: int
    """They are found by their names and words until a worker embeds them."""
    nodes_refused: int
    """Nodes whose text the embedding model refused."""


class GraphUse(ResponseModel):
    """The sources of the graph in view, and its use."""

    statements: int
    """Statements that nodes and edges rest on, including revisions of fields."""
    chains: int
    """Chains that nodes and edges rest on."""
    observed_at: datetime | None
    """When the last observation was made."""
    answers: int
    """Recalls and reads of fields in the last 30 days on behalf of the requested participants,
    alone or with others."""
    answered_at: datetime | None


class GraphStatus(ResponseModel):
    """The state of the graph in view: its contents, its size, the progress of background work, and
    its use."""

    scopes: int
    """Scopes in view that have a graph."""
    nodes: dict[NodeType, NodeCounts]
    edges: dict[RelationType, EdgeCounts]
    observations: int
    fields: int
    revisions: int
    communities: int
    bytes: GraphByteSizes
    health: GraphHealth
    use: GraphUse
