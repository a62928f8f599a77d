"""The part of `make demo` about the knowledge graph: promote the conversation, print what the graph
holds of it, and hold that against what was expected beforehand."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from strandline.local.demo_service import Client

TYPES: Mapping[str, str] = {
    "entity": "entities",
    "fact": "facts",
    "decision": "decisions",
    "topic": "topics",
}
"""The types of nodes that are shown, and the words for them."""
_SCORED = ("fact", "decision")
_MAX_SHOWN = 8


class GraphScore(NamedTuple):
    """How many nodes there are, how many of them are expected, and how many are expected in all."""

    found: int
    right: int
    met: int
    expected: int

    def __str__(self) -> str:
        precision = self.right / self.found if self.found else 1.0
        recall = self.met / self.expected if self.expected else 1.0
        return f"precision {precision:.2f}, recall {recall:.2f}"


def read_nodes(
    client: Client, audiences: Sequence[tuple[str, ...]], node_type: str
) -> dict[str, dict[str, Any]]:
    """All nodes of a type that these groups of people see, by their ids, those of most weight
    first."""
    nodes: dict[str, dict[str, Any]] = {}
    for people in audiences:
        view = "&".join(f"participants={name}" for name in people)
        path = f"/api/v1/graph/nodes?{view}&type={node_type}&limit=100"
        cursor: str | None = ""
        while cursor is not None:
            page = client.get(f"{path}&cursor={cursor}" if cursor else path)
            nodes |= {node["id"]: node for node in page["nodes"]}
            cursor = page["next_cursor"]
    return dict(sorted(nodes.items(), key=lambda item: (-item[1]["weight"], item[1]["name"])))


def score_nodes(
    names: Sequence[str], expectations: Sequence[Mapping[str, Any]], node_type: str
) -> GraphScore:
    """Hold the names of a type's nodes against what is expected: a node is right where all words of
    an expectation stand in its name."""
    wanted = [
        [word.casefold() for word in row["says"]]
        for row in expectations
        if row["type"] == node_type
    ]
    texts = [name.casefold() for name in names]
    right = sum(any(_holds(text, words) for words in wanted) for text in texts)
    met = sum(any(_holds(text, words) for text in texts) for words in wanted)
    return GraphScore(len(texts), right, met, len(wanted))


def _holds(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def describe_graph(nodes: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> Iterator[str]:
    """The lines about the nodes of each type, with the scores of facts and decisions against the
    expectations in `folder`."""
    lines = (folder / "expected_graph.jsonl").read_text().splitlines()
    expectations = [json.loads(line) for line in lines]
    for node_type, word in TYPES.items():
        found = nodes[node_type]
        score = ""
        if node_type in _SCORED:
            names = [node["name"] for node in found]
            score = f" ({score_nodes(names, expectations, node_type)})"
        yield f"  {len(found)} {word}{score}"
        yield from (f"    {node['name']}" for node in found[:_MAX_SHOWN])


def show_graph(client: Client, audiences: Sequence[tuple[str, ...]], folder: Path) -> None:
    """Print what the graph holds of the conversation."""
    nodes = {
        node_type: list(read_nodes(client, audiences, node_type).values()) for node_type in TYPES
    }
    print("\nWHAT IT KNOWS FOR GOOD")
    print(
        "Warm topics are promoted into a graph, without a language model; each node cites what\n"
        "was said. Held against what people expected of it beforehand:"
    )
    for line in describe_graph(nodes, folder):
        print(line)
