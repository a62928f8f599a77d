"""Requests and answers that read events, scopes and blocks."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from strandline import participants
from strandline.errors import Invalid
from strandline.log.schemas_fields import (
    BlobOut,
    Channel,
    EventType,
    Metadata,
    Origin,
    Role,
    RoleIn,
    SessionId,
    StopReason,
)
from strandline.schemas import (
    Count,
    Moment,
    Participant,
    Participants,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
)

PAGE_BYTES = 4 * 1024 * 1024
"""A page holds at most this many bytes of content, so that a response stays under 5 MiB."""


def _normalize_speaker(value: str) -> str:
    try:
        return participants.normalize_participant(value, "speaker")
    except Invalid as error:
        raise ValueError(error.message.removeprefix("speaker: ")) from None


MIN_EXACT_CHARS = 3
"""A substring is found by its trigrams: with fewer characters it has none."""


def _check_text_for_exact_mode(text: str | None, info: ValidationInfo) -> str | None:
    if info.data.get("mode") != "exact":
        return text
    if text is None:
        raise ValueError("is required where mode is exact")
    if len(unicodedata.normalize("NFC", text)) < MIN_EXACT_CHARS:
        raise ValueError(f"must have at least {MIN_EXACT_CHARS} characters where mode is exact")
    return text


class FeedQuery(ParticipantsQuery):
    """Query string of a scope's feed."""

    after_seq: Count = Field(default=0, ge=0, le=2**63 - 1)
    """The last `seq` that the caller already has; 0 for none."""
    limit: Count = Field(default=100, ge=1, le=500)
    """The maximum number of results."""


class EventFilters(RequestModel):
    """Filters of a read. An event must match all that are given."""

    session_id: SessionId | None = None
    channel: Channel | None = None
    role: RoleIn | None = None
    type: EventType | None = None
    speaker: Annotated[Participant, AfterValidator(_normalize_speaker)] | None = None
    origin: Origin | None = None
    since: Moment | None = None
    """Inclusive lower bound of `occurred_at`, or of `recorded_at` where `occurred_at` is absent."""
    until: Moment | None = None
    """Exclusive upper bound of the same time, after `since`."""
    metadata: Metadata | None = None
    """A JSON object that the event's metadata must contain."""

    @field_validator("until")
    @classmethod
    def _require_until_after_since(
        cls, value: datetime | None, info: ValidationInfo
    ) -> datetime | None:
        since = info.data.get("since")
        if value and since and value <= since:
            raise ValueError(
                "must be after since: between them there is no time. Exchange the two, or leave "
                "one out"
            )
        return value

    def to_json_filter(self) -> Mapping[str, object]:
        """The filters that are set, by field name, as JSON values."""
        names = type(self).model_fields.keys() & EventFilters.model_fields.keys()
        return self.model_dump(mode="json", exclude_none=True, include=set(names))


class EventQuery(EventFilters):
    """A query for raw events, by participants and content."""

    participants: Participants | None = None
    """The participants to read for: only events in which all of them took part. A bound user is
    added automatically."""
    scope_id: UUID | None = None
    mode: Literal["words", "exact"] = "words"
    """How `text` is searched: by its words, or as it stands."""
    text: Annotated[str | None, AfterValidator(_check_text_for_exact_mode)] = Field(
        default=None, min_length=1, max_length=1000, validate_default=True
    )
    """In mode `words`: words that the event's text must contain, in web search syntax: "a phrase",
    -without. In mode `exact`: at least three characters that its content must contain, in upper or
    lower case."""
    limit: int = Field(default=50, ge=1, le=500, strict=True)
    """The maximum number of results."""
    cursor: str | None = Field(default=None, max_length=4096)


class EdgeOut(ResponseModel):
    """A link to a supporting event: its id, the CID that the memory block contains, and the
    weight."""

    event_id: UUID
    cid: str
    weight: float


class AgentMessagePartOut(ResponseModel):
    """A part of an agent's message, and the model that wrote it."""

    content: str | None
    """Null where the text is stored as a payload."""
    chars: int
    """The length of this part in characters."""
    model: str | None


class EventOut(ResponseModel):
    """An event in a response."""

    event_id: UUID
    source_event_key: str | None
    """The `source_event_key` that it was sent with; null for a reader who did not write it."""
    cid: str | None
    scope_id: UUID
    seq: int
    participants: list[str]
    session_id: str | None
    channel: str
    role: Role
    type: EventType
    origin: Origin
    speaker: str | None
    content: str | None
    parts: list[AgentMessagePartOut] | None
    blob: BlobOut | None
    mime_type: str | None
    name: str | None
    stop_reason: StopReason | None
    metadata: dict[str, Any]
    occurred_at: datetime | None
    recorded_at: datetime
    edges: list[EdgeOut]

    @property
    def at(self) -> datetime:
        """When it happened or, where it does not say, when it was recorded. A client's: answers
        over HTTP have the two fields."""
        return self.occurred_at or self.recorded_at


class ScopeEvents(ResponseModel):
    """The events of one scope in a tree."""

    scope_id: UUID
    participants: list[str]
    events: list[EventOut]
    """In order of `seq`."""


class EventTree(ResponseModel):
    """Events as a tree: the query, its scopes, and the events of each scope."""

    query: Mapping[str, Any]
    mark: str
    """The database snapshot that this page and all later pages show."""
    scopes: list[ScopeEvents]
    next_cursor: str | None


class EventPage(ResponseModel):
    """Events, newest first."""

    events: list[EventOut]
    next_cursor: str | None


class FeedPage(ResponseModel):
    """The events of a scope after a `seq`, in order and without gaps."""

    scope_id: UUID
    last_seq: int
    """The scope's last `seq` at the time of the read."""
    events: list[EventOut]
    next_after_seq: int
    """Send this as `after_seq` in the next request. No event is missed or returned twice."""


class ScopeOut(ResponseModel):
    """A scope: its participants and the last `seq` of its log."""

    scope_id: UUID
    participants: list[str]
    last_seq: int
    last_recorded_at: datetime
    created_at: datetime


class ScopePage(ResponseModel):
    """Scopes, newest first."""

    scopes: list[ScopeOut]
    next_cursor: str | None


class PresignedPayloadUrl(ResponseModel):
    """A presigned URL of a payload, valid for a short time."""

    cid: str
    url: str
    expires_at: datetime
    size: int
    mime_type: str | None
    name: str | None


_ENTITY_BYTES = r"(-?\d{1,15}):(\*|-?\d{1,15})"


class BlockQuery(ParticipantsQuery):
    """Query string of a read of blocks. Those with a `-` apply to CAR files only."""

    format: Literal["raw", "car"] | None = None
    """`raw`: the one block; `car`: blocks in a CAR file. Without it the header `Accept` decides."""
    car_version: Literal["1"] | None = Field(default=None, alias="car-version")
    """The version of the CAR format."""
    car_order: Literal["dfs", "unk"] | None = Field(default=None, alias="car-order")
    """The order of the blocks. It is depth first, whichever is asked for."""
    car_dups: Literal["y", "n"] | None = Field(default=None, alias="car-dups")
    """`y`: a block is sent as often as a link leads to it; `n` (default): once."""
    dag_scope: Literal["block", "entity", "all"] | None = Field(default=None, alias="dag-scope")
    """What follows the blocks along the path. `all` (default): all that the last one links to,
    directly or not; `block`, `entity`: the last one alone."""
    entity_bytes: str | None = Field(
        default=None, alias="entity-bytes", max_length=40, pattern=f"^{_ENTITY_BYTES}$"
    )
    """A range of bytes of a payload, as `0:1023` or `-1024:*`. It implies `dag-scope=entity`."""

    @field_validator("entity_bytes")
    @classmethod
    def _check_entity_bytes(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(_ENTITY_BYTES, value):  # $ allows a line break
            raise ValueError("must be from:to, as in 0:1023 or -1024:*")
        return value

    def first_byte(self, size: int) -> int:
        """Where the range begins in a payload of `size` bytes; 0 without a range."""
        start = int((self.entity_bytes or "0").partition(":")[0])
        return start if start >= 0 else max(0, size + start)
