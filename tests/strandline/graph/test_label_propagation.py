"""Communities against planted ones and against a second implementation; bridges by hand."""

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from strandline.graph.communities import label_propagation
from strandline.graph.communities.label_propagation import (
    WeightedLink,
    find_groups,
    rank_nodes_and_score_bridges,
)
from tests.strandline.graph.planted import agreement, find_communities_again, plant

NODES, GROUP, LINKS = 20_000, 50, 6


@pytest.mark.parametrize("crossing", [0.0, 0.1, 0.2])
def test_label_propagation_finds_planted_communities(
    crossing: float, proof_size: Callable[[int], int]
) -> None:
    nodes = proof_size(NODES)
    links, truth = plant(nodes, nodes // GROUP, LINKS, crossing)
    ours, theirs = find_groups(links), find_communities_again(links)
    scores = agreement(ours, truth), agreement(theirs, truth), agreement(ours, theirs)
    print(
        f"\n{nodes} nodes, {crossing:.0%} of links crossing: agreement with what was planted"
        f" {scores[0]:.3f}, of the second implementation {scores[1]:.3f}, of both {scores[2]:.3f}"
    )
    assert min(scores) >= 0.95


def test_label_propagation_agreement_measure_is_right() -> None:
    """And a partition that ignores the links would not pass."""
    links, truth = plant(400, 8, LINKS, 0.1)
    assert agreement(truth, truth[::-1]) == 1.0
    noise = random.Random(2).sample(range(400), 400)
    shuffled = [noise[start : start + 50] for start in range(0, 400, 50)]
    assert abs(agreement(truth, shuffled)) < 0.05
    halves = [[n for group in half for n in group] for half in (truth[:4], truth[4:])]
    assert 0.05 < agreement(truth, halves) < 0.5
    assert agreement(find_groups(links), shuffled) < 0.05


def test_label_propagation_ignores_link_order() -> None:
    links, _ = plant(1000, 20, LINKS, 0.25)
    communities = find_groups(links)
    chance = random.Random(3)
    for _ in range(5):
        turned = [WeightedLink(second, first, weight) for first, second, weight in links]
        mixture = [chance.choice(pair) for pair in zip(links, turned, strict=True)]
        chance.shuffle(mixture)
        assert find_groups(mixture) == communities


def test_label_propagation_is_same_in_every_process(repository: Path) -> None:
    """Whatever the seed of its hashes."""
    code = (
        "from tests.strandline.graph.planted import plant\n"
        "from strandline.graph.communities.label_propagation import find_groups\n"
        "print(find_groups(plant(300, 10, 5, 0.3)[0]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": f"{repository / 'shared'}:{repository}", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{find_groups(plant(300, 10, 5, 0.3)[0])}\n"}


def test_label_propagation_test_detects_random_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an order drawn again at each run."""
    links, _ = plant(1000, 20, 3, 0.5)
    communities = find_groups(links)
    monkeypatch.setattr(label_propagation, "_SEED", None)
    assert any(find_groups(links) != communities for _ in range(5))


def test_label_propagation_joins_fragment_to_heavier_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair joins a triangle, and with it outweighs a second pair; a triangle stays apart from
    one that it has exactly as much weight with as within itself."""
    triangle = [WeightedLink(0, 1, 30), WeightedLink(0, 2, 30), WeightedLink(1, 2, 30)]
    pairs = [WeightedLink(3, 4, 50), WeightedLink(3, 0, 30), WeightedLink(4, 1, 21)]
    pairs += [WeightedLink(5, 6, 50), WeightedLink(5, 2, 25), WeightedLink(6, 3, 26)]
    apart = [
        WeightedLink(7, 8, 20),
        WeightedLink(7, 9, 20),
        WeightedLink(8, 9, 20),
        WeightedLink(7, 0, 30),
        WeightedLink(8, 1, 30),
    ]
    groups = [[0, 1, 2], [3, 4], [5, 6], [7, 8, 9]]

    def cut(_: Sequence[WeightedLink]) -> list[list[int]]:
        return [*map(list, groups)]

    monkeypatch.setattr(label_propagation, "_group_by_labels", cut)
    links = [*triangle, *pairs, *apart]
    assert find_groups(links) == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]


def test_label_propagation_test_detects_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: label propagation alone."""
    links, truth = plant(2000, 40, LINKS, 0.2)
    assert agreement(find_groups(links), truth) >= 0.97

    def leave(_: Sequence[WeightedLink], groups: list[list[int]]) -> list[list[int]]:
        return groups

    monkeypatch.setattr(label_propagation, "_join_fragments", leave)
    assert agreement(find_groups(links), truth) < 0.96


def test_label_propagation_finds_bridges_and_ranks() -> None:
    """Two triangles, and a node between them that leans to the first."""
    links = [
        *(WeightedLink(0, 1, 80), WeightedLink(0, 2, 80), WeightedLink(1, 2, 40)),
        *(WeightedLink(4, 5, 80), WeightedLink(4, 6, 80), WeightedLink(5, 6, 40)),
        *(WeightedLink(3, 0, 60), WeightedLink(3, 4, 40)),
    ]
    communities = rank_nodes_and_score_bridges(links, [[0, 1, 2, 3], [4, 5, 6]])
    assert [list(group.nodes) for group in communities.groups] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [list(group.neighbours) for group in communities.groups] == [[(1, 40)], [(0, 40)]]
    assert communities.bridge_scores == pytest.approx(
        {0: 0, 1: 0, 2: 0, 3: 1 - 0.36 - 0.16, 4: 1 - 0.64 - 0.04, 5: 0, 6: 0}
    )
    assert communities.bridges == {3}


def test_label_propagation_of_empty_graph_is_empty() -> None:
    communities = rank_nodes_and_score_bridges([], find_groups([]))
    assert (communities.groups, communities.bridges) == ([], frozenset())


def test_label_propagation_keeps_pair_as_community() -> None:
    assert find_groups([WeightedLink(0, 1, 1)]) == [[0, 1]]
