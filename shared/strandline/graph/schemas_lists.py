"""Requests and answers of lists of nodes, and of a node's history."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.graph.identity import NodeType
from strandline.graph.schemas_nodes import DecisionStatus, NodeOut
from strandline.schemas import Count, Moment, ParticipantsQuery, ResponseModel, Switch

type NodeCategory = Literal[
    "personal",
    "professional",
    "preference",
    "technical",
    "relationship",
    "general",
    "person",
    "company",
    "project",
    "product",
    "technology",
    "place",
    "other",
]
type NodeSort = Literal["updated_at", "created_at", "name", "weight", "confidence"]


class NodesQuery(ParticipantsQuery):
    """Query string of the list of nodes."""

    type: NodeType | None = None
    """Only nodes of this type."""
    category: NodeCategory | None = None
    """A fact's category, or an entity's kind."""
    status: DecisionStatus | None = None
    """A decision's."""
    as_of: Moment | None = None
    """As they were known at this time, and held then; by default now."""
    archived: Switch = False
    """Also archived nodes."""
    valid_only: Switch = True
    """Leave out what does not hold at that time: its valid time has ended, or not begun."""
    sort: NodeSort = "updated_at"
    """What orders the list."""
    order: Literal["asc", "desc"] = "desc"
    """`asc`: the least, the oldest or the first of the alphabet first."""
    limit: Count = Field(default=50, ge=1, le=100)
    """The most entries of a page."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class NodePage(ResponseModel):
    """Nodes, joined over the scopes in view."""

    nodes: list[NodeOut]
    next_cursor: str | None


class HistoryQuery(ParticipantsQuery):
    """Query string of a node's history."""

    limit: Count = Field(default=50, ge=1, le=100)
    """The most observations of a page."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class Observation(ResponseModel):
    """What one source said of the node."""

    member: str
    """The node of one scope that it is about: one of the node's members."""
    source_kind: Literal["statement", "chain"]
    source_id: UUID
    """The statement's event id, or the chain's id."""
    version: int | None
    """The chain's version."""
    observed_at: datetime
    speakers: list[str]
    """Who said it."""
    event_ids: list[UUID]
    """The events that it rests on."""
    changes: dict[str, Any]
    """The fields that it sets, null: clears. `valid_to` is the end of a fact, `archived` the flag,
    `merged_into` the node that it is read as."""
    is_evidence: bool
    """Whether it counts in the node's weight and confidence."""
    confidence: float | None
    """How sure the source is; null: it does not say."""
    trust: str
    valid_from: datetime


class Revision(ResponseModel):
    """A fact of a chain of revisions."""

    id: str
    content: str
    valid_from: datetime
    valid_to: datetime | None
    reason: str | None
    """Why it does not hold any more."""
    replaced_by: list[str]
    """The facts that hold instead, or held until they were replaced."""


class NodeHistory(ResponseModel):
    """What was said of a node, oldest first."""

    id: str
    members: list[str]
    observations: list[Observation]
    next_cursor: str | None
    revisions: list[Revision]
    """Of a fact: itself with all that it replaced and that replaced it, oldest first, at most
    100."""
