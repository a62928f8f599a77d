"""What `make demo` reads and says of the graph."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.local import demo, demo_graph_report, demo_scores, graph_reader
from strandline.local.demo_graph_report import Talk
from strandline.local.demo_scores import ItemKindScore, Statement
from tests.strandline.local.graph_samples import ALLERGY, PEOPLE, Service, key, sample

ROWS = [
    {"event": "k-1", "says": ["Mara", "cashew"]},
    {"event": "k-2", "says": ["sister"]},
    {"event": "k-3", "between": ["Linnea", "Mara"]},
]
IDS = {"k-1": "one", "k-2": "two", "k-3": "three"}


def test_statements_are_held_against_what_was_expected_of_the_events_they_cite() -> None:
    right = Statement("Mara has a serious Cashew allergy.", frozenset({"zero", "one"}))
    elsewhere = right._replace(event_ids=frozenset({"two"}))
    wrong = Statement("Mara is tall.", frozenset({"one"}))
    relation = Statement("linnea mara", None)
    score = demo_scores.score_statements([right, elsewhere, wrong, relation], ROWS, IDS)
    assert score == ItemKindScore(total=4, right=2, matches=2, expected=3)
    assert (score.precision, round(score.recall, 2)) == (0.5, 0.67)
    nothing = demo_scores.score_statements([], [], {})
    assert (nothing.precision, nothing.recall) == (1.0, 1.0)


def test_entities_are_held_against_names_however_they_are_written() -> None:
    score = demo_scores.score_entities(sample(), frozenset({"mara", "keel"}))
    assert score == ItemKindScore(total=4, right=1, matches=1, expected=2)


def test_groups_that_hear_it_all_anyway_are_left_out() -> None:
    groups = [("a", "b", "c"), ("a", "c"), ("b", "c"), ("a", "b"), ("a", "c")]
    assert graph_reader.choose_views(groups) == [("a", "c"), ("b", "c"), ("a", "b")]


def test_all_pages_of_all_groups_are_joined_by_name() -> None:
    service = Service()
    graph = graph_reader.read_graph(service, [("user:a",), ("user:b", "agent:c")])
    mara = graph.nodes["entity", "mara"]
    assert (mara.name, mara.kind, mara.weight) == (" MARA", "person", 14)
    assert [place.node_id for place in mara.places] == ["entity:user:a", "entity:user:b-agent:c"]
    assert mara.valid_from == "2026-08-014"
    assert [node.name for node in graph.of_type("fact")] == [
        "Fact of user:b-agent:c",
        "Fact of user:a",
    ]
    assert {edge.start for edge in graph.edges} == {node.key for node in graph.of_type("fact")}
    assert {edge.end for edge in graph.edges} == {("entity", "mara")}
    assert [one.name for one in graph.communities] == ["user:a", "user:b-agent:c"]
    assert graph_reader.read_source_ids(service, mara) == ["of user:a", "both", "of user:b-agent:c"]


def test_a_graph_is_told_by_scores_nodes_and_what_they_cite(tmp_path: Path) -> None:
    (tmp_path / "expected_entities.jsonl").write_text(
        json.dumps({"entities": [{"name": "Mara"}, {"name": "Keel"}]})
    )
    rows = [
        {**row, "type": kind}
        for row, kind in zip(ROWS, ("fact", "decision", "relation"), strict=True)
    ]
    (tmp_path / "expected_graph.jsonl").write_text("\n".join(map(json.dumps, rows)))
    graph = sample()
    sources = {
        key("fact", ALLERGY): ["one"],
        key("fact", "Mara found Cod."): ["two"],
        key("decision", "We decided to keep Cod ashore"): ["two"],
    }

    class Events:
        def get(self, path: str) -> dict[str, Any]:
            assert path == "/api/v1/events/two?participants=agent:keel&participants=user:mara"
            return {
                "speaker": "user:mara",
                "role": "user",
                "content": "We decided to keep Cod ashore.",
                "occurred_at": "2026-08-05T10:00:00Z",
            }

        def post(self, path: str, body: object) -> dict[str, Any]:
            raise AssertionError

    talk = Talk("Wave buoys", tmp_path, [PEOPLE], IDS)
    lines = list(demo_graph_report.describe_graph(Events(), talk, graph, sources))
    text = "\n".join(lines)
    assert "Wave buoys: 9 nodes, 11 edges" in lines
    cells = {line.split()[0]: line.split()[1:] for line in lines[2:7]}
    assert cells["entities"] == ["4", "1", "2", "0.25", "0.50"]
    assert cells["facts"] == ["2", "1", "1", "0.50", "1.00"]
    assert cells["decisions"] == ["1", "0", "1", "0.00", "0.00"]
    assert cells["relations"] == ["1", "1", "1", "1.00", "1.00"]
    assert "Mara (person), Linnea (person), Nuts" in text
    assert "    2026-08-05  Mara found Cod." in lines
    assert '        cited: Mara, 5 August 2026, 10:00: "We decided to keep Cod ashore."' in lines
    assert "    Linnea → RELATES_TO → Mara (sister)" in lines
    assert "      5 nodes  Mara, nuts" in lines


@pytest.mark.parametrize("folder", list(demo.TITLES), ids=lambda folder: folder.name)
def test_what_is_expected_names_events_that_there_are(folder: Path, repository: Path) -> None:
    events = {event["source_event_key"] for event in demo.load_events(repository / folder)}
    expected = demo_scores.read_expectations(repository / folder)
    assert {row["event"] for row in expected.statements} <= events
    assert {row["type"] for row in expected.statements} == {"fact", "decision", "relation"}
    assert expected.entities
