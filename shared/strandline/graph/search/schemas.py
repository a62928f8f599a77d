"""Requests and answers of search and traversal of the graph."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.schemas import NodeOut, RelationType
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel

MIN_CONFIDENCE = 0.5
"""Edges and nodes of less confidence are not retrieved unless a caller asks for them."""

SearchMode = TypeAliasType("SearchMode", Literal["semantic", "exact", "graph"])
Traversal = TypeAliasType(
    "Traversal",
    Literal[
        "related_entities",
        "related_facts",
        "facts_about_entity",
        "decision_entities",
        "entity_decisions",
        "invalidation_chain",
        "topic_contents",
        "neighbours",
    ],
)
Reason = TypeAliasType("Reason", Literal["meaning", "words", "name", "text", "edge"])


class _ReadRequest(RequestModel):
    participants: Participants | None = None
    """The participants to read for: only what all of them took part in. A bound user is added
    automatically."""
    as_of: Moment | None = None
    """Read what held at this time, as it was known then; by default now."""
    archived: bool = Field(default=False, strict=True)
    """Whether the answer may contain archived nodes."""


class GraphSearchRequest(_ReadRequest):
    """A search of the graph."""

    query: str = Field(min_length=1, max_length=8000)
    """A question or a text. For `exact`, a part of a node's text. For `graph`, the id of a node, or
    a text that names nodes."""
    mode: SearchMode = "semantic"
    """`semantic`: nodes near in meaning, and nodes that the query names. `exact`: nodes whose text
    contains the query, regardless of case. `graph`: the nodes that the query names, or else the
    nearest ones, and the nodes within two edges of confidence 0.5 or more."""
    types: list[NodeType] | None = Field(default=None, min_length=1, max_length=5)
    """Only nodes of these types; by default all types."""
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The maximum number of nodes."""


class NearestTopicsRequest(_ReadRequest):
    """A text to compare topics with."""

    query: str = Field(min_length=1, max_length=8000)
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The maximum number of topics."""


class TraverseRequest(_ReadRequest):
    """Where to start, and which edges to follow."""

    node_id: Annotated[str, Field(min_length=1, max_length=100)]
    """The node to start at, such as `ent:018f…`."""
    traversal: Traversal = "neighbours"
    """`related_entities`: entities that are joined to the node by an edge, in either direction.
    `related_facts`, also called `facts_about_entity`: facts about an entity or a topic.
    `decision_entities`: the entities that a decision involves, with their roles.
    `entity_decisions`: decisions that involve an entity. `invalidation_chain`: all facts that a
    fact replaced and was replaced by, to both ends, whether they still hold or not.
    `topic_contents`: the nodes that belong to a topic. `neighbours`: all nodes along any edge."""
    hops: int = Field(default=1, ge=1, le=3, strict=True)
    """The maximum number of edges in a row. An `invalidation_chain` is followed to its ends."""
    min_confidence: float = Field(default=MIN_CONFIDENCE, ge=0, le=1, strict=True)
    """Edges of less confidence are neither followed nor returned. An `invalidation_chain` has
    them all."""
    limit: int = Field(default=100, ge=1, le=500, strict=True)
    """The maximum number of nodes besides the first."""


class FoundNode(NodeOut):
    """A node of an answer, with the reasons why it was found."""

    archived: bool
    score: float | None
    """The answer is ordered by it. Null for a node that was reached along an edge."""
    similarity: float | None
    """The cosine of the node's and the query's vectors; null if one of them is missing."""
    why: list[Reason]
    """`meaning`: the node has a vector. `words`: it contains words of the query. `name`: the query
    contains its name. `text`: it contains the query. `edge`: it was reached along an edge."""
    hops: int
    """How many edges away it is; 0: it was found itself, or it is the start node."""


class GraphEdge(ResponseModel):
    """An edge between nodes of an answer, joined over the scopes in view."""

    id: UUID
    """The id of the first edge, if several with the same ends, type and label are joined."""
    type: RelationType
    from_id: str
    to_id: str
    label: str
    """For `related` the kind of relation, for `decision_entity` the role; else empty."""
    properties: dict[str, Any]
    """Its other fields: `nuance`, `reason`."""
    confidence: float
    weight: int
    """How many observations it rests on."""
    heat: float
    trust: str
    """The least trusted origin among the events it cites."""
    valid_from: datetime
    valid_to: datetime | None
    """Null: it still holds."""
    created_at: datetime
    """When it was first observed."""
    last_seen: datetime
    """When it was last observed."""


class SubgraphOut(ResponseModel):
    """A part of the graph."""

    nodes: list[FoundNode]
    edges: list[GraphEdge]
    degraded: list[str]
    """Codes for the limits of this answer; empty if there are none. `no_query_vector`: only names
    and words were searched. `cut_by_limit`: there are more results than the answer may contain."""


class RelevantNode(FoundNode):
    """A node that concerns a question."""

    event_ids: list[UUID]
    """The events that it cites, newest first, at most 20."""
    is_stated: bool
    """Whether it was stated to the graph. What is only drawn from what was said is true as of its
    date."""


class RelevantEdge(GraphEdge):
    """An edge between nodes that concern a question."""

    event_ids: list[UUID]
    """The events that it cites, newest first within each scope."""
    is_stated: bool
    """Whether it was stated to the graph. What is only drawn from what was said is true as of its
    date."""


class RelevantGraph(ResponseModel):
    """What the knowledge graph holds about a question: nodes and edges that hold now, with a
    confidence of at least 0.5."""

    nodes: list[RelevantNode]
    """At most 50: first the nodes that the question names, then those within two edges of them. The
    latter are ordered by the weight of the edge that leads to them, then by heat."""
    edges: list[RelevantEdge]
    """The edges between these nodes, the heaviest first, at most 50."""
