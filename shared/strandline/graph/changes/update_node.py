"""Change the fields of a node."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from strandline.db.database import TenantDb
from strandline.errors import Invalid, StateConflict
from strandline.graph.changes.node_targets import (
    describe_target,
    find_own_node,
    format_target,
)
from strandline.graph.changes.schemas import NodePatch, StoredChange
from strandline.graph.changes.sentences_changes import write_update
from strandline.graph.changes.statement_writes import (
    GraphChange,
    Observations,
    check_operation_size,
    open_scope,
    store_with_observations,
)
from strandline.graph.changes.store_targets import NodeTarget
from strandline.graph.nodes.identity import NodeType, normalise
from strandline.graph.nodes.observations import UPKEEP, NodeObservation, Source
from strandline.graph.nodes.schemas import FactCategory
from strandline.http.writer import Writer
from strandline.log.statement_events import GraphStatement, resolve_role

_FIELDS: Mapping[NodeType, frozenset[str]] = {
    "fact": frozenset({"content", "category"}),
    "decision": frozenset({"title", "rationale", "alternatives", "status"}),
    "entity": frozenset({"name", "kind", "description"}),
    "event": frozenset({"title", "description", "event_date"}),
    "topic": frozenset({"name", "description", "category"}),
}
_FACT_CATEGORIES: Sequence[str] = get_args(FactCategory.__value__)
_NAMES = frozenset({"content", "title", "name"})
_COMMON = frozenset({"participants", "speaker", "role", "confidence", "archived"})


def update_node(
    writer: Writer, node_id: str, body: NodePatch, key: str | None
) -> GraphChange[StoredChange]:
    """Store new values of a node's fields as a statement.

    Raises NotFound; Invalid for a field of another type; StateConflict for a name, which identifies
    the node, or for a node of other participants; and the errors of an append.
    """
    scope = open_scope(writer, body.participants)
    target = find_own_node(scope, node_id)
    fields = _read_fields(target, body)
    operation = {**describe_target(target), "fields": fields}
    check_operation_size(operation, "body")
    patch = _make_patch(fields, is_evidence=body.confidence is not None)

    def observe(access: TenantDb, sources: Sequence[Source], is_replay: bool) -> Observations:
        del access, is_replay
        observation = NodeObservation(
            sources[0],
            target.type,
            target.name,
            patch,
            body.confidence,
            node_id=target.node_id,
        )
        return Observations([observation])

    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_role(body.speaker, body.role),
        content=write_update(target.name, fields),
        operation={"update": operation},
        speaker=body.speaker,
        key=key,
    )
    result = store_with_observations(writer, [statement], observe)
    answer = StoredChange(
        id=format_target(target),
        scope_id=scope.scope_id,
        event_id=result.receipts[0].event_id,
    )
    return GraphChange(answer, result.graph, result.is_replay)


def _read_fields(target: NodeTarget, body: NodePatch) -> dict[str, Any]:
    """The fields that a body changes, without a name that is equal to the present one."""
    names = body.model_fields_set - _COMMON
    for name in sorted(names - _FIELDS[target.type]):
        article = "an" if target.type in ("entity", "event") else "a"
        raise Invalid(
            f"{name}: is no field of {article} {target.type}, which has"
            f" {', '.join(sorted(_FIELDS[target.type] | {'archived', 'confidence'}))}",
            field=name,
        )
    if target.type == "fact" and body.category not in (None, *_FACT_CATEGORIES):
        raise Invalid(
            f"category: of a fact, must be one of {', '.join(_FACT_CATEGORIES)}", field="category"
        )
    for name in names & _NAMES:
        if normalise(getattr(body, name)) != normalise(target.name):
            raise StateConflict(_explain_name(target.type, name), field=name)
    fields = body.model_dump(mode="json", exclude_unset=True)
    patch = {
        name: value
        for name, value in fields.items()
        if name not in _NAMES and name not in ("participants", "speaker", "role")
    }
    if not patch:
        raise Invalid("body: changes nothing: give a field besides the name", field="body")
    return patch


def _make_patch(fields: Mapping[str, Any], *, is_evidence: bool) -> dict[str, Any]:
    """The patch of an observation that sets these fields."""
    patch = {name: value for name, value in fields.items() if name != "confidence"}
    if "kind" in patch:
        patch["category"] = patch.pop("kind")
    return patch if is_evidence else {**patch, **UPKEEP}


def _explain_name(node_type: NodeType, name: str) -> str:
    if node_type == "fact":
        return (
            f"{name}: a fact is not overwritten; invalidate it with this as its replacement:"
            " POST /api/v1/graph/nodes/{node_id}/invalidate"
        )
    return (
        f"{name}: identifies the node; state one with the new {name}, and merge this one into it:"
        " POST /api/v1/graph/merges"
    )
