"""From a request to the event it becomes: canonical, authorised, fingerprinted. Pure."""

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
from strandline.log.cid import INLINE_BYTES, Edge, Part, blob_cid, block_cid, cid_bytes, encode
from strandline.log.fulltext import parser_text
from strandline.log.schemas import AppendRequest, PartIn
from strandline.participants import bare, normalize, normalize_set, scope_id

HTTP_CHANNEL = "http"
"""The channel of an Idempotency-Key."""
_TEXT = "text/plain; charset=utf-8"
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


@dataclass  # not frozen: five times as fast to make, and one is made for every event
class NewEvent:
    """An event on its way into the log: what `append_item` in the migrations names."""

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
    """What it adds to what its scope stores: content and metadata, and a payload if this request
    itself brings it."""

    def as_json(self) -> dict[str, object]:
        """The item as the database function reads it."""
        return {
            **vars(self),
            "event_id": str(self.event_id),
            "scope_id": str(self.scope_id),
            "parts": [part._asdict() for part in self.parts],
            "occurred_at": self.occurred_at and self.occurred_at.isoformat(),
        }


@dataclass(frozen=True)
class Draft:
    """A request made canonical. What only the log can say, its edges' targets, is still open."""

    request: AppendRequest
    participants: list[str]
    speaker: str | None
    text: str | None
    parts: list[Part]
    payload: bytes | None
    """Content too large for the log, to be put into the payload store."""
    payload_cid: str | None
    origin: str
    scope_id: UUID
    key: tuple[str, str] | None
    """(channel, source_event_key)."""
    cited: "Cited | None" = None
    """What is known of the payload that the request cites, once it was looked up."""

    def fields(self) -> dict[str, object]:
        """Everything the caller said, in one canonical form: what the fingerprint covers, and what
        a conflict compares."""
        asked = self.request
        return {
            "participants": self.participants,
            "role": asked.role,
            "type": asked.type,
            "content": None if self.payload_cid else self.text,
            "parts": [list(part) for part in self.parts],
            "blob": self.payload_cid,
            "mime_type": self.mime_type,
            "name": asked.name,
            "speaker": self.speaker,
            "session_id": asked.session_id,
            "channel": asked.channel,
            "occurred_at": asked.occurred_at and asked.occurred_at.isoformat(),
            "metadata": _plain(asked.metadata),
            "stop_reason": asked.stop_reason,
        }

    @property
    def mime_type(self) -> str | None:
        """As given; a text that became a payload is plain text."""
        return self.request.mime_type or (_TEXT if self.payload is not None else None)

    def fingerprint(self) -> str:
        """SHA-256, in hex, over all of the request."""
        edges = sorted(
            [str(e.event_id or ""), e.cid or "", float(e.weight)] for e in self.request.edges
        )
        document = _CANONICAL.encode([self.fields(), edges])
        return hashlib.sha256(document.encode()).hexdigest()


@dataclass(frozen=True)
class Upload:
    """An upload that was verified and has no address of its own yet."""

    upload_id: UUID
    size: int
    etag: str
    """The store's name for the bytes that were verified."""


@dataclass(frozen=True)
class Cited:
    """What is known of a payload that a request cites, besides what the request says."""

    cid: str
    mime_type: str | None
    file_name: str | None
    """Both stand in where the request names none."""
    text: str | None = None
    """The beginning of a payload that is text."""
    upload: Upload | None = None
    """Where the payload comes from, when it is not stored yet."""


_NOT_CITED = Cited("", None, None)


def draft(principal: Principal, request: AppendRequest, idempotency_key: str | None) -> Draft:
    """Make a request canonical and check that this credential may write it.

    Raises Invalid naming a field, or Forbidden.
    """
    principal.require_own(request.tenant_id, request.user_id)
    members = normalize_set(request.participants)
    if principal.user and principal.user not in members:
        raise Forbidden(
            "participants: this credential writes only where its own user takes part",
            field="participants",
        )
    speaker = _speaker(principal, request, members)
    _require_sense(request)
    text, parts = _content(request)
    payload = None
    if text is not None and len(text) * 4 > INLINE_BYTES:
        data = text.encode()
        payload = data if len(data) > INLINE_BYTES else None
    cited = request.blob.cid if request.blob else None
    if cited:
        cid_bytes(cited, "blob.cid")
    return Draft(
        request=request,
        participants=members,
        speaker=speaker,
        text=text,
        parts=parts,
        payload=payload,
        payload_cid=blob_cid(payload) if payload is not None else cited,
        origin=_origin(principal, request, speaker),
        scope_id=scope_id(principal.tenant, members),
        key=_key(request, idempotency_key),
    )


def finish(made: Draft, n: int, targets: Sequence[tuple[UUID | None, str | None]]) -> NewEvent:
    """The event of a draft whose edges' targets were looked up: (id, CID) in the order of the
    request's edges, nothing where no event is seen by all participants.

    Raises Invalid when two edges turn out to mean the same event.
    """
    found = [event_id for event_id, _ in targets if event_id is not None]
    if len(set(found)) < len(found):
        raise Invalid("edges: two of them cite the same event; give one weight", field="edges")
    asked, known = made.request, made.cited or _NOT_CITED
    size = known.upload.size if known.upload else None
    name = known.file_name if asked.name is None else asked.name
    event = NewEvent(
        n=n,
        event_id=uuid7(),
        scope_id=made.scope_id,
        participants=made.participants,
        session_id=asked.session_id or "",
        channel=asked.channel,
        role=asked.role,
        type=asked.type,
        origin=made.origin,
        speaker=made.speaker,
        content=None if made.payload_cid else made.text,
        parts=made.parts,
        stop_reason=asked.stop_reason,
        blob_cid=made.payload_cid,
        blob_size=size if made.payload is None else len(made.payload),
        mime_type=made.mime_type or known.mime_type,
        file_name=name,
        blob_stored=made.payload is not None or known.upload is not None,
        metadata=asked.metadata,
        occurred_at=asked.occurred_at,
        cid="",
        key_channel=made.key and made.key[0],
        source_event_key=made.key and made.key[1],
        fingerprint=made.key and made.fingerprint(),
        edges=[
            {"event_id": event_id and str(event_id), "cid": cid, "weight": edge.weight}
            for edge, (event_id, cid) in zip(asked.edges, targets, strict=True)
        ],
        label=bare(made.speaker) if made.speaker else None,
        pieces=_pieces(made.text) if made.text is not None else _cited_pieces(known.text, name),
        bytes=0,
    )
    edges = [
        Edge(target_cid, asked_for.weight)
        for asked_for, (_, target_cid) in zip(asked.edges, targets, strict=True)
        if target_cid
    ]
    event.cid = block_cid(encode(event, edges))
    event.bytes = _bytes(event)
    return event


def _bytes(event: NewEvent) -> int:
    return len((event.content or "").encode()) + len(_COMPACT.encode(event.metadata).encode())


def differing(
    made: Draft, stored: Mapping[str, Any], edges: Sequence[Mapping[str, object]]
) -> list[str]:
    """The names of the fields in which a request differs from the event stored under its key.

    `stored` is the event's row as JSON; `edges` are the request's, as `finish` resolved them.
    """
    was: dict[str, object] = {
        **stored,
        "parts": [[part["chars"], part["model"]] for part in stored["parts"]],
        "blob": stored["blob_cid"],
        "name": stored["file_name"],
        "session_id": stored["session_id"] or None,
        "occurred_at": stored["occurred_at"] and _utc(stored["occurred_at"]),
        "metadata": _plain(stored["metadata"]),
    }
    if stored["mime_type"] in (None, _TEXT) and (made.payload is None) != (was["blob"] is None):
        was["mime_type"] = made.mime_type  # only because the text moved to or from the payloads
    said = made.fields()
    if made.request.content is not None and [m for _, m in made.parts] == _models(stored):
        was["parts"] = said["parts"]  # as long as the content is
    spoken = _spoken(made.request, stored)
    names = [spoken.get(name, name) for name in said if _json(said[name]) != _json(was[name])]
    if made.request.blob is not None:  # what was left open may stand there by the upload's word
        left_open = {n for n in ("mime_type", "name") if said[n] is None}
        names = [name for name in names if name not in left_open] or names

    def cited(links: Sequence[Mapping[str, object]]) -> set[tuple[object, object]]:
        return {(link["event_id"], link["weight"]) for link in links}

    if cited(edges) != cited(stored["edges"]):
        names.append("edges")
    return list(dict.fromkeys(names)) or ["edges"]  # the same targets, named another way


def _models(stored: Mapping[str, Any]) -> list[str | None]:
    return [part["model"] for part in stored["parts"]]


def _spoken(asked: AppendRequest, stored: Mapping[str, Any]) -> Mapping[str, str]:
    """What the caller calls a field of ours: it sent content, whether or not it became a blob."""
    if asked.parts is not None:
        return {"content": "parts", "blob": "parts"}
    if asked.content is not None:
        return {"blob": "content"} | ({"parts": "model"} if len(stored["parts"]) < 2 else {})
    return {"content": "blob", "parts": "blob"}


def _json(value: object) -> str:
    """For comparing: in Python True is 1."""
    return json.dumps(value, sort_keys=True)


def _plain(value: Any) -> Any:
    """JSON as the database gives it back: 1.0 is 1 and 1e3 is 1000."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    return int(Decimal(repr(value))) if isinstance(value, float) and value.is_integer() else value


def _utc(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat()


def _content(request: AppendRequest) -> tuple[str | None, list[Part]]:
    """The text, and the runs of it by model. Exactly one of content, parts and blob is given."""
    given = [n for n in ("content", "parts", "blob") if getattr(request, n) is not None]
    if len(given) != 1:
        raise Invalid(
            "content: give exactly one of content, parts and blob"
            + (f", not {' and '.join(given)}" if given else ""),
            field="content",
        )
    parts = request.parts
    if request.model is not None:
        if request.content is None:
            raise Invalid("model: goes with content; a part names its own", field="model")
        parts = [PartIn(content=request.content, model=request.model)]
    if parts is None:
        return request.content, []
    if request.role != "agent" or request.type == "observation":
        name = "parts" if request.model is None else "model"
        raise Invalid(f"{name}: only what an agent says is written by a model", field=name)
    text = "".join(part.content for part in parts)
    return text, [Part(len(part.content), part.model) for part in parts]


def _require_sense(request: AppendRequest) -> None:
    """What would be accepted and then lost is refused."""
    if request.stop_reason is not None and request.role != "agent":
        raise Invalid("stop_reason: goes with an agent's message", field="stop_reason")
    for n, edge in enumerate(request.edges):
        if edge.event_id is None and edge.cid is None:
            raise Invalid(f"edges.{n}: give event_id or cid", field=f"edges.{n}")


def _speaker(principal: Principal, request: AppendRequest, members: list[str]) -> str | None:
    """Who says it: as given, or the only one whom it can be. A bound credential speaks as its user
    or as an agent, never as anybody else."""
    role, agents = request.role, [m for m in members if m.startswith("agent:")]
    people = [principal.user] if principal.user else [m for m in members if m.startswith("user:")]
    if request.speaker is not None:
        speaker = normalize(request.speaker, "speaker")
        if speaker not in members:
            raise Invalid("speaker: is not one of the participants", field="speaker")
    else:
        possible = {"user": people, "agent": agents, "system": []}[role]
        speaker = possible[0] if len(possible) == 1 else None
    is_agent = speaker is not None and speaker.startswith("agent:")
    if speaker is not None and is_agent != (role == "agent"):
        raise Invalid(
            "speaker: an agent speaks with the role `agent`, everybody else with another",
            field="speaker",
        )
    if principal.user and role == "agent" and not is_agent:
        raise Invalid("speaker: name the agent that says it", field="speaker")
    if principal.user and not is_agent and speaker not in (None, principal.user):
        raise Forbidden("speaker: this credential speaks as its own user", field="speaker")
    return speaker


def _origin(principal: Principal, request: AppendRequest, speaker: str | None) -> str:
    """Where the event comes from, for trust; nothing a caller may set."""
    if principal.user:
        return "agent" if speaker is not None and speaker.startswith("agent:") else "user"
    return {"observation": "tool", "upload": "document"}.get(request.type, request.role)


def _key(request: AppendRequest, idempotency_key: str | None) -> tuple[str, str] | None:
    if idempotency_key is None:
        return (request.source_event_key and (request.channel, request.source_event_key)) or None
    if request.source_event_key is not None:
        raise Invalid(
            "source_event_key: the request has an Idempotency-Key too; send one of them",
            field="source_event_key",
        )
    return HTTP_CHANNEL, idempotency_key


def _cited_pieces(text: str | None, name: str | None) -> list[dict[str, object]]:
    """A cited payload is found by its name too, which is no part of its text."""
    pieces = _pieces(text or "")
    named = "\n".join(filter(None, (name, str(pieces[0]["text"]))))
    pieces[0]["text"] = parser_text(named)  # a comment may open in the name
    return pieces


def _pieces(text: str) -> list[dict[str, object]]:
    return [
        {"start": s, "end": e, "text": parser_text(text[s:e])} for s, e in words_index.pieces(text)
    ]
