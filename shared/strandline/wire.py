"""What goes over the wire: request and answer types, and the limits they keep."""

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self, cast
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from strandline import participants
from strandline.errors import Invalid, Malformed
from strandline.tuning import Tuning

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_BATCH = 500
MAX_DEPTH = 32
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
type GivenRole = Annotated[
    Role,
    BeforeValidator(lambda role: _ROLES.get(role, role) if isinstance(role, str) else role),
    WithJsonSchema({"type": "string", "enum": ["user", "agent", "system", "assistant"]}),
]
"""A role as callers may say it: `assistant` is another word for `agent`."""
_ROLES: Mapping[str, str] = {"assistant": "agent"}
type StopReason = Literal["endTurn", "stopSequence", "maxTokens"]


# JSON --------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Malformed(
            f"body: the name {twice[:_PLACE]!r} stands twice in one object", field="body"
        )
    return fields


def parse(text: str | bytes) -> Any:
    """JSON (RFC 8259) of any value, each name once in its object. Raises Malformed or Invalid."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_pairs)
    except RecursionError:
        raise Invalid(f"body: nested deeper than {MAX_DEPTH} levels", field="body") from None
    except (ValueError, UnicodeDecodeError) as error:
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise Malformed(f"body: not valid JSON{place}", field="body") from None


def checked(value: Any) -> Any:
    """The value, if it can be stored: no NaN and no number beyond a double, no NUL and no lone
    surrogate in any string, at most 32 levels. Raises Invalid naming the place. Apart from `parse`,
    so that an item of a batch fails alone."""
    _check(value, "", 0)
    return value


def _check(value: Any, place: str, depth: int) -> None:
    if isinstance(value, str):
        _check_text(value, place)
    elif isinstance(value, (int, float)):
        if not -sys.float_info.max <= value <= sys.float_info.max:  # nor is NaN
            raise Invalid(
                f"{place or 'body'}: NaN, Infinity and numbers beyond a double are not JSON",
                field=place or "body",
            )
    elif isinstance(value, (dict, list)):
        if depth >= MAX_DEPTH:
            raise Invalid(
                f"{place or 'body'}: nested deeper than {MAX_DEPTH} levels", field=place or "body"
            )
        if isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                _check_text(name, f"{place}.(name)")
                _check(item, f"{place}.{name}"[:_PLACE] if place else name[:_PLACE], depth + 1)
        else:
            for i, item in enumerate(cast("list[Any]", value)):
                _check(item, f"{place}[{i}]"[:_PLACE], depth + 1)


def _check_text(text: str, place: str) -> None:
    if "\x00" in text:
        raise Invalid(f"{place or 'body'}: contains a NUL character", field=place or "body")
    if not text.isascii() and _SURROGATE.search(text):
        raise Invalid(f"{place or 'body'}: contains a lone surrogate", field=place or "body")


_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = {
    "Input should be a valid dictionary": "must be a JSON object",
    "Extra inputs are not permitted": "is no name that is known here",
    "Field required": "is required",
}
"""pydantic's words that a caller would not understand."""
_PARTICIPANTS = 'say who takes part as `participants`, as in ["user:alice", "agent:helper"]'
_UNKNOWN, _REQUIRED = _PLAIN["Extra inputs are not permitted"], _PLAIN["Field required"]
_HINTS: Mapping[tuple[str, str], str] = {
    ("user_id", _UNKNOWN): f": {_PARTICIPANTS}",
    ("agent_id", _UNKNOWN): f": {_PARTICIPANTS}",
    ("participants", _REQUIRED): f": {_PARTICIPANTS}",
    ("role", "Input should be 'user', 'agent' or 'system'"): (
        " (`assistant` is taken as `agent`); what a tool gave back is an agent's event of the type "
        "`observation`"
    ),
}
"""What else is said of a field, by what is wrong with it."""
_PLACE = 80
"""How much of a place in a body is named: a name of the caller's can be as long as the body."""


def validated[Model: BaseModel](shape: type[Model], value: object) -> Model:
    """A parsed body as its type. Raises Invalid naming the first field that is not acceptable."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    places = [".".join(str(part) for part in e["loc"])[:_PLACE] or "body" for e in found[:20]]
    known = shape.model_fields.keys()
    plain = (_said(place, error["msg"], known) for place, error in zip(places, found, strict=False))
    fields = list(zip(places, plain, strict=False))
    raise Invalid(
        f"{fields[0][0]}: {fields[0][1]}",
        field=fields[0][0],
        fields=[{"field": f, "message": m} for f, m in fields],
    )


def _said(place: str, message: str, known: Collection[str]) -> str:
    """pydantic's message for a caller, with the way out where another API's habit is behind it."""
    words = message.removeprefix("Value error, ")
    plain = next((p for m, p in _PLAIN.items() if words.startswith(m)), words)
    if place != "role" and "participants" not in known:
        return plain
    return plain + _HINTS.get((place, plain), "")


# types -------------------------------------------------------------------------------------------


def _moment(value: object) -> datetime:
    """RFC 3339 with an offset, or Unix seconds (C-10); UTC inside."""
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, (int, float)):
            return datetime.fromtimestamp(value, UTC)
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            "must be RFC 3339 with a time zone (2026-05-08T13:56:00Z) or Unix seconds"
        ) from None


def _whole(value: object) -> int:
    """A number as a query string spells it."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, int):
        return value
    raise ValueError("must be a whole number")


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"is {size} bytes as JSON, at most {MAX_METADATA_BYTES}")
    return value


def _key(value: str) -> str:
    size = len(value.encode())
    if size > MAX_KEY_BYTES:
        raise ValueError(f"is {size} bytes as UTF-8, at most {MAX_KEY_BYTES}")
    return value


_MIME_TYPE = re.compile(
    r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(; ?[\w!#$&^.+-]+=([\w!#$&^.+-]+|\"[ !#-\[\]-~]*\"))*",
    re.ASCII,
)


def _mime_type(value: str) -> str:
    """RFC 6838: it becomes a header when the payload is fetched."""
    if not _MIME_TYPE.fullmatch(value):
        raise ValueError("must be like text/plain or text/plain; charset=utf-8")
    return value


def _speaker(value: str) -> str:
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
_PARTICIPANT_SCHEMA = {
    "type": "string",
    "maxLength": participants.MAX_LENGTH,
    "pattern": r"^\s*[a-z][a-z0-9_-]{0,31}:[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
}
"""`participants.normalize` decides."""
_MOMENT_SCHEMA = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "number", "minimum": -62135596800, "maximum": 253402300799},
    ]
}

type MimeType = Annotated[
    str, Field(max_length=255), AfterValidator(_mime_type), WithJsonSchema(_MIME_SCHEMA)
]
type Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema(_MOMENT_SCHEMA)]
type Metadata = Annotated[dict[str, Any], BeforeValidator(_metadata)]
type SourceKey = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_key)]
type Cid = Annotated[
    str,
    Field(min_length=8, max_length=128),
    WithJsonSchema({"type": "string", "pattern": CID_PATTERN}),
]
type SessionId = Annotated[str, Field(min_length=1, max_length=128)]
type Channel = Annotated[str, Field(min_length=1, max_length=64)]
Count = Annotated[int, BeforeValidator(_whole)]
type IdempotencyKey = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x20-\x7e]+$")]
type Participant = Annotated[
    str,
    Field(max_length=participants.MAX_LENGTH * 4),  # before it is trimmed
    WithJsonSchema(_PARTICIPANT_SCHEMA),
]
type Participants = Annotated[list[Participant], Field(min_length=1, max_length=256)]
TENANT_PATTERN = "^[a-z0-9][a-z0-9-]{0,62}$"
type KeyRight = Literal["read", "write", "admin", "operator"]
type Limit = Annotated[int, Field(ge=0, strict=True)]


class RequestModel(BaseModel):
    """What a caller sends: a name that is not known is refused."""

    # Deferred: a process builds the validators of what it is sent, and of nothing else.
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class AnswerModel(BaseModel):
    """What a caller gets: every field is there, if only as null."""

    model_config = ConfigDict(
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
        defer_build=True,
    )


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


class Dated(RequestModel):
    """What happened at a moment, which goes by two names."""

    occurred_at: Moment | None = None
    """When it happened, by the caller's clock."""
    timestamp: Moment | None = None
    """Another name of `occurred_at`: give one of them."""

    @field_validator("timestamp")
    @classmethod
    def _is_the_same(cls, value: datetime | None, info: ValidationInfo) -> datetime | None:
        other = info.data.get("occurred_at")
        if value is not None and other is not None and value != other:
            raise ValueError("is another moment than occurred_at, which means the same; give one")
        return value

    @model_validator(mode="after")
    def _has_one_name(self) -> Self:
        self.occurred_at = self.occurred_at or self.timestamp
        return self


class EventFields(Dated):
    """What an event says, wherever it is appended."""

    role: GivenRole
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


class _Item:
    """An item of a batch is validated by itself, so that it fails alone; its type is told."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _core: object, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(AppendRequest.__pydantic_core_schema__)


class BatchRequest(RequestModel):
    """Up to 500 events in one transaction, each on its own unless `atomic`."""

    events: list[Annotated[Any, _Item]] = Field(min_length=1, max_length=MAX_BATCH)
    atomic: bool = Field(default=False, strict=True)
    """All or none."""


class NoQuery(RequestModel):
    """A route without query parameters: a misspelt one is refused, as everywhere."""


class NoBody(RequestModel):
    """A route without a body, or with an empty object: what stands there would change nothing."""


class OnBehalf(RequestModel):
    """Query string of every read."""

    participants: Participants | None = None
    """On whose behalf is read (repeat it for several): only what all of them took part in. A bound
    user joins by itself."""


class Paging(OnBehalf):
    """Query string of a list."""

    limit: Count = Field(default=50, ge=1, le=500)
    """At most so many."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class FeedQuery(OnBehalf):
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
    role: GivenRole | None = None
    type: EventType | None = None
    speaker: Annotated[Participant, AfterValidator(_speaker)] | None = None
    origin: Origin | None = None
    since: Moment | None = None
    """From here on, by occurred_at, else recorded_at."""
    until: Moment | None = None
    """Before here."""
    metadata: Metadata | None = None
    """Contained in the event's metadata."""

    def narrowing(self) -> Mapping[str, object]:
        """The fields given, as JSON values."""
        chosen = type(self).model_fields.keys() & Filters.model_fields.keys()
        return self.model_dump(mode="json", exclude_none=True, include=set(chosen))


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


class RecallRequest(Filters):
    """A question to memory."""

    query: str = Field(min_length=1, max_length=8000)
    participants: Participants | None = None
    """On whose behalf is asked. A bound user joins by itself."""
    limit: int = Field(default=10, ge=1, le=100, strict=True)
    """At most so many."""


class ListQuery(RequestModel):
    """Query string of an operator's list."""

    limit: Count = Field(default=50, ge=1, le=500)
    """At most so many."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class LimitsIn(RequestModel):
    """A tenant's limits. What is left out stays as it is, null is the deployment's default, 0
    allows nothing. They hold everywhere after a minute."""

    requests_per_minute: Limit | None = Field(default=None, le=10**9)
    appends_per_minute: Limit | None = Field(default=None, le=10**9)
    """Events, in batches or not."""
    stored_bytes: Limit | None = Field(default=None, le=2**62)
    """Bytes of events and payloads."""
    model_usd_per_month: Annotated[float, Field(ge=0, le=10**9, strict=True)] | None = None
    """What language models may cost in a calendar month (UTC), in USD. Once that is spent the
    deterministic twin does their work."""


def _nullable[Base: BaseModel](base: type[Base]) -> type[Base]:
    """Tuning with null for what is not the tenant's own."""
    fields: dict[str, Any] = {
        name: Annotated[
            field.annotation | None,
            *field.metadata,
            Field(default=None, description=field.description),
        ]
        for name, field in Tuning.model_fields.items()
    }
    return create_model("Nullable", __base__=base, **fields)


class TuningIn(_nullable(RequestModel)):
    """A tenant's thresholds. What is left out stays as it is, null is the deployment's."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class TuningOut(_nullable(AnswerModel)):
    """What an operator set of a tenant's thresholds; null is the deployment's."""


class TenantChange(LimitsIn):
    """What an operator may change of a tenant: limits, and the thresholds of memory's formation."""

    tuning: TuningIn | None = None
    """Null: none of its own any more. Holds for what is formed from now on; for heat at once, but
    when chains get cold is put right in the background."""


class TenantIn(TenantChange):
    """A tenant to be made."""

    tenant_id: str = Field(pattern=TENANT_PATTERN)


class KeyIn(RequestModel):
    """A key to be made."""

    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=4)
    label: str = Field(default="", max_length=200)
    """What it is for. Shown in lists: no secret belongs here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: it does not expire."""


class RotateIn(RequestModel):
    """How a key is followed by another."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=30 * 86_400, strict=True)
    """How long both hold; the old one never longer than it would have."""
    expires_at: Moment | None = None
    """Of the successor. Absent: it holds as long as the old one was made for."""


class BlobOut(AnswerModel):
    """A payload that an event holds: its address, size in bytes, type and file name."""

    cid: str
    size: int
    mime_type: str | None
    name: str | None


class Receipt(AnswerModel):
    """What an append acknowledges; the same again for a replay."""

    event_id: UUID
    cid: str | None
    scope_id: UUID
    seq: int
    recorded_at: datetime
    blob: BlobOut | None


class Refusal(AnswerModel):
    """Why a request was refused."""

    code: str
    """For programs: stays as it is when the message is worded anew."""
    message: str
    """For people: names the field and the way out."""
    details: dict[str, Any]
    """`field` and `fields` of what is not acceptable, and what else belongs to the code."""
    request_id: str
    """Quote it when you ask us."""
    retryable: bool
    """Whether the same request may succeed later."""


class Error(AnswerModel):
    """The one shape of every error."""

    error: Refusal


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


class UploadOut(AnswerModel):
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


class UploadStored(AnswerModel):
    """The payload is stored already and this credential may cite it: there is nothing to put."""

    cid: str
    size: int
    stored: Literal[True] = True


class BatchItem(AnswerModel):
    """One item's result: `status` is what it would have been alone."""

    status: int
    event: Receipt | None = None
    error: Refusal | None = None


class BatchAnswer(AnswerModel):
    """A batch's results, in the order of its items."""

    stored: int
    """Items that are in the log now, replays included."""
    failed: int
    results: list[BatchItem]


class EdgeOut(AnswerModel):
    """A supporting event, what the block commits to, and how much it supports."""

    event_id: UUID
    cid: str
    weight: float


class PartOut(AnswerModel):
    """A run of an agent's message, and the model that wrote it."""

    content: str | None
    """Absent where the text lies in a payload."""
    chars: int
    """How many characters of the text this run is."""
    model: str | None


class EventOut(AnswerModel):
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


class ScopeEvents(AnswerModel):
    """A scope's share of a tree."""

    scope_id: UUID
    participants: list[str]
    events: list[EventOut]
    """By seq."""


class EventTree(AnswerModel):
    """A rooted tree: the query, its scopes, their events."""

    query: Mapping[str, Any]
    mark: str
    """The database snapshot this answer and its further pages show."""
    scopes: list[ScopeEvents]
    next_cursor: str | None


class EventPage(AnswerModel):
    """Events, newest first."""

    events: list[EventOut]
    next_cursor: str | None


class FeedPage(AnswerModel):
    """A scope's events after a seq, in order, gapless."""

    scope_id: UUID
    last_seq: int
    """The scope's high-water mark when this was read."""
    events: list[EventOut]
    next_after_seq: int
    """Ask again with this; nothing is missed and nothing comes twice."""


class ScopeOut(AnswerModel):
    """Who took part, and how far the scope's log goes."""

    scope_id: UUID
    participants: list[str]
    last_seq: int
    last_recorded_at: datetime
    created_at: datetime


class ScopePage(AnswerModel):
    """Scopes, newest first."""

    scopes: list[ScopeOut]
    next_cursor: str | None


class Score(AnswerModel):
    """Why a hit stands where it stands."""

    total: float
    text_rank: int | None
    text_score: float | None
    vector_rank: int | None
    cosine: float | None
    fresh_rank: int | None
    """Its place among events that have no vector yet, newest first."""


class Piece(AnswerModel):
    """A range of characters of a payload's text: from start, up to but without end."""

    start_char: int
    end_char: int


class Hit(AnswerModel):
    """A memory and where it comes from."""

    event: EventOut
    piece: Piece | None
    """Which characters of a payload's text matched; null where only its name did."""
    score: Score


class RecallAnswer(AnswerModel):
    """Memories, best first, and what the answer rested on."""

    hits: list[Hit]
    degraded: list[str]
    """What was missing from this answer; empty when nothing was. `no_query_vector`: it is by words
    alone; `cut_by_size`: the best hits fill an answer before `limit`."""
    not_yet_embedded: int
    """How many events in view, 50 at most, can be found by their words alone as yet."""
    token: str
    """What this answer rested on: snapshot of the database, now, embedding space."""


class QuotaUse(AnswerModel):
    """A quota of the tenant. What an instance leased counts as used until it is spent or lapses."""

    name: Literal["requests", "appends", "stored_bytes"]
    """`appends` counts events, `stored_bytes` their bytes and their payloads'."""
    limit: int
    per: Literal["minute", "total"]
    at_once: int
    """The most that one request can be granted, after a rest."""
    used: int
    """Of `at_once`, now."""
    remaining: int
    retry_after: int
    """Seconds until one more is free, 0 when one is. Stored bytes do not get free by waiting."""
    resets_at: datetime | None
    """Of a rate: when all is free again, if nothing more is used."""
    leased: int
    """Leased to the service's instances since ever: what was used, and what lapsed unspent."""


class Stored(AnswerModel):
    """What the tenant stores, as it was counted in the background."""

    bytes: int
    scopes: int
    events: int
    measured_at: datetime


class ModelUse(AnswerModel):
    """What language models did for the tenant in this calendar month (UTC). Calls are added when
    the work that they were made for is done."""

    since: datetime
    calls: int
    """Requests to the provider."""
    failures: int
    """Of these, those without an answer of use."""
    tokens_in: int
    tokens_out: int
    cost_usd: float
    """By the prices that the deployment sets; 0 where it sets none."""
    budget_usd: float | None
    """Null: no limit."""
    remaining_usd: float | None
    resting_until: datetime | None
    """Until when no model is asked for the tenant, because it failed too often in a row: as all
    processes know it. Null: it is asked."""


class ModelCallOut(AnswerModel):
    """A request to a language model's provider: numbers and ids, no text."""

    call_id: UUID
    at: datetime
    """When it began."""
    task: str
    """What was asked for, as in `summarise`."""
    model: str
    prompt: str
    """Task and version of its prompt, as in `summarise/1`."""
    tokens_in: int
    """As the provider counts them; where it does not, about as many."""
    tokens_out: int
    cost_usd: float
    milliseconds: float
    outcome: Literal["ok", "invalid_output", "format_refused", "refused", "late", "unavailable"]
    scope_id: UUID | None
    """The scope whose text was shown."""
    job: str | None
    """The work that it was made for."""


class ModelCallPage(AnswerModel):
    """A tenant's calls of language models, newest first."""

    calls: list[ModelCallOut]
    next_cursor: str | None


class Usage(AnswerModel):
    """What the tenant uses of what it may."""

    quotas: list[QuotaUse]
    stored: Stored | None
    """Absent until it was counted for the first time."""
    models: ModelUse


class TenantOut(AnswerModel):
    """A tenant, and since when it is."""

    tenant_id: str
    created_at: datetime


class TenantLimits(AnswerModel):
    """What an operator set for a tenant; null is the deployment's default."""

    requests_per_minute: int | None
    appends_per_minute: int | None
    stored_bytes: int | None
    model_usd_per_month: float | None


class TenantDetails(TenantOut):
    """A tenant, what it may use and what it uses."""

    limits: TenantLimits
    tuning: TuningOut
    usage: Usage


class TenantPage(AnswerModel):
    """Tenants, by name."""

    tenants: list[TenantOut]
    next_cursor: str | None


class KeyOut(AnswerModel):
    """A key, without anything secret."""

    key_id: str
    user: str | None
    """The participant it is bound to."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The key that follows it."""


class NewKeyOut(KeyOut):
    """A key that was just made."""

    token: str
    """The credential itself: shown this once, and stored nowhere."""


class RotatedOut(AnswerModel):
    """A key's successor, and the key itself, which ends at its `expires_at`."""

    key: NewKeyOut
    old: KeyOut


class KeyPage(AnswerModel):
    """A tenant's keys, newest first."""

    keys: list[KeyOut]
    next_cursor: str | None


class AuditEntry(AnswerModel):
    """What an admin or an operator did, or was refused."""

    audit_id: UUID
    at: datetime
    actor_tenant: str | None
    """Whose credential it was; null at the operator's console."""
    actor_key_id: str | None
    actor_user: str | None
    route: str
    target: dict[str, str]
    """Ids of what it was about."""
    details: dict[str, JsonValue]
    """What was made or changed. Of a key its `rights`, `user` and `expires_at`, and of one that was
    rotated `old_expires_at`; of a tenant the limits named, each as `{"from", "to"}`, where null is
    the deployment's default."""
    outcome: str
    """`done`, or the code of the error that refused it."""
    request_id: str


class AuditPage(AnswerModel):
    """A tenant's audit trail, newest first."""

    entries: list[AuditEntry]
    next_cursor: str | None


class Liveness(AnswerModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class LanguageState(AnswerModel):
    """The language model, which is not asked for this."""

    provider: str | None
    """As in `openai:gpt-4o-mini`; null: there is none, and the twin does its tasks. Whether it is
    left alone for a while is each tenant's own: see `models.resting_until` of its usage."""


class BackgroundState(AnswerModel):
    """What fails of the tenant's background work; GET /api/v1/admin/jobs has the reasons."""

    scopes_stuck: int
    """Scopes whose work was put off five times in a row: their events are safe and recalled, but no
    chain is formed of the newest. It is tried again by itself."""
    jobs_failed: int
    """Jobs that failed and were not tried again; they are kept for 30 days."""


class Health(AnswerModel):
    """What the service needs, and whether it answers."""

    status: Literal["ok", "degraded", "unavailable"]
    dependencies: dict[str, str]
    """`ok`, or what is wrong, for each of database, blobs, queue and embedding."""
    language: LanguageState
    background: BackgroundState | None
    """Null while the database is away, and for a credential that does not hold."""
    warnings: list[str]
    """What endangers it although it answers, and what to do."""


class FileOut(AnswerModel):
    """Where a payload can be fetched for a short while."""

    cid: str
    url: str
    expires_at: datetime
    size: int
    mime_type: str | None
    name: str | None
