"""Ids of the topic index: content hashes, and the ids derived from them."""

import hashlib
import json
import struct
from collections.abc import Sequence
from uuid import UUID

from strandline.derived_ids import to_uuid8
from strandline.topics.vectors import MeanVector


def hash_leaf(
    tenant: str, scope_id: UUID, chain_hash: bytes, space: str, vector: MeanVector | None
) -> bytes:
    """The content hash of a leaf: SHA-256 over the hash of its chain version and its vector in this
    space."""
    values = None if vector is None else vector.values
    vector_hex = None if values is None else struct.pack(f"<{len(values)}e", *values).hex()
    return _hash_as_json([tenant, str(scope_id), "leaf", chain_hash.hex(), space, vector_hex])


def hash_inner(
    tenant: str, scope_id: UUID, space: str, source: tuple[str, str], children: Sequence[bytes]
) -> bytes:
    """The content hash of an inner node: SHA-256 over the hashes of its children, in order.
    `source` holds the names of the model and the prompt of its summary."""
    model, prompt = source
    fields = [tenant, str(scope_id), "inner", space, prompt, model]
    return _hash_as_json([*fields, [child.hex() for child in children]])


def make_slot_id(tenant: str, scope_id: UUID, space: str, number: int) -> UUID:
    """The id of the scope's inner slot with this number."""
    return to_uuid8(_hash_as_json([tenant, str(scope_id), space, "slot", number]))


def _hash_as_json(fields: Sequence[object]) -> bytes:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
