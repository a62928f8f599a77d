"""Requests and answers about the topics of a snapshot."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import Field, model_validator
from typing_extensions import Self

from strandline.schemas import PARSE_COUNT, PagedReadQuery, ResponseModel


class TopicsQuery(PagedReadQuery):
    """Query string of the topics. Without `slot` and `node_id`: the roots of the trees."""

    repeated_parameters: ClassVar = frozenset({"node_id"})

    version: Annotated[int, Field(ge=1, lt=10**18), PARSE_COUNT] | None = None
    """The version of the snapshot; by default the active one."""
    scope_id: UUID | None = None
    """Only the tree of this scope."""
    slot: UUID | None = None
    """The topics directly below this place, in the tree of `scope_id`."""
    node_id: Annotated[list[UUID], Field(min_length=1, max_length=100)] | None = None
    """These contents, whichever snapshots show them (repeat the parameter for several); those that
    are not in view are left out. Excludes all of the above."""

    @model_validator(mode="after")
    def _check_one_question(self) -> Self:
        if self.slot is not None and self.scope_id is None:
            raise ValueError("slot needs the scope_id of its tree")
        others = (self.version, self.scope_id, self.slot, self.cursor)
        if self.node_id is not None and any(value is not None for value in others):
            raise ValueError("node_id cannot be combined with version, scope_id, slot or cursor")
        return self


class TopicOut(ResponseModel):
    """A topic: a leaf, which is a chain, or an inner node, which joins the topics below it."""

    kind: Literal["inner", "leaf"]
    scope_id: UUID
    participants: list[str]
    """The participants of its scope."""
    slot: UUID | None
    """The id of its place in the tree, which stays the same while the content changes; for a leaf,
    the id of its chain. Null for an inner node that was asked for by `node_id`."""
    parent_slot: UUID | None
    """The place above it; null for a root, and if it was asked for by `node_id`."""
    node_id: UUID
    """The id of its content, which is immutable."""
    chain_version: int | None
    """For a leaf, the version of its chain."""
    topic: str | None
    summary: str | None
    """Null for a chain that the quality gate rejected."""
    started_at: datetime
    last_event_at: datetime
    event_count: int
    leaf_count: int
    trust: str
    """The least trusted origin among its events."""
    models: dict[str, Any]
    """The model and the prompt that its summary was written with."""
    cutoff: int | None
    """For a root: every event of the scope up to this seq, except statements, is under a leaf."""
    erased_at: datetime | None
    """When its text was removed, because an event below it was erased."""


class TopicsSnapshot(ResponseModel):
    """The snapshot that topics were read from."""

    version: int
    snapshot_id: UUID
    published_at: datetime
    active: bool
    """Whether queries read this snapshot."""


class TopicsPage(ResponseModel):
    """A page of the roots of a snapshot's trees, or of the topics below a place; or what `node_id`
    named."""

    snapshot: TopicsSnapshot | None
    """Null if none is published yet, and if contents were asked for by `node_id`."""
    topics: list[TopicOut]
    next_cursor: str | None
