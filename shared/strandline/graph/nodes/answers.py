"""Convert nodes to the form that answers show."""

from collections.abc import Mapping
from typing import Any

from strandline.graph.nodes.identity import NodeType, format_node_id
from strandline.graph.nodes.schemas import NodeOut
from strandline.graph.nodes.store_read_nodes import NodeRow

_DEFAULTS: Mapping[NodeType, Mapping[str, str]] = {
    "fact": {"category": "general"},
    "entity": {"category": "other"},
    "decision": {"status": "active"},
}
"""Values of fields that no observation sets."""


def to_properties(node_type: NodeType, properties: Mapping[str, Any]) -> dict[str, Any]:
    """A node's fields by their API names, with defaults."""
    fields = {**_DEFAULTS.get(node_type, {}), **properties}
    if node_type == "entity":
        fields["kind"] = fields.pop("category")
    return fields


def to_node_out(row: NodeRow) -> NodeOut:
    """Convert a joined node for an answer."""
    return NodeOut.model_validate(
        {
            **vars(row),
            "id": format_node_id(row.type, row.node_id),
            "properties": to_properties(row.type, row.properties),
            "members": [format_node_id(row.type, member) for member in row.member_ids],
        }
    )
