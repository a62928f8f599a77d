"""Requests and answers about the fields of topics."""

import re
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from strandline.errors import Invalid
from strandline.graph.nodes.schemas import NodeRef, StatementRole
from strandline.schemas import (
    Count,
    Moment,
    PagedReadQuery,
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
FieldDetail = TypeAliasType("FieldDetail", Literal["minimal", "current"])


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
    """A new value of a topic's field, from now on or from another time on. The whole is at most 15
    KiB as JSON."""

    participants: Participants
    """Exactly the topic's participants. They determine the scope."""
    speaker: Participant | None = None
    """Who states it. May be omitted if only one participant is possible."""
    role: StatementRole | None = None
    """Whose words it is. By default the speaker's, and a user's if nobody speaks."""
    value: Any
    """Any JSON. Null means that the field no longer has a value."""
    valid_from: Moment | None = None
    """The time from which it holds; by default now. Until a later time, the previous revision
    holds."""
    why_changed: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    impact_expected: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    field_type: Annotated[str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$")] | None = None
    """The type of the value, such as `text`, `number` or `date`, in the caller's words. It stays
    until another type is given. A new field has the type `text` by default."""
    ref_topic_id: NodeRef | None = None
    """Another topic that the field refers to, which all participants can see. It becomes an edge
    `related` with the field's name. If omitted, the field keeps its reference; null ends it."""


class FieldsQuery(ParticipantsQuery):
    """Query string of a topic's fields."""

    detail: FieldDetail = "current"
    """`minimal`: the names of the fields; `current`: with the value of each."""
    as_of: Moment | None = None
    """Read what was known at this time to hold then; by default now. Types and saliences are always
    the present ones."""
    limit: Count = Field(default=100, ge=1, le=500)
    """The maximum number of fields on a page."""
    after_field: str | None = Field(default=None, max_length=MAX_FIELD_CHARS)
    """`next_after_field` of the previous page."""


class FieldQuery(PagedReadQuery):
    """Query string of a field. All pages together have at most the newest 500 revisions."""

    as_of: Moment | None = None
    """As it was known at this time; by default now."""


class RevisionOut(ResponseModel):
    """One revision of a field."""

    topic_id: str
    """The topic of this revision: one of the members of the requested topic."""
    revision: int
    """The number of the revision within its topic, from 1 without gaps, in the order in which they
    were stated."""
    value: Any
    valid_from: datetime
    why_changed: str | None
    impact_expected: str | None
    ref_topic_id: str | None
    event_id: UUID
    """The event id of the statement that it rests on. The event shows who stated it."""
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
    """1 at first, plus 0.1 for each answer that contained the field, at most 10. A use counts once
    the next sweep has folded it."""
    current: RevisionOut | None
    """The newest revision that holds already. Null if there is none, or if `detail` is
    `minimal`."""


class TopicFields(ResponseModel):
    """The fields of a topic by name, joined over the topics of its name in view."""

    topic_id: str
    name: str
    archived: bool
    salience: float
    """The mean salience of its fields; 0 without any."""
    members: list[str]
    fields: list[FieldState]
    next_after_field: str | None
    """Send it as `after_field` for the next page. Null on the last page."""


class FieldHistory(FieldState):
    """A field with its revisions."""

    topic_id: str
    revisions: int
    """The number of revisions in view, including those beyond the 500 that are returned."""
    history: list[RevisionOut]
    """Newest first."""
    next_cursor: str | None
