"""The bench of what the graph gives: its rankings do what they say."""

import pytest

from tests.bench.graph_reading import Results, boost, give_places, table
from tests.bench.recall_quality import DEPTH, Score

SCORES = {f"e{n}": 1 - n / 100 for n in range(20)}


@pytest.mark.parametrize(
    ("weight", "first"), [(0.0, ["e0", "e1"]), (0.1, ["e0", "e7"]), (0.2, ["e7", "e0"])]
)
def test_graph_reading_weight_raises_cited_events(weight: float, first: list[str]) -> None:
    citations = {"e7": 0.65, "unknown": 9.0}
    ranking = boost(weight)(SCORES, citations)
    assert ranking[:2] == first
    assert sorted(ranking) == sorted(SCORES)


def test_graph_reading_gives_last_places_to_cited_events() -> None:
    ranking = give_places(SCORES, {"e1": 0.9, "e15": 0.5, "new": 0.8, "e19": 0.1})
    assert ranking[:DEPTH] == [*(f"e{n}" for n in range(8)), "new", "e15"]
    assert len(set(ranking)) == len(ranking) == 21
    assert give_places(SCORES, {}) == list(SCORES)


def test_graph_reading_table_shows_difference() -> None:
    result = Results()
    result.ranked |= {"without": [Score(0.5, 0.5, 0.0)], "places": [Score(1.0, 0.25, 0.0)]}
    result.found, result.lines, result.told = [True], [3], [False]
    for is_on in (True, False):
        result.shown[is_on], result.milliseconds[is_on] = [0.5 + is_on / 2], [10.0 + is_on]
    lines = list(table({"demo": result}))
    assert "| demo | 1 | 1.00 | 0.500 / 0.500 | +0.500 / -0.250 |" in lines
    assert "| demo | 3.0 | 0.00 | 1.000 | 0.500 | 11.0 | 10.0 |" in lines
