"""Communities against planted ones and against a second implementation; bridges by hand."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.graph import label_propagation
from strandline.graph.label_propagation import Link, describe_communities, propagate_labels
from tests.strandline.graph.planted import agreement, plant, propagate_again

NODES, GROUP, LINKS = 20_000, 50, 6


@pytest.mark.parametrize("crossing", [0.0, 0.1, 0.2])
def test_planted_communities_are_found_as_another_implementation_finds_them(
    crossing: float, scaled: Callable[[int], int]
) -> None:
    nodes = scaled(NODES)
    links, truth = plant(nodes, nodes // GROUP, LINKS, crossing)
    ours, theirs = propagate_labels(links), propagate_again(links)
    scores = agreement(ours, truth), agreement(theirs, truth), agreement(ours, theirs)
    print(
        f"\n{nodes} nodes, {crossing:.0%} of links crossing: agreement with what was planted"
        f" {scores[0]:.3f}, of the second implementation {scores[1]:.3f}, of both {scores[2]:.3f}"
    )
    assert min(scores) >= 0.95


def test_the_agreement_measures_what_it_says() -> None:
    """And a partition that ignores the links would not pass."""
    links, truth = plant(400, 8, LINKS, 0.1)
    assert agreement(truth, truth[::-1]) == 1.0
    noise = random.Random(2).sample(range(400), 400)
    shuffled = [noise[start : start + 50] for start in range(0, 400, 50)]
    assert abs(agreement(truth, shuffled)) < 0.05
    halves = [[n for group in half for n in group] for half in (truth[:4], truth[4:])]
    assert 0.05 < agreement(truth, halves) < 0.5
    assert agreement(propagate_labels(links), shuffled) < 0.05


def test_the_order_of_the_links_makes_no_difference() -> None:
    links, _ = plant(1000, 20, LINKS, 0.25)
    found = propagate_labels(links)
    chance = random.Random(3)
    for _ in range(5):
        turned = [Link(second, first, weight) for first, second, weight in links]
        mixed = [chance.choice(pair) for pair in zip(links, turned, strict=True)]
        chance.shuffle(mixed)
        assert propagate_labels(mixed) == found


def test_every_process_finds_the_same(repository: Path) -> None:
    """Whatever the seed of its hashes."""
    code = (
        "from tests.strandline.graph.planted import plant\n"
        "from strandline.graph.label_propagation import propagate_labels\n"
        "print(propagate_labels(plant(300, 10, 5, 0.3)[0]))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": f"{repository / 'shared'}:{repository}", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{propagate_labels(plant(300, 10, 5, 0.3)[0])}\n"}


def test_another_seed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an order drawn anew at each run."""
    links, _ = plant(1000, 20, 3, 0.5)
    found = propagate_labels(links)
    monkeypatch.setattr(label_propagation, "_SEED", None)
    assert any(propagate_labels(links) != found for _ in range(5))


def test_bridges_and_ranks_by_hand() -> None:
    """Two triangles, and a node between them that leans to the first."""
    links = [
        *(Link(0, 1, 80), Link(0, 2, 80), Link(1, 2, 40)),
        *(Link(4, 5, 80), Link(4, 6, 80), Link(5, 6, 40)),
        *(Link(3, 0, 60), Link(3, 4, 40)),
    ]
    found = describe_communities(links, [[0, 1, 2, 3], [4, 5, 6]])
    assert [list(group.nodes) for group in found.groups] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [list(group.neighbours) for group in found.groups] == [[(1, 40)], [(0, 40)]]
    assert found.bridge_scores == pytest.approx(
        {0: 0, 1: 0, 2: 0, 3: 1 - 0.36 - 0.16, 4: 1 - 0.64 - 0.04, 5: 0, 6: 0}
    )
    assert found.bridges == {3}


def test_nothing_comes_of_nothing() -> None:
    found = describe_communities([], propagate_labels([]))
    assert (found.groups, found.bridges) == ([], frozenset())


def test_two_nodes_are_a_community_and_keep_it() -> None:
    assert propagate_labels([Link(0, 1, 1)]) == [[0, 1]]
