"""Find the nodes that a change names by id, in the scope that is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.errors import Invalid, NotFound, StateConflict
from strandline.graph.changes.statement_writes import ScopeToWrite
from strandline.graph.changes.store_targets import NodeTarget, find_target_nodes
from strandline.graph.nodes.identity import format_node_id, parse_node_id
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.observations import NodeObservation, ObservationSource


def find_node_in_scope(scope: ScopeToWrite, text: str) -> NodeTarget:
    """The node of the scope that a path names. Raises NotFound, or StateConflict for a visible node
    of other participants."""
    node_type, node_id = parse_node_id(text)
    target = find_target_nodes(scope.readers, [node_id]).get(node_id)
    if target is None or target.type != node_type:
        raise NotFound("there is no such node in view")
    require_same_scope(scope, target.scope_id, "the node", "participants")
    return target


def require_same_scope(scope: ScopeToWrite, scope_id: UUID, what: str, field: str) -> None:
    """Raise StateConflict, which names `field`, if the node or edge is in another scope than the
    one that is written."""
    if scope_id != scope.scope_id:
        raise StateConflict(
            f"{field}: {what} belongs to other participants, in scope {scope_id}; name"
            f" exactly those (GET /api/v1/scopes/{scope_id}), or state it among these",
            field=field,
        )


@dataclass(frozen=True)
class ReferencedNode:
    """A node that a request body names: the end of an edge, a node to merge, or a replacement."""

    type: NodeType
    name: str
    node_id: UUID | None
    """The id of a node in the scope that is written. None for a node of another scope, which is
    identified by its name."""
    target: NodeTarget

    def make_observation(
        self, source: ObservationSource, patch: Mapping[str, Any] | None = None
    ) -> NodeObservation:
        """A source's observation of this node."""
        return NodeObservation(source, self.type, self.name, patch or {}, node_id=self.node_id)


def find_referenced_nodes(
    scope: ScopeToWrite, references: Mapping[str, str]
) -> Mapping[str, ReferencedNode]:
    """The nodes that fields of a body name, by field. Raises Invalid, which names a field, for an
    id that is not the id of a node that all participants can see."""
    ids: dict[str, tuple[NodeType, UUID] | None] = {}
    for field, text in references.items():
        try:
            ids[field] = parse_node_id(text)
        except NotFound:
            ids[field] = None
    targets = find_target_nodes(scope.readers, [pair[1] for pair in ids.values() if pair])
    ends: dict[str, ReferencedNode] = {}
    for field, pair in ids.items():
        target = targets.get(pair[1]) if pair else None
        if pair is None or target is None or target.type != pair[0]:
            raise make_unseen_node_error(field)
        own_id = target.node_id if target.scope_id == scope.scope_id else None
        ends[field] = ReferencedNode(target.type, target.name, own_id, target)
    return ends


def make_unseen_node_error(field: str) -> Invalid:
    """The error for a field of a body that names no node in view."""
    return Invalid(f"{field}: is not the id of a node that all participants can see", field=field)


def describe_node_for_event_log(node_type: NodeType, name: str, ordinal: int = 0) -> dict[str, Any]:
    """A node in the form that a statement's operation uses: within its scope, without ids."""
    return {"type": node_type, "name": name, **({"ordinal": ordinal} if ordinal else {})}


def describe_target_for_event_log(target: NodeTarget) -> dict[str, Any]:
    """A node of the scope that is written, in the form that a statement's operation uses."""
    return describe_node_for_event_log(target.type, target.name, target.ordinal)


def format_target_id(target: NodeTarget) -> str:
    """The id of a node in the form of the API."""
    return format_node_id(target.type, target.node_id)
