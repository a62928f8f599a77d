"""Requests and answers about changes of nodes and edges that exist."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, field_validator, model_validator

from strandline.graph.identity import normalise
from strandline.graph.schemas_nodes import (
    MAX_NODES,
    Alternative,
    DecisionStatus,
    EntityKind,
    FactCategory,
    NodeRef,
    StoredEdge,
    Text,
)
from strandline.schemas import (
    PARSE_NUMBER,
    Count,
    Moment,
    Participant,
    Participants,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
    Switch,
)

type Confidence = Annotated[float, Field(ge=0, le=1, strict=True)]
type Reason = Annotated[str, Field(min_length=1, max_length=1000)]


class ScopeRequest(RequestModel):
    """A change within one scope."""

    participants: Participants
    """Whose memory it is: the exact set determines the scope."""
    speaker: Participant | None = None
    """Who states it. May be left out where only one participant fits."""


class NodePatch(ScopeRequest):
    """New values of a node's fields; those left out stay. A node has the fields of its type."""

    content: str | None = Field(default=None, max_length=4000)
    """Of a fact. It cannot change: invalidate the fact, with another as its replacement."""
    title: str | None = Field(default=None, max_length=500)
    """Of a decision or an event. It cannot change: state another node, and merge this one into
    it."""
    name: str | None = Field(default=None, max_length=500)
    """Of an entity or a topic, as `title`."""
    category: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Of a fact one of its categories, of a topic any."""
    kind: EntityKind | None = None
    status: DecisionStatus | None = None
    rationale: Text | None = None
    alternatives: Annotated[list[Alternative], Field(max_length=10)] | None = None
    description: Text | None = None
    """Null: it has none any more."""
    event_date: Moment | None = None
    """Null: it is not known any more."""
    confidence: Confidence | None = None
    """How sure the caller is. With it the change counts as a further observation of the node."""
    archived: Annotated[bool, Field(strict=True)] | None = None
    """Lists and searches leave an archived node out unless asked."""

    @field_validator(
        *("content", "title", "name", "category", "kind", "status", "rationale", "alternatives"),
        *("confidence", "archived"),
    )
    @classmethod
    def _check_not_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must not be null; leave it out to keep it")
        return value

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.model_fields_set - {"participants", "speaker"}:
            raise ValueError("give at least one field to change")
        return self


class StoredChange(ResponseModel):
    """A change that was stored."""

    id: str
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""


class ReplacementIn(RequestModel):
    """The fact that holds instead."""

    content: Text
    category: FactCategory = "general"
    confidence: Confidence | None = None

    @field_validator("content")
    @classmethod
    def _check_content(cls, value: str) -> str:
        if not normalise(value):
            raise ValueError("must have a letter, a digit or a sign besides white space")
        return value


class InvalidationRequest(ScopeRequest):
    """Why a fact does not hold any more, and what does instead."""

    reason: Reason
    replacement: ReplacementIn | None = None
    """A fact that is stated with this."""
    replacement_id: NodeRef | None = None
    """A fact that was stated before; only one of both."""
    valid_from: Moment | None = None
    """Since when it does not hold, and the replacement does; by default since now."""

    @model_validator(mode="after")
    def _check_replacement(self) -> Self:
        if self.replacement is not None and self.replacement_id is not None:
            raise ValueError("replacement and replacement_id exclude each other: give one")
        return self


class Invalidation(ResponseModel):
    """A fact whose valid time has ended."""

    id: str
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""
    valid_to: datetime
    replacement: str | None
    """The id of the fact that holds instead."""
    edge_id: UUID | None
    """The edge `invalidates` that leads from that one to this."""


class RelationIn(RequestModel):
    """An edge between two nodes that exist."""

    edge: Annotated[str, Field(min_length=1, max_length=100)]
    """The type of the edge. An unknown one is stored as `RELATES_TO`, and the answer says so."""
    from_id: NodeRef
    to_id: NodeRef
    role: str | None = Field(default=None, max_length=200)
    """What the entity is in a decision; how topics are `related`."""
    nuance: str | None = Field(default=None, max_length=1000)
    confidence: Confidence | None = None
    valid_from: Moment | None = None
    """Since when it holds; by default since now."""


class RelationsRequest(ScopeRequest):
    """Up to 50 edges between nodes that exist, stored all or none."""

    edges: list[RelationIn] = Field(min_length=1, max_length=MAX_NODES)
    """Each at most 15 KiB as JSON, with the names of its nodes."""


class StatedEdge(StoredEdge):
    """An edge and its statement."""

    event_id: UUID
    """The statement that it rests on."""


class RelationsAnswer(ResponseModel):
    """What was stored, in the order of the request."""

    scope_id: UUID
    edges: list[StatedEdge]


class EdgeEndRequest(ScopeRequest):
    """That an edge does not hold any more."""

    reason: Reason | None = None
    valid_to: Moment | None = None
    """Until when it held; by default until now."""


class EdgeEnd(ResponseModel):
    """An edge whose valid time has ended."""

    edge_id: UUID
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""
    valid_to: datetime


class MergeRequest(ScopeRequest):
    """Two nodes of one type that are the same."""

    from_id: NodeRef
    """The node that is read as the other from now on, with all that were merged into it."""
    into_id: NodeRef
    reason: Reason | None = None


class Merge(ResponseModel):
    """A merge that was stored."""

    merge_id: UUID
    """The statement that it rests on; by it the merge can be undone."""
    scope_id: UUID
    into_id: str
    moved: list[str]
    """The nodes that are read as that one now."""


class MergeUndoRequest(ScopeRequest):
    """That what was merged is not the same."""

    reason: Reason | None = None


class MergeUndo(ResponseModel):
    """A merge that was undone."""

    merge_id: UUID
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""
    restored: list[str]
    """The nodes that are read as before the merge."""


class ProposalsQuery(ParticipantsQuery):
    """Query string of the proposals."""

    scope_id: UUID | None = None
    """Only of this scope."""
    min_similarity: Annotated[float, PARSE_NUMBER] = Field(default=0.5, ge=0.1, le=1)
    """The least similarity of two names: the share of three-letter groups that both have."""
    archived: Switch = False
    """Also archived nodes."""
    limit: Count = Field(default=20, ge=1, le=100)
    """The most pairs."""


class Proposal(ResponseModel):
    """Two nodes of one scope that may be the same."""

    from_id: str
    from_name: str
    into_id: str
    """The one of more weight, or the older one."""
    into_name: str
    scope_id: UUID
    participants: list[str]
    """Of the scope: whom a merge names."""
    similarity: float
    """Of the names, from 0 to 1."""
    cosine: float | None
    """Of the nodes' vectors; null where one has none in the present embedding space."""


class Proposals(ResponseModel):
    """What may be merged, the most similar first."""

    proposals: list[Proposal]
    compared: int
    """How many nodes were compared: the newest of each scope and type."""
    complete: bool
    """Whether these were all nodes in view."""
