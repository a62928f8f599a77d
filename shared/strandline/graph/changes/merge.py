"""Merge nodes that stand for the same thing, undo a merge, and refuse one that is proposed."""

from collections.abc import Sequence
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.graph.changes.node_targets import (
    describe_target_for_event_log,
    find_referenced_nodes,
    format_target_id,
    make_unseen_node_error,
    require_same_scope,
)
from strandline.graph.changes.schemas import (
    MergeRefusalRequest,
    MergeRequest,
    MergeUndoRequest,
    RefusedMerge,
    StoredMerge,
    UndoneMerge,
)
from strandline.graph.changes.sentences import (
    write_merge_refusal_sentence,
    write_merge_sentence,
    write_merge_undo_sentence,
)
from strandline.graph.changes.statement_writes import (
    GraphChange,
    GraphObservations,
    ScopeToWrite,
    require_writable_scope,
    store_statements_with_observations,
)
from strandline.graph.changes.store_targets import (
    MergedNode,
    NodeTarget,
    find_target_nodes,
    list_merge_group,
    list_merged_nodes,
)
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.node_types import NODE_TYPES
from strandline.graph.nodes.observations import (
    MERGE_REFUSAL,
    UPKEEP,
    NodeObservation,
    ObservationSource,
)
from strandline.http.writer import WriterResources
from strandline.log.statement_events import GraphStatement, resolve_statement_role


def merge_nodes(
    writer: WriterResources, body: MergeRequest, key: str | None
) -> GraphChange[StoredMerge]:
    """Store a statement that two nodes of a scope are the same.

    Raises Invalid for nodes that cannot be merged; StateConflict for nodes that are merged already
    or belong to other participants; and the errors of an append.
    """
    scope = require_writable_scope(writer, body.participants)
    start, into = _find_mergeable_pair(scope, body)
    node_ids: list[UUID] = []

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        source = sources[0]
        if is_replay:
            group = [
                (move.node_id, move.name) for move in list_merged_nodes(access, source.source_id)
            ]
            identity = into.identity
        else:
            group, identity = _find_nodes_to_move(access, start, into)
        node_ids.extend(node_id for node_id, _ in group)
        patch = {**UPKEEP, "identity": identity.hex()}
        return GraphObservations(
            [
                NodeObservation(source, start.type, name, patch, node_id=node_id)
                for node_id, name in group
            ]
        )

    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_merge_sentence(start.name, into.name, body.reason),
        operation={
            "merge": {
                "from": describe_target_for_event_log(start),
                "into": describe_target_for_event_log(into),
            }
        },
        speaker=body.speaker,
        key=key,
    )
    result = store_statements_with_observations(writer, [statement], make_observations)
    answer = StoredMerge(
        merge_id=result.receipts[0].event_id,
        scope_id=scope.scope_id,
        into_id=format_target_id(into),
        moved=[format_node_id(start.type, node_id) for node_id in node_ids],
    )
    return GraphChange(answer, result.graph, result.is_replay)


def refuse_merge(
    writer: WriterResources, body: MergeRefusalRequest, key: str | None
) -> GraphChange[RefusedMerge]:
    """Store a statement that two nodes of a scope are not the same, so that it is not proposed to
    merge them. It does not forbid a merge.

    Raises what `merge_nodes` raises.
    """
    scope = require_writable_scope(writer, body.participants)
    pair = _find_mergeable_pair(scope, body)

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        if not is_replay:
            _find_nodes_to_move(access, *pair)  # raises if both are merged already
        return GraphObservations(
            [
                NodeObservation(sources[0], node.type, node.name, UPKEEP, node_id=node.node_id)
                for node in pair
            ]
        )

    start, into = pair
    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_merge_refusal_sentence(start.name, into.name, body.reason),
        operation={
            MERGE_REFUSAL: {
                "from": describe_target_for_event_log(start),
                "into": describe_target_for_event_log(into),
            }
        },
        speaker=body.speaker,
        key=key,
    )
    result = store_statements_with_observations(writer, [statement], make_observations)
    answer = RefusedMerge(
        scope_id=scope.scope_id,
        event_id=result.receipts[0].event_id,
        from_id=format_target_id(start),
        into_id=format_target_id(into),
    )
    return GraphChange(answer, result.graph, result.is_replay)


def _find_mergeable_pair(
    scope: ScopeToWrite, body: MergeRequest | MergeRefusalRequest
) -> tuple[NodeTarget, NodeTarget]:
    ends = find_referenced_nodes(scope, {"from_id": body.from_id, "into_id": body.into_id})
    start, into = ends["from_id"].target, ends["into_id"].target
    for field, target in (("from_id", start), ("into_id", into)):
        require_same_scope(scope, target.scope_id, "the node", field)
    if start.type != into.type:
        raise Invalid(
            f"into_id: nodes of types {start.type} and {into.type} cannot be merged",
            field="into_id",
        )
    if NODE_TYPES[start.type].is_invalidable:
        raise Invalid(
            f"from_id: {start.type}s cannot be merged; invalidate one, with the other as its"
            " replacement: POST /api/v1/graph/nodes/{node_id}/invalidate",
            field="from_id",
        )
    if start.node_id == into.node_id:
        raise Invalid("into_id: is the node itself", field="into_id")
    return start, into


def _find_nodes_to_move(
    access: TenantDb, start: NodeTarget, into: NodeTarget
) -> tuple[list[tuple[UUID, str]], bytes]:
    """The nodes that a merge moves, with their names, and the identity that they move to. Raises
    Invalid for a node that was erased, StateConflict for nodes that are merged already."""
    present = find_target_nodes(access, [start.node_id, into.node_id])
    for field, node in (("from_id", start), ("into_id", into)):
        if node.node_id not in present:  # it was erased since it was found
            raise make_unseen_node_error(field)
    from_identity = present[start.node_id].identity
    into_identity = present[into.node_id].identity
    if from_identity == into_identity:
        raise StateConflict("into_id: both are already merged into one node", field="into_id")
    group = list_merge_group(access, start.scope_id, start.type, from_identity)
    return [(node.node_id, node.name) for node in group], into_identity


def undo_merge(
    writer: WriterResources, merge_id: UUID, body: MergeUndoRequest, key: str | None
) -> GraphChange[UndoneMerge]:
    """Store a statement that undoes a merge: its nodes are read as before it.

    Raises NotFound; StateConflict if its nodes were merged or separated since, or belong to other
    participants; and the errors of an append.
    """
    scope = require_writable_scope(writer, body.participants)
    moves = list_merged_nodes(scope.readers, merge_id)
    if not moves:
        raise NotFound("there is no such merge in view")
    require_same_scope(scope, moves[0].scope_id, "the merge", "participants")

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        present = list_merged_nodes(access, merge_id)
        if not is_replay:
            if len(present) < len(moves):  # since they were found
                raise NotFound(
                    "there is no such merge in view: it or a node of it was erased meanwhile."
                    " Repeat the request: it undoes what is left"
                )
            _require_unchanged_since_merge(present)
        return GraphObservations([_make_undo_observation(move, sources[0]) for move in present])

    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_merge_undo_sentence([move.name for move in moves], body.reason),
        operation={"undo": {"merge_id": str(merge_id)}},
        speaker=body.speaker,
        key=key,
    )
    result = store_statements_with_observations(writer, [statement], make_observations)
    answer = UndoneMerge(
        merge_id=merge_id,
        scope_id=scope.scope_id,
        event_id=result.receipts[0].event_id,
        restored=[format_node_id(move.type, move.node_id) for move in moves],
    )
    return GraphChange(answer, result.graph, result.is_replay)


def _make_undo_observation(move: MergedNode, source: ObservationSource) -> NodeObservation:
    patch = {**UPKEEP, "identity": move.former_identity}
    return NodeObservation(source, move.type, move.name, patch, node_id=move.node_id)


def _require_unchanged_since_merge(moves: Sequence[MergedNode]) -> None:
    for move in moves:
        if not move.is_current:
            raise StateConflict(
                f"its nodes have been changed since by the statement {move.latest_id};"
                " if that is a merge, undo it first",
                latest_id=str(move.latest_id),
            )
