"""Requests and answers about events, uploads and scopes."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)

from strandline import participants
from strandline.errors import Invalid
from strandline.schemas import (
    Count,
    Moment,
    Participant,
    Participants,
    ParticipantsQuery,
    Refusal,
    RequestModel,
    ResponseModel,
    TimestampFields,
)

MAX_BATCH = 500
MAX_METADATA_BYTES = 16 * 1024
MAX_KEY_BYTES = 1024
"""Together with tenant, writer and channel, a key must fit into one row of a B-tree index: 2,704
bytes."""
MAX_EDGES = 64
MAX_PARTS = 256
PAGE_BYTES = 4 * 1024 * 1024
"""A page holds at most this many bytes of content, so that a response stays under 5 MiB."""

type Role = Literal["user", "agent", "system"]
type EventType = Literal["message", "thought", "action", "observation", "upload"]
type Origin = Literal["user", "agent", "tool", "document", "system"]
type RoleIn = Annotated[
    Role,
    BeforeValidator(lambda role: _ROLES.get(role, role) if isinstance(role, str) else role),
    WithJsonSchema({"type": "string", "enum": ["user", "agent", "system", "assistant"]}),
]
"""A role in a request. `assistant` is accepted as a synonym of `agent`."""
_ROLES: Mapping[str, str] = {"assistant": "agent"}
type StopReason = Literal["endTurn", "stopSequence", "maxTokens"]


def _check_metadata(value: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"is {size} bytes as JSON, at most {MAX_METADATA_BYTES}")
    return value


def _check_key(value: str) -> str:
    size = len(value.encode())
    if size > MAX_KEY_BYTES:
        raise ValueError(f"is {size} bytes as UTF-8, at most {MAX_KEY_BYTES}")
    return value


_MIME_TYPE = re.compile(
    r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(; ?[\w!#$&^.+-]+=([\w!#$&^.+-]+|\"[ !#-\[\]-~]*\"))*",
    re.ASCII,
)


def _check_mime_type(value: str) -> str:
    """Check a media type by RFC 6838: it is sent as a header when the payload is downloaded."""
    if not _MIME_TYPE.fullmatch(value):
        raise ValueError("must be like text/plain or text/plain; charset=utf-8")
    return value


def _normalize_speaker(value: str) -> str:
    try:
        return participants.normalize(value, "speaker")
    except Invalid as error:
        raise ValueError(error.message.removeprefix("speaker: ")) from None


CID_PATTERN = "^b[a-z2-7]{58}$"
"""The pattern of a CIDv1 with sha2-256 in base32. `cid.cid_bytes` does the full check."""
# The JSON schema in the API description, for a check that a pattern alone cannot express.
_MIME_SCHEMA = {
    "type": "string",
    "maxLength": 255,
    "pattern": f"^{_MIME_TYPE.pattern.replace(r'\w', 'A-Za-z0-9_')}$",
}

type MimeType = Annotated[
    str, Field(max_length=255), AfterValidator(_check_mime_type), WithJsonSchema(_MIME_SCHEMA)
]
type Metadata = Annotated[dict[str, Any], BeforeValidator(_check_metadata)]
type SourceKey = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_check_key)]
type Cid = Annotated[
    str,
    Field(min_length=8, max_length=128),
    WithJsonSchema({"type": "string", "pattern": CID_PATTERN}),
]
type SessionId = Annotated[str, Field(min_length=1, max_length=128)]
type Channel = Annotated[str, Field(min_length=1, max_length=64)]
type IdempotencyKey = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x20-\x7e]+$")]


class PartIn(RequestModel):
    """A part of an agent's message, written by one model."""

    content: str
    model: str | None = Field(default=None, max_length=200)


class EdgeIn(RequestModel):
    """A link to a supporting event, by id or by CID, with a weight from 0 to 1."""

    event_id: UUID | None = None
    cid: Cid | None = None
    weight: float = Field(default=1.0, ge=0, le=1, strict=True)


class BlobIn(RequestModel):
    """A reference to a payload that is already stored or uploaded."""

    cid: Cid


class EventFields(TimestampFields):
    """The fields of an event, common to every route that appends one."""

    role: RoleIn
    """`assistant` is accepted as a synonym of `agent`."""
    type: EventType = "message"
    content: str | None = None
    """The text. Text over 64 KiB is stored as a payload and is searchable up to 1 MiB."""
    parts: list[PartIn] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    """Instead of `content`: the parts of an agent's message that several models wrote."""
    model: str | None = Field(default=None, max_length=200)
    """The model that wrote an agent's `content`. Shorthand for a single part."""
    blob: BlobIn | None = None
    """Instead of `content`: a payload, by its CID."""
    mime_type: MimeType | None = None
    """The media type of the payload or of `content`, stored with the event."""
    name: str | None = Field(default=None, max_length=1024)
    """A file name for the payload."""
    speaker: Participant | None = None
    """The participant who speaks. May be left out where only one participant fits the role."""
    channel: Channel = "http"
    source_event_key: SourceKey | None = None
    """The caller's own key for this event. The same (channel, key) is stored only once."""
    metadata: Metadata = Field(default_factory=dict)
    edges: list[EdgeIn] = Field(default_factory=list[EdgeIn], max_length=MAX_EDGES)
    stop_reason: StopReason | None = None
    tenant_id: str | None = None
    """The credential's tenant, if given. Any other value is refused."""
    user_id: str | None = None
    """The credential's user, if given. Any other value is refused."""


class AppendRequest(EventFields):
    """An event to append."""

    participants: Participants
    """Everybody who took part. The exact set determines the scope."""
    session_id: SessionId | None = None


class _BatchItemSchema:
    """The JSON schema of a batch item. Each item is validated on its own, so that one invalid item
    does not fail the others; the API description still shows its type."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _core: object, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(AppendRequest.__pydantic_core_schema__)


class BatchRequest(RequestModel):
    """Up to 500 events, stored in one transaction. Each succeeds or fails on its own, unless
    `atomic`."""

    events: list[Annotated[Any, _BatchItemSchema]] = Field(min_length=1, max_length=MAX_BATCH)
    atomic: bool = Field(default=False, strict=True)
    """Store either all events or none."""


class FeedQuery(ParticipantsQuery):
    """Query string of a scope's feed."""

    after_seq: Count = Field(default=0, ge=0, le=2**63 - 1)
    """The last `seq` that the caller already has; 0 for none."""
    limit: Count = Field(default=100, ge=1, le=500)
    """The maximum number of results."""


class AppendHeaders(RequestModel):
    """Headers of an append."""

    idempotency_key: IdempotencyKey | None = Field(default=None, alias="Idempotency-Key")
    """A source event key in channel `http` for this request. In a batch, item i has the key
    `<key>#i`."""


class Filters(RequestModel):
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
    """Exclusive upper bound of the same time."""
    metadata: Metadata | None = None
    """A JSON object that the event's metadata must contain."""

    def to_filter(self) -> Mapping[str, object]:
        """The filters that are set, by field name, as JSON values."""
        names = type(self).model_fields.keys() & Filters.model_fields.keys()
        return self.model_dump(mode="json", exclude_none=True, include=set(names))


class EventQuery(Filters):
    """A query for raw events, by participants and content."""

    participants: Participants | None = None
    """The participants to read for: only events in which all of them took part. A bound user is
    added automatically."""
    scope_id: UUID | None = None
    text: str | None = Field(default=None, min_length=1, max_length=1000)
    """Words that the event's text must contain, in web search syntax: "a phrase", -without."""
    limit: int = Field(default=50, ge=1, le=500, strict=True)
    """The maximum number of results."""
    cursor: str | None = Field(default=None, max_length=4096)


class BlobOut(ResponseModel):
    """The payload of an event: CID, size in bytes, media type and file name."""

    cid: str
    size: int
    mime_type: str | None
    name: str | None


class Receipt(ResponseModel):
    """The acknowledgement of an append. A replay returns the same receipt."""

    event_id: UUID
    cid: str | None
    scope_id: UUID
    seq: int
    recorded_at: datetime
    blob: BlobOut | None


class UploadRequest(RequestModel):
    """A payload that the caller will upload to the object store."""

    size: int = Field(ge=1, strict=True)
    """The payload's length in bytes."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{64}$")
    """The payload's SHA-256 in hex. Give either this or `cid`."""
    cid: Cid | None = None
    """The payload's CID: version 1, raw, sha2-256, base32."""
    mime_type: MimeType | None = None
    """The default media type of events that cite the payload. Text is indexed when it is cited."""
    name: str | None = Field(default=None, max_length=1024)
    """The default file name of events that cite the payload."""


class UploadOut(ResponseModel):
    """Where and how to upload the payload. An event may cite it (`blob: {"cid"}`) once it is
    uploaded; until then nobody can download it."""

    upload_id: UUID
    cid: str
    size: int
    method: Literal["PUT"] = "PUT"
    url: str
    headers: dict[str, str]
    """Send these headers unchanged: they are signed. The store answers 400 to other bytes, 403 to
    another length, and 412 when the payload is already uploaded."""
    expires_at: datetime
    """When the URL expires. The same request returns a new one."""
    cite_until: datetime
    """The upload is removed at this time unless an event cites it before."""


class UploadStored(ResponseModel):
    """The payload is already stored and this credential may cite it: no upload is needed."""

    cid: str
    size: int
    stored: Literal[True] = True


class BatchItem(ResponseModel):
    """The result of one item. `status` is the HTTP status that a single append would have
    returned."""

    status: int
    event: Receipt | None = None
    error: Refusal | None = None


class BatchAnswer(ResponseModel):
    """The results of a batch, in the order of its items."""

    stored: int
    """The number of items that are in the log now, including replays."""
    failed: int
    results: list[BatchItem]


class EdgeOut(ResponseModel):
    """A link to a supporting event: its id, the CID that the memory block contains, and the
    weight."""

    event_id: UUID
    cid: str
    weight: float


class PartOut(ResponseModel):
    """A part of an agent's message, and the model that wrote it."""

    content: str | None
    """Null where the text is stored as a payload."""
    chars: int
    """The length of this part in characters."""
    model: str | None


class EventOut(ResponseModel):
    """An event in a response."""

    event_id: UUID
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
    parts: list[PartOut] | None
    blob: BlobOut | None
    mime_type: str | None
    name: str | None
    stop_reason: StopReason | None
    metadata: dict[str, Any]
    occurred_at: datetime | None
    recorded_at: datetime
    edges: list[EdgeOut]


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


class FileOut(ResponseModel):
    """A presigned URL of a payload, valid for a short time."""

    cid: str
    url: str
    expires_at: datetime
    size: int
    mime_type: str | None
    name: str | None
