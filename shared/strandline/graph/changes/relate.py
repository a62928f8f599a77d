"""State edges between nodes that exist, and end them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.graph.changes.node_targets import (
    ReferencedNode,
    describe_node_for_event_log,
    find_referenced_nodes,
    require_same_scope,
)
from strandline.graph.changes.schemas import (
    EdgeWithStatement,
    EndedEdge,
    EndEdgeRequest,
    RelationIn,
    RelationsAnswer,
    RelationsRequest,
)
from strandline.graph.changes.sentences import write_edge_ending_sentence, write_edge_sentence
from strandline.graph.changes.statement_writes import (
    GraphChange,
    GraphObservations,
    ScopeToWrite,
    StoredStatements,
    check_operation_size,
    require_writable_scope,
    store_statements_with_observations,
)
from strandline.graph.changes.store_targets import EdgeWithEnds, find_edge
from strandline.graph.nodes.edge_type_rules import (
    ResolvedRelationType,
    make_edge_holds_patch,
    resolve_relation_type,
)
from strandline.graph.nodes.identity import format_node_id, normalise_name
from strandline.graph.nodes.observations import (
    UPKEEP,
    EdgeObservation,
    NodeObservation,
    ObservationSource,
)
from strandline.http.writer import WriterResources
from strandline.log.statement_events import GraphStatement, resolve_statement_role


@dataclass(frozen=True)
class _RequestedEdge:
    """An edge of the request with the nodes that it joins."""

    link: RelationIn
    start: ReferencedNode
    end: ReferencedNode
    relation: ResolvedRelationType


def relate_nodes(
    writer: WriterResources, body: RelationsRequest, key: str | None
) -> GraphChange[RelationsAnswer]:
    """Store edges between existing nodes, all or none. Each has the statement that it rests on.

    Raises Invalid for an edge without a valid end or between types that it cannot join, and the
    errors of an append.
    """
    scope = require_writable_scope(writer, body.participants)
    edges = _resolve_edges(scope, body.edges)
    statements = [
        GraphStatement(
            participants=scope.participants,
            role=resolve_statement_role(body.speaker, body.role),
            content=write_edge_sentence(
                edge.start.name, edge.link.edge, edge.link.role, edge.end.name
            ),
            operation={"relate": _describe_edge_for_event_log(edge, f"edges.{n}")},
            speaker=body.speaker,
            key=key and f"{key}#{n}",
        )
        for n, edge in enumerate(edges)
    ]

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        del access, is_replay
        return _make_observations(edges, sources)

    result = store_statements_with_observations(writer, statements, make_observations)
    corrections = sum(edge.relation.corrected_from is not None for edge in edges)
    return GraphChange(
        _make_relations_answer(scope, edges, result),
        result.graph,
        result.is_replay,
        corrections=0 if result.is_replay else corrections,
    )


def _resolve_edges(scope: ScopeToWrite, links: Sequence[RelationIn]) -> list[_RequestedEdge]:
    references = {
        f"edges.{n}.{side}": getattr(link, side)
        for n, link in enumerate(links)
        for side in ("from_id", "to_id")
    }
    ends = find_referenced_nodes(scope, references)
    edges: list[_RequestedEdge] = []
    for n, link in enumerate(links):
        start, end = ends[f"edges.{n}.from_id"], ends[f"edges.{n}.to_id"]
        field = f"edges.{n}.edge"
        if link.edge == "invalidates":
            raise Invalid(
                f"{field}: a fact is invalidated with a reason:"
                " POST /api/v1/graph/nodes/{node_id}/invalidate",
                field=field,
            )
        if (start.type, normalise_name(start.name)) == (end.type, normalise_name(end.name)):
            raise Invalid(f"edges.{n}.to_id: leads to the node itself", field=f"edges.{n}.to_id")
        relation = resolve_relation_type(
            link.edge, start.type, end.type, has_label=bool(link.role), field=field
        )
        edges.append(_RequestedEdge(link, start, end, relation))
    return edges


def _describe_edge_for_event_log(edge: _RequestedEdge, field: str) -> Mapping[str, Any]:
    """The edge for the statement's operation, with its nodes by name."""
    operation = {
        **edge.link.model_dump(mode="json", exclude_none=True, exclude={"from_id", "to_id"}),
        "from": _describe_edge_node_for_event_log(edge.start),
        "to": _describe_edge_node_for_event_log(edge.end),
    }
    check_operation_size(operation, field)
    return operation


def _describe_edge_node_for_event_log(end: ReferencedNode) -> dict[str, Any]:
    return describe_node_for_event_log(end.type, end.name, end.target.ordinal if end.node_id else 0)


def _make_observations(
    edges: Sequence[_RequestedEdge], sources: Sequence[ObservationSource]
) -> GraphObservations:
    nodes: list[NodeObservation] = []
    links: list[EdgeObservation] = []
    for n, edge in enumerate(edges):
        nodes += [edge.start.make_observation(sources[n]), edge.end.make_observation(sources[n])]
        links.append(
            EdgeObservation(
                sources[n],
                2 * n,
                2 * n + 1,
                edge.relation.type,
                edge.link.role or "",
                make_edge_holds_patch(edge.link.nuance),
                edge.link.confidence,
                valid_from=edge.link.valid_from,
            )
        )
    return GraphObservations(nodes, links)


def _make_relations_answer(
    scope: ScopeToWrite, edges: Sequence[_RequestedEdge], result: StoredStatements
) -> RelationsAnswer:
    node_ids = result.graph.node_ids
    return RelationsAnswer(
        scope_id=scope.scope_id,
        edges=[
            EdgeWithStatement(
                id=result.graph.edge_ids[n],
                type=edge.relation.type,
                from_id=format_node_id(edge.start.type, node_ids[2 * n]),
                to_id=format_node_id(edge.end.type, node_ids[2 * n + 1]),
                corrected_from=edge.relation.corrected_from,
                event_id=result.receipts[n].event_id,
            )
            for n, edge in enumerate(edges)
        ],
    )


def end_edge(
    writer: WriterResources, edge_id: UUID, body: EndEdgeRequest, key: str | None
) -> GraphChange[EndedEdge]:
    """Store a statement that an edge no longer holds.

    Raises NotFound; Invalid for an end before the beginning; StateConflict for an edge that has
    already ended, belongs to other participants or is an invalidation; and the errors of an append.
    """
    scope = require_writable_scope(writer, body.participants)
    edge = find_edge(scope.readers, edge_id)
    if edge is None:
        raise NotFound("there is no such edge in view")
    require_same_scope(scope, edge.scope_id, "the edge", "participants")
    _require_edge_can_end(edge, body)

    def make_observations(
        access: TenantDb, sources: Sequence[ObservationSource], is_replay: bool
    ) -> GraphObservations:
        present = find_edge(access, edge_id)
        if not is_replay and present is None:  # it was erased since it was found
            raise NotFound("there is no such edge in view")
        if not is_replay and present and present.valid_to is not None:
            raise StateConflict(f"the edge has already ended ({present.valid_to.isoformat()})")
        return _make_edge_ending_observations(edge, body, sources[0])

    statement = GraphStatement(
        participants=scope.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_edge_ending_sentence(
            edge.from_name, edge.type, edge.label or None, edge.to_name, body.reason
        ),
        operation={"end": _describe_edge_ending_for_event_log(edge, body)},
        speaker=body.speaker,
        key=key,
    )
    result = store_statements_with_observations(writer, [statement], make_observations)
    answer = EndedEdge(
        edge_id=edge_id,
        scope_id=scope.scope_id,
        event_id=result.receipts[0].event_id,
        valid_to=body.valid_to or result.sources[0].valid_from,
    )
    return GraphChange(answer, result.graph, result.is_replay)


def _require_edge_can_end(edge: EdgeWithEnds, body: EndEdgeRequest) -> None:
    if edge.type == "invalidates":
        raise StateConflict(
            "an invalidation cannot be undone; if the fact holds again, state it again:"
            " POST /api/v1/graph/nodes"
        )
    if body.valid_to is not None and body.valid_to < edge.valid_from:
        raise Invalid(
            f"valid_to: the edge holds since {edge.valid_from.isoformat()}; give no earlier time",
            field="valid_to",
        )


def _describe_edge_ending_for_event_log(
    edge: EdgeWithEnds, body: EndEdgeRequest
) -> Mapping[str, Any]:
    operation = {
        "edge": edge.type,
        **({"role": edge.label} if edge.label else {}),
        "from": describe_node_for_event_log(edge.from_type, edge.from_name, edge.from_ordinal),
        "to": describe_node_for_event_log(edge.to_type, edge.to_name, edge.to_ordinal),
        **body.model_dump(mode="json", exclude_none=True, include={"reason", "valid_to"}),
    }
    check_operation_size(operation, "reason")
    return operation


def _make_edge_ending_observations(
    edge: EdgeWithEnds, body: EndEdgeRequest, source: ObservationSource
) -> GraphObservations:
    until = body.valid_to or source.valid_from
    nodes = [
        NodeObservation(source, edge.from_type, edge.from_name, UPKEEP, node_id=edge.from_id),
        NodeObservation(source, edge.to_type, edge.to_name, UPKEEP, node_id=edge.to_id),
    ]
    patch = {**UPKEEP, "valid_to": until.isoformat(), "reason": body.reason}
    return GraphObservations(nodes, [EdgeObservation(source, 0, 1, edge.type, edge.label, patch)])
