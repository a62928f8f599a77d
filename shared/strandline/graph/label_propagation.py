"""Communities of a weighted graph by label propagation, and how far each node bridges them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import networkx

_SEED = 0
"""The order in which nodes are visited is drawn: the same graph gets the same communities."""
BRIDGE_SCORE = 0.4
"""A node is a bridge from this score on: between two communities, if at least 28 % of the weight of
its links leads into the lesser one."""
_networkx = cast("Any", networkx)  # it has no types
_propagate = cast("Callable[..., Iterable[set[int]]]", _networkx.community.asyn_lpa_communities)


class Link(NamedTuple):
    """An edge between two nodes, whatever its direction."""

    first: int
    second: int
    weight: int
    """Positive. Whole, so that sums do not depend on their order."""


@dataclass(frozen=True)
class Community:
    """A group of nodes that have more to do with each other than with others."""

    nodes: Sequence[int]
    """At least two; first the one with the greatest weight within the community."""
    neighbours: Sequence[tuple[int, int]]
    """Other communities by their place, with the weight between; the heaviest first."""


@dataclass(frozen=True)
class Communities:
    """What a graph consists of. A node without links is in none."""

    groups: Sequence[Community]
    """The largest first."""
    bridge_scores: Mapping[int, float]
    """Of each node in a community: its participation coefficient (Guimerà and Amaral 2005), 0 where
    all its links stay in one community, near 1 where they are spread over many."""

    @property
    def bridges(self) -> frozenset[int]:
        """The nodes that are bridges."""
        return frozenset(n for n, score in self.bridge_scores.items() if score >= BRIDGE_SCORE)


def propagate_labels(links: Sequence[Link]) -> list[list[int]]:
    """Groups of nodes by asynchronous label propagation (Raghavan, Albert and Kumara 2007), the
    nodes of each in order. Depends on the numbers of the nodes, not on the order of the links."""
    graph: Any = _networkx.Graph()
    graph.add_nodes_from(sorted({node for link in links for node in link[:2]}))
    graph.add_weighted_edges_from(sorted((*sorted(link[:2]), link.weight) for link in links))
    groups = (sorted(group) for group in _propagate(graph, weight="weight", seed=_SEED))
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def describe_communities(links: Sequence[Link], groups: Sequence[Sequence[int]]) -> Communities:
    """Rank the nodes of each group, and score what leads from group to group."""
    place = {node: n for n, group in enumerate(groups) for node in group}
    weights: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    between: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for first, second, weight in links:
        weights[first][place[second]] += weight
        weights[second][place[first]] += weight
        if place[first] != place[second]:
            between[place[first]][place[second]] += weight
            between[place[second]][place[first]] += weight
    return Communities(
        [
            Community(
                _sort_by_weight({node: weights[node][n] for node in group}),
                [(other, between[n][other]) for other in _sort_by_weight(between[n])],
            )
            for n, group in enumerate(groups)
        ],
        {node: _score(parts.values()) for node, parts in sorted(weights.items())},
    )


def _sort_by_weight(weights: Mapping[int, int]) -> list[int]:
    """The heaviest first, then by number."""
    return sorted(weights, key=lambda number: (-weights[number], number))


def _score(weights: Iterable[int]) -> float:
    parts = list(weights)
    return 1 - sum(part * part for part in parts) / sum(parts) ** 2
