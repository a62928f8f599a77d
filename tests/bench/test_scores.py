"""How chains are held against what people expect."""

import pytest

from tests.bench import conversations, talks
from tests.bench.scores import ChainKeys, Expected, Score, boundaries, entities

EXPECTED = Expected(
    lanes={"s-1": ["a", "b", "c", "d", "e", "f", "g"], "s-2": ["x", "y"]},
    starts=frozenset({"a", "d", "g", "x"}),
    names={"a": frozenset({"Auk", "Brill"}), "d": frozenset({"Cod"}), "x": frozenset({"Dab"})},
)


def chains(*keys: str, names: str = "") -> list[ChainKeys]:
    """A chain of each word's letters; `names` go with the first."""
    return [ChainKeys(list(word), names.split() if not at else []) for at, word in enumerate(keys)]


@pytest.mark.parametrize(
    ("results", "score"),
    [
        (chains("abc", "def", "g", "xy"), Score(2, 2, 2)),
        (chains("abc", "def"), Score(2, 2, 2)),  # what is open at the end is a run too
        (chains("ab", "cde", "fg", "xy"), Score(2, 2, 2)),  # each beside by one
        (chains("a", "bcdefg", "xy"), Score(0, 1, 2)),
        (chains("abcdefg", "xy"), Score(0, 0, 2)),
        (chains("ab", "c", "def", "g", "x", "y"), Score(2, 4, 2)),  # each counts once
        (chains("abcg", "def", "xy"), Score(2, 2, 2)),  # a later run joined the first chain
        (chains("abcx", "def", "gy"), Score(2, 3, 2)),
    ],
)
def test_scores_count_boundaries(results: list[ChainKeys], score: Score) -> None:
    assert boundaries(EXPECTED, results) == score


def test_scores_without_tolerance_reject_neighbours() -> None:
    assert boundaries(EXPECTED, chains("ab", "cdef", "g", "xy"), tolerance=0) == Score(1, 2, 2)


def test_scores_compare_names_by_topic_ignoring_case() -> None:
    results = [
        ChainKeys("abc", ["auk", "Eider"]),
        ChainKeys("def", ["Cod", "Auk"]),
        ChainKeys("xy", ["Dab"]),
    ]
    assert entities(EXPECTED, results) == Score(3, 5, 4)


def test_scores_leave_out_open_topics() -> None:
    assert entities(EXPECTED, chains("abc", names="Auk Brill")) == Score(2, 2, 2)


def test_scores_compare_chain_with_both_its_topics() -> None:
    assert entities(EXPECTED, chains("abcdef", names="Auk Brill Cod")) == Score(3, 3, 3)


def test_scores_join_parts_of_topic() -> None:
    results = [ChainKeys("ab", ["Auk"]), ChainKeys("c", ["Brill", "Auk"])]
    assert entities(EXPECTED, results) == Score(2, 2, 2)


def test_scores_compute_f1() -> None:
    assert Score(2, 4, 2).f1 == pytest.approx(2 / 3)
    assert (Score(0, 0, 0).f1, Score(0, 0, 3).f1) == (1, 0)


def test_scores_demo_expectations_are_consistent() -> None:
    demo = conversations.read(talks.DEMO).expected
    keys = {key for lane in demo.lanes.values() for key in lane}
    assert demo.starts <= keys
    assert set(demo.names) == demo.starts
    assert all(lane[0] in demo.starts for lane in demo.lanes.values())
