"""The heuristic extractor's score on the conversations whose graphs people wrote down."""

from pathlib import Path

import pytest

from tests.bench import graph_extraction, talks
from tests.bench.graph_extraction import Expectation, Item

LEAST = {"fact": 0.6, "decision": 0.5, "relation": 0.5}
"""The least precision: docs/graph.md publishes what it is."""


@pytest.mark.parametrize("path", list(graph_extraction.CONVERSATIONS), ids=lambda path: path.stem)
def test_graph_extraction_is_precise_and_published(path: Path, repository: Path) -> None:
    expectations = graph_extraction.read_expectations(graph_extraction.CONVERSATIONS[path])
    scores = graph_extraction.score(graph_extraction.extract(talks.read(path)), expectations)
    assert scores["fact"].found
    assert {kind: score for kind, score in scores.items() if score.precision < LEAST[kind]} == {}
    published = (repository / "docs" / "graph.md").read_text("utf-8").splitlines()
    assert {*graph_extraction.table_rows(path.stem, scores)} <= {*published}


@pytest.mark.parametrize("path", list(graph_extraction.CONVERSATIONS), ids=lambda path: path.stem)
def test_graph_extraction_expectations_name_existing_events(path: Path) -> None:
    expectations = graph_extraction.read_expectations(graph_extraction.CONVERSATIONS[path])
    assert {one.event for one in expectations} <= {event.key for event in talks.read(path).events}
    assert {one.kind for one in expectations} == {"fact", "decision", "relation"}


def test_graph_extraction_item_is_right_by_expected_event() -> None:
    expected = Expectation("fact", "demo-0025", ("Mara", "cashew"))
    assert expected.is_met_by(Item("fact", "demo-0025", "Mara has a serious Cashew allergy."))
    assert not expected.is_met_by(Item("fact", "demo-0026", "Mara has a serious cashew allergy."))
    assert not expected.is_met_by(Item("decision", "demo-0025", "Mara, no cashew"))
    assert not expected.is_met_by(Item("fact", "demo-0025", "Mara has an allergy."))
    scores = graph_extraction.score([Item("fact", "demo-0025", "Mara: cashew")], [expected])
    assert (scores["fact"].precision, scores["fact"].recall) == (1.0, 1.0)
