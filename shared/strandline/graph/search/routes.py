"""HTTP routes that search the graph and follow its edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline.config import get_settings
from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound
from strandline.graph.nodes.identity import parse_node_id
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType
from strandline.graph.nodes.observations import combines_confidences_by_halving_by_default
from strandline.graph.nodes.store_joined import map_nodes_by_member
from strandline.graph.nodes.store_walk import WalkFilter
from strandline.graph.search.answers import join_edge_rows, to_found_node
from strandline.graph.search.schemas import (
    GraphSearchRequest,
    NearestTopicsRequest,
    SubgraphOut,
    Traversal,
    TraverseRequest,
)
from strandline.graph.search.search import (
    NodeFinder,
    find_nearest_topics,
    make_as_of_filter,
    read_subgraph,
    search_graph,
)
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import ParticipantsQuery

_ALL: frozenset[NodeType] = frozenset(NODE_TYPES)
_VERBS = (
    *("USES", "WORKS_ON", "BUILT_FOR_CLIENT", "STRUGGLES_WITH", "EXHIBITS", "EXPRESSED_INTEREST"),
    *("RELATES_TO", "related"),
)
_MAX_CHAIN = 100
"""How many replacements of a fact are followed in each direction."""


@dataclass(frozen=True)
class _TraversalRule:
    """Where a traversal may start, which edges it follows, and which nodes it returns."""

    starts: frozenset[NodeType]
    edge_types: tuple[str, ...] | None
    results: frozenset[NodeType]


def _list_edge_types_at(node_type: NodeType) -> list[str]:
    """The types of the edges that begin or end at nodes of a type, but for those between any."""
    return [
        name
        for start, spec in NODE_TYPES.items()
        for name, edge in spec.edges.items()
        if node_type in (start, edge.end)
    ]


_FACTS = _TraversalRule(
    frozenset({"entity", "topic"}), ("fact_entity", "fact_topic"), frozenset({"fact"})
)
_RULES: Mapping[Traversal, _TraversalRule] = {
    "related_entities": _TraversalRule(
        _ALL,
        (*_list_edge_types_at("entity"), *_VERBS),
        frozenset({"entity"}),
    ),
    "related_facts": _FACTS,
    "facts_about_entity": _FACTS,
    "decision_entities": _TraversalRule(
        frozenset({"decision"}), ("decision_entity",), frozenset({"entity"})
    ),
    "entity_decisions": _TraversalRule(
        frozenset({"entity"}), ("decision_entity",), frozenset({"decision"})
    ),
    "invalidation_chain": _TraversalRule(
        frozenset({"fact"}), ("invalidates",), frozenset({"fact"})
    ),
    "topic_contents": _TraversalRule(
        frozenset({"topic"}),
        (*_list_edge_types_at("topic"), "related"),
        _ALL,
    ),
    "neighbours": _TraversalRule(_ALL, None, _ALL),
}


def traverse_from_node(
    access: TenantDb, request: TraverseRequest, *, combines_by_halving: bool = False
) -> SubgraphOut:
    """The start node of a traversal, and the nodes that it reaches: nearest first, along the
    heaviest edges first, with the edges between them. Raises NotFound if the node is not in view or
    was not observed yet, and Invalid if the traversal cannot start at such a node."""
    node_type, start_id = parse_node_id(request.node_id)
    rule = _RULES[request.traversal]
    _require_allowed_start(request.traversal, rule, node_type)
    is_chain = request.traversal == "invalidation_chain"
    walk = WalkFilter(
        rule.edge_types,
        hops=_MAX_CHAIN if is_chain else request.hops,
        min_confidence=0.0 if is_chain else request.min_confidence,
        as_of=request.as_of,
        archived=request.archived,
        ended=is_chain,
        combines_by_halving=combines_by_halving,
    )
    subgraph = read_subgraph(access, [start_id], walk)
    rows = subgraph.nodes
    if not rows or rows[0].node_id != start_id or rows[0].type != node_type:
        raise NotFound("there is no such node in view")
    holds = make_as_of_filter(None if is_chain else request.as_of, archived=request.archived)
    results = [row for row in rows[1:] if row.type in rule.results and holds(row)]
    page = [rows[0], *results[: request.limit]]
    is_cut = subgraph.is_cut or len(results) > request.limit
    return SubgraphOut(
        nodes=[to_found_node(row, None, hops=subgraph.hops[row.node_id]) for row in page],
        edges=join_edge_rows(subgraph.edges, map_nodes_by_member(page)),
        degraded=["cut_by_limit"] if is_cut else [],
    )


def _require_allowed_start(traversal: Traversal, rule: _TraversalRule, node_type: NodeType) -> None:
    if node_type not in rule.starts:
        starts = " or ".join(sorted(rule.starts))
        raise Invalid(
            f"traversal: {traversal} starts at a node of the type {starts}, not at a {node_type}",
            field="traversal",
        )


def post_search(request: Request) -> Response:
    """Search the graph: by the meaning and words of a question, by a part of a text, or along the
    edges of the nodes that a question names. A node is joined over all scopes in view. A new node
    is found by its name and words at once, and by its meaning once a worker has embedded it."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(GraphSearchRequest)
    finder = make_node_finder(request, query, body.participants)
    return _respond_with_graph(request, search_graph(finder, body))


def post_nearest_topics(request: Request) -> Response:
    """The topics most similar to a text, nearest first. Archived topics are left out by default."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(NearestTopicsRequest)
    finder = make_node_finder(request, query, body.participants)
    return _respond_with_graph(request, find_nearest_topics(finder, body))


def post_traverse(request: Request) -> Response:
    """Follow edges from a node, up to three in a row. Returns the node, the nodes that it leads to,
    and the edges between them. Nodes are joined over all scopes in view."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(TraverseRequest)
    access = request.connect_reader(query, body.participants)
    return _respond_with_graph(
        request,
        traverse_from_node(
            access, body, combines_by_halving=combines_confidences_by_halving_by_default()
        ),
    )


def make_node_finder(
    request: Request, query: ParticipantsQuery, participants: Sequence[str] | None
) -> NodeFinder:
    """Build the finder for a request, on behalf of its caller and the participants of its query
    string and body."""
    return NodeFinder(
        request.connect_reader(query, participants),
        request.embedder,
        get_settings().query_vector_seconds,
        combines_confidences_by_halving_by_default(),
    )


def _respond_with_graph(request: Request, answer: SubgraphOut) -> Response:
    request.metrics |= {
        "GraphNodesRead": len(answer.nodes),
        "GraphEdgesRead": len(answer.edges),
        "GraphReadsEmpty": int(not answer.nodes),
    }
    return json_response(answer)


ROUTES = {
    "POST /api/v1/graph/search": Route(
        post_search,
        "read",
        {200: SubgraphOut},
        query=ParticipantsQuery,
        body=GraphSearchRequest,
        errors=(NotFound,),
    ),
    "POST /api/v1/graph/topics/nearest": Route(
        post_nearest_topics,
        "read",
        {200: SubgraphOut},
        query=ParticipantsQuery,
        body=NearestTopicsRequest,
    ),
    "POST /api/v1/graph/traverse": Route(
        post_traverse,
        "read",
        {200: SubgraphOut},
        query=ParticipantsQuery,
        body=TraverseRequest,
        errors=(NotFound,),
    ),
}
