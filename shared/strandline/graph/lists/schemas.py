"""Requests and answers for lists of nodes, and for a node's history."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.schemas import DecisionStatus, NodeOut
from strandline.schemas import Count, Moment, ParticipantsQuery, ResponseModel, Switch

NodeCategory = TypeAliasType(
    "NodeCategory",
    Literal[
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
    ],
)
NodeSort = TypeAliasType(
    "NodeSort", Literal["updated_at", "created_at", "name", "weight", "confidence"]
)


class NodesQuery(ParticipantsQuery):
    """Query string of the list of nodes."""

    type: NodeType | None = None
    """Only nodes of this type."""
    category: NodeCategory | None = None
    """A fact's category, or an entity's kind."""
    status: DecisionStatus | None = None
    """The status of a decision."""
    as_of: Moment | None = None
    """Show the nodes that held at this time, as they were known then; by default now."""
    archived: Switch = False
    """Include archived nodes."""
    valid_only: Switch = True
    """Leave out nodes that do not hold at that time: their valid time has ended, or not begun."""
    sort: NodeSort = "updated_at"
    """The sort key."""
    order: Literal["asc", "desc"] = "desc"
    """`asc`: the smallest, the oldest or the alphabetically first comes first."""
    limit: Count = Field(default=50, ge=1, le=100)
    """The maximum number of entries on a page."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the previous page."""


class NodePage(ResponseModel):
    """Nodes, joined over the scopes in view."""

    nodes: list[NodeOut]
    next_cursor: str | None


class NodeHistoryQuery(ParticipantsQuery):
    """Query string of a node's history."""

    limit: Count = Field(default=50, ge=1, le=100)
    """The maximum number of observations on a page."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the previous page."""


class NodeObservationOut(ResponseModel):
    """One source's observation of the node."""

    member: str
    """The node that it observes: one of the node's members, each in one scope."""
    source_kind: Literal["statement", "chain"]
    source_id: UUID
    """The statement's event id, or the chain's id."""
    version: int | None
    """The chain's version; null if the source is a statement."""
    observed_at: datetime
    speakers: list[str]
    """Who said it."""
    event_ids: list[UUID]
    """The events that it rests on."""
    changes: dict[str, Any]
    """The fields that it sets; null clears a field. `valid_to` is the end of a fact, `archived` the
    flag, and `merged_into` the node that it was merged into."""
    is_evidence: bool
    """Whether it counts towards the node's weight and confidence."""
    confidence: float | None
    """How sure the source is; null if it does not say."""
    trust: str
    valid_from: datetime


class FactInLineage(ResponseModel):
    """A fact in a chain of revisions."""

    id: str
    content: str
    valid_from: datetime
    valid_to: datetime | None
    reason: str | None
    """Why it no longer holds."""
    replaced_by: list[str]
    """The facts that replaced it."""


class NodeHistory(ResponseModel):
    """The observations about a node, oldest first."""

    id: str
    members: list[str]
    observations: list[NodeObservationOut]
    next_cursor: str | None
    revisions: list[FactInLineage]
    """For a fact: itself, the facts that it replaced and the facts that replaced it, oldest first,
    at most 100."""
