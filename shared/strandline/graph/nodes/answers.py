"""Convert nodes to the form that answers show."""

from collections.abc import Mapping
from typing import Any

from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType, to_api_field_names
from strandline.graph.nodes.schemas import NodeOut
from strandline.graph.nodes.store_read_nodes import BasicNodeAcrossScopes


def to_api_properties(node_type: NodeType, properties: Mapping[str, Any]) -> dict[str, Any]:
    """A node's fields by their API names, with defaults."""
    return {**NODE_TYPES[node_type].defaults, **to_api_field_names(node_type, properties)}


def to_node_out(row: BasicNodeAcrossScopes) -> NodeOut:
    """Convert a joined node for an answer."""
    return NodeOut.model_validate(
        {
            **vars(row),
            "id": format_node_id(row.type, row.node_id),
            "properties": to_api_properties(row.type, row.properties),
            "members": [format_node_id(row.type, member) for member in row.member_ids],
        }
    )
