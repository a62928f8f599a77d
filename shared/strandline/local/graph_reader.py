"""A tenant's knowledge graph as some groups of people see it, read through the API."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from strandline.graph.nodes.identity import normalise

_PAGE = 100
_MAX_REACHED = 500

type People = tuple[str, ...]
type Key = tuple[str, str]
"""A node's type and its name as it is compared."""


class ApiClient(Protocol):
    """Calls to the service."""

    def get(self, path: str) -> dict[str, Any]:
        """The answer's body."""
        ...

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer's body."""
        ...


class ViewedNodeId(NamedTuple):
    """A node's id in the API, and the participants for whom it is read."""

    people: People
    """On behalf of whom it is read."""
    node_id: str


@dataclass(frozen=True)
class Node:
    """A node, joined over all groups of people who see one of its type and name."""

    type: str
    name: str
    kind: str
    """An entity's kind, a fact's category, a decision's status; "" of others."""
    weight: int
    """The number of observations, as seen by the group that sees most."""
    valid_from: str
    places: Sequence[ViewedNodeId]

    @property
    def key(self) -> Key:
        """What it is joined by."""
        return self.type, normalise(self.name)


class Edge(NamedTuple):
    """An edge between two nodes."""

    start: Key
    end: Key
    type: str
    label: str
    """Of `related` its kind, of `decision_entity` the role; else empty."""
    nuance: str


class Community(NamedTuple):
    """A group of nodes that are linked more to each other than to other nodes."""

    name: str
    size: int
    nodes: Sequence[Key]
    """The first first."""


@dataclass(frozen=True)
class Graph:
    """The union of what all groups see."""

    nodes: dict[Key, Node]
    """Those of most weight first."""
    edges: Sequence[Edge]
    communities: Sequence[Community]
    """The largest first."""

    def of_type(self, node_type: str) -> list[Node]:
        """The nodes of a type, those of most weight first."""
        return [node for node in self.nodes.values() if node.type == node_type]

    def relations(self) -> list[Edge]:
        """The edges between entities."""
        return [edge for edge in self.edges if edge.start[0] == edge.end[0] == "entity"]


def choose_views(audiences: Iterable[People]) -> list[People]:
    """The groups that together see everything: a group's events are visible to each of its subsets,
    so a group is left out if a proper subset of it is among them."""
    groups = list(dict.fromkeys(audiences))
    return [group for group in groups if not any(set(other) < set(group) for other in groups)]


def read_graph(client: ApiClient, views: Sequence[People]) -> Graph:
    """All nodes, edges and communities that these groups of people see."""
    nodes: dict[Key, Node] = {}
    edges: dict[Edge, None] = {}
    communities: dict[str, Community] = {}
    for people in views:
        view_nodes = list(_read_nodes(client, people))
        for node in view_nodes:
            existing = nodes.get(node.key)
            nodes[node.key] = _join_nodes(existing, node) if existing else node
        edges |= dict.fromkeys(_read_edges(client, view_nodes))
        communities |= _read_communities(client, people)
    by_weight = sorted(nodes.values(), key=lambda node: (-node.weight, node.key))
    return Graph(
        {node.key: node for node in by_weight},
        sorted(edges),
        sorted(communities.values(), key=lambda one: (-one.size, one.name, one.nodes)),
    )


def read_source_ids(client: ApiClient, node: Node) -> list[str]:
    """The ids of the events that a node rests on, in the order of its observations."""
    events: dict[str, None] = {}
    for people, node_id in node.places:
        path = f"/api/v1/graph/nodes/{node_id}/history"
        for observation in _read_pages(client, path, people, "observations"):
            events |= dict.fromkeys(observation["event_ids"])
    return list(events)


def _read_nodes(client: ApiClient, people: People) -> Iterator[Node]:
    for row in _read_pages(client, "/api/v1/graph/nodes", people, "nodes"):
        properties = row["properties"]
        kinds = (properties.get(name) for name in ("kind", "category", "status"))
        yield Node(
            row["type"],
            row["name"],
            next((kind for kind in kinds if kind), ""),
            row["weight"],
            row["valid_from"],
            [ViewedNodeId(people, row["id"])],
        )


def _join_nodes(first: Node, second: Node) -> Node:
    return replace(
        max(first, second, key=lambda node: node.weight),
        valid_from=min(first.valid_from, second.valid_from),
        places=[*first.places, *second.places],
    )


def _read_edges(client: ApiClient, nodes: Iterable[Node]) -> Iterator[Edge]:
    """The edges of these nodes. Topics are not queried: edges between a topic and another node are
    found from that node. Edges between two topics are left out."""
    for node in nodes:
        if node.type == "topic":
            continue
        (place,) = node.places
        body = {"participants": place.people, "node_id": place.node_id, "limit": _MAX_REACHED}
        answer = client.post("/api/v1/graph/traverse", body)
        keys = {row["id"]: (row["type"], normalise(row["name"])) for row in answer["nodes"]}
        for row in answer["edges"]:
            nuance = row["properties"].get("nuance") or ""
            yield Edge(keys[row["from_id"]], keys[row["to_id"]], row["type"], row["label"], nuance)


def _read_communities(client: ApiClient, people: People) -> dict[str, Community]:
    """The communities that a group sees, by their ids."""
    path = "/api/v1/graph/communities"
    return {
        row["community_id"]: Community(
            row["name"],
            row["size"],
            [
                (node["type"], normalise(node["name"]))
                for node in _read_pages(client, f"{path}/{row['community_id']}", people, "nodes")
            ],
        )
        for row in _read_pages(client, path, people, "communities")
    }


def _read_pages(
    client: ApiClient, path: str, people: People, name: str
) -> Iterator[dict[str, Any]]:
    """The entries of all pages of a list."""
    query: dict[str, object] = {"participants": people, "limit": _PAGE}
    while True:
        page = client.get(f"{path}?{urlencode(query, doseq=True)}")
        yield from page[name]
        if not page["next_cursor"]:
            return
        query["cursor"] = page["next_cursor"]
