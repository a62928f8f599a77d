"""Requests and answers about the fields of topics."""

import re
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.errors import Invalid
from strandline.graph.schemas_nodes import NodeRef
from strandline.schemas import (
    Count,
    Moment,
    PagingQuery,
    Participant,
    Participants,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
)

MAX_FIELD_CHARS = 100
FIELD_PATTERN = r"^[^\s/\x00-\x1f\x7f-\x9f]([^/\x00-\x1f\x7f-\x9f]*[^\s/\x00-\x1f\x7f-\x9f])?$"
"""The pattern of a field's name, for the API description; `parse_field_name` decides."""
_FIELD = re.compile(FIELD_PATTERN)
type FieldDetail = Literal["minimal", "current"]


def parse_field_name(text: str) -> str:
    """A field's name in canonical form: NFC, trimmed, case kept. Raises Invalid."""
    name = unicodedata.normalize("NFC", text).strip()
    if len(name) > MAX_FIELD_CHARS or not _FIELD.fullmatch(name):
        raise Invalid(
            f"field: a field's name has 1 to {MAX_FIELD_CHARS} characters, without `/` and control"
            " characters",
            field="field",
        )
    return name


class RevisionRequest(RequestModel):
    """What a field of a topic holds from now on, or from another time on. The whole is at most
    15 KiB as JSON."""

    participants: Participants
    """The topic's own: the exact set determines the scope."""
    speaker: Participant | None = None
    """Who states it. May be left out where only one participant fits."""
    value: Any
    """Any JSON. Null says that the field has no value any more."""
    valid_from: Moment | None = None
    """Since when it holds; by default since now. Until a later time, the revision before holds."""
    why_changed: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    impact_expected: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    field_type: Annotated[str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$")] | None = None
    """What the value is, as `text`, `number` or `date`, in the caller's words; it stays until
    another is given. That of a new field is `text`."""
    ref_topic_id: NodeRef | None = None
    """Another topic that the field refers to, which all participants can see: it becomes an edge
    `related` with the field's name. If it is left out the field goes on to refer to what it did;
    null ends that."""


class FieldsQuery(ParticipantsQuery):
    """Query string of a topic's fields."""

    detail: FieldDetail = "current"
    """`minimal`: which fields there are; `current`: with what each holds."""
    as_of: Moment | None = None
    """What was known at this time to hold then; by default now. Types and saliences are those of
    now."""
    limit: Count = Field(default=100, ge=1, le=500)
    """The most fields of a page."""
    after_field: str | None = Field(default=None, max_length=MAX_FIELD_CHARS)
    """`next_after_field` of the page before."""


class FieldQuery(PagingQuery):
    """Query string of a field. All pages together have at most the newest 500 revisions."""

    as_of: Moment | None = None
    """As it was known at this time; by default now."""


class RevisionOut(ResponseModel):
    """One revision of a field."""

    topic_id: str
    """The topic that it was stated of: one of the members of the topic that was asked for."""
    revision: int
    """From 1, without gaps, in the order in which they were stated; in each topic by itself."""
    value: Any
    valid_from: datetime
    why_changed: str | None
    impact_expected: str | None
    ref_topic_id: str | None
    event_id: UUID
    """The statement that it rests on, which says who stated it."""
    recorded_at: datetime


class StoredRevision(RevisionOut):
    """The revision that a request stored."""

    scope_id: UUID
    field: str


class FieldState(ResponseModel):
    """A field of a topic."""

    field: str
    field_type: str
    salience: float
    """1 at first, 0.1 more for each answer that gave it, at most 10. A use counts once the next
    sweep has folded it."""
    current: RevisionOut | None
    """The newest revision whose time has come. Null: none has, or `detail` is `minimal`."""


class TopicFields(ResponseModel):
    """The fields of a topic by name, joined over the topics of its name in view."""

    topic_id: str
    name: str
    archived: bool
    salience: float
    """The mean of its fields'; 0 without any."""
    members: list[str]
    fields: list[FieldState]
    next_after_field: str | None
    """Send it as `after_field` for the next page; null: that was the last."""


class FieldHistory(FieldState):
    """A field with its revisions."""

    topic_id: str
    revisions: int
    """How many there are in view, also beyond the 500 that are given."""
    history: list[RevisionOut]
    """Newest first."""
    next_cursor: str | None
