"""Requests and answers about changes of existing nodes and edges."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self, TypeAliasType

from strandline.graph.nodes.identity import normalise_name
from strandline.graph.nodes.schemas import (
    MAX_NODES,
    Alternative,
    DecisionStatus,
    EntityKind,
    FactCategory,
    NodeRef,
    StatementRole,
    StoredEdge,
    Text,
)
from strandline.schemas import (
    PARSE_NUMBER,
    Count,
    DateOrMoment,
    Moment,
    Participant,
    Participants,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
    Switch,
)

Confidence = TypeAliasType("Confidence", Annotated[float, Field(ge=0, le=1, strict=True)])
Reason = TypeAliasType("Reason", Annotated[str, Field(min_length=1, max_length=1000)])


class ChangeInScopeRequest(RequestModel):
    """A change within one scope."""

    participants: Participants
    """The exact set of participants. It determines the scope."""
    speaker: Participant | None = None
    """Who states it. May be omitted if only one participant is possible."""
    role: StatementRole | None = None
    """Whose words it is. By default the speaker's, and a user's if nobody speaks."""


class NodePatch(ChangeInScopeRequest):
    """New values of a node's fields. Omitted fields stay unchanged. Only fields of the node's type
    may be given."""

    content: str | None = Field(default=None, max_length=4000)
    """The content of a fact. It cannot change: invalidate the fact, with another as its
    replacement."""
    title: str | None = Field(default=None, max_length=500)
    """The title of a decision or an event. It cannot change: state another node, and merge this one
    into it."""
    name: str | None = Field(default=None, max_length=500)
    """The name of an entity or a topic. It cannot change, like `title`."""
    category: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """For a fact, one of the fact categories; for a topic, any text."""
    kind: EntityKind | None = None
    status: DecisionStatus | None = None
    rationale: Text | None = None
    alternatives: Annotated[list[Alternative], Field(max_length=10)] | None = None
    description: Text | None = None
    """Null removes it."""
    event_date: DateOrMoment | None = None
    """Null: the date is no longer known."""
    confidence: Confidence | None = None
    """How sure the caller is. If given, the change counts as one more observation of the node."""
    archived: Annotated[bool, Field(strict=True)] | None = None
    """Lists and searches leave out an archived node by default."""

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
        if not self.model_fields_set - {"participants", "speaker", "role"}:
            raise ValueError("give at least one field to change")
        return self


class StoredChange(ResponseModel):
    """A change that was stored."""

    id: str
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""


class ReplacementFactIn(RequestModel):
    """The fact that holds instead of the invalidated one."""

    content: Text
    category: FactCategory = "general"
    confidence: Confidence | None = None

    @field_validator("content")
    @classmethod
    def _check_content_not_blank(cls, value: str) -> str:
        if not normalise_name(value):
            raise ValueError("must have a letter, a digit or a sign besides white space")
        return value


class InvalidationRequest(ChangeInScopeRequest):
    """Why a fact no longer holds, and which fact replaces it."""

    reason: Reason
    replacement: ReplacementFactIn | None = None
    """A replacement that this request states."""
    replacement_id: NodeRef | None = None
    """A replacement that is stored already. Excludes `replacement`."""
    valid_from: Moment | None = None
    """The time from which it no longer holds, and the replacement does; by default now."""

    @model_validator(mode="after")
    def _check_at_most_one_replacement(self) -> Self:
        if self.replacement is not None and self.replacement_id is not None:
            raise ValueError("replacement and replacement_id exclude each other: give one")
        return self


class InvalidatedFact(ResponseModel):
    """A fact whose valid time has ended."""

    id: str
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""
    valid_to: datetime
    replacement: str | None
    """The id of the fact that holds instead."""
    edge_id: UUID | None
    """The edge `invalidates` from the replacement to this fact."""


class RelationIn(RequestModel):
    """An edge between two existing nodes."""

    edge: Annotated[str, Field(min_length=1, max_length=100)]
    """The type of the edge. An unknown one is stored as `RELATES_TO`, and the answer says so."""
    from_id: NodeRef
    to_id: NodeRef
    role: str | None = Field(default=None, max_length=200)
    """For `decision_entity`, the entity's role in the decision; for `related`, how the topics are
    related."""
    nuance: str | None = Field(default=None, max_length=1000)
    confidence: Confidence | None = None
    valid_from: Moment | None = None
    """The time from which it holds; by default now."""


class RelationsRequest(ChangeInScopeRequest):
    """Up to 50 edges between existing nodes, stored all or none."""

    edges: list[RelationIn] = Field(min_length=1, max_length=MAX_NODES)
    """Each at most 15 KiB as JSON, with the names of its nodes."""


class EdgeWithStatement(StoredEdge):
    """An edge and its statement."""

    event_id: UUID
    """The statement that it rests on."""


class RelationsAnswer(ResponseModel):
    """What was stored, in the order of the request."""

    scope_id: UUID
    edges: list[EdgeWithStatement]


class EndEdgeRequest(ChangeInScopeRequest):
    """A statement that an edge no longer holds."""

    reason: Reason | None = None
    valid_to: Moment | None = None
    """The time until which it held; by default now."""


class EndedEdge(ResponseModel):
    """An edge whose valid time has ended."""

    edge_id: UUID
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""
    valid_to: datetime


class MergeRequest(ChangeInScopeRequest):
    """Two nodes of one type that are the same."""

    from_id: NodeRef
    """The node that is read as the other one from now on, with all nodes merged into it."""
    into_id: NodeRef
    reason: Reason | None = None


class StoredMerge(ResponseModel):
    """A merge that was stored."""

    merge_id: UUID
    """The event id of the statement that it rests on. It is needed to undo the merge."""
    scope_id: UUID
    into_id: str
    moved: list[str]
    """The nodes that are now read as the target node."""


class MergeRefusalRequest(ChangeInScopeRequest):
    """Two nodes of one type that are not the same."""

    from_id: NodeRef
    into_id: NodeRef
    reason: Reason | None = None


class RefusedMerge(ResponseModel):
    """A merge that is proposed no more."""

    scope_id: UUID
    event_id: UUID
    """The statement that it rests on. Once that is erased, the merge is proposed again."""
    from_id: str
    into_id: str


class MergeUndoRequest(ChangeInScopeRequest):
    """A statement that undoes a merge."""

    reason: Reason | None = None


class UndoneMerge(ResponseModel):
    """A merge that was undone."""

    merge_id: UUID
    scope_id: UUID
    event_id: UUID
    """The statement that it rests on."""
    restored: list[str]
    """The nodes that are read as before the merge."""


class MergeProposalsQuery(ParticipantsQuery):
    """Query string of the proposals."""

    scope_id: UUID | None = None
    """Only of this scope."""
    min_similarity: Annotated[float, PARSE_NUMBER] = Field(default=0.5, ge=0.1, le=1)
    """The least similarity of two names: the share of three-letter groups that both have."""
    archived: Switch = False
    """Include archived nodes."""
    limit: Count = Field(default=20, ge=1, le=100)
    """The maximum number of pairs."""


class MergeProposal(ResponseModel):
    """Two nodes of one scope that may be the same."""

    from_id: str
    from_name: str
    into_id: str
    """The node with more weight, or the older one if both have the same."""
    into_name: str
    scope_id: UUID
    participants: list[str]
    """The participants of the scope, as a merge request needs them."""
    similarity: float
    """The similarity of the names, from 0 to 1."""
    cosine: float | None
    """The cosine of the nodes' vectors; null if one has no vector in the current embedding
    space."""


class MergeProposals(ResponseModel):
    """Proposed merges, the most similar first."""

    proposals: list[MergeProposal]
    compared: int
    """How many nodes were compared: the newest of each scope and type."""
    complete: bool
    """Whether all nodes in view were compared."""
