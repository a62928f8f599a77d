"""Nodes as answers show them."""

from strandline.graph.identity import format_node_id
from strandline.graph.schemas_nodes import NodeOut
from strandline.graph.store_read import NodeRow


def to_node_out(row: NodeRow) -> NodeOut:
    """Convert a joined node for an answer."""
    properties = dict(row.properties)
    if row.type == "entity" and "category" in properties:
        properties["kind"] = properties.pop("category")
    return NodeOut.model_validate(
        {
            **vars(row),
            "id": format_node_id(row.type, row.node_id),
            "properties": properties,
            "members": [format_node_id(row.type, member) for member in row.member_ids],
        }
    )
