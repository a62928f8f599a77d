"""The memory block: an event's canonical DAG-CBOR encoding, and the CIDs of blocks and blobs.

The block is derived from the event's columns and is never stored: `encode_block(event, edges)` must
hash to the event's CID. CIDv1, sha2-256, base32 lower case; codec dag-cbor for blocks, raw for
blobs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import libipld

from strandline.errors import Invalid

INLINE_BYTES = 64 * 1024
"""Content over this many bytes of UTF-8 is stored as a blob. This is a constant of the block
format, not a setting."""

_DAG_CBOR, _RAW, _SHA2_256 = 0x71, 0x55, 0x12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NULL_IN_FINGERPRINT = {"null_in_fingerprint": True}
"""Marks a column whose null is part of a request's fingerprint. No column that came later has it:
the fingerprints of requests from before the column existed stay as they are."""


class Edge(NamedTuple):
    """A weighted link to an earlier event's block."""

    cid: str
    weight: float


class ModelWrittenSpan(NamedTuple):
    """A part of an agent's content: its length in characters, and the model that wrote it."""

    chars: int
    model: str | None


@dataclass  # not frozen: five times as fast to create, once per event
class EventColumns:
    """The columns that an event has before it is stored and after: those that its request decides.
    Its block is encoded from them."""

    participants: list[str]
    session_id: str
    """The caller's session; "" for none."""
    channel: str
    role: str
    type: str
    origin: str
    speaker: str | None
    content: str | None
    parts: Sequence[ModelWrittenSpan]
    stop_reason: str | None = field(metadata=NULL_IN_FINGERPRINT)
    blob_cid: str | None
    blob_size: int | None
    mime_type: str | None
    file_name: str | None
    metadata: dict[str, Any]
    occurred_at: datetime | None


def _cid_bytes_of_digest(codec: int, digest: bytes) -> bytes:
    return bytes([1, codec, _SHA2_256, 32]) + digest


def compute_block_cid(block: bytes) -> str:
    """The CID of a DAG-CBOR block."""
    return libipld.encode_cid(_cid_bytes_of_digest(_DAG_CBOR, hashlib.sha256(block).digest()))


def compute_blob_cid(data: bytes) -> str:
    """The CID of a payload: the SHA-256 of all its bytes, codec raw."""
    return payload_cid_of_sha256(hashlib.sha256(data).digest())


def payload_cid_of_sha256(digest: bytes) -> str:
    """The CID of the payload with this SHA-256."""
    return libipld.encode_cid(_cid_bytes_of_digest(_RAW, digest))


def sha256_of_payload_cid(cid: str, field: str) -> bytes:
    """The SHA-256 of the payload with this CID. Raises Invalid for anything but a payload's CID; it
    names `field`."""
    raw = cid_to_bytes(cid, field)
    digest = raw[-32:]
    if raw != _cid_bytes_of_digest(_RAW, digest):
        raise Invalid(
            f"{field}: is the CID of a memory block; send a payload's, with codec raw", field=field
        )
    return digest


def is_payload_cid(cid: str) -> bool:
    """Whether a CID is a payload's, and no block's. Raises Invalid for what is no CID."""
    return cid_to_bytes(cid)[1] == _RAW


def cid_to_bytes(cid: str, field: str = "cid") -> bytes:
    """The binary form of a CID. Raises Invalid, which names `field`, for anything but a CIDv1 with
    sha2-256 in base32."""
    try:
        components = libipld.decode_cid(cid)
        raw = _cid_bytes_of_digest(components["codec"], components["hash"]["digest"])
        if components["version"] == 1 and libipld.encode_cid(raw) == cid:
            return raw
    except (ValueError, KeyError, TypeError):
        pass  # refused below, with the same message
    raise Invalid(f"{field}: must be a CIDv1 with sha2-256 in base32", field=field)


def _build_data_union(event: EventColumns) -> Mapping[str, object]:
    """The block's `data` union, by role and type: self, other, text or file."""
    if event.blob_cid:
        return _drop_none_fields(
            kind="file",
            name=event.file_name,
            mimeType=event.mime_type,
            content=cid_to_bytes(event.blob_cid),
        )
    content = event.content or ""
    if event.type == "observation":
        return {"kind": "text", "content": content}
    if event.role != "agent":
        return _drop_none_fields(kind="other", name=event.speaker, content=content)
    parts: list[Mapping[str, object]] = []
    start = 0
    for part in event.parts or [ModelWrittenSpan(len(content), None)]:
        text = content[start : start + part.chars]
        parts.append(_drop_none_fields(content=text, model=part.model))
        start += part.chars
    return _drop_none_fields(
        kind="self", name=event.speaker or "agent", parts=parts, stop_reason=event.stop_reason
    )


def _drop_none_fields(**fields: object) -> Mapping[str, object]:
    """The fields without None: optional fields are absent from a block, never null."""
    return {name: value for name, value in fields.items() if value is not None}


def encode_block(event: EventColumns, edges: Sequence[Edge]) -> bytes:
    """Encode an event's block. Edges are sorted by their target's bytes, weights are float64, and
    the timestamp is in whole seconds, rounded down. Raises Invalid for an invalid CID."""
    links = sorted((cid_to_bytes(edge.cid), float(edge.weight)) for edge in edges)
    block: dict[str, object] = {
        "data": _build_data_union(event),
        "edges": [{"target": target, "weight": weight} for target, weight in links],
    }
    if event.occurred_at is not None:
        block["timestamp"] = (event.occurred_at - _EPOCH) // timedelta(seconds=1)
    return libipld.encode_dag_cbor(block)
