"""Which types of nodes an edge may join, by the edge's type."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from strandline.errors import Invalid
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType
from strandline.graph.nodes.schemas import RelationType

_ENDS: Mapping[RelationType, tuple[NodeType, NodeType]] = {
    cast("RelationType", name): (start, edge.end)
    for start, spec in NODE_TYPES.items()
    for name, edge in spec.edges.items()
}
"""The types of both ends. Relations that are not listed join nodes of any type."""
_VERBS: frozenset[RelationType] = frozenset(
    {
        "USES",
        "WORKS_ON",
        "BUILT_FOR_CLIENT",
        "STRUGGLES_WITH",
        "EXHIBITS",
        "EXPRESSED_INTEREST",
        "RELATES_TO",
    }
)


class ResolvedRelationType(NamedTuple):
    """The type of an edge, and the requested type if that is unknown."""

    type: RelationType
    corrected_from: str | None


def resolve_relation_type(
    name: str, from_type: NodeType, to_type: NodeType, *, has_label: bool, field: str
) -> ResolvedRelationType:
    """The relation of this name between nodes of these types. An unknown name becomes RELATES_TO.
    Raises Invalid, which names `field`, for ends that it cannot join."""
    relation = cast("RelationType", name)
    if relation in _ENDS:
        if _ENDS[relation] != (from_type, to_type):
            ends = " to ".join(_ENDS[relation])
            raise Invalid(
                f"{field}: {name} leads from {ends}, not from {from_type} to {to_type}",
                field=field,
            )
        return ResolvedRelationType(relation, None)
    if name == "related":
        if not has_label:
            raise Invalid(
                f"{field}: `related` needs a role that says how the nodes are related", field=field
            )
        return ResolvedRelationType("related", None)
    verb = cast("RelationType", name.upper())
    return (
        ResolvedRelationType(verb, None)
        if verb in _VERBS
        else ResolvedRelationType("RELATES_TO", name)
    )


def make_edge_holds_patch(nuance: str | None) -> dict[str, Any]:
    """The patch of a stated edge: it holds, even if it had ended."""
    holds: dict[str, Any] = {"valid_to": None, "reason": None}
    return holds | {"nuance": nuance} if nuance else holds
