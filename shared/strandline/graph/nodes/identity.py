"""Names and ids of nodes and edges: which names are equal, and the form of ids in the API."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from uuid import UUID

from strandline.derived_ids import to_uuid8
from strandline.errors import NotFound
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType

_TYPES: Mapping[str, NodeType] = {spec.prefix: name for name, spec in NODE_TYPES.items()}
"""The types by the prefixes of their ids."""
_AT_THE_ENDS = " .,;:!?\"'`\u201c\u201d\u2018\u2019«»"


def normalise_name(name: str) -> str:
    """The form of a name that is compared. Compatibility characters, case, runs of white space and
    punctuation at both ends make no difference. Returns "" for a text that has nothing else."""
    canonical = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return re.sub(r"\s+", " ", canonical).strip(_AT_THE_ENDS)


def hash_normalised_name(name: str) -> bytes:
    """The SHA-256 of a name's compared form (`normalise_name`)."""
    return hashlib.sha256(normalise_name(name).encode("utf-8", "surrogatepass")).digest()


def derive_node_id(
    tenant: str, scope_id: UUID, node_type: NodeType, name_hash: bytes, ordinal: int
) -> UUID:
    """The id of the node of this name. `ordinal` counts the facts of one name in a scope, each of
    which began after the previous one was invalidated."""
    return _hash_to_uuid([tenant, str(scope_id), "node", node_type, name_hash.hex(), ordinal])


def derive_edge_id(
    tenant: str, scope_id: UUID, from_id: UUID, to_id: UUID, edge_type: str, label: str
) -> UUID:
    """The id of the edge of this type and label between two nodes of a scope."""
    return _hash_to_uuid(
        [tenant, str(scope_id), "edge", str(from_id), str(to_id), edge_type, label]
    )


def derive_community_id(
    tenant: str, scope_id: UUID | None, node_type: NodeType, name_hash: str
) -> UUID:
    """The id of the community whose first node is this one, in the graph of a scope or of the whole
    tenant (None). `name_hash` is in hex."""
    return _hash_to_uuid([tenant, scope_id and str(scope_id), "community", node_type, name_hash])


def format_node_id(node_type: NodeType, node_id: UUID) -> str:
    """The id of a node in the form of the API: `fact:018f…`."""
    return f"{NODE_TYPES[node_type].prefix}:{node_id}"


def parse_node_id(text: str) -> tuple[NodeType, UUID]:
    """Parse a node's id into its type and id. Raises NotFound for any other text."""
    prefix, _, rest = text.partition(":")
    try:
        return _TYPES[prefix], UUID(rest)
    except (KeyError, ValueError):
        raise NotFound("there is no such node in view") from None


def _hash_to_uuid(fields: Sequence[object]) -> UUID:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return to_uuid8(digest)
