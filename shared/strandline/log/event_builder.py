"""Build an event from a request: canonical form, permission checks, fingerprint. Without I/O."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.auth.principals import Principal
from strandline.errors import Forbidden, Invalid
from strandline.log import words_index
from strandline.log.cid import (
    INLINE_BYTES,
    Edge,
    Part,
    blob_cid,
    block_cid,
    cid_bytes,
    encode_block,
)
from strandline.log.fulltext import sanitize_for_parser
from strandline.log.schemas import AppendRequest, PartIn
from strandline.participants import derive_scope_id, display_name, normalize, normalize_set

HTTP_CHANNEL = "http"
"""The channel in which an Idempotency-Key counts as a source event key."""
_TEXT_TYPE = "text/plain; charset=utf-8"
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


@dataclass  # not frozen: five times as fast to create, once per event
class NewEvent:
    """An event to be stored: the fields of the SQL type `append_item`."""

    n: int
    event_id: UUID
    scope_id: UUID
    participants: list[str]
    session_id: str
    channel: str
    role: str
    type: str
    origin: str
    speaker: str | None
    content: str | None
    parts: list[Part]
    stop_reason: str | None
    blob_cid: str | None
    blob_size: int | None
    mime_type: str | None
    file_name: str | None
    blob_stored: bool
    metadata: dict[str, Any]
    occurred_at: datetime | None
    cid: str
    key_channel: str | None
    source_event_key: str | None
    fingerprint: str | None
    edges: list[dict[str, object]]
    label: str | None
    pieces: list[dict[str, object]]
    bytes: int
    """The bytes it adds to its scope: content and metadata, and a payload if this request itself
    uploads it."""

    def as_json(self) -> dict[str, object]:
        """The event as JSON values for the SQL function `append_events`."""
        return {
            **vars(self),
            "event_id": str(self.event_id),
            "scope_id": str(self.scope_id),
            "parts": [part._asdict() for part in self.parts],
            "occurred_at": self.occurred_at and self.occurred_at.isoformat(),
        }


@dataclass(frozen=True)
class EventDraft:
    """A request in canonical form. The targets of its edges are not resolved yet: that needs the
    log."""

    request: AppendRequest
    participants: list[str]
    speaker: str | None
    text: str | None
    parts: list[Part]
    payload: bytes | None
    """Content that is too large for the log, to be uploaded to the payload store."""
    payload_cid: str | None
    origin: str
    scope_id: UUID
    key: tuple[str, str] | None
    """(channel, source_event_key)."""
    cited_payload: "CitedPayload | None" = None
    """The payload that the request cites, once it was looked up."""

    def canonical_fields(self) -> dict[str, object]:
        """All fields of the request in one canonical form. The fingerprint covers them, and a
        conflict compares them."""
        request = self.request
        return {
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
            "metadata": _normalize_json(request.metadata),
            "stop_reason": request.stop_reason,
        }

    @property
    def mime_type(self) -> str | None:
        """The media type of the request; plain text for content that became a payload."""
        return self.request.mime_type or (_TEXT_TYPE if self.payload is not None else None)

    def compute_fingerprint(self) -> str:
        """The SHA-256 of the canonical fields and edges, in hex."""
        edges = sorted(
            [str(e.event_id or ""), e.cid or "", float(e.weight)] for e in self.request.edges
        )
        document = _CANONICAL.encode([self.canonical_fields(), edges])
        return hashlib.sha256(document.encode()).hexdigest()


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


_NO_PAYLOAD = CitedPayload("", None, None)


def build_draft(
    principal: Principal, request: AppendRequest, idempotency_key: str | None
) -> EventDraft:
    """Convert a request to canonical form and check that this credential may write it.

    Raises Invalid, which names the field, or Forbidden.
    """
    principal.require_own_ids(request.tenant_id, request.user_id)
    members = normalize_set(request.participants)
    if principal.user and principal.user not in members:
        raise Forbidden(
            "participants: must include this credential's own user",
            field="participants",
        )
    speaker = _resolve_speaker(principal, request, members)
    _check_consistency(request)
    text, parts = _content(request)
    payload = None
    if text is not None and len(text) * 4 > INLINE_BYTES:
        data = text.encode()
        payload = data if len(data) > INLINE_BYTES else None
    cited_cid = request.blob.cid if request.blob else None
    if cited_cid:
        cid_bytes(cited_cid, "blob.cid")
    return EventDraft(
        request=request,
        participants=members,
        speaker=speaker,
        text=text,
        parts=parts,
        payload=payload,
        payload_cid=blob_cid(payload) if payload is not None else cited_cid,
        origin=_derive_origin(principal, request, speaker),
        scope_id=derive_scope_id(principal.tenant, members),
        key=_event_key(request, idempotency_key),
    )


def build_event(
    draft: EventDraft, n: int, targets: Sequence[tuple[UUID | None, str | None]]
) -> NewEvent:
    """Build the event of a draft.

    `targets` are the resolved edges as (id, CID), in the order of the request's edges; (None, None)
    where no event is visible to all participants. Raises Invalid when two edges resolve to the same
    event.
    """
    event_ids = [event_id for event_id, _ in targets if event_id is not None]
    if len(set(event_ids)) < len(event_ids):
        raise Invalid("edges: two edges cite the same event; send one of them", field="edges")
    request, cited_payload = draft.request, draft.cited_payload or _NO_PAYLOAD
    size = cited_payload.upload.size if cited_payload.upload else None
    name = cited_payload.file_name if request.name is None else request.name
    event = NewEvent(
        n=n,
        event_id=uuid7(),
        scope_id=draft.scope_id,
        participants=draft.participants,
        session_id=request.session_id or "",
        channel=request.channel,
        role=request.role,
        type=request.type,
        origin=draft.origin,
        speaker=draft.speaker,
        content=None if draft.payload_cid else draft.text,
        parts=draft.parts,
        stop_reason=request.stop_reason,
        blob_cid=draft.payload_cid,
        blob_size=size if draft.payload is None else len(draft.payload),
        mime_type=draft.mime_type or cited_payload.mime_type,
        file_name=name,
        blob_stored=draft.payload is not None or cited_payload.upload is not None,
        metadata=request.metadata,
        occurred_at=request.occurred_at,
        cid="",
        key_channel=draft.key and draft.key[0],
        source_event_key=draft.key and draft.key[1],
        fingerprint=draft.key and draft.compute_fingerprint(),
        edges=_edge_rows(request, targets),
        label=display_name(draft.speaker) if draft.speaker else None,
        pieces=_index_pieces(draft.text)
        if draft.text is not None
        else _index_payload_pieces(cited_payload.text, name),
        bytes=0,
    )
    edges = [
        Edge(target_cid, request_edge.weight)
        for request_edge, (_, target_cid) in zip(request.edges, targets, strict=True)
        if target_cid
    ]
    event.cid = block_cid(encode_block(event, edges))
    event.bytes = _stored_bytes(event)
    return event


def _edge_rows(
    request: AppendRequest, targets: Sequence[tuple[UUID | None, str | None]]
) -> list[dict[str, object]]:
    """The edges as the database takes them."""
    return [
        {"event_id": event_id and str(event_id), "cid": cid, "weight": edge.weight}
        for edge, (event_id, cid) in zip(request.edges, targets, strict=True)
    ]


def _stored_bytes(event: NewEvent) -> int:
    return len((event.content or "").encode()) + len(_COMPACT.encode(event.metadata).encode())


def list_differences(
    draft: EventDraft, stored_row: Mapping[str, Any], edges: Sequence[Mapping[str, object]]
) -> list[str]:
    """The names of the fields in which a request differs from the event stored under its key.

    `stored_row` is the event's row as JSON; `edges` are the request's, resolved by `build_event`.
    """
    stored_fields: dict[str, object] = {
        **stored_row,
        "parts": [[part["chars"], part["model"]] for part in stored_row["parts"]],
        "blob": stored_row["blob_cid"],
        "name": stored_row["file_name"],
        "session_id": stored_row["session_id"] or None,
        "occurred_at": stored_row["occurred_at"] and _to_utc(stored_row["occurred_at"]),
        "metadata": _normalize_json(stored_row["metadata"]),
    }
    if stored_row["mime_type"] in (None, _TEXT_TYPE) and (draft.payload is None) != (
        stored_fields["blob"] is None
    ):
        # They differ only because the text moved to or from the payload store.
        stored_fields["mime_type"] = draft.mime_type
    request_fields = draft.canonical_fields()
    if draft.request.content is not None and [m for _, m in draft.parts] == _models(stored_row):
        stored_fields["parts"] = request_fields["parts"]  # only their lengths differ
    caller_names = _caller_names(draft.request, stored_row)
    names = [
        caller_names.get(name, name)
        for name in request_fields
        if _canonical_json(request_fields[name]) != _canonical_json(stored_fields[name])
    ]
    if draft.request.blob is not None:  # fields left out may be the upload's
        unset = {n for n in ("mime_type", "name") if request_fields[n] is None}
        names = [name for name in names if name not in unset] or names

    def edge_set(links: Sequence[Mapping[str, object]]) -> set[tuple[object, object]]:
        return {(link["event_id"], link["weight"]) for link in links}

    if edge_set(edges) != edge_set(stored_row["edges"]):
        names.append("edges")
    return list(dict.fromkeys(names)) or ["edges"]  # same targets, written in another way


def _models(stored_row: Mapping[str, Any]) -> list[str | None]:
    return [part["model"] for part in stored_row["parts"]]


def _caller_names(request: AppendRequest, stored_row: Mapping[str, Any]) -> Mapping[str, str]:
    """The request's field names by canonical names: the caller sent `content`, whether or not it
    was stored as a blob."""
    if request.parts is not None:
        return {"content": "parts", "blob": "parts"}
    if request.content is not None:
        return {"blob": "content"} | ({"parts": "model"} if len(stored_row["parts"]) < 2 else {})
    return {"content": "blob", "parts": "blob"}


def _canonical_json(value: object) -> str:
    """Encode for comparison: in Python, True == 1."""
    return json.dumps(value, sort_keys=True)


def _normalize_json(value: Any) -> Any:
    """JSON values as the database returns them: 1.0 is 1, and 1e3 is 1000."""
    if isinstance(value, dict):
        return {name: _normalize_json(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_normalize_json(item) for item in cast("list[Any]", value)]
    return int(Decimal(repr(value))) if isinstance(value, float) and value.is_integer() else value


def _to_utc(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat()


def _content(request: AppendRequest) -> tuple[str | None, list[Part]]:
    """The text and its parts by model. Raises Invalid unless exactly one of content, parts and blob
    is given."""
    sources = [n for n in ("content", "parts", "blob") if getattr(request, n) is not None]
    if len(sources) != 1:
        raise Invalid(
            "content: give exactly one of content, parts and blob"
            + (f", not {' and '.join(sources)}" if sources else ""),
            field="content",
        )
    parts = request.parts
    if request.model is not None:
        if request.content is None:
            raise Invalid("model: goes with content only; a part names its own", field="model")
        parts = [PartIn(content=request.content, model=request.model)]
    if parts is None:
        return request.content, []
    if request.role != "agent" or request.type == "observation":
        name = "parts" if request.model is None else "model"
        raise Invalid(f"{name}: only for the role `agent`, except observations", field=name)
    text = "".join(part.content for part in parts)
    return text, [Part(len(part.content), part.model) for part in parts]


def _check_consistency(request: AppendRequest) -> None:
    """Refuse fields that would be accepted but not stored. Raises Invalid."""
    if request.stop_reason is not None and request.role != "agent":
        raise Invalid("stop_reason: only for the role `agent`", field="stop_reason")
    for n, edge in enumerate(request.edges):
        if edge.event_id is None and edge.cid is None:
            raise Invalid(f"edges.{n}: give event_id or cid", field=f"edges.{n}")


def _resolve_speaker(
    principal: Principal, request: AppendRequest, members: list[str]
) -> str | None:
    """The speaker: as given, or the only participant that fits the role. A bound credential speaks
    as its user or as an agent, never as another user. Raises Invalid or Forbidden."""
    role, agents = request.role, [m for m in members if m.startswith("agent:")]
    users = [principal.user] if principal.user else [m for m in members if m.startswith("user:")]
    if request.speaker is not None:
        speaker = normalize(request.speaker, "speaker")
        if speaker not in members:
            raise Invalid("speaker: must be one of the participants", field="speaker")
    else:
        possible = {"user": users, "agent": agents, "system": []}[role]
        speaker = possible[0] if len(possible) == 1 else None
    is_agent = speaker is not None and speaker.startswith("agent:")
    if speaker is not None and is_agent != (role == "agent"):
        raise Invalid(
            "speaker: an agent needs the role `agent`, and that role needs an agent",
            field="speaker",
        )
    if principal.user and role == "agent" and not is_agent:
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
        return "agent" if speaker is not None and speaker.startswith("agent:") else "user"
    return {"observation": "tool", "upload": "document"}.get(request.type, request.role)


def _event_key(request: AppendRequest, idempotency_key: str | None) -> tuple[str, str] | None:
    if idempotency_key is None:
        return (request.source_event_key and (request.channel, request.source_event_key)) or None
    if request.source_event_key is not None:
        raise Invalid(
            "source_event_key: the request also has an Idempotency-Key; send only one of them",
            field="source_event_key",
        )
    return HTTP_CHANNEL, idempotency_key


def _index_payload_pieces(text: str | None, name: str | None) -> list[dict[str, object]]:
    """The index pieces of a cited payload. Its file name is searchable too, though not part of its
    text."""
    pieces = _index_pieces(text or "")
    full_text = "\n".join(filter(None, (name, str(pieces[0]["text"]))))
    pieces[0]["text"] = sanitize_for_parser(full_text)  # a comment may open in the name
    return pieces


def _index_pieces(text: str) -> list[dict[str, object]]:
    return [
        {"start": s, "end": e, "text": sanitize_for_parser(text[s:e])}
        for s, e in words_index.split_pieces(text)
    ]
