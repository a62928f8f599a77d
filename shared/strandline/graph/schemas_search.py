"""Requests and answers of search and traversal of the graph."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.graph.identity import NodeType
from strandline.graph.schemas_nodes import NodeOut, RelationType
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel

type SearchMode = Literal["semantic", "exact", "graph"]
type Traversal = Literal[
    "related_entities",
    "related_facts",
    "facts_about_entity",
    "decision_entities",
    "entity_decisions",
    "invalidation_chain",
    "topic_contents",
    "neighbours",
]
type Reason = Literal["meaning", "words", "name", "text", "edge"]


class _Reading(RequestModel):
    participants: Participants | None = None
    """The participants to read for: only what all of them took part in. A bound user is added
    automatically."""
    as_of: Moment | None = None
    """What held at this time, as it was known then; by default now."""
    archived: bool = Field(default=False, strict=True)
    """Whether archived nodes may be in the answer."""


class GraphSearchRequest(_Reading):
    """What to search the graph for."""

    query: str = Field(min_length=1, max_length=8000)
    """A question or a text; for `exact` a part of a node's text; for `graph` the id of a node, or a
    text that names some."""
    mode: SearchMode = "semantic"
    """`semantic`: nodes near in meaning, and those that the query names. `exact`: nodes whose text
    contains the query, whatever the case. `graph`: the nodes that the query names, else the
    nearest, and what lies within two edges of confidence 0.5 or more."""
    types: list[NodeType] | None = Field(default=None, min_length=1, max_length=5)
    """Only nodes of these types; by default of all."""
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The most nodes of the answer."""


class NearestTopicsRequest(_Reading):
    """The text that topics are compared with."""

    query: str = Field(min_length=1, max_length=8000)
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The most topics of the answer."""


class TraverseRequest(_Reading):
    """From where to follow which edges."""

    node_id: Annotated[str, Field(min_length=1, max_length=100)]
    """The node to start at, as `ent:018f…`."""
    traversal: Traversal = "neighbours"
    """`related_entities`: entities that a node leads to, or that lead to it. `related_facts`, also
    called `facts_about_entity`: facts about an entity or a topic. `decision_entities`: who and what
    a decision involves, with their roles. `entity_decisions`: decisions that involve an entity.
    `invalidation_chain`: the facts that a fact replaced and was replaced by, to both ends, whether
    they hold or not. `topic_contents`: what belongs to a topic. `neighbours`: all nodes along any
    edge."""
    hops: int = Field(default=1, ge=1, le=3, strict=True)
    """How many edges in a row. An `invalidation_chain` is followed to its ends."""
    limit: int = Field(default=100, ge=1, le=500, strict=True)
    """The most nodes of the answer besides the first."""


class FoundNode(NodeOut):
    """A node of an answer, and why it is there."""

    archived: bool
    score: float | None
    """By which the answer is ordered; null for what an edge led to."""
    similarity: float | None
    """The cosine of the node's and the query's vectors; null where one of them is missing."""
    why: list[Reason]
    """`meaning`: it has a vector. `words`: it holds words of the query. `name`: the query holds its
    name. `text`: it contains the query. `edge`: an edge led to it."""
    hops: int
    """How many edges it is away; 0: it was found, or it is where the walk began."""


class GraphEdge(ResponseModel):
    """An edge between nodes of an answer, joined over the scopes in view."""

    id: UUID
    """Of several of the same ends and type, the first."""
    type: RelationType
    from_id: str
    to_id: str
    label: str
    """Of `related` its kind, of `decision_entity` the role; else empty."""
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
    """Null: it holds."""


class GraphOut(ResponseModel):
    """A part of the graph."""

    nodes: list[FoundNode]
    edges: list[GraphEdge]
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: it was searched by names
    and words alone. `cut_by_limit`: there is more than the answer may hold."""


class KnownNode(FoundNode):
    """A node that a question is about."""

    event_ids: list[UUID]
    """The events that say so, newest first, at most 20."""


class KnownEdge(GraphEdge):
    """An edge between nodes that a question is about."""

    event_ids: list[UUID]
    """The events that say so, of each scope newest first."""


class KnownGraph(ResponseModel):
    """What the knowledge graph holds about a question: what holds now, with a confidence of at
    least 0.5."""

    nodes: list[KnownNode]
    """At most 50: first those that the question names, then what lies within two edges of them,
    along the heaviest edges first, of these the hottest."""
    edges: list[KnownEdge]
    """Between these nodes, the heaviest first, at most 50."""
