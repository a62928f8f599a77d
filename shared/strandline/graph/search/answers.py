"""Nodes and edges as answers of a search show them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline.graph.nodes.answers import to_api_properties
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.store_joined import EdgeRow, NodeAcrossScopes
from strandline.graph.search.schemas import FoundNode, GraphEdge, Reason
from strandline.graph.search.store import NodeMatch
from strandline.log.trust_ranks import least_trusted


def to_found_node(
    node: NodeAcrossScopes, match: NodeMatch | None, *, hops: int = 0, is_exact: bool = False
) -> FoundNode:
    """Convert a node for an answer. `match` is why it was found, or None if an edge led to it."""
    return FoundNode.model_validate(
        {
            **vars(node),
            "id": format_node_id(node.type, node.node_id),
            "properties": to_api_properties(node.type, node.properties),
            "members": [format_node_id(node.type, member) for member in node.member_ids],
            "score": None if match is None else round(match.score, 4),
            "similarity": None
            if match is None or match.similarity is None
            else round(match.similarity, 4),
            "why": ["edge"] if match is None and hops else _list_match_reasons(match, is_exact),
            "hops": hops,
        }
    )


def _list_match_reasons(match: NodeMatch | None, is_exact: bool) -> list[Reason]:
    if match is None:
        return []
    reasons: list[tuple[bool, Reason]] = [
        (match.is_named, "name"),
        (match.has_words, "text" if is_exact else "words"),
        (match.similarity is not None, "meaning"),
    ]
    return [reason for holds, reason in reasons if holds]


def join_edge_rows(
    rows: Iterable[EdgeRow], leads: Mapping[UUID, NodeAcrossScopes]
) -> list[GraphEdge]:
    """The edges between these nodes, heaviest first. Edges with the same ends, type and label are
    joined. `leads` maps the id of each member to the node that represents it in the answer."""
    groups: dict[tuple[UUID, UUID, str, str], list[EdgeRow]] = {}
    for row in rows:
        ends = leads.get(row.from_id), leads.get(row.to_id)
        if ends[0] and ends[1] and ends[0] is not ends[1]:  # not within one joined node
            key = ends[0].node_id, ends[1].node_id, row.type, row.label
            groups.setdefault(key, []).append(row)
    edges = [
        _join_into_one_edge(group, leads[group[0].from_id], leads[group[0].to_id])
        for group in groups.values()
    ]
    return sorted(edges, key=lambda edge: (-edge.weight, -edge.heat, edge.id))


def _join_into_one_edge(
    rows: Sequence[EdgeRow], start: NodeAcrossScopes, end: NodeAcrossScopes
) -> GraphEdge:
    first = min(rows, key=lambda row: row.edge_id)
    weight = sum(row.weight for row in rows)
    ends = [row.valid_to for row in rows if row.valid_to]
    properties: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: (row.last_seen, row.edge_id)):
        properties |= row.properties
    return GraphEdge.model_validate(
        {
            "id": first.edge_id,
            "type": first.type,
            "from_id": format_node_id(start.type, start.node_id),
            "to_id": format_node_id(end.type, end.node_id),
            "label": first.label,
            "properties": properties,
            "confidence": sum(row.confidence * row.weight for row in rows) / max(weight, 1),
            "weight": weight,
            "heat": max(row.heat for row in rows),
            "trust": least_trusted(row.trust for row in rows),
            "valid_from": min(row.valid_from for row in rows),
            "valid_to": max(ends) if len(ends) == len(rows) else None,
            "created_at": min(row.created_at for row in rows),
            "last_seen": max(row.last_seen for row in rows),
        }
    )
