"""The nodes that a change names: found by id, in the scope that is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.errors import Invalid, NotFound, StateConflict
from strandline.graph.identity import NodeType, format_node_id, parse_node_id
from strandline.graph.observations import NodeObservation, Source
from strandline.graph.scope_writes import GraphScope
from strandline.graph.store_targets import NodeTarget, find_targets

UPKEEP: Mapping[str, Any] = {"upkeep": True}
"""In an observation's patch: it says what became of a node or an edge, and counts neither in the
weight nor in the confidence."""


def find_own_node(scope: GraphScope, text: str) -> NodeTarget:
    """The node of the scope that a path names. Raises NotFound, or StateConflict for a node of
    other participants that these can see."""
    node_type, node_id = parse_node_id(text)
    target = find_targets(scope.readers, [node_id]).get(node_id)
    if target is None or target.type != node_type:
        raise NotFound("there is no such node in view")
    require_own(scope, target.scope_id, "the node", "participants")
    return target


def require_own(scope: GraphScope, scope_id: UUID, what: str, field: str) -> None:
    """Raise StateConflict, which names `field`, for what is of another scope than is written."""
    if scope_id != scope.scope_id:
        raise StateConflict(
            f"{field}: {what} is one of other participants, who are in scope {scope_id}; name"
            f" exactly those (GET /api/v1/scopes/{scope_id}), or state it among these",
            field=field,
        )


@dataclass(frozen=True)
class End:
    """A node that a body names: of an edge, of a merge, or as a replacement."""

    type: NodeType
    name: str
    node_id: UUID | None
    """Its id, where it is of the scope that is written: another scope's node is spoken of by its
    name."""
    target: NodeTarget

    def observe(self, source: Source, patch: Mapping[str, Any] | None = None) -> NodeObservation:
        """What a source says of it."""
        return NodeObservation(source, self.type, self.name, patch or {}, node_id=self.node_id)


def find_ends(scope: GraphScope, references: Mapping[str, str]) -> Mapping[str, End]:
    """The nodes that fields of a body name, by field. Raises Invalid, which names a field, for an
    id of no node that all participants can see."""
    ids: dict[str, tuple[NodeType, UUID] | None] = {}
    for field, text in references.items():
        try:
            ids[field] = parse_node_id(text)
        except NotFound:
            ids[field] = None
    targets = find_targets(scope.readers, [pair[1] for pair in ids.values() if pair])
    ends: dict[str, End] = {}
    for field, pair in ids.items():
        target = targets.get(pair[1]) if pair else None
        if pair is None or target is None or target.type != pair[0]:
            raise Invalid(
                f"{field}: is not the id of a node that all participants can see", field=field
            )
        own_id = target.node_id if target.scope_id == scope.scope_id else None
        ends[field] = End(target.type, target.name, own_id, target)
    return ends


def describe_node(node_type: NodeType, name: str, ordinal: int = 0) -> dict[str, Any]:
    """A node as a statement's operation names it: within its scope, without ids."""
    return {"type": node_type, "name": name, **({"ordinal": ordinal} if ordinal else {})}


def describe_target(target: NodeTarget) -> dict[str, Any]:
    """A node of the scope that is written, as a statement's operation names it."""
    return describe_node(target.type, target.name, target.ordinal)


def format_target(target: NodeTarget) -> str:
    """A node's id as callers see it."""
    return format_node_id(target.type, target.node_id)
