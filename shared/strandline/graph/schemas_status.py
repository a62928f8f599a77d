"""The state of the graph in view."""

from datetime import datetime

from strandline.graph.identity import NodeType
from strandline.graph.schemas_nodes import RelationType
from strandline.schemas import ResponseModel


class NodeCounts(ResponseModel):
    """Nodes of one type, each scope's by itself: a name of two scopes counts twice."""

    total: int
    current: int
    """Those that hold, are not archived and not merged into another."""
    ended: int
    """Facts that were invalidated."""
    archived: int
    merged: int
    """Those that are read as another node of their scope."""


class EdgeCounts(ResponseModel):
    """Edges of one type."""

    total: int
    current: int
    ended: int


class GraphSizes(ResponseModel):
    """Bytes of what is stored, without the overhead of rows and indexes."""

    nodes: int
    """Names, properties and the text that is searched."""
    vectors: int
    edges: int
    observations: int
    revisions: int


class GraphHealth(ResponseModel):
    """How far background work is, in the scopes in view."""

    promoted_at: datetime | None
    """When a chain was extracted last. Null: never."""
    chains_due: int
    """Chains that are warm enough for the graph and not in it at their newest version."""
    promotions_failed: int
    """Open failures; GET /api/v1/admin/jobs?kind=promote has the reasons."""
    analysed_at: datetime | None
    """When communities were found last. Null: never."""
    scopes_to_analyse: int
    """Scopes whose graph has changed since."""
    analyses_failed: int
    nodes_without_vector: int
    """They are found by their names and words until a worker embeds them."""
    nodes_refused: int
    """Nodes whose text the embedding model refused."""


class GraphUse(ResponseModel):
    """What the graph in view was used for."""

    statements: int
    """Statements that nodes and edges rest on, revisions of fields included."""
    chains: int
    """Chains that nodes and edges rest on."""
    observed_at: datetime | None
    """When the last observation was made."""
    answers: int
    """Recalls and reads of fields in the last 30 days, on behalf of those asked for, alone or with
    others."""
    answered_at: datetime | None


class GraphStatus(ResponseModel):
    """What the graph in view has, how large it is, how far background work is, and its use."""

    scopes: int
    """Scopes in view that have a graph."""
    nodes: dict[NodeType, NodeCounts]
    edges: dict[RelationType, EdgeCounts]
    observations: int
    fields: int
    revisions: int
    communities: int
    bytes: GraphSizes
    health: GraphHealth
    use: GraphUse
