"""Read what the graph holds about a question, for recall."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.store_joined import NodeAcrossScopes, map_nodes_by_member
from strandline.graph.search.answers import join_edge_rows, to_found_node
from strandline.graph.search.schemas import GraphEdge, RelevantEdge, RelevantGraph, RelevantNode
from strandline.graph.search.search import ALL_TYPES, hash_possible_names
from strandline.graph.search.store import NodeFilter, NodeMatch, NodeQuery
from strandline.graph.search.store_knowledge import (
    LIMIT,
    RelevantEdgeRow,
    RelevantNodeRow,
    read_edges_between,
    read_nodes_around_question,
)

_MIN_WORD_CHARS = 4
"""Words of a question that are shorter match a node only by its whole name."""
NOTHING = RelevantGraph(nodes=[], edges=[])


@dataclass(frozen=True)
class RelevantKnowledge:
    """The nodes that concern a question, in the order of the answer, and the edges between them."""

    nodes: Sequence[RelevantNodeRow]
    edges: Sequence[RelevantEdge]


def read_relevant_knowledge(
    access: TenantDb,
    question: str,
    vector: Sequence[float] | None,
    space: str,
    types: Sequence[NodeType] = ALL_TYPES,
) -> RelevantKnowledge:
    """Read the nodes that the question names, by whole names of any length or by words of at least
    four letters; the nodes within two edges of confidence 0.5 or more; and the edges between all of
    them. Reads only what holds now and is in view. `vector` is the question's: it finds no nodes,
    but gives each node's similarity. One SQL statement, and a second one for the edges if there are
    nodes."""
    query = NodeQuery(
        question,
        hash_possible_names(question),
        vector,
        space,
        NodeFilter(ALL_TYPES),
        by_meaning=False,
        min_word_chars=_MIN_WORD_CHARS,
    )
    nodes = read_nodes_around_question(access, query, types)
    leads = map_nodes_by_member(nodes)
    rows = read_edges_between(access, list(leads)) if len(nodes) > 1 else ()
    by_edge = _group_by_edge(rows, leads)
    edges = [
        _to_relevant_edge(edge, by_edge[edge.from_id, edge.to_id, edge.type, edge.label])
        for edge in join_edge_rows(rows, leads)[:LIMIT]
    ]
    return RelevantKnowledge(nodes, edges)


def read_relevant_graph(
    access: TenantDb, question: str, vector: Sequence[float] | None, space: str
) -> RelevantGraph:
    """The result of `read_relevant_knowledge` in the form of an answer."""
    knowledge = read_relevant_knowledge(access, question, vector, space)
    return RelevantGraph(
        nodes=list(map(_to_relevant_node, knowledge.nodes)), edges=list(knowledge.edges)
    )


def _to_relevant_node(row: RelevantNodeRow) -> RelevantNode:
    match = None
    if row.score is not None:
        match = NodeMatch(
            row.node_id, row.score, row.similarity, bool(row.is_named), bool(row.has_words)
        )
    node = to_found_node(row, match, hops=row.hops)
    return RelevantNode(**dict(node), event_ids=row.event_ids, is_stated=row.is_stated)


def _to_relevant_edge(edge: GraphEdge, rows: Sequence[RelevantEdgeRow]) -> RelevantEdge:
    event_ids = [event_id for row in rows for event_id in row.event_ids]
    return RelevantEdge(
        **dict(edge), event_ids=event_ids, is_stated=any(row.is_stated for row in rows)
    )


def _group_by_edge(
    rows: Sequence[RelevantEdgeRow], leads: Mapping[UUID, NodeAcrossScopes]
) -> Mapping[tuple[str, str, str, str], list[RelevantEdgeRow]]:
    """The rows of each edge of an answer, by its ends, type and label."""
    by_edge: dict[tuple[str, str, str, str], list[RelevantEdgeRow]] = defaultdict(list)
    for row in rows:
        start, end = leads[row.from_id], leads[row.to_id]
        key = (
            format_node_id(start.type, start.node_id),
            format_node_id(end.type, end.node_id),
            row.type,
            row.label,
        )
        by_edge[key].append(row)
    return by_edge
