"""Propose merges of nodes with similar names or vectors."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.changes.schemas import MergeProposal, MergeProposals, MergeProposalsQuery
from strandline.graph.lists.store_merge_candidates import (
    MergeCandidate,
    list_node_pairs_by_cosine,
    list_nodes_to_compare,
    list_refused_pairs,
)
from strandline.graph.nodes.identity import format_node_id, normalise_name
from strandline.graph.nodes.node_types import NodeType

MAX_COMPARED = 500
"""The most nodes of one scope and type that are compared with each other."""
MAX_NODES_READ = 5000
"""The most nodes that are compared for one answer."""


def split_trigrams(name: str) -> frozenset[str]:
    """The groups of three characters of each word. Each word is padded with two spaces before it
    and one after it, so that its beginning weighs more."""
    words = normalise_name(name).split()
    padded_words = (f"  {word} " for word in words)
    return frozenset(word[i : i + 3] for word in padded_words for i in range(len(word) - 2))


def find_similar_name_pairs[Key: Hashable](
    names: Mapping[Key, str], min_similarity: float
) -> Iterator[tuple[Key, Key, float]]:
    """The pairs of names that have at least this similarity, each pair once, with the similarity
    from 0 to 1: the number of groups that both have, divided by the number that either has."""
    groups = {key: split_trigrams(name) for key, name in names.items()}
    keys_by_trigram: defaultdict[str, list[Key]] = defaultdict(list)
    for key, trigrams in groups.items():
        shared = Counter(other for trigram in trigrams for other in keys_by_trigram[trigram])
        for other, count in shared.items():
            similarity = count / (len(trigrams) + len(groups[other]) - count)
            if similarity >= min_similarity:
                yield other, key, similarity
        for trigram in trigrams:
            keys_by_trigram[trigram].append(key)


def propose_merges(
    access: TenantDb, query: MergeProposalsQuery, space: str, min_cosine: float
) -> MergeProposals:
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
        for pair in list_node_pairs_by_cosine(access, list(nodes), space, min_cosine)
    }
    names = {
        _sort_pair(a, b): score
        for a, b, score in _find_similar_unmerged_pairs(sample, query.min_similarity)
    }
    pairs = _leave_out_refused_pairs(access, sorted(names.keys() | cosines.keys()))
    proposals = [
        _make_proposal(nodes[a], nodes[b], names.get((a, b)), cosines.get((a, b))) for a, b in pairs
    ]
    proposals.sort(key=lambda one: max(one.similarity, one.cosine or 0.0), reverse=True)
    return MergeProposals(
        proposals=proposals[: query.limit],
        compared=len(sample),
        complete=len(sample) == len(rows),
    )


def _leave_out_refused_pairs(
    access: TenantDb, pairs: Sequence[tuple[UUID, UUID]]
) -> Sequence[tuple[UUID, UUID]]:
    if not pairs:
        return pairs
    node_ids = {node_id for pair in pairs for node_id in pair}
    refused_pairs = {
        (row.first_id, row.second_id) for row in list_refused_pairs(access, sorted(node_ids))
    }
    return [pair for pair in pairs if pair not in refused_pairs]


def _sort_pair(a: UUID, b: UUID) -> tuple[UUID, UUID]:
    return (a, b) if a < b else (b, a)


def _find_similar_unmerged_pairs(
    nodes: Sequence[MergeCandidate], min_similarity: float
) -> Iterator[tuple[UUID, UUID, float]]:
    """The pairs of similar names within one scope and type, without nodes that are merged
    already."""
    identities = {node.node_id: node.identity for node in nodes}
    for names in _group_names_by_scope_and_type(nodes).values():
        for a, b, similarity in find_similar_name_pairs(names, min_similarity):
            if identities[a] != identities[b]:
                yield a, b, similarity


def _group_names_by_scope_and_type(
    nodes: Sequence[MergeCandidate],
) -> Mapping[tuple[UUID, NodeType], Mapping[UUID, str]]:
    groups: defaultdict[tuple[UUID, NodeType], dict[UUID, str]] = defaultdict(dict)
    for node in nodes:
        groups[node.scope_id, node.type][node.node_id] = node.name
    return groups


def _make_proposal(
    a: MergeCandidate, b: MergeCandidate, similarity: float | None, cosine: float | None
) -> MergeProposal:
    into, start = sorted((a, b), key=lambda node: (-node.weight, node.created_at, node.node_id))
    if similarity is None:
        first, second = split_trigrams(a.name), split_trigrams(b.name)
        similarity = len(first & second) / max(1, len(first | second))
    return MergeProposal(
        from_id=format_node_id(start.type, start.node_id),
        from_name=start.name,
        into_id=format_node_id(into.type, into.node_id),
        into_name=into.name,
        scope_id=into.scope_id,
        participants=into.participants,
        similarity=round(similarity, 4),
        cosine=None if cosine is None else round(cosine, 4),
    )
