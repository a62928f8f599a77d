"""Change the fields of a node."""

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.db.database import TenantDb
from strandline.errors import Invalid, StateConflict
from strandline.graph.changes.node_targets import (
    describe_target_for_event_log,
    find_node_in_scope,
    format_target_id,
)
from strandline.graph.changes.schemas import NodePatch, StoredChange
from strandline.graph.changes.sentences import write_update_sentence
from strandline.graph.changes.statement_writes import (
    GraphChange,
    GraphObservations,
    check_operation_size,
    require_writable_scope,
    store_statements_with_observations,
)
from strandline.graph.changes.store_targets import NodeTarget
from strandline.graph.nodes.identity import normalise_name
from strandline.graph.nodes.node_types import (
    NAME_FIELDS,
    NODE_TYPES,
    NodeType,
    to_stored_field_names,
)
from strandline.graph.nodes.observations import UPKEEP, NodeObservation, ObservationSource
from strandline.http.writer import WriterResources
from strandline.log.statement_events import GraphStatement, resolve_statement_role

_COMMON = frozenset({"participants", "speaker", "role", "confidence", "archived"})


def update_node(
    writer: WriterResources, node_id: str, body: NodePatch, key: str | None
) -> GraphChange[StoredChange]:
    """Store new values of a node's fields as a statement.

    Raises NotFound; Invalid for a field of another type; StateConflict for a name, which identifies
    the node, or for a node of other participants; and the errors of an append.
    """
    scope = require_writable_scope(writer, body.participants)
    target = find_node_in_scope(scope, node_id)
    fields = _select_changed_fields(target, body)
    operation = {**describe_target_for_event_log(target), "fields": fields}
    check_operation_size(operation, "body")
    patch = _make_observation_patch(target.type, fields, is_evidence=body.confidence is not None)

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        del access, is_replay
        observation = NodeObservation(
            sources[0],
            target.type,
            target.name,
            patch,
            body.confidence,
            node_id=target.node_id,
        )
        return GraphObservations([observation])

    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_update_sentence(target.name, fields),
        operation={"update": operation},
        speaker=body.speaker,
        key=key,
    )
    result = store_statements_with_observations(writer, [statement], make_observations)
    answer = StoredChange(
        id=format_target_id(target),
        scope_id=scope.scope_id,
        event_id=result.receipts[0].event_id,
    )
    return GraphChange(answer, result.graph, result.is_replay)


def _select_changed_fields(target: NodeTarget, body: NodePatch) -> dict[str, Any]:
    """The fields that a body changes, without a name that is equal to the present one."""
    names, spec = body.model_fields_set - _COMMON, NODE_TYPES[target.type]
    fields_of_type = spec.fields | {spec.name_field}
    for name in sorted(names - fields_of_type):
        article = "an" if target.type[0] in "aeiou" else "a"
        raise Invalid(
            f"{name}: is no field of {article} {target.type}, which has"
            f" {', '.join(sorted(fields_of_type | {'archived', 'confidence'}))}",
            field=name,
        )
    if body.category is not None and body.category not in (spec.categories or [body.category]):
        raise Invalid(
            f"category: of a {target.type}, must be one of {', '.join(spec.categories or ())}",
            field="category",
        )
    for name in names & NAME_FIELDS:
        if normalise_name(getattr(body, name)) != normalise_name(target.name):
            raise StateConflict(_explain_why_name_is_fixed(target.type, name), field=name)
    fields = body.model_dump(mode="json", exclude_unset=True)
    patch = {
        name: value
        for name, value in fields.items()
        if name not in NAME_FIELDS and name not in ("participants", "speaker", "role")
    }
    if not patch:
        raise Invalid("body: changes nothing: give a field besides the name", field="body")
    return patch


def _make_observation_patch(
    node_type: NodeType, fields: Mapping[str, Any], *, is_evidence: bool
) -> dict[str, Any]:
    """The patch of an observation that sets these fields."""
    patch = to_stored_field_names(node_type, fields)
    patch.pop("confidence", None)
    return patch if is_evidence else {**patch, **UPKEEP}


def _explain_why_name_is_fixed(node_type: NodeType, name: str) -> str:
    if NODE_TYPES[node_type].is_invalidable:
        return (
            f"{name}: a {node_type} is not overwritten; invalidate it with this as its replacement:"
            " POST /api/v1/graph/nodes/{node_id}/invalidate"
        )
    return (
        f"{name}: identifies the node; state one with the new {name}, and merge this one into it:"
        " POST /api/v1/graph/merges"
    )
