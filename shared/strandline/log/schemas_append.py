"""Requests and answers of appends and uploads."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, GetJsonSchemaHandler, ValidationInfo, field_validator

from strandline.log.schemas_fields import (
    BlobOut,
    Channel,
    Cid,
    EventTypeIn,
    Metadata,
    MimeType,
    OccurredAtFields,
    RoleIn,
    SessionId,
    SourceKey,
    StopReason,
)
from strandline.schemas import Participant, Participants, Refusal, RequestModel, ResponseModel

MAX_BATCH = 500
MAX_EDGES = 64
MAX_PARTS = 256


class AgentMessagePartIn(RequestModel):
    """A part of an agent's message, written by one model."""

    content: str
    model: str | None = Field(default=None, max_length=200)


class EdgeIn(RequestModel):
    """A link to a supporting event, by id or by CID, with a weight from 0 to 1."""

    event_id: UUID | None = None
    cid: Cid | None = None
    weight: float = Field(default=1.0, ge=0, le=1, strict=True)


class BlobReferenceIn(RequestModel):
    """A reference to a payload that is already stored or uploaded."""

    cid: Cid


class EventFields(OccurredAtFields):
    """The fields of an event, common to every route that appends one."""

    role: RoleIn
    """`assistant` is accepted as a synonym of `agent`."""
    type: EventTypeIn = "message"
    content: str | None = None
    """The text. Only an observation's, or that of an event with `metadata`, may be blank. Text over
    64 KiB is stored as a payload and is searchable up to 1 MiB."""
    parts: list[AgentMessagePartIn] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    """Instead of `content`: the parts of an agent's message that several models wrote."""
    model: str | None = Field(default=None, max_length=200)
    """The model that wrote an agent's `content`. Shorthand for a single part."""
    blob: BlobReferenceIn | None = None
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

    @field_validator("stop_reason")
    @classmethod
    def _check_stop_reason(
        cls, value: StopReason | None, info: ValidationInfo
    ) -> StopReason | None:
        """Refuse what would be accepted but not stored: only an agent's block has it."""
        if value is not None and info.data.get("role", "agent") != "agent":
            raise ValueError("only for the role `agent`")
        return value


class AppendRequest(EventFields):
    """An event to append."""

    participants: Participants
    """Everybody who took part. The exact set determines the scope."""
    session_id: SessionId | None = None


class _BatchItemJsonSchema:
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

    events: list[Annotated[Any, _BatchItemJsonSchema]] = Field(min_length=1, max_length=MAX_BATCH)
    atomic: bool = Field(default=False, strict=True)
    """Store either all events or none."""


class Receipt(ResponseModel):
    """The acknowledgement of an append. A replay returns the same receipt."""

    event_id: UUID
    cid: str | None
    scope_id: UUID
    seq: int
    recorded_at: datetime
    blob: BlobOut | None


class BatchItemResult(ResponseModel):
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
    results: list[BatchItemResult]


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


class UploadInstructions(ResponseModel):
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


class PayloadAlreadyStored(ResponseModel):
    """The payload is already stored and this credential may cite it: no upload is needed."""

    cid: str
    size: int
    stored: Literal[True] = True
