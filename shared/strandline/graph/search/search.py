"""Search the graph: by meaning and words, by a part of a text, or along edges."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import NotFound
from strandline.graph.nodes.identity import hash_normalised_name, normalise_name, parse_node_id
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType
from strandline.graph.nodes.store_joined import (
    MAX_EDGES_BETWEEN,
    EdgeRow,
    NodeAcrossScopes,
    map_nodes_by_member,
    read_nodes_across_scopes,
    read_nodes_and_edges,
)
from strandline.graph.nodes.store_walk import MAX_NODES, WalkFilter, walk_graph
from strandline.graph.search import store
from strandline.graph.search.answers import join_edge_rows, to_found_node
from strandline.graph.search.schemas import (
    MIN_CONFIDENCE,
    FoundNode,
    GraphSearchRequest,
    NearestTopicsRequest,
    SubgraphOut,
)
from strandline.graph.search.store import NodeFilter, NodeMatch, NodeQuery
from strandline.recall.query_vector import embed_query

ALL_TYPES: Sequence[NodeType] = tuple(NODE_TYPES)
_PREFIXES = "|".join(spec.prefix for spec in NODE_TYPES.values())
_NODE_ID = re.compile(rf"(?:{_PREFIXES}):[0-9a-f-]{{36}}")
_GENITIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_BRACKETS = "()[]{}<>"
_MAX_TOKENS = 64
"""How many words of a query are searched for names."""
_MAX_NAME_TOKENS = 5
_HOPS = 2
_MAX_NAMED_STARTS = 10
_MAX_SIMILAR_STARTS = 3
"""From how many of the nearest nodes edges are followed, if the query names none."""


@dataclass(frozen=True)
class Subgraph:
    """A part of the graph around some nodes."""

    nodes: Sequence[NodeAcrossScopes]
    """The start nodes first, then by distance, along the heaviest edges first."""
    hops: Mapping[UUID, int]
    """The distance of each node in edges."""
    edges: Sequence[EdgeRow]
    """The edges between these nodes: those that the walk followed, and others that it was allowed
    to follow."""
    is_cut: bool
    """Whether there may be more nodes or edges."""


def read_subgraph(access: TenantDb, start_ids: Sequence[UUID], walk: WalkFilter) -> Subgraph:
    """Read the nodes that a walk from these nodes reaches. Always two round trips."""
    steps = walk_graph(access, start_ids, walk)
    hops = dict.fromkeys(start_ids, 0)
    for step in steps:
        hops.setdefault(step.node_id, step.hop)
    followed_ids = {step.edge_id for step in steps}
    nodes, edges = read_nodes_and_edges(access, list(hops), list(followed_ids), walk)
    others = [edge.edge_id for edge in edges if edge.edge_id not in followed_ids]
    left_out = frozenset(others[MAX_EDGES_BETWEEN:])
    return Subgraph(
        nodes,
        hops,
        [edge for edge in edges if edge.edge_id not in left_out],
        is_cut=bool(left_out) or len(hops) >= len(start_ids) + MAX_NODES,
    )


@dataclass(frozen=True)
class NodeFinder:
    """The dependencies of a search."""

    access: TenantDb
    embedder: Embedder
    vector_timeout: float
    """The maximum time to wait for the query's vector, in seconds."""
    combines_by_halving: bool = False
    """Whether confidences as of a time are combined by halving."""

    def make_filter(
        self, types: Sequence[NodeType], as_of: datetime | None, *, archived: bool
    ) -> NodeFilter:
        """The filter for the nodes of a search."""
        return NodeFilter(types, as_of, archived, self.combines_by_halving)

    def find_nodes(
        self, query: str, node_filter: NodeFilter
    ) -> tuple[Sequence[NodeMatch], list[str]]:
        """The nodes that may answer a query, best first, and the codes for the limits of the
        search."""
        vector, degradations = embed_query(self.embedder, query, self.vector_timeout)
        return self.find_nodes_by_vector(query, vector, node_filter), degradations

    def find_nodes_by_vector(
        self, query: str, vector: Sequence[float] | None, node_filter: NodeFilter
    ) -> Sequence[NodeMatch]:
        """Like `find_nodes`, with the query's vector."""
        node_query = NodeQuery(
            query, hash_possible_names(query), vector, self.embedder.space, node_filter
        )
        return store.find_matching_nodes(self.access, node_query)


def search_graph(finder: NodeFinder, request: GraphSearchRequest) -> SubgraphOut:
    """Search the part of the graph that a query names or resembles. Raises NotFound for the id of a
    node that is not in view."""
    types = request.types or ALL_TYPES
    if request.mode == "graph":
        return _search_along_edges(finder, request, types)
    node_filter = finder.make_filter(types, request.as_of, archived=request.archived)
    if request.mode == "semantic":
        matches, degradations = finder.find_nodes(request.query, node_filter)
        nodes = read_matched_nodes(finder.access, matches, node_filter, request.limit)
        return SubgraphOut(nodes=nodes, edges=[], degraded=degradations)
    matches = store.find_nodes_containing_text(finder.access, request.query, node_filter)
    nodes = read_matched_nodes(
        finder.access, matches, node_filter, request.limit + 1, is_exact=True
    )
    return SubgraphOut(
        nodes=nodes[: request.limit],
        edges=[],
        degraded=["cut_by_limit"] if len(nodes) > request.limit else [],
    )


def find_nearest_topics(finder: NodeFinder, request: NearestTopicsRequest) -> SubgraphOut:
    """The topics that are most similar to a text."""
    node_filter = finder.make_filter(("topic",), request.as_of, archived=request.archived)
    matches, degradations = finder.find_nodes(request.query, node_filter)
    nodes = read_matched_nodes(finder.access, matches, node_filter, request.limit)
    return SubgraphOut(nodes=nodes, edges=[], degraded=degradations)


def read_matched_nodes(
    access: TenantDb,
    matches: Sequence[NodeMatch],
    node_filter: NodeFilter,
    limit: int,
    *,
    is_exact: bool = False,
) -> list[FoundNode]:
    """The best of these matches, as nodes."""
    page = matches if node_filter.as_of else matches[:limit]
    by_id = {match.node_id: match for match in page}
    holds = make_as_of_filter(node_filter.as_of, archived=node_filter.archived)
    nodes = [
        to_found_node(node, by_id[node.node_id], is_exact=is_exact)
        for node in read_nodes_across_scopes(
            access,
            list(by_id),
            node_filter.as_of,
            combines_by_halving=node_filter.combines_by_halving,
        )
        if holds(node)
    ]
    return nodes[:limit]


def make_as_of_filter(
    as_of: datetime | None, *, archived: bool
) -> Callable[[NodeAcrossScopes], bool]:
    """Return a test of whether a node, as it was observed up to `as_of`, held then. Without `as_of`
    the test is always true: a search finds only what holds."""

    def holds(node: NodeAcrossScopes) -> bool:
        if as_of is None:
            return True
        is_over = node.valid_to is not None and node.valid_to <= as_of
        return node.valid_from <= as_of and not is_over and (archived or not node.archived)

    return holds


def hash_possible_names(text: str) -> list[bytes]:
    """The hashes of all names that a text may contain: each run of up to five words.
    By hashes names of one or two letters are found, for which trigrams and words are too coarse."""
    tokens = [token.strip(_BRACKETS) for token in text.split()[:_MAX_TOKENS]]
    names: set[str] = set()
    for start in range(len(tokens)):
        for end in range(start + 1, min(start + _MAX_NAME_TOKENS, len(tokens)) + 1):
            name = normalise_name(" ".join(tokens[start:end]))
            names |= {name, normalise_name(_GENITIVE.sub("", name))}
    return [hash_normalised_name(name) for name in sorted(names - {""})]


def _search_along_edges(
    finder: NodeFinder, request: GraphSearchRequest, types: Sequence[NodeType]
) -> SubgraphOut:
    starts, degradations = _find_start_nodes(finder, request)
    walk = WalkFilter(
        None,
        hops=_HOPS,
        min_confidence=MIN_CONFIDENCE,
        as_of=request.as_of,
        archived=request.archived,
        combines_by_halving=finder.combines_by_halving,
    )
    subgraph = read_subgraph(finder.access, list(starts), walk)
    holds = make_as_of_filter(request.as_of, archived=request.archived)
    visible_rows = [row for row in subgraph.nodes if holds(row) and row.type in types]
    nodes = [
        to_found_node(row, starts.get(row.node_id), hops=subgraph.hops[row.node_id])
        for row in visible_rows[: request.limit]
    ]
    edges = join_edge_rows(subgraph.edges, map_nodes_by_member(visible_rows[: request.limit]))
    is_cut = subgraph.is_cut or len(visible_rows) > request.limit
    return SubgraphOut(
        nodes=nodes, edges=edges, degraded=degradations + (["cut_by_limit"] if is_cut else [])
    )


def _find_start_nodes(
    finder: NodeFinder, request: GraphSearchRequest
) -> tuple[dict[UUID, NodeMatch | None], list[str]]:
    """The start nodes of a search along edges: the node whose id the query is, else the nodes that
    it names, else the nearest ones. Raises NotFound."""
    if _NODE_ID.fullmatch(request.query.strip()):
        return {
            require_node_across_scopes(
                finder.access, request.query.strip(), request.as_of
            ).node_id: None
        }, []
    node_filter = finder.make_filter(ALL_TYPES, request.as_of, archived=request.archived)
    matches, degradations = finder.find_nodes(request.query, node_filter)
    name_matches = [match for match in matches if match.is_named]
    starts = name_matches[:_MAX_NAMED_STARTS] or matches[:_MAX_SIMILAR_STARTS]
    return {match.node_id: match for match in starts}, degradations


def require_node_across_scopes(
    access: TenantDb, name: str, as_of: datetime | None
) -> NodeAcrossScopes:
    """The node with this id. Raises NotFound if it is not in view, or was not observed yet at
    `as_of`."""
    node_type, node_id = parse_node_id(name)
    rows = read_nodes_across_scopes(access, [node_id], as_of)
    if not rows or rows[0].type != node_type:
        raise NotFound("there is no such node in view")
    return rows[0]
