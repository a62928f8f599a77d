"""The part of `make demo` about the knowledge graph: prints what the graph holds of a conversation,
compares it with what was expected beforehand, and draws it."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from strandline.local.demo_scores import (
    ItemKindScore,
    Statement,
    read_expectations,
    score_entities,
    score_statements,
)
from strandline.local.graph_picture import draw_graph
from strandline.local.graph_reader import (
    ApiClient,
    Graph,
    Key,
    Node,
    People,
    choose_views,
    read_graph,
    read_source_ids,
)

_WIDTH = 92
_MAX_ENTITIES, _MAX_FACTS, _MAX_DECISIONS, _MAX_RELATIONS, _MAX_COMMUNITIES = 24, 8, 5, 6, 5
_QUOTE = 120


@dataclass(frozen=True)
class Talk:
    """A conversation that was stored."""

    title: str
    """What it is about."""
    folder: Path
    """What its graph is expected to hold."""
    audiences: Sequence[People]
    event_ids: Mapping[str, str]
    """Its events' ids by their keys."""


def show_graph(client: ApiClient, talk: Talk, picture: Path) -> None:
    """Print what the graph holds of a conversation, and write a picture of it."""
    graph = read_graph(client, choose_views(talk.audiences))
    sources = {
        node.key: read_source_ids(client, node)
        for node in (*graph.of_type("fact"), *graph.of_type("decision"))
    }
    for line in describe_graph(client, talk, graph, sources):
        print(line)
    picture.write_text(draw_graph(graph, f"Knowledge graph: {talk.title}"), "utf-8")
    print(f"  A picture of it: {picture}")


def describe_graph(
    client: ApiClient, talk: Talk, graph: Graph, sources: Mapping[Key, Sequence[str]]
) -> Iterator[str]:
    """The lines about a graph: its scores, and some nodes and edges of each kind. `sources` has the
    events that facts and decisions cite."""
    yield ""
    yield f"{talk.title}: {len(graph.nodes)} nodes, {len(graph.edges)} edges"
    yield from _describe_scores(score_graph(talk, graph, sources))
    yield from _describe_entities(graph.of_type("entity"))
    facts, decisions = graph.of_type("fact"), graph.of_type("decision")
    yield from _describe_items("Facts", facts, _MAX_FACTS, _describe_fact)
    yield from _describe_items(
        "Decisions",
        decisions,
        _MAX_DECISIONS,
        lambda node: _describe_decision(client, node, sources[node.key]),
    )
    yield from _describe_items(
        "Relations",
        graph.relations(),
        _MAX_RELATIONS,
        lambda edge: _wrap(
            f"{graph.nodes[edge.start].name} → {edge.label or edge.type} → "
            f"{graph.nodes[edge.end].name}" + (f" ({edge.nuance})" if edge.nuance else "")
        ),
    )
    yield from _describe_items(
        "Communities",
        graph.communities,
        _MAX_COMMUNITIES,
        lambda one: _wrap(f"{one.size:3} nodes  {one.name}"),
    )


def score_graph(
    talk: Talk, graph: Graph, sources: Mapping[Key, Sequence[str]]
) -> dict[str, ItemKindScore]:
    """The scores of each kind against the expectations."""
    expected = read_expectations(talk.folder)
    statements_by_kind = {
        node_type: [
            Statement(node.name, frozenset(sources[node.key])) for node in graph.of_type(node_type)
        ]
        for node_type in ("fact", "decision")
    }
    statements_by_kind["relation"] = [
        Statement(f"{graph.nodes[edge.start].name} {graph.nodes[edge.end].name}", None)
        for edge in graph.relations()
    ]
    return {
        "entities": score_entities(graph, expected.entities),
        **{
            f"{kind}s": score_statements(
                statements,
                [row for row in expected.statements if row["type"] == kind],
                talk.event_ids,
            )
            for kind, statements in statements_by_kind.items()
        },
    }


def _describe_scores(scores: Mapping[str, ItemKindScore]) -> Iterator[str]:
    yield "              found   right   expected   precision   recall"
    for kind, score in scores.items():
        precision = f"{score.precision:.2f}" if score.total else "none"
        yield (
            f"  {kind:10} {score.total:7} {score.right:7} {score.expected:10} {precision:>11} "
            f"{score.recall:8.2f}"
        )


def _describe_entities(entities: Sequence[Node]) -> Iterator[str]:
    names = [
        f"{node.name} ({node.kind})" if node.kind not in ("", "other") else node.name
        for node in entities[:_MAX_ENTITIES]
    ]
    yield f"  Entities{_describe_count(len(names), len(entities))}"
    yield from _wrap(", ".join(names))


def _describe_fact(node: Node) -> list[str]:
    return _wrap(f"{node.valid_from[:10]}  {node.name}")


def _describe_decision(client: ApiClient, node: Node, event_ids: Sequence[str]) -> list[str]:
    """A decision, and the first event that it cites."""
    lines = _wrap(f"{node.valid_from[:10]}  {node.name}")
    if not event_ids:
        return lines
    event = _read_event(client, node, event_ids[0])
    speaker = (event["speaker"] or event["role"]).rpartition(":")[2].capitalize()
    at = datetime.fromisoformat(event["occurred_at"])
    quote = textwrap.shorten(event["content"] or "", _QUOTE, placeholder=" …")
    quotation = f'{speaker}, {at.day} {at:%B %Y, %H:%M}: "{quote}"'
    return [*lines, *_wrap(f"cited: {quotation}", "        ")]


def _read_event(client: ApiClient, node: Node, event_id: str) -> dict[str, Any]:
    """An event that a node cites, as those see it who see the node."""
    people = node.places[0].people
    query = "&".join(f"participants={name}" for name in people)
    return client.get(f"/api/v1/events/{event_id}?{query}")


def _describe_items[T](
    title: str, items: Sequence[T], limit: int, describe: Callable[[T], Sequence[str]]
) -> Iterator[str]:
    yield f"  {title}{_describe_count(min(limit, len(items)), len(items))}"
    for item in items[:limit]:
        yield from describe(item)


def _describe_count(count: int, total: int) -> str:
    if not total:
        return ": none"
    return f", {count} of {total}:" if count < total else ":"


def _wrap(text: str, indent: str = "    ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
