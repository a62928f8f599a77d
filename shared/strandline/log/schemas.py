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
"""With tenant, writer and channel a key has to fit into one row of an index: 2,704 bytes."""
MAX_EDGES = 64
MAX_PARTS = 256
PAGE_BYTES = 4 * 1024 * 1024
"""A page ends at this many bytes of content, so that a response stays under 5 MiB."""

type Role = Literal["user", "agent", "system"]
type EventType = Literal["message", "thought", "action", "observation", "upload"]
type Origin = Literal["user", "agent", "tool", "document", "system"]
type RoleIn = Annotated[
    Role,
    BeforeValidator(lambda role: _ROLES.get(role, role) if isinstance(role, str) else role),
    WithJsonSchema({"type": "string", "enum": ["user", "agent", "system", "assistant"]}),
]
"""A role as callers may say it: `assistant` is another word for `agent`."""
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
    """RFC 6838: it becomes a header when the payload is fetched."""
    if not _MIME_TYPE.fullmatch(value):
        raise ValueError("must be like text/plain or text/plain; charset=utf-8")
    return value


def _normalize_speaker(value: str) -> str:
    try:
        return participants.normalize(value, "speaker")
    except Invalid as error:
        raise ValueError(error.message.removeprefix("speaker: ")) from None


CID_PATTERN = "^b[a-z2-7]{58}$"
"""The shape of a CIDv1 with sha2-256 in base32; `cid.cid_bytes` decides."""
# What callers are told of types that a pattern alone does not decide.
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
    """A run of an agent's message that one model wrote."""

    content: str
    model: str | None = Field(default=None, max_length=200)


class EdgeIn(RequestModel):
    """A supporting event, by id or by CID, and how much it supports."""

    event_id: UUID | None = None
    cid: Cid | None = None
    weight: float = Field(default=1.0, ge=0, le=1, strict=True)


class BlobIn(RequestModel):
    """A payload that is stored or uploaded already."""

    cid: Cid


class EventFields(TimestampFields):
    """What an event says, wherever it is appended."""

    role: RoleIn
    """`assistant` is taken as `agent`."""
    type: EventType = "message"
    content: str | None = None
    """The text. Over 64 KiB it is stored as a payload, and stays searchable up to 1 MiB."""
    parts: list[PartIn] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    """Instead of content, for an agent's message that several models wrote."""
    model: str | None = Field(default=None, max_length=200)
    """The model that wrote an agent's content: short for a single part."""
    blob: BlobIn | None = None
    """Instead of content: a payload by its CID."""
    mime_type: MimeType | None = None
    """Of the payload, or of content: kept with the event."""
    name: str | None = Field(default=None, max_length=1024)
    """A file name for the payload."""
    speaker: Participant | None = None
    """Who says it; one of the participants. Found by itself where only one can be meant."""
    channel: Channel = "http"
    source_event_key: SourceKey | None = None
    """The caller's own key for this event; the same (channel, key) is stored once."""
    metadata: Metadata = Field(default_factory=dict)
    edges: list[EdgeIn] = Field(default_factory=list[EdgeIn], max_length=MAX_EDGES)
    stop_reason: StopReason | None = None
    tenant_id: str | None = None
    """May repeat the credential's tenant; another is refused."""
    user_id: str | None = None
    """May repeat the credential's user; another is refused."""


class AppendRequest(EventFields):
    """One canonical event."""

    participants: Participants
    """Everybody who took part; the exact set names the scope."""
    session_id: SessionId | None = None


class _BatchItemSchema:
    """An item of a batch is validated by itself, so that it fails alone; its type is told."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _core: object, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(AppendRequest.__pydantic_core_schema__)


class BatchRequest(RequestModel):
    """Up to 500 events in one transaction, each on its own unless `atomic`."""

    events: list[Annotated[Any, _BatchItemSchema]] = Field(min_length=1, max_length=MAX_BATCH)
    atomic: bool = Field(default=False, strict=True)
    """All or none."""


class FeedQuery(ParticipantsQuery):
    """Query string of a scope's feed."""

    after_seq: Count = Field(default=0, ge=0, le=2**63 - 1)
    """The last seq that is known; 0 for none."""
    limit: Count = Field(default=100, ge=1, le=500)
    """At most so many."""


class AppendHeaders(RequestModel):
    """Headers of an append."""

    idempotency_key: IdempotencyKey | None = Field(default=None, alias="Idempotency-Key")
    """A key of channel `http` for this request; in a batch the key of item i is `<key>#i`."""


class Filters(RequestModel):
    """What a read may be narrowed by; everything given must hold."""

    session_id: SessionId | None = None
    channel: Channel | None = None
    role: RoleIn | None = None
    type: EventType | None = None
    speaker: Annotated[Participant, AfterValidator(_normalize_speaker)] | None = None
    origin: Origin | None = None
    since: Moment | None = None
    """From here on, by occurred_at, else recorded_at."""
    until: Moment | None = None
    """Before here."""
    metadata: Metadata | None = None
    """Contained in the event's metadata."""

    def to_filter(self) -> Mapping[str, object]:
        """The fields given, as JSON values."""
        names = type(self).model_fields.keys() & Filters.model_fields.keys()
        return self.model_dump(mode="json", exclude_none=True, include=set(names))


class EventQuery(Filters):
    """Raw events by who took part and what they say."""

    participants: Participants | None = None
    """On whose behalf is read: only what all of them took part in. A bound user joins by itself."""
    scope_id: UUID | None = None
    text: str | None = Field(default=None, min_length=1, max_length=1000)
    """Words the event's own text must hold, as in a web search: "a phrase", -without."""
    limit: int = Field(default=50, ge=1, le=500, strict=True)
    """At most so many."""
    cursor: str | None = Field(default=None, max_length=4096)


class BlobOut(ResponseModel):
    """A payload that an event holds: its address, size in bytes, type and file name."""

    cid: str
    size: int
    mime_type: str | None
    name: str | None


class Receipt(ResponseModel):
    """What an append acknowledges; the same again for a replay."""

    event_id: UUID
    cid: str | None
    scope_id: UUID
    seq: int
    recorded_at: datetime
    blob: BlobOut | None


class UploadRequest(RequestModel):
    """A payload that the caller is going to put into the store by itself."""

    size: int = Field(ge=1, strict=True)
    """Its length in bytes."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{64}$")
    """Its SHA-256 in hex. Give this or `cid`."""
    cid: Cid | None = None
    """Its CID: version 1, raw, sha2-256, base32."""
    mime_type: MimeType | None = None
    """For events that cite it and name none; text is indexed when it is cited."""
    name: str | None = Field(default=None, max_length=1024)
    """A file name, for events that cite it and name none."""


class UploadOut(ResponseModel):
    """Where and how to put the payload. An event may cite it (`blob: {"cid"}`) once it is there;
    until one does nobody can fetch it."""

    upload_id: UUID
    cid: str
    size: int
    method: Literal["PUT"] = "PUT"
    url: str
    headers: dict[str, str]
    """To be sent exactly so: they are signed. The store answers 400 to other bytes, 403 to another
    length, and 412 when the payload is there already."""
    expires_at: datetime
    """The URL holds until then; the same request gives a fresh one."""
    cite_until: datetime
    """What no event cites until then is removed."""


class UploadStored(ResponseModel):
    """The payload is stored already and this credential may cite it: there is nothing to put."""

    cid: str
    size: int
    stored: Literal[True] = True


class BatchItem(ResponseModel):
    """One item's result: `status` is what it would have been alone."""

    status: int
    event: Receipt | None = None
    error: Refusal | None = None


class BatchAnswer(ResponseModel):
    """A batch's results, in the order of its items."""

    stored: int
    """Items that are in the log now, replays included."""
    failed: int
    results: list[BatchItem]


class EdgeOut(ResponseModel):
    """A supporting event, what the block commits to, and how much it supports."""

    event_id: UUID
    cid: str
    weight: float


class PartOut(ResponseModel):
    """A run of an agent's message, and the model that wrote it."""

    content: str | None
    """Absent where the text lies in a payload."""
    chars: int
    """How many characters of the text this run is."""
    model: str | None


class EventOut(ResponseModel):
    """An event as its readers see it."""

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
    """A scope's share of a tree."""

    scope_id: UUID
    participants: list[str]
    events: list[EventOut]
    """By seq."""


class EventTree(ResponseModel):
    """A rooted tree: the query, its scopes, their events."""

    query: Mapping[str, Any]
    mark: str
    """The database snapshot this answer and its further pages show."""
    scopes: list[ScopeEvents]
    next_cursor: str | None


class EventPage(ResponseModel):
    """Events, newest first."""

    events: list[EventOut]
    next_cursor: str | None


class FeedPage(ResponseModel):
    """A scope's events after a seq, in order, gapless."""

    scope_id: UUID
    last_seq: int
    """The scope's high-water mark when this was read."""
    events: list[EventOut]
    next_after_seq: int
    """Ask again with this; nothing is missed and nothing comes twice."""


class ScopeOut(ResponseModel):
    """Who took part, and how far the scope's log goes."""

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
    """Where a payload can be fetched for a short while."""

    cid: str
    url: str
    expires_at: datetime
    size: int
    mime_type: str | None
    name: str | None
