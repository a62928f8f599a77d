"""The heuristic extractor: how much of what it writes into the graph is right, and how much of what
people expect there it finds.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.graph_extraction [--list]

What is expected was written down by reading the conversations, before anything extracted it:
`expected_graph.jsonl` of events/demo and events/orchard, and `tests/bench/expected_graph`. A fact
or a decision is right where its event is expected to state one that holds the same words; a
relation where one between the same two is expected. Topics are cut as people cut them.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import GraphExtraction
from tests.bench import talks
from tests.bench.scores import Score
from tests.bench.talks import Talk

type Kind = Literal["fact", "decision", "relation"]

FOLDER = Path(__file__).parent
ORCHARD = talks.DEMO.parent / "orchard"
CONVERSATIONS: Mapping[Path, Path] = {
    talks.DEMO: talks.DEMO / "expected_graph.jsonl",
    ORCHARD: ORCHARD / "expected_graph.jsonl",
    FOLDER / "corpus" / "parents.jsonl": FOLDER / "expected_graph" / "parents.jsonl",
}
"""Conversations, and what their graphs are expected to hold."""
SUBJECTS = {
    "demo": "Six wave buoys (events/demo)",
    "orchard": "An autumn of pressing apples (events/orchard)",
    "parents": "Care for elderly parents (tests/bench/corpus/parents.jsonl)",
}
"""What they are about, and where they lie."""


class Item(NamedTuple):
    """A fact, a decision or a relation that was extracted."""

    kind: Kind
    event: str
    """The key of the event that states it."""
    text: str
    """Of a relation, both names."""


@dataclass(frozen=True)
class Expectation:
    """One that people expect."""

    kind: Kind
    event: str
    words: Sequence[str]

    def is_met_by(self, item: Item) -> bool:
        """Whether this is the one."""
        text = item.text.casefold()
        return (self.kind, self.event) == (item.kind, item.event) and all(
            word.casefold() in text for word in self.words
        )


def read_expectations(path: Path) -> list[Expectation]:
    """The expectations of a file. Raises OSError, KeyError and ValueError."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Expectation(row["type"], row["event"], row.get("says") or row["between"]) for row in rows
    ]


def extract(talk: Talk) -> list[Item]:
    """What the heuristic model extracts from a conversation, topic by topic."""
    model, items = HeuristicModel(), list[Item]()
    for topic in _topics(talk):
        events = [event.prompt for event in topic]
        extraction = model.extract(events, model.entities(events).entities)
        items += _items(extraction, [event.key for event in topic])
    return items


def _topics(talk: Talk) -> Iterator[Sequence[talks.Event]]:
    lanes: dict[str, list[list[talks.Event]]] = defaultdict(list)
    for event in talk.events:
        runs = lanes[event.turn.session_id]
        if not runs or event.key in talk.expected.starts:
            runs.append([])
        runs[-1].append(event)
    for runs in lanes.values():
        yield from runs


def _items(extraction: GraphExtraction, keys: Sequence[str]) -> Iterator[Item]:
    for fact in extraction.facts:
        yield Item("fact", keys[fact.events[0] - 1], fact.content)
    for decision in extraction.decisions:
        yield Item("decision", keys[decision.events[0] - 1], decision.title)
    for relation in extraction.relations:
        text = f"{relation.source} {relation.target}"
        yield Item("relation", keys[relation.events[0] - 1], text)


def score(items: Sequence[Item], expectations: Sequence[Expectation]) -> dict[Kind, Score]:
    """Of each kind, how many items meet an expectation, and how many expectations are met."""
    scores: dict[Kind, Score] = {}
    for kind in ("fact", "decision", "relation"):
        results = [item for item in items if item.kind == kind]
        expected = [one for one in expectations if one.kind == kind]
        right = [item for item in results if any(one.is_met_by(item) for one in expected)]
        matches = [one for one in expected if any(one.is_met_by(item) for item in results)]
        scores[kind] = Score(min(len(right), len(matches)), len(results), len(expected))
    return scores


def table_rows(name: str, scores: Mapping[Kind, Score]) -> Iterator[str]:
    """The rows of a conversation in the table of docs/graph.md."""
    for kind, result in scores.items():
        results = f"{result.right} of {result.found}" if result.found else "none"
        precision = f"{result.precision:.2f}" if result.found else "none"
        figures = f"{results} | {result.expected} | {precision} | {result.recall:.2f}"
        yield f"| {SUBJECTS[name]} | {kind}s | {figures} |"


def main() -> None:
    """Print the scores as rows of the table, with `--list` what was extracted and whether it is
    right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="list what was extracted")
    arguments = parser.parse_args()
    for path, expected_path in CONVERSATIONS.items():
        expectations = read_expectations(expected_path)
        items = extract(talks.read(path))
        for row in table_rows(path.stem, score(items, expectations)):
            print(row)
        for item in items if arguments.list else ():
            mark = "right" if any(one.is_met_by(item) for one in expectations) else "     "
            print(f"    {mark} {item.kind:9} {item.event} {item.text}")


if __name__ == "__main__":
    main()
