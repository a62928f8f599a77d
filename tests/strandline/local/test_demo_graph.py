"""What `make demo` says of the graph."""

from pathlib import Path
from typing import Any

from strandline.local import demo_graph
from strandline.local.demo_graph import GraphScore

EXPECTED: list[dict[str, Any]] = [
    {"type": "fact", "says": ["Mara", "cashew"]},
    {"type": "fact", "says": ["sister"]},
    {"type": "decision", "says": ["galvanised"]},
]


def test_nodes_are_held_against_what_was_expected() -> None:
    names = ["Mara has a serious Cashew allergy.", "Mara is tall."]
    score = demo_graph.score_nodes(names, EXPECTED, "fact")
    assert score == GraphScore(found=2, right=1, met=1, expected=2)
    assert str(score) == "precision 0.50, recall 0.50"
    assert str(demo_graph.score_nodes([], [], "decision")) == "precision 1.00, recall 1.00"


def test_each_type_is_counted_and_the_heaviest_named(repository: Path) -> None:
    nodes = {node_type: [{"name": f"one {node_type}"}] * 9 for node_type in demo_graph.TYPES}
    lines = list(demo_graph.describe_graph(nodes, repository / "events" / "demo"))
    assert lines[0] == "  9 entities"
    assert lines.count("    one entity") == 8
    assert "  9 facts (precision 0.00, recall 0.00)" in lines


def test_all_pages_of_all_groups_are_read_once() -> None:
    class Pages:
        def get(self, path: str) -> dict[str, Any]:
            rest = "cursor=next" in path
            one = {"id": f"fact:{'b' if rest else 'a'}", "weight": 2 if rest else 1, "name": path}
            return {"nodes": [one], "next_cursor": None if rest else "next"}

    pages: Any = Pages()
    nodes = demo_graph.read_nodes(pages, [("user:a",), ("user:b", "agent:c")], "fact")
    assert list(nodes) == ["fact:b", "fact:a"]
    assert "participants=user:b&participants=agent:c" in nodes["fact:b"]["name"]
