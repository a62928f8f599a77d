"""Types of the fields of events, and their checks."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from typing_extensions import Self, TypeAliasType

from strandline.schemas import Moment, RequestModel, ResponseModel

MAX_METADATA_BYTES = 16 * 1024
MAX_KEY_BYTES = 1024
"""Together with tenant, writer and channel, a key must fit into one row of a B-tree index: 2,704
bytes."""

Role = TypeAliasType("Role", Literal["user", "agent", "system"])
EventType = TypeAliasType(
    "EventType", Literal["message", "thought", "action", "observation", "upload", "statement"]
)
Origin = TypeAliasType("Origin", Literal["user", "agent", "tool", "document", "system"])
RoleIn = TypeAliasType(
    "RoleIn",
    Annotated[
        Role,
        BeforeValidator(lambda role: _ROLES.get(role, role) if isinstance(role, str) else role),
        WithJsonSchema({"type": "string", "enum": ["user", "agent", "system", "assistant"]}),
    ],
)
"""A role in a request. `assistant` is accepted as a synonym of `agent`."""
_ROLES: Mapping[str, str] = {"assistant": "agent"}


_APPENDABLE = ("message", "thought", "action", "observation", "upload")


def _require_appendable_type(value: object) -> object:
    if value == "statement":
        raise ValueError(
            "a statement is made by the routes under /api/v1/graph; send it there, or append a "
            "message"
        )
    if value not in _APPENDABLE:
        raise ValueError(f"must be one of {', '.join(_APPENDABLE)}")
    return value


EventTypeIn = TypeAliasType(
    "EventTypeIn",
    Annotated[
        EventType,
        BeforeValidator(_require_appendable_type),
        WithJsonSchema({"type": "string", "enum": [*_APPENDABLE]}),
    ],
)
"""The type of an event in an append: any but `statement`."""
StopReason = TypeAliasType("StopReason", Literal["endTurn", "stopSequence", "maxTokens"])


def _check_metadata(value: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"is {size} bytes as JSON, at most {MAX_METADATA_BYTES}")
    return value


def _check_event_key(value: str) -> str:
    size = len(value.encode())
    if size > MAX_KEY_BYTES:
        raise ValueError(f"is {size} bytes as UTF-8, at most {MAX_KEY_BYTES}")
    return value


_MIME_TYPE = re.compile(
    r'[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(; ?[\w!#$&^.+-]+=([\w!#$&^.+-]+|"[ !#-\[\]-~]*"))*',
    re.ASCII,
)


def _check_mime_type(value: str) -> str:
    """Check a media type by RFC 6838: it is sent as a header when the payload is downloaded."""
    if not _MIME_TYPE.fullmatch(value):
        raise ValueError("must be like text/plain or text/plain; charset=utf-8")
    return value


CID_PATTERN = "^b[a-z2-7]{58}$"
"""The pattern of a CIDv1 with sha2-256 in base32. `cid.cid_to_bytes` does the full check."""
# The JSON schema in the API description, for a check that a pattern alone cannot express.
_MIME_SCHEMA = {
    "type": "string",
    "maxLength": 255,
    "pattern": "^" + _MIME_TYPE.pattern.replace(r"\w", "A-Za-z0-9_") + "$",
}

MimeType = TypeAliasType(
    "MimeType",
    Annotated[
        str, Field(max_length=255), AfterValidator(_check_mime_type), WithJsonSchema(_MIME_SCHEMA)
    ],
)
Metadata = TypeAliasType("Metadata", Annotated[dict[str, Any], BeforeValidator(_check_metadata)])
SourceKey = TypeAliasType(
    "SourceKey",
    Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_check_event_key)],
)
Cid = TypeAliasType(
    "Cid",
    Annotated[
        str,
        Field(min_length=8, max_length=128),
        WithJsonSchema({"type": "string", "pattern": CID_PATTERN}),
    ],
)
SessionId = TypeAliasType("SessionId", Annotated[str, Field(min_length=1, max_length=128)])
Channel = TypeAliasType("Channel", Annotated[str, Field(min_length=1, max_length=64)])


class OccurredAtFields(RequestModel):
    """The time of an event, under either of two names."""

    occurred_at: Moment | None = None
    """When it happened, by the caller's clock."""
    timestamp: Moment | None = None
    """Another name of `occurred_at`: send only one of them."""

    @field_validator("timestamp")
    @classmethod
    def _check_timestamp_matches(
        cls, value: datetime | None, info: ValidationInfo
    ) -> datetime | None:
        other = info.data.get("occurred_at")
        if value is not None and other is not None and value != other:
            raise ValueError(
                "differs from occurred_at, which has the same meaning; send only one of them"
            )
        return value

    @model_validator(mode="after")
    def _merge_timestamp(self) -> Self:
        self.occurred_at = self.occurred_at or self.timestamp
        return self


class BlobOut(ResponseModel):
    """The payload of an event: CID, size in bytes, media type and file name."""

    cid: str
    size: int
    mime_type: str | None
    name: str | None
