"""A small graph, as the API answers about it and as `make demo` reads it."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from strandline.graph.nodes.identity import normalise
from strandline.local.graph_reader import Community, Edge, Graph, Key, Node, ViewedNodeId

PEOPLE = ("agent:keel", "user:mara")


def node(node_type: str, name: str, weight: int = 1, kind: str = "") -> Node:
    places = [ViewedNodeId(PEOPLE, f"{node_type}:{name}")]
    return Node(node_type, name, kind, weight, "2026-08-05T10:00:00Z", places)


def key(node_type: str, name: str) -> Key:
    return node_type, normalise(name)


def make_graph(
    nodes: Sequence[Node], edges: Sequence[Edge], communities: Mapping[str, Sequence[Key]]
) -> Graph:
    return Graph(
        {one.key: one for one in nodes},
        edges,
        [Community(name, len(keys), keys) for name, keys in communities.items()],
    )


ALLERGY = "Mara is allergic to cashew nuts, and her auto-injector is in the red pouch."
BAD = '"Cod" <script>alert(1)</script> & Dab'


def sample() -> Graph:
    """Two communities; Mara is at home in the first, and a fact of the second is about her."""
    mara, linnea, nuts = (key("entity", name) for name in ("Mara", "Linnea", "Nuts"))
    cod, topic, other = key("entity", BAD), key("topic", "Allergies"), key("topic", "Buoys")
    fact, late = key("fact", ALLERGY), key("fact", "Mara found Cod.")
    decision = key("decision", "We decided to keep Cod ashore")
    nodes = [
        *(node("entity", name, 3, "person") for name in ("Mara", "Linnea")),
        *(node("entity", name) for name in ("Nuts", BAD)),
        *(node("topic", name) for name in ("Allergies", "Buoys")),
        *(node("fact", name) for name in (ALLERGY, "Mara found Cod.")),
        node("decision", "We decided to keep Cod ashore"),
    ]
    edges = [
        Edge(fact, mara, "fact_entity", "", ""),
        Edge(fact, nuts, "fact_entity", "", ""),
        Edge(fact, topic, "fact_topic", "", ""),
        *(Edge(one, topic, "entity_topic", "", "") for one in (mara, linnea, nuts)),
        Edge(linnea, mara, "RELATES_TO", "", "sister"),
        Edge(late, mara, "fact_entity", "", ""),
        Edge(late, cod, "fact_entity", "", ""),
        Edge(decision, cod, "decision_entity", "kept", ""),
        Edge(cod, other, "entity_topic", "", ""),
    ]
    first = [mara, linnea, nuts, topic, fact]
    return make_graph(nodes, edges, {"Mara, nuts": first, "Cod": [cod, late, decision, other]})


class Service:
    """Answers of the API about one node in two groups' scopes, in pages of one."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        self.paths.append(path)
        parts = urlsplit(path)
        query = parse_qs(parts.query)
        who = "-".join(query["participants"])
        kind = parts.path.rpartition("/")[2]
        if kind == "nodes":
            names = ["Mara", f"Fact of {who}"]
            at = int(query.get("cursor", ["0"])[0])
            node_type = ("entity", "fact")[at]
            row = {
                "id": f"{node_type}:{who}",
                "type": node_type,
                "name": names[at] if who == "user:a" else names[at].replace("Mara", " MARA"),
                "properties": {"kind": "person"} if not at else {"category": "personal"},
                "weight": len(who),
                "valid_from": f"2026-08-0{len(who)}",
            }
            return {"nodes": [row], "next_cursor": None if at else "1"}
        if kind == "history":
            return {"observations": [{"event_ids": [f"of {who}", "both"]}], "next_cursor": None}
        if kind == "communities":
            row = {"community_id": f"c-{who}", "name": who, "size": 2}
            return {"communities": [row], "next_cursor": None}
        return {"nodes": [{"type": "entity", "name": "Mara"}], "next_cursor": None}

    def post(self, path: str, body: Any) -> dict[str, Any]:
        assert path == "/api/v1/graph/traverse"
        who = body["node_id"].partition(":")[2]
        nodes = [
            {"id": "e", "type": "entity", "name": "MARA "},
            {"id": "f", "type": "fact", "name": f"Fact of {who}"},
        ]
        more: dict[str, Any] = {"type": "fact_entity", "label": "", "properties": {}}
        return {"nodes": nodes, "edges": [{"from_id": "f", "to_id": "e", **more}]}
