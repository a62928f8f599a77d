"""Scores the graph of a conversation against expectations that people wrote down beforehand."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from strandline.graph.nodes.identity import normalise
from strandline.local.graph_reader import Graph

type Rows = Sequence[Mapping[str, Any]]


class ItemKindScore(NamedTuple):
    """Counts for one kind: items in the graph, items among them that are expected, expectations
    that are met, and all expectations."""

    total: int
    right: int
    matches: int
    expected: int

    @property
    def precision(self) -> float:
        """The share of the items in the graph that are expected; 1 if there are none."""
        return self.right / self.total if self.total else 1.0

    @property
    def recall(self) -> float:
        """The share of expectations that are met; 1 if there are none."""
        return self.matches / self.expected if self.expected else 1.0


class Statement(NamedTuple):
    """A fact or a decision, or a relation by the names of both its ends."""

    text: str
    event_ids: frozenset[str] | None
    """The events that it cites; None where the API does not say."""


class Expectations(NamedTuple):
    """What people expected of a graph, written down before anything was extracted."""

    entities: frozenset[str]
    """Names as they are compared."""
    statements: Rows
    """With the type, the event's key, and words that are in it."""


def read_expectations(folder: Path) -> Expectations:
    """The expectations in a conversation's folder. Raises OSError and ValueError."""
    topics = _read_json_lines(folder / "expected_entities.jsonl")
    names = (normalise(entity["name"]) for topic in topics for entity in topic["entities"])
    return Expectations(frozenset(names), _read_json_lines(folder / "expected_graph.jsonl"))


def score_entities(graph: Graph, expected: frozenset[str]) -> ItemKindScore:
    """An entity is right if its name is expected."""
    names = {name for node_type, name in graph.nodes if node_type == "entity"}
    right = len(names & expected)
    return ItemKindScore(len(names), right, right, len(expected))


def score_statements(
    statements: Sequence[Statement], expectations: Rows, event_ids: Mapping[str, str]
) -> ItemKindScore:
    """A statement is right if it holds all words of an expectation and cites its event. Relations
    are compared by both names alone. `event_ids` has the events by their keys."""
    tests = [_make_test(row, event_ids) for row in expectations]
    right = sum(any(test(one) for test in tests) for one in statements)
    matches = sum(any(map(test, statements)) for test in tests)
    return ItemKindScore(len(statements), right, matches, len(tests))


def _make_test(row: Mapping[str, Any], event_ids: Mapping[str, str]) -> Callable[[Statement], bool]:
    words: Iterable[str] = row.get("says") or row["between"]
    needles, event_id = [word.casefold() for word in words], event_ids[row["event"]]

    def is_met_by(statement: Statement) -> bool:
        text = statement.text.casefold()
        is_cited = statement.event_ids is None or event_id in statement.event_ids
        return is_cited and all(word in text for word in needles)

    return is_met_by


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
