"""Propose merges of nodes with similar names or vectors."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.changes.schemas import Proposal, Proposals, ProposalsQuery
from strandline.graph.lists.name_similarity import find_near_names, split_trigrams
from strandline.graph.lists.store_merge_candidates import (
    ComparedNode,
    list_cosines,
    list_nodes_to_compare,
)
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.node_types import NodeType

MAX_COMPARED = 500
"""The most nodes of one scope and type that are compared with each other."""
MAX_NODES_READ = 5000
"""The most nodes that are compared for one answer."""


def propose_merges(
    access: TenantDb, query: ProposalsQuery, space: str, min_cosine: float
) -> Proposals:
    """The pairs of nodes of one scope and type with similar names, or with vectors in `space` that
    have at least this cosine; the most similar first."""
    rows = list_nodes_to_compare(
        access,
        query.scope_id,
        archived=query.archived,
        per_type=MAX_COMPARED,
        limit=MAX_NODES_READ + 1,
    )
    sample = [row for row in rows if row.place <= MAX_COMPARED][:MAX_NODES_READ]
    nodes = {row.node_id: row for row in sample}
    cosines = {
        (pair.first_id, pair.second_id): pair.cosine
        for pair in list_cosines(access, list(nodes), space, min_cosine)
    }
    names = {
        _sort_pair(a, b): score for a, b, score in _compare_names(sample, query.min_similarity)
    }
    pairs = sorted(names.keys() | cosines.keys())
    proposals = [
        _propose(nodes[a], nodes[b], names.get((a, b)), cosines.get((a, b))) for a, b in pairs
    ]
    proposals.sort(key=lambda one: max(one.similarity, one.cosine or 0.0), reverse=True)
    return Proposals(
        proposals=proposals[: query.limit],
        compared=len(sample),
        complete=len(sample) == len(rows),
    )


def _sort_pair(a: UUID, b: UUID) -> tuple[UUID, UUID]:
    return (a, b) if a < b else (b, a)


def _compare_names(
    nodes: Sequence[ComparedNode], min_similarity: float
) -> Iterator[tuple[UUID, UUID, float]]:
    """The pairs of similar names within one scope and type, without nodes that are merged
    already."""
    identities = {node.node_id: node.identity for node in nodes}
    for names in _group_names_by_type(nodes).values():
        for a, b, similarity in find_near_names(names, min_similarity):
            if identities[a] != identities[b]:
                yield a, b, similarity


def _group_names_by_type(
    nodes: Sequence[ComparedNode],
) -> Mapping[tuple[UUID, NodeType], Mapping[UUID, str]]:
    groups: defaultdict[tuple[UUID, NodeType], dict[UUID, str]] = defaultdict(dict)
    for node in nodes:
        groups[node.scope_id, node.type][node.node_id] = node.name
    return groups


def _propose(
    a: ComparedNode, b: ComparedNode, similarity: float | None, cosine: float | None
) -> Proposal:
    into, start = sorted((a, b), key=lambda node: (-node.weight, node.created_at, node.node_id))
    if similarity is None:
        first, second = split_trigrams(a.name), split_trigrams(b.name)
        similarity = len(first & second) / max(1, len(first | second))
    return Proposal(
        from_id=format_node_id(start.type, start.node_id),
        from_name=start.name,
        into_id=format_node_id(into.type, into.node_id),
        into_name=into.name,
        scope_id=into.scope_id,
        participants=into.participants,
        similarity=round(similarity, 4),
        cosine=None if cosine is None else round(cosine, 4),
    )
