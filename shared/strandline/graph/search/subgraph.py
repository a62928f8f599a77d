"""Read the part of the graph that a walk along edges reaches: nodes, their distance, and the edges
between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.store_joined import (
    MAX_EDGES_BETWEEN,
    EdgeRow,
    JoinedNode,
    read_nodes_and_edges,
)
from strandline.graph.nodes.store_walk import MAX_NODES, WalkFilter, walk_graph


@dataclass(frozen=True)
class Subgraph:
    """A part of the graph around some nodes."""

    nodes: Sequence[JoinedNode]
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
