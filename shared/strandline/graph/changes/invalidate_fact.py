"""End the valid time of a fact."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from strandline.db.database import TenantDb
from strandline.errors import Invalid, StateConflict
from strandline.graph.changes.node_targets import (
    ReferencedNode,
    describe_node_for_event_log,
    describe_target_for_event_log,
    find_node_in_scope,
    find_referenced_nodes,
    format_target_id,
)
from strandline.graph.changes.schemas import InvalidatedFact, InvalidationRequest
from strandline.graph.changes.sentences import write_invalidation_sentence
from strandline.graph.changes.statement_writes import (
    GraphChange,
    GraphObservations,
    ScopeToWrite,
    check_operation_size,
    require_writable_scope,
    store_statements_with_observations,
)
from strandline.graph.changes.store_targets import NodeTarget, find_target_nodes
from strandline.graph.nodes.identity import format_node_id, normalise_name
from strandline.graph.nodes.observations import (
    UPKEEP,
    EdgeObservation,
    NodeObservation,
    ObservationSource,
)
from strandline.http.writer import WriterResources
from strandline.log.statement_events import GraphStatement, resolve_statement_role


def invalidate_fact(
    writer: WriterResources, node_id: str, body: InvalidationRequest, key: str | None
) -> GraphChange[InvalidatedFact]:
    """Store a statement that a fact no longer holds, and which fact replaces it.

    Raises NotFound; Invalid for an invalid replacement; StateConflict for a node that is not a
    fact, is already invalidated or belongs to other participants; and the errors of an append.
    """
    scope = require_writable_scope(writer, body.participants)
    target = find_node_in_scope(scope, node_id)
    _require_invalidable_fact(target, body)
    end = _find_stored_replacement(scope, target, body)
    replacement = body.replacement
    new_name = replacement.content.strip() if replacement else end.name if end else None
    operation = _describe_invalidation_for_event_log(target, body, end)

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        if not is_replay:
            ids = [target.node_id, *([end.node_id] if end and end.node_id else [])]
            _require_none_ended(find_target_nodes(access, ids).values(), target)
        return _make_invalidation_observations(target, body, end, sources[0])

    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_invalidation_sentence(target.name, body.reason, new_name),
        operation={"invalidate": operation},
        speaker=body.speaker,
        key=key,
    )
    result = store_statements_with_observations(writer, [statement], make_observations)
    ids, edge_ids = result.graph.node_ids, result.graph.edge_ids
    answer = InvalidatedFact(
        id=format_target_id(target),
        scope_id=scope.scope_id,
        event_id=result.receipts[0].event_id,
        valid_to=_choose_end_time(body, result.sources[0]),
        replacement=format_node_id("fact", ids[1]) if edge_ids else None,
        edge_id=edge_ids[0] if edge_ids else None,
    )
    return GraphChange(answer, result.graph, result.is_replay)


def _require_invalidable_fact(target: NodeTarget, body: InvalidationRequest) -> None:
    if target.type != "fact":
        raise StateConflict(
            f"only facts are invalidated, not a node of type {target.type}; change its fields, or"
            " archive it: PATCH /api/v1/graph/nodes/{node_id}"
        )
    if body.valid_from is not None and body.valid_from < target.valid_from:
        raise Invalid(
            f"valid_from: the fact holds since {target.valid_from.isoformat()}; give no earlier"
            " time; give that time if the fact never held",
            field="valid_from",
        )


def _find_stored_replacement(
    scope: ScopeToWrite, target: NodeTarget, body: InvalidationRequest
) -> ReferencedNode | None:
    if body.replacement and normalise_name(body.replacement.content) == normalise_name(target.name):
        raise Invalid("replacement.content: is the same as the fact", field="replacement.content")
    if body.replacement_id is None:
        return None
    end = find_referenced_nodes(scope, {"replacement_id": body.replacement_id})["replacement_id"]
    if end.type != "fact":
        raise Invalid(
            f"replacement_id: a fact replaces a fact, not a node of type {end.type}",
            field="replacement_id",
        )
    if normalise_name(end.name) == normalise_name(target.name):
        raise Invalid("replacement_id: is the fact itself", field="replacement_id")
    return end


def _describe_invalidation_for_event_log(
    target: NodeTarget, body: InvalidationRequest, end: ReferencedNode | None
) -> dict[str, Any]:
    fields = body.model_dump(
        mode="json",
        exclude_none=True,
        exclude={"participants", "speaker", "role", "replacement_id"},
    )
    operation = {**describe_target_for_event_log(target), **fields}
    if end:
        ordinal = end.target.ordinal if end.node_id else 0
        operation["replacement"] = describe_node_for_event_log(end.type, end.name, ordinal)
    check_operation_size(operation, "replacement")
    return operation


def _require_none_ended(nodes: Iterable[NodeTarget], target: NodeTarget) -> None:
    for node in nodes:
        if node.valid_to is not None:
            is_target = node.node_id == target.node_id
            what = "the fact" if is_target else "replacement_id: the replacement"
            raise StateConflict(
                f"{what} has already ended ({node.valid_to.isoformat()}); if it holds again, state"
                " it again: POST /api/v1/graph/nodes",
                **({} if is_target else {"field": "replacement_id"}),
            )


def _choose_end_time(body: InvalidationRequest, source: ObservationSource) -> datetime:
    return body.valid_from or source.valid_from


def _make_invalidation_observations(
    target: NodeTarget,
    body: InvalidationRequest,
    end: ReferencedNode | None,
    source: ObservationSource,
) -> GraphObservations:
    until = _choose_end_time(body, source).isoformat()
    patch = {**UPKEEP, "valid_to": until, "reason": body.reason}
    old = NodeObservation(source, "fact", target.name, patch, node_id=target.node_id)
    if body.replacement:
        new = NodeObservation(
            source,
            "fact",
            body.replacement.content.strip(),
            {"category": body.replacement.category},
            body.replacement.confidence,
            valid_from=body.valid_from,
        )
    elif end:
        new = end.make_observation(source)
    else:
        return GraphObservations([old])
    link = EdgeObservation(
        source, 1, 0, "invalidates", patch={"reason": body.reason}, valid_from=body.valid_from
    )
    return GraphObservations([old, new], [link])
