"""Names and ids of nodes and edges: who is the same, and what an id looks like to a caller."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID

from strandline.errors import NotFound
from strandline.identifiers import to_uuid8

type NodeType = Literal["fact", "decision", "entity", "event", "topic"]

PREFIXES: Mapping[NodeType, str] = {
    "fact": "fact",
    "decision": "dec",
    "entity": "ent",
    "event": "evt",
    "topic": "topic",
}
"""The first part of a node's id, by its type."""
_TYPES: Mapping[str, NodeType] = {prefix: name for name, prefix in PREFIXES.items()}
_AT_THE_ENDS = " .,;:!?\"'`\u201c\u201d\u2018\u2019«»"


def normalise(name: str) -> str:
    """A name as it is compared: compatibility characters, upper case, runs of white space, and
    punctuation at both ends make no difference. "" for a text of nothing else."""
    canonical = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return re.sub(r"\s+", " ", canonical).strip(_AT_THE_ENDS)


def hash_name(name: str) -> bytes:
    """The SHA-256 of a name as it is compared."""
    return hashlib.sha256(normalise(name).encode("utf-8", "surrogatepass")).digest()


def make_node_id(
    tenant: str, scope_id: UUID, node_type: NodeType, name_hash: bytes, ordinal: int
) -> UUID:
    """The id of the node of this name; `ordinal` counts the facts of one name in a scope, each of
    which began after the one before was invalidated."""
    return _hash_fields([tenant, str(scope_id), "node", node_type, name_hash.hex(), ordinal])


def make_edge_id(
    tenant: str, scope_id: UUID, from_id: UUID, to_id: UUID, edge_type: str, label: str
) -> UUID:
    """The id of the edge of this type and label between two nodes of a scope."""
    return _hash_fields([tenant, str(scope_id), "edge", str(from_id), str(to_id), edge_type, label])


def make_community_id(
    tenant: str, scope_id: UUID | None, node_type: NodeType, name_hash: str
) -> UUID:
    """The id of the community that this node leads, in the graph of a scope, or in the whole
    tenant's (None). `name_hash` is in hex."""
    return _hash_fields([tenant, scope_id and str(scope_id), "community", node_type, name_hash])


def format_node_id(node_type: NodeType, node_id: UUID) -> str:
    """A node's id as callers see it: `fact:018f…`."""
    return f"{PREFIXES[node_type]}:{node_id}"


def parse_node_id(text: str) -> tuple[NodeType, UUID]:
    """The type and the id of what a caller named. Raises NotFound for anything else."""
    prefix, _, rest = text.partition(":")
    try:
        return _TYPES[prefix], UUID(rest)
    except (KeyError, ValueError):
        raise NotFound("there is no such node in view") from None


def _hash_fields(fields: Sequence[object]) -> UUID:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return to_uuid8(digest)
