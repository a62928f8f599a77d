"""Requests and answers about nodes and edges of the graph."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self, TypeAliasType

from strandline.graph.nodes.identity import normalise_name
from strandline.graph.nodes.node_types import NODE_TYPES, EntityKind, FactCategory, NodeType
from strandline.schemas import (
    DateOrMoment,
    Moment,
    Participant,
    Participants,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
)

MAX_NODES = 50
MAX_LINKS = 20
MAX_NODE_BYTES = 15 * 1024
"""The maximum size as JSON, in the metadata of its statement."""

DecisionStatus = TypeAliasType("DecisionStatus", Literal["active", "superseded", "reversed"])
RelationType = TypeAliasType(
    "RelationType",
    Literal[
        "fact_entity",
        "fact_topic",
        "decision_entity",
        "decision_topic",
        "event_decision",
        "entity_topic",
        "invalidates",
        "USES",
        "WORKS_ON",
        "BUILT_FOR_CLIENT",
        "STRUGGLES_WITH",
        "EXHIBITS",
        "EXPRESSED_INTEREST",
        "RELATES_TO",
        "related",
    ],
)

NodeRef = TypeAliasType("NodeRef", Annotated[str, Field(min_length=1, max_length=100)])
"""A node's id (`ent:…`), or the `ref` of a node of the same request."""
Alternative = TypeAliasType("Alternative", Annotated[str, Field(min_length=1, max_length=200)])
Name = TypeAliasType("Name", Annotated[str, Field(min_length=1, max_length=500)])
Text = TypeAliasType("Text", Annotated[str, Field(min_length=1, max_length=4000)])


class RelationshipIn(RequestModel):
    """An edge from the node that is created to another one."""

    edge: Annotated[str, Field(min_length=1, max_length=100)]
    """The type of the edge. An unknown one is stored as `RELATES_TO`, and the answer says so."""
    target: NodeRef
    role: str | None = Field(default=None, max_length=200)
    """The entity's role in the decision."""
    nuance: str | None = Field(default=None, max_length=1000)
    confidence: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None


class _NodeIn(RequestModel):
    ref: Annotated[str, Field(pattern="^[a-z0-9_-]{1,64}$")] | None = None
    """A name for the node within this request, which edges can refer to."""
    relationships: list[RelationshipIn] = Field(
        default_factory=list[RelationshipIn], max_length=MAX_LINKS
    )
    confidence: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """How sure the caller is; by default 0.8 is assumed."""
    valid_from: Moment | None = None
    """The time from which it holds; by default now."""


def add_full_stop(text: str) -> str:
    """A sentence from a text."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…", "。")) else f"{text}."


def _check_not_blank(value: str) -> str:
    if not normalise_name(value):
        raise ValueError("must have a letter, a digit or a sign besides white space")
    return value


class FactIn(_NodeIn):
    """Something that is the case."""

    type: Literal["fact"]
    content: Text
    category: FactCategory = "general"
    invalidates: NodeRef | None = None
    """The id of the fact that it replaces. That fact's valid time ends where this one's begins."""
    reason: str | None = Field(default=None, max_length=1000)
    """Why the replaced fact no longer holds."""

    _check_content = field_validator("content")(_check_not_blank)

    @model_validator(mode="after")
    def _check_reason_with_invalidates(self) -> Self:
        if (self.invalidates is None) != (self.reason is None):
            raise ValueError("invalidates and reason go together")
        return self

    def format_as_sentence(self) -> str:
        """The sentence that states it, which recall finds."""
        return add_full_stop(self.content)


class DecisionIn(_NodeIn):
    """What was decided, and why."""

    type: Literal["decision"]
    title: Name
    rationale: Text
    alternatives: list[Alternative] = Field(default_factory=list[str], max_length=10)
    status: DecisionStatus = "active"

    _check_title = field_validator("title")(_check_not_blank)

    def format_as_sentence(self) -> str:
        """The sentence that states it, which recall finds."""
        others = f" Instead of: {'; '.join(self.alternatives)}." if self.alternatives else ""
        title, rationale = add_full_stop(self.title), add_full_stop(self.rationale)
        return f"Decided: {title} {rationale}{others}"


class EntityIn(_NodeIn):
    """A person or a thing with a name."""

    type: Literal["entity"]
    name: Name
    kind: EntityKind = "other"
    description: str | None = Field(default=None, max_length=4000)

    _check_name = field_validator("name")(_check_not_blank)

    def format_as_sentence(self) -> str:
        """The sentence that states it, which recall finds."""
        name = self.name.strip() + ("" if self.kind == "other" else f" ({self.kind})")
        return f"{name}: {add_full_stop(self.description)}" if self.description else name


class EventIn(_NodeIn):
    """Something that happened or will happen."""

    type: Literal["event"]
    title: Name
    description: str | None = Field(default=None, max_length=4000)
    event_date: DateOrMoment | None = None

    _check_title = field_validator("title")(_check_not_blank)

    def format_as_sentence(self) -> str:
        """The sentence that states it, which recall finds."""
        date = f", {self.event_date:%Y-%m-%d}" if self.event_date else ""
        rest = f" {add_full_stop(self.description)}" if self.description else ""
        return f"{self.title.strip()}{date}.{rest}"


class TopicIn(_NodeIn):
    """A recurring theme."""

    type: Literal["topic"]
    name: Name
    description: str | None = Field(default=None, max_length=4000)
    category: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """The kind of topic, in the caller's words."""

    _check_name = field_validator("name")(_check_not_blank)

    def format_as_sentence(self) -> str:
        """The sentence that states it, which recall finds."""
        name = self.name.strip()
        return f"{name}: {add_full_stop(self.description)}" if self.description else name


NodeIn = TypeAliasType(
    "NodeIn",
    Annotated[FactIn | DecisionIn | EntityIn | EventIn | TopicIn, Field(discriminator="type")],
)


def get_identifying_text(node: NodeIn) -> str:
    """The text that identifies a node of its type: a fact's content, a title or a name."""
    return str(getattr(node, NODE_TYPES[node.type].name_field)).strip()


StatementRole = TypeAliasType("StatementRole", Literal["user", "agent"])


class CreateNodesRequest(RequestModel):
    """Up to 50 nodes, with edges between them and to existing nodes, stored all or none."""

    participants: Participants
    """The exact set of participants. It determines the scope."""
    speaker: Participant | None = None
    """Who states it. May be omitted if only one participant is possible."""
    role: StatementRole | None = None
    """Whose words it is. By default the speaker's, and a user's if nobody speaks."""
    nodes: list[NodeIn] = Field(min_length=1, max_length=MAX_NODES)
    """Each at most 15 KiB as JSON, including its relationships."""


class GetNodeQuery(ParticipantsQuery):
    """Query string of a node."""

    as_of: Moment | None = None
    """As it was known at this time; by default now."""


class StoredNode(ResponseModel):
    """A node that a request stored or referred to."""

    id: str
    """Its type and its id, such as `fact:018f…`."""
    ref: str | None
    type: NodeType
    event_id: UUID
    """The statement that it rests on."""


class StoredEdge(ResponseModel):
    """An edge that a request stored or referred to."""

    id: UUID
    type: RelationType
    from_id: str
    to_id: str
    corrected_from: str | None
    """The requested type, if it was unknown."""


class CreateNodesAnswer(ResponseModel):
    """What was stored, nodes in the order of the request."""

    scope_id: UUID
    nodes: list[StoredNode]
    edges: list[StoredEdge]


class NodeOut(ResponseModel):
    """A node, joined over the scopes in view."""

    id: str
    type: NodeType
    name: str
    """The content of a fact, the title of a decision or an event, or the name of an entity or a
    topic."""
    properties: dict[str, Any]
    """Its other fields, as they were created and updated: `category` or `kind`, `description` …"""
    confidence: float
    weight: int
    """The number of observations that support it. Ends, merges and archive flags do not count."""
    trust: str
    """The least trusted origin among the events it cites."""
    valid_from: datetime
    valid_to: datetime | None
    """Null: it still holds."""
    archived: bool
    """Lists and searches leave it out by default. For a joined node: whether all of its members are
    archived."""
    created_at: datetime
    updated_at: datetime
    members: list[str]
    """The nodes of this name in each scope in view, and those merged with it."""
