"""Store nodes that a caller states. Each becomes a statement in the log, and the node is derived
from it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.errors import Invalid, NotFound, StateConflict
from strandline.graph.changes.statement_writes import GraphChange, make_source_of_statement
from strandline.graph.nodes import store_read_nodes
from strandline.graph.nodes.edge_type_rules import (
    ResolvedRelationType,
    make_edge_holds_patch,
    resolve_relation_type,
)
from strandline.graph.nodes.identity import format_node_id, normalise_name, parse_node_id
from strandline.graph.nodes.node_types import NAME_FIELDS, NodeType, to_stored_field_names
from strandline.graph.nodes.observations import (
    UPKEEP,
    EdgeObservation,
    GraphWriteResult,
    NodeObservation,
    ObservationSource,
    combines_confidences_by_halving_by_default,
)
from strandline.graph.nodes.schemas import (
    MAX_NODE_BYTES,
    CreateNodesAnswer,
    CreateNodesRequest,
    FactIn,
    NodeIn,
    RelationshipIn,
    StoredEdge,
    StoredNode,
    get_identifying_text,
)
from strandline.graph.nodes.store_observations import write_observations
from strandline.graph.nodes.store_read_nodes import ScopeNode
from strandline.http.writer import WriterResources
from strandline.log.append_state import AppendResult
from strandline.log.statement_events import (
    GraphStatement,
    build_statement_events,
    charge_and_store_statements,
    resolve_statement_role,
)

_NOT_PROPERTIES = {
    *("ref", "type", "relationships", "confidence", "valid_from", "invalidates", "reason"),
    *NAME_FIELDS,
}


@dataclass(frozen=True)
class _EdgeTarget:
    """A node at the other end of an edge."""

    type: NodeType
    name: str
    node_id: UUID | None
    """The id of a node in the same scope. None for a node of another scope, which is identified by
    its name."""


@dataclass(frozen=True)
class _RequestedEdge:
    """An edge from a node of the request."""

    n: int
    """The number of that node in the request."""
    end: _EdgeTarget
    relation: ResolvedRelationType
    link: RelationshipIn


def create_nodes(
    writer: WriterResources, body: CreateNodesRequest, key: str | None
) -> GraphChange[CreateNodesAnswer]:
    """Store the nodes and edges, all or none. Each node has the statement that it rests on.

    Raises Invalid for an edge without a valid target or between types that it cannot join. Raises
    StateConflict for a fact of another scope, which cannot be invalidated from here. Raises the
    errors of an append.
    """
    batch = build_statement_events(writer.principal, _make_statement_events(body, key))
    participants, scope_id = batch.drafts[0].participants, batch.drafts[0].scope_id
    readers = writer.connect_for_all(participants)
    targets = _map_nodes_by_api_id(
        store_read_nodes.map_visible_nodes_by_id(readers, list(_iter_referenced_node_ids(body)))
    )
    edges = list(_resolve_edges(body.nodes, targets, scope_id))
    access = writer.connect()
    graphs: list[GraphWriteResult] = []

    def write_rows(results: Sequence[AppendResult]) -> None:
        sources = [make_source_of_statement(batch, n, result) for n, result in enumerate(results)]
        observations = _make_observations(body.nodes, edges, sources)
        graphs.append(
            write_observations(
                access,
                *observations,
                combines_by_halving=combines_confidences_by_halving_by_default(),
            )
        )

    results = charge_and_store_statements(
        writer.quotas, writer.work_queue, access, batch, write_rows, writer.deadline
    )
    is_replay = all(result.is_replay for result in results)
    corrections = sum(edge.relation.corrected_from is not None for edge in edges)
    return GraphChange(
        _make_create_answer(body.nodes, edges, results, graphs[-1]),
        graphs[-1],
        is_replay,
        corrections=0 if is_replay else corrections,
    )


def _make_statement_events(body: CreateNodesRequest, key: str | None) -> list[GraphStatement]:
    refs = {node.ref: node for node in body.nodes if node.ref}
    if len(refs) < sum(node.ref is not None for node in body.nodes):
        raise Invalid("nodes: a `ref` occurs twice", field="nodes")
    return [
        GraphStatement(
            participants=body.participants,
            role=resolve_statement_role(body.speaker, body.role),
            content=node.format_as_sentence(),
            operation={"create": _describe_node_for_event_log(node, refs, f"nodes.{n}")},
            speaker=body.speaker,
            key=key and f"{key}#{n}",
        )
        for n, node in enumerate(body.nodes)
    ]


def _describe_node_for_event_log(
    node: NodeIn, refs: Mapping[str, NodeIn], field: str
) -> Mapping[str, Any]:
    """The node for the statement's operation, without the `ref` names of this request."""
    fields = node.model_dump(mode="json", exclude={"ref"}, exclude_none=True)
    for link in fields["relationships"]:
        other = refs.get(link["target"])
        if other:
            link["target"] = {"type": other.type, "name": get_identifying_text(other)}
    size = len(json.dumps(fields, ensure_ascii=False).encode())
    if size > MAX_NODE_BYTES:
        raise Invalid(
            f"{field}: is {size} bytes as JSON with its relationships, at most {MAX_NODE_BYTES};"
            " state some of it in further nodes",
            field=field,
        )
    return fields


def _iter_referenced_node_ids(body: CreateNodesRequest) -> Iterator[UUID]:
    for node in body.nodes:
        names = [link.target for link in node.relationships]
        for name in [*names, getattr(node, "invalidates", None)]:
            if name and ":" in name:
                try:
                    yield parse_node_id(name)[1]
                except NotFound:
                    continue  # resolving the edge raises the error, with the field


def _map_nodes_by_api_id(rows: Mapping[UUID, ScopeNode]) -> Mapping[str, ScopeNode]:
    return {format_node_id(row.type, row.node_id): row for row in rows.values()}


def _resolve_edges(
    nodes: Sequence[NodeIn], targets: Mapping[str, ScopeNode], scope_id: UUID
) -> Iterator[_RequestedEdge]:
    refs = {node.ref: node for node in nodes if node.ref}
    for n, node in enumerate(nodes):
        links = [
            (f"nodes.{n}.relationships.{i}", link) for i, link in enumerate(node.relationships)
        ]
        if isinstance(node, FactIn) and node.invalidates:
            link = RelationshipIn(edge="invalidates", target=node.invalidates)
            links.append((f"nodes.{n}.invalidates", link))
        for field, link in links:
            end = _resolve_edge_target(link.target, refs, targets, scope_id, field)
            if (end.type, normalise_name(end.name)) == (
                node.type,
                normalise_name(get_identifying_text(node)),
            ):
                raise Invalid(f"{field}: leads to the node itself", field=field)
            if link.edge == "invalidates" and end.node_id is None:
                raise StateConflict(
                    f"{field}: this fact belongs to other participants; invalidate it with those",
                    field=field,
                )
            relation = resolve_relation_type(
                link.edge, node.type, end.type, has_label=bool(link.role), field=field
            )
            yield _RequestedEdge(n, end, relation, link)


def _resolve_edge_target(
    name: str,
    refs: Mapping[str, NodeIn],
    targets: Mapping[str, ScopeNode],
    scope_id: UUID,
    field: str,
) -> _EdgeTarget:
    if name in refs:
        return _EdgeTarget(refs[name].type, get_identifying_text(refs[name]), None)
    target = targets.get(name)
    if target is None:
        raise Invalid(
            f"{field}: is neither the `ref` of a node of this request nor the id of a node that all"
            " participants can see",
            field=field,
        )
    is_own = target.scope_id == scope_id
    return _EdgeTarget(target.type, target.name, target.node_id if is_own else None)


def _make_observations(
    nodes: Sequence[NodeIn], edges: Sequence[_RequestedEdge], sources: Sequence[ObservationSource]
) -> tuple[list[NodeObservation], list[EdgeObservation]]:
    """The observations of the statements: first one for each node of the request, then one for each
    edge's target."""
    observations = [
        NodeObservation(
            sources[n],
            node.type,
            get_identifying_text(node),
            _collect_sent_properties(node),
            node.confidence,
            valid_from=node.valid_from,
        )
        for n, node in enumerate(nodes)
    ]
    ends = [
        NodeObservation(
            sources[edge.n],
            edge.end.type,
            edge.end.name,
            _make_invalidation_patch(nodes[edge.n], edge, sources[edge.n]),
            node_id=edge.end.node_id,
        )
        for edge in edges
    ]
    links = [
        EdgeObservation(
            sources[edge.n],
            edge.n,
            len(nodes) + i,
            edge.relation.type,
            edge.link.role or "",
            make_edge_holds_patch(edge.link.nuance),
            edge.link.confidence,
            valid_from=nodes[edge.n].valid_from,
        )
        for i, edge in enumerate(edges)
    ]
    return [*observations, *ends], links


def _collect_sent_properties(node: NodeIn) -> dict[str, Any]:
    """The node's fields that the request sets. An absent field may have been set before, so its
    default is filled in only when the node is read."""
    fields = node.model_dump(
        mode="json", exclude=_NOT_PROPERTIES, exclude_none=True, exclude_unset=True
    )
    return to_stored_field_names(node.type, fields)


def _make_invalidation_patch(
    node: NodeIn, edge: _RequestedEdge, source: ObservationSource
) -> dict[str, Any]:
    """The patch for an edge's target: for an invalidated fact, when it ended and why."""
    if edge.relation.type != "invalidates" or not isinstance(node, FactIn):
        return {}
    until = node.valid_from or source.valid_from
    return {**UPKEEP, "valid_to": until.isoformat(), "reason": node.reason or edge.link.nuance}


def _make_create_answer(
    nodes: Sequence[NodeIn],
    edges: Sequence[_RequestedEdge],
    results: Sequence[AppendResult],
    graph: GraphWriteResult,
) -> CreateNodesAnswer:
    receipts = [result.receipt for result in results if result.receipt]
    types: Sequence[NodeType] = (*(n.type for n in nodes), *(edge.end.type for edge in edges))
    ids = [format_node_id(*pair) for pair in zip(types, graph.node_ids, strict=True)]
    return CreateNodesAnswer(
        scope_id=receipts[0].scope_id,
        nodes=[
            StoredNode(id=ids[n], ref=node.ref, type=node.type, event_id=receipts[n].event_id)
            for n, node in enumerate(nodes)
        ],
        edges=[
            StoredEdge(
                id=graph.edge_ids[i],
                type=edge.relation.type,
                from_id=ids[edge.n],
                to_id=ids[len(nodes) + i],
                corrected_from=edge.relation.corrected_from,
            )
            for i, edge in enumerate(edges)
        ],
    )
