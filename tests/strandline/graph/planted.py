"""Graphs with communities that are known, and another finder of communities to compare with."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from strandline.graph.communities.label_propagation import WeightedLink

type Groups = Sequence[Sequence[int]]


def plant(
    size: int, groups: int, links_per_node: int, crossing: float, seed: int = 1
) -> tuple[list[WeightedLink], list[list[int]]]:
    """A graph and its communities. Each node has so many links, of which the share `crossing` leads
    anywhere, and the others into its own community."""
    chance = random.Random(seed)
    truth = [list(range(start, size, groups)) for start in range(groups)]
    weights: Counter[tuple[int, int]] = Counter()
    for node in range(size):
        for _ in range(links_per_node):
            is_crossing = chance.random() < crossing
            other = chance.randrange(size) if is_crossing else chance.choice(truth[node % groups])
            if other != node:
                weights[min(node, other), max(node, other)] += 80
    return [WeightedLink(*pair, weight) for pair, weight in sorted(weights.items())], truth


def find_communities_again(links: Sequence[WeightedLink]) -> list[list[int]]:
    """Label propagation of our own, then groups joined one at a time, each time by a new look at
    all of them. In label propagation all nodes in an order drawn for each round; of equally heavy
    labels a node keeps its own, or takes any."""
    chance = random.Random(7)
    adjacent: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for first, second, weight in links:
        adjacent[first].append((second, weight))
        adjacent[second].append((first, weight))
    labels = {node: node for node in adjacent}
    order = sorted(adjacent)
    has_changed = True
    while has_changed:
        has_changed = False
        chance.shuffle(order)
        for node in order:
            counter: Counter[int] = Counter()
            for other, weight in adjacent[node]:
                counter[labels[other]] += weight
            loudest = max(counter.values())
            if counter[labels[node]] < loudest:
                labels[node] = chance.choice([n for n in counter if counter[n] == loudest])
                has_changed = True
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for node in sorted(labels):
        groups[labels[node]].append(node)
    return _join_one_by_one(links, labels, groups)


def _join_one_by_one(
    links: Sequence[WeightedLink], labels: dict[int, int], groups: dict[int, list[int]]
) -> list[list[int]]:
    while True:
        weights: Counter[tuple[int, int]] = Counter()
        for first, second, weight in links:
            weights[labels[first], labels[second]] += weight
            if labels[first] != labels[second]:
                weights[labels[second], labels[first]] += weight
        loose = [
            (len(groups[one]), -weight, one, other)
            for (one, other), weight in weights.items()
            if one != other and weight > weights[one, one]
        ]
        if not loose:
            return list(groups.values())
        for _, _, one, other in sorted(loose)[:1]:
            groups[other] += groups.pop(one)
            labels.update(dict.fromkeys(groups[other], other))


def agreement(one: Groups, other: Groups) -> float:
    """The adjusted Rand index (Hubert and Arabie 1985) of two groupings of the same nodes: 1 for
    the same, about 0 for groupings that have nothing to do with each other."""
    place = {node: n for n, group in enumerate(other) for node in group}
    shared = Counter((n, place[node]) for n, group in enumerate(one) for node in group)

    def pairs(sizes: Sequence[int]) -> int:
        return sum(size * (size - 1) // 2 for size in sizes)

    both = pairs(list(shared.values()))
    ours, theirs = pairs([len(g) for g in one]), pairs([len(g) for g in other])
    expected = ours * theirs / pairs([len(place)])
    most = (ours + theirs) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)
