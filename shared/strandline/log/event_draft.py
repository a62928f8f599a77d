"""Build a draft of an event from a request: canonical form, permission checks, fingerprint. Without
I/O."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from strandline.auth.principals import Principal
from strandline.aws.payload_texts import declare_utf8
from strandline.errors import Forbidden, Invalid
from strandline.log.cid import (
    INLINE_BYTES,
    NULL_IN_FINGERPRINT,
    EventColumns,
    ModelWrittenSpan,
    cid_to_bytes,
    compute_blob_cid,
)
from strandline.log.schemas_append import AgentMessagePartIn, AppendRequest, EdgeIn
from strandline.participants import (
    derive_scope_id,
    normalize_participant,
    normalize_participant_set,
)

HTTP_CHANNEL = "http"
"""The channel in which an Idempotency-Key counts as a source event key."""
TEXT_TYPE = "text/plain; charset=utf-8"
"""The media type of content that became a payload."""
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True)
REQUEST_COLUMNS = tuple(
    column.name for column in fields(EventColumns) if column.name in AppendRequest.model_fields
)
"""The columns that have the name of a request's field. Most are stored as they are sent."""
_NULL_COLUMNS = frozenset(
    column.name
    for column in fields(EventColumns)
    if column.metadata.items() >= NULL_IN_FINGERPRINT.items()
)


@dataclass(frozen=True)
class VerifiedUpload:
    """An upload that was verified but not yet copied to its CID."""

    upload_id: UUID
    size: int
    etag: str
    """The object's ETag: it identifies the bytes that were verified."""


@dataclass(frozen=True)
class CitedPayload:
    """A payload that a request cites, with what the database and the store know of it."""

    cid: str
    mime_type: str | None
    file_name: str | None
    """`mime_type` and `file_name` apply where the request names none."""
    text: str | None = None
    """The first characters of a text payload, for the index."""
    upload: VerifiedUpload | None = None
    """The upload to copy the payload from, if it is not stored yet."""


_SHOWN_NAMES = 5
_NO_PAYLOAD = CitedPayload("", None, None)


@dataclass(frozen=True)
class RecalledLinks:
    """Edges that recall adds to those of the request, and how it found them."""

    options: Mapping[str, object]
    """What the request asks of recall: part of its fingerprint. What was found is not, so that a
    repeated request is a replay whatever recall finds by then."""
    edges: Sequence[EdgeIn] = ()
    """Best first."""
    degraded: Sequence[str] = ()
    """How recall was limited."""


@dataclass(frozen=True)
class EventDraft:
    """A request in canonical form. The targets of its edges are not resolved yet: that needs the
    log."""

    request: AppendRequest
    participants: list[str]
    speaker: str | None
    text: str | None
    parts: list[ModelWrittenSpan]
    payload: bytes | None
    """Content that is too large for the log, to be uploaded to the payload store."""
    payload_cid: str | None
    origin: str
    scope_id: UUID
    key: tuple[str, str] | None
    """(channel, source_event_key)."""
    cited_payload: CitedPayload | None = None
    """The payload that the request cites, once it was looked up."""
    links: RecalledLinks | None = None
    """What recall adds, if the request asks for it."""

    @property
    def edges(self) -> list[EdgeIn]:
        """The edges of the request, then those that recall found."""
        return [*self.request.edges, *(self.links.edges if self.links else ())]

    @property
    def brings_payload(self) -> bool:
        """Whether the request adds a payload to the store: large content, or an upload."""
        upload = self.cited_payload.upload if self.cited_payload else None
        return self.payload is not None or upload is not None

    @property
    def blank_text_error(self) -> Invalid | None:
        """The error of a new event whose text is white space alone, which tells nothing, but for
        what a tool gave, and where `metadata` tells something, such as the tools that an agent
        calls. A replay of one is no new event."""
        request = self.request
        may_be_blank = request.type == "observation" or request.metadata
        if self.text is None or self.text.strip() or may_be_blank:
            return None
        name = "content" if request.parts is None else "parts"
        return Invalid(
            f"{name}: is blank: give a text, or leave the event out. Only an event of the type "
            "`observation`, of a tool that gave nothing, or one with `metadata` may be blank",
            field=name,
        )

    def columns(self) -> dict[str, Any]:
        """The values of `EventColumns`."""
        request, cited_payload = self.request, self.cited_payload or _NO_PAYLOAD
        mime_type = self.mime_type or cited_payload.mime_type
        upload_size = cited_payload.upload.size if cited_payload.upload else None
        return {
            **{name: getattr(request, name) for name in REQUEST_COLUMNS},
            "participants": self.participants,
            "session_id": request.session_id or "",
            "origin": self.origin,
            "speaker": self.speaker,
            "content": None if self.payload_cid else self.text,
            "parts": self.parts,
            "blob_cid": self.payload_cid,
            "blob_size": upload_size if self.payload is None else len(self.payload),
            "mime_type": mime_type if self.payload is None else declare_utf8(mime_type or ""),
            "file_name": cited_payload.file_name if request.name is None else request.name,
        }

    def canonical_request_fields(self) -> dict[str, object]:
        """All fields of the request in one canonical form. The fingerprint covers them, and a
        conflict compares them."""
        request = self.request
        canonical: dict[str, object] = {
            "participants": self.participants,
            "role": request.role,
            "type": request.type,
            "content": None if self.payload_cid else self.text,
            "parts": [list(part) for part in self.parts],
            "blob": self.payload_cid,
            "mime_type": self.mime_type,
            "name": request.name,
            "speaker": self.speaker,
            "session_id": request.session_id,
            "channel": request.channel,
            "occurred_at": request.occurred_at and request.occurred_at.isoformat(),
            "metadata": normalize_json_numbers(request.metadata),
        }
        others = {name: getattr(request, name) for name in REQUEST_COLUMNS if name not in canonical}
        return canonical | {
            name: value
            for name, value in others.items()
            if value is not None or name in _NULL_COLUMNS
        }

    @property
    def mime_type(self) -> str | None:
        """The media type of the request; plain text for content that became a payload."""
        return self.request.mime_type or (TEXT_TYPE if self.payload is not None else None)

    def compute_fingerprint(self) -> str:
        """The SHA-256 of the canonical fields, the request's own edges and what it asks of recall,
        in hex."""
        edges = sorted(
            [str(e.event_id or ""), e.cid or "", float(e.weight)] for e in self.request.edges
        )
        options = [self.links.options] if self.links else []
        document = _CANONICAL.encode([self.canonical_request_fields(), edges, *options])
        return hashlib.sha256(document.encode()).hexdigest()


def build_draft(
    principal: Principal, request: AppendRequest, idempotency_key: str | None
) -> EventDraft:
    """Convert a request to canonical form and check that this credential may write it. Whether a
    blank text under a key is a replay, only the log knows.

    Raises Invalid, which names the field, or Forbidden.
    """
    principal.require_own_ids(request.tenant_id, request.user_id)
    members = normalize_participant_set(request.participants)
    if principal.user and principal.user not in members:
        raise Forbidden(
            "participants: must include this credential's own user",
            field="participants",
        )
    speaker = _resolve_speaker(principal, request, members)
    _require_edge_targets(request)
    _require_one_of_content_parts_blob(request)
    text, parts = _read_text_and_model_parts(request)
    payload = None
    if text is not None and len(text) * 4 > INLINE_BYTES:
        data = text.encode()
        payload = data if len(data) > INLINE_BYTES else None
    cited_cid = request.blob.cid if request.blob else None
    if cited_cid:
        cid_to_bytes(cited_cid, "blob.cid")
    draft = EventDraft(
        request=request,
        participants=members,
        speaker=speaker,
        text=text,
        parts=parts,
        payload=payload,
        payload_cid=compute_blob_cid(payload) if payload is not None else cited_cid,
        origin=_derive_origin(principal, request, speaker),
        scope_id=derive_scope_id(principal.tenant, members),
        key=_choose_event_key(request, idempotency_key),
    )
    if draft.key is None and draft.blank_text_error is not None:
        raise draft.blank_text_error
    return draft


def _require_one_of_content_parts_blob(request: AppendRequest) -> None:
    """Refuse a request that gives none of these three, or several. Raises Invalid."""
    sources = [n for n in ("content", "parts", "blob") if getattr(request, n) is not None]
    if len(sources) != 1:
        raise Invalid(
            "content: give exactly one of content, parts and blob"
            + (f", not {' and '.join(sources)}" if sources else ""),
            field="content",
        )


def _read_text_and_model_parts(request: AppendRequest) -> tuple[str | None, list[ModelWrittenSpan]]:
    """The text, and how long the part of each model is. Raises Invalid for models where none may be
    named."""
    parts = request.parts
    if request.model is not None:
        if request.content is None:
            raise Invalid("model: goes with content only; a part names its own", field="model")
        parts = [AgentMessagePartIn(content=request.content, model=request.model)]
    if parts is None:
        return request.content, []
    if request.role != "agent" or request.type == "observation":
        name = "parts" if request.model is None else "model"
        raise Invalid(f"{name}: only for the role `agent`, except observations", field=name)
    text = "".join(part.content for part in parts)
    return text, [ModelWrittenSpan(len(part.content), part.model) for part in parts]


def _require_edge_targets(request: AppendRequest) -> None:
    """Refuse edges without a target. Raises Invalid."""
    for n, edge in enumerate(request.edges):
        if edge.event_id is None and edge.cid is None:
            raise Invalid(f"edges.{n}: give event_id or cid", field=f"edges.{n}")


def _resolve_speaker(
    principal: Principal, request: AppendRequest, members: list[str]
) -> str | None:
    """The speaker: as given, or the only participant that fits the role. A bound credential speaks
    as its user or as an agent, which has no name only where no agent takes part; never as another
    user. Raises Invalid or Forbidden."""
    role, agents = request.role, [m for m in members if m.startswith("agent:")]
    users = [principal.user] if principal.user else [m for m in members if m.startswith("user:")]
    if request.speaker is not None:
        speaker = normalize_participant(request.speaker, "speaker")
        if speaker not in members:
            names = ", ".join(members[:_SHOWN_NAMES]) + ", …" * (len(members) > _SHOWN_NAMES)
            raise Invalid(f"speaker: must be one of the participants: {names}", field="speaker")
    else:
        possible = {"user": users, "agent": agents, "system": []}[role]
        speaker = possible[0] if len(possible) == 1 else None
    is_agent = speaker is not None and speaker.startswith("agent:")
    if speaker is not None and is_agent != (role == "agent"):
        raise Invalid(
            "speaker: an agent needs the role `agent`, and that role needs an agent",
            field="speaker",
        )
    if principal.user and role == "agent" and agents and not is_agent:
        raise Invalid("speaker: name the agent that speaks", field="speaker")
    if principal.user and not is_agent and speaker not in (None, principal.user):
        raise Forbidden(
            "speaker: this credential may speak only as its own user or as an agent",
            field="speaker",
        )
    return speaker


def _derive_origin(principal: Principal, request: AppendRequest, speaker: str | None) -> str:
    """The event's origin, which decides how far it is trusted. No field of the request sets it."""
    if principal.user:
        return "agent" if request.role == "agent" else "user"
    return {"observation": "tool", "upload": "document"}.get(request.type, request.role)


def _choose_event_key(
    request: AppendRequest, idempotency_key: str | None
) -> tuple[str, str] | None:
    if idempotency_key is None:
        return (request.source_event_key and (request.channel, request.source_event_key)) or None
    if request.source_event_key is not None:
        raise Invalid(
            "source_event_key: the request also has an Idempotency-Key; send only one of them",
            field="source_event_key",
        )
    return HTTP_CHANNEL, idempotency_key


def normalize_json_numbers(value: Any) -> Any:
    """JSON values as the database returns them: 1.0 is 1, and 1e3 is 1000."""
    if isinstance(value, dict):
        return {
            name: normalize_json_numbers(item)
            for name, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [normalize_json_numbers(item) for item in cast("list[Any]", value)]
    return int(Decimal(repr(value))) if isinstance(value, float) and value.is_integer() else value
