"""Communities of a weighted graph by label propagation, and a score of how far each node bridges
them."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import networkx

type _Sums = defaultdict[int, int]
type _Pairs = defaultdict[int, defaultdict[int, int]]

_SEED = 0
"""Seed of the order in which nodes are visited, so that the same graph gets the same
communities."""
BRIDGE_SCORE = 0.4
"""A node with at least this score is a bridge. Between two communities this means that at least 28
% of the weight of its links leads into the lesser one."""
_networkx = cast("Any", networkx)  # networkx has no types
_propagate = cast("Callable[..., Iterable[set[int]]]", _networkx.community.asyn_lpa_communities)


class WeightedLink(NamedTuple):
    """An edge between two nodes, whatever its direction."""

    first: int
    second: int
    weight: int
    """Positive. An integer, so that sums do not depend on their order."""


@dataclass(frozen=True)
class Community:
    """A group of nodes that are linked more strongly to each other than to others."""

    nodes: Sequence[int]
    """At least two nodes; the first has the greatest weight within the community."""
    neighbours: Sequence[tuple[int, int]]
    """(index of another community, weight of the links to it), the heaviest first."""


@dataclass(frozen=True)
class Communities:
    """The communities of a graph. A node without links is in none."""

    groups: Sequence[Community]
    """The largest first."""
    bridge_scores: Mapping[int, float]
    """The participation coefficient of each node in a community (Guimerà and Amaral 2005): 0 if all
    its links stay in one community, near 1 if they are spread over many."""

    @property
    def bridges(self) -> frozenset[int]:
        """The nodes that are bridges."""
        return frozenset(n for n, score in self.bridge_scores.items() if score >= BRIDGE_SCORE)


def find_groups(links: Sequence[WeightedLink]) -> list[list[int]]:
    """Find groups of at least two nodes, the largest first, with the nodes of each in order. The
    result depends on the numbers of the nodes, not on the order of the links."""
    groups = _join_fragments(links, _group_by_labels(links))
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def _group_by_labels(links: Sequence[WeightedLink]) -> list[list[int]]:
    """Groups by asynchronous label propagation (Raghavan, Albert and Kumara 2007)."""
    graph: Any = _networkx.Graph()
    graph.add_nodes_from(sorted({node for link in links for node in link[:2]}))
    graph.add_weighted_edges_from(sorted((*sorted(link[:2]), link.weight) for link in links))
    return [sorted(group) for group in _propagate(graph, weight="weight", seed=_SEED)]


def _join_fragments(links: Sequence[WeightedLink], groups: list[list[int]]) -> list[list[int]]:
    """Join each group that has more weight with one other group than within itself to that other
    group, until there is none. The smallest groups come first. Label propagation stops as soon as
    each node has most of its neighbours in its own group, and so leaves fragments of
    communities."""
    within, between = _sum_weights_within_and_between(links, groups)
    members = dict(enumerate(groups))
    waiting = deque(sorted(members, key=lambda group: (len(members[group]), members[group])))
    while waiting:
        group = waiting.popleft()
        if group not in members or not between[group]:
            continue
        nearest = min(between[group], key=lambda n: (-between[group][n], n))
        if between[group][nearest] <= within[group]:
            continue
        within[nearest] += within.pop(group) + between[group][nearest]
        members[nearest] += members.pop(group)
        for other, weight in between.pop(group).items():
            del between[other][group]
            if other != nearest:
                between[nearest][other] += weight
                between[other][nearest] += weight
        around = between[nearest]
        waiting.append(nearest)
        waiting.extend(other for other in sorted(around) if around[other] > within[other])
    return [sorted(nodes) for nodes in members.values()]


def _sum_weights_within_and_between(
    links: Sequence[WeightedLink], groups: Sequence[Sequence[int]]
) -> tuple[_Sums, _Pairs]:
    """The weight of the links within each group, and between each two groups, by their indexes."""
    place = {node: n for n, group in enumerate(groups) for node in group}
    within: _Sums = defaultdict(int)
    between: _Pairs = defaultdict(lambda: defaultdict(int))
    for first, second, weight in links:
        one, other = place[first], place[second]
        if one == other:
            within[one] += weight
        else:
            between[one][other] += weight
            between[other][one] += weight
    return within, between


def rank_nodes_and_score_bridges(
    links: Sequence[WeightedLink], groups: Sequence[Sequence[int]]
) -> Communities:
    """Rank the nodes of each group, and compute the bridge scores."""
    place = {node: n for n, group in enumerate(groups) for node in group}
    weights: _Pairs = defaultdict(lambda: defaultdict(int))
    for first, second, weight in links:
        weights[first][place[second]] += weight
        weights[second][place[first]] += weight
    _, between = _sum_weights_within_and_between(links, groups)
    return Communities(
        [
            Community(
                _sort_by_weight({node: weights[node][n] for node in group}),
                [(other, between[n][other]) for other in _sort_by_weight(between[n])],
            )
            for n, group in enumerate(groups)
        ],
        {
            node: _compute_participation_coefficient(parts.values())
            for node, parts in sorted(weights.items())
        },
    )


def _sort_by_weight(weights: Mapping[int, int]) -> list[int]:
    """Sort by weight, the heaviest first, then by number."""
    return sorted(weights, key=lambda number: (-weights[number], number))


def _compute_participation_coefficient(weights: Iterable[int]) -> float:
    parts = list(weights)
    return 1 - sum(part * part for part in parts) / sum(parts) ** 2
