"""Search and traversal of the graph through the API: found, joined, as it was, refused, hidden."""

import importlib
from collections.abc import Sequence
from typing import Any

import pytest

from strandline.embeddings.embedder import Purpose
from strandline.errors import EmbeddingUnavailable
from strandline.graph.nodes import store_joined
from strandline.graph.search import search
from tests.graph_calls import Graph, entity, fact
from tests.strandline.graph.node_search import OTHERS, WHO, ask, call, names, store
from tests.support import Gateway, ScratchDatabase

NODES: list[dict[str, Any]] = [
    {"type": "entity", "ref": "ada", "name": "Ada", "kind": "person"},
    {"type": "entity", "ref": "go", "name": "Go", "kind": "technology"},
    {"type": "topic", "ref": "rowing", "name": "Rowing", "description": "Boats, oars and races."},
    {
        "type": "fact",
        "content": "Ada lives in Oslo",
        "relationships": [{"edge": "fact_entity", "target": "ada"}],
    },
    {
        "type": "fact",
        "content": "The regatta is rowed in June",
        "relationships": [{"edge": "fact_topic", "target": "rowing"}],
    },
    {
        "type": "decision",
        "title": "Buy the red kayak",
        "rationale": "It is the lightest.",
        "relationships": [{"edge": "decision_entity", "target": "ada", "role": "buyer"}],
    },
]


def test_graph_search_finds_node_by_words_then_meaning(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    store(gateway, key, NODES)
    fresh = ask(gateway, key, "search", query="What does Ada's team write in Go?")
    assert {(node["name"], tuple(node["why"])) for node in fresh["nodes"]} >= {
        ("Ada", ("name", "words")),
        ("Go", ("name",)),
    }, "a name of any length"
    assert {node["similarity"] for node in fresh["nodes"]} == {None}
    assert "Ada lives in Oslo" not in names(ask(gateway, key, "search", query="home town"))
    gateway.sweep()
    answer = ask(gateway, key, "search", query="Where is her home?", types=["fact"])
    assert names(answer)[0] == "Ada lives in Oslo"
    assert answer["nodes"][0]["why"] == ["meaning"]
    assert answer["nodes"][0]["similarity"] == answer["nodes"][0]["score"] > 0.2
    assert scratch_db.rows("select count(*) from graph_nodes where space is null") == [(0,)]
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]


def test_graph_search_finds_any_part_of_text(gateway: Gateway) -> None:
    key = gateway.key()
    store(gateway, key, NODES)
    answer = ask(gateway, key, "search", mode="exact", query="THE LIGHT")
    assert names(answer) == ["Buy the red kayak"]
    assert answer["nodes"][0]["why"] == ["text"]
    assert names(ask(gateway, key, "search", mode="exact", query="go")) == ["Go"]
    assert names(ask(gateway, key, "search", mode="exact", query="ada")) == [
        "Ada",
        "Ada lives in Oslo",
    ], "of which it is the largest part first"
    cut = ask(gateway, key, "search", mode="exact", query="o", limit=1)
    assert (len(cut["nodes"]), cut["degraded"]) == (1, ["cut_by_limit"])
    assert names(ask(gateway, key, "search", mode="exact", query="100%_")) == []


def test_graph_search_finds_nodes_within_two_edges(gateway: Gateway) -> None:
    key = gateway.key()
    ada, *_ = store(gateway, key, NODES)
    doubted = {
        "type": "fact",
        "content": "Ada owns a yacht",
        "relationships": [{"edge": "fact_entity", "target": ada, "confidence": 0.3}],
    }
    store(gateway, key, [doubted])
    for query in ("What about Ada?", ada):
        answer = ask(gateway, key, "search", mode="graph", query=query)
        first, *others = [(node["name"], node["hops"]) for node in answer["nodes"]]
        assert first == ("Ada", 0)
        assert sorted(others) == [("Ada lives in Oslo", 1), ("Buy the red kayak", 1)], (
            "an edge of less confidence than 0.5 is not followed"
        )
        assert {(edge["type"], edge["to_id"]) for edge in answer["edges"]} == {
            ("fact_entity", ada),
            ("decision_entity", ada),
        }
    facts = ask(gateway, key, "search", mode="graph", query=ada, types=["fact"], limit=1)
    assert names(facts) == ["Ada lives in Oslo"]


@pytest.mark.parametrize(
    ("start", "traversal", "expected"),
    [
        (0, "facts_about_entity", {"Ada lives in Oslo"}),
        (0, "related_facts", {"Ada lives in Oslo"}),
        (0, "entity_decisions", {"Buy the red kayak"}),
        (0, "neighbours", {"Ada lives in Oslo", "Buy the red kayak"}),
        (2, "topic_contents", {"The regatta is rowed in June"}),
        (3, "related_entities", {"Ada"}),
        (5, "decision_entities", {"Ada"}),
        (3, "invalidation_chain", set[str]()),
    ],
)
def test_graph_traversal_kind_selects_reached_nodes(
    gateway: Gateway, start: int, traversal: str, expected: set[str]
) -> None:
    key = gateway.key()
    ids = store(gateway, key, NODES)
    answer = ask(gateway, key, "traverse", node_id=ids[start], traversal=traversal)
    assert answer["nodes"][0]["id"] == ids[start]
    assert {node["name"] for node in answer["nodes"][1:]} == expected
    assert {node["hops"] for node in answer["nodes"][1:]} <= {1}
    roles = {edge["label"] for edge in answer["edges"] if edge["type"] == "decision_entity"}
    assert roles <= {"buyer"}
    assert bool(answer["edges"]) == bool(expected)


def test_graph_traversal_counts_and_bounds_hops(gateway: Gateway) -> None:
    key = gateway.key()
    chain: list[dict[str, Any]] = [{"type": "entity", "ref": "n0", "name": "node 0"}]
    for n in range(1, 6):
        link = {"edge": "USES", "target": f"n{n - 1}"}
        chain.append(
            {"type": "entity", "ref": f"n{n}", "name": f"node {n}", "relationships": [link]}
        )
    ids = store(gateway, key, chain)
    for hops in (1, 2, 3):
        answer = ask(gateway, key, "traverse", node_id=ids[0], hops=hops)
        assert [(node["name"], node["hops"]) for node in answer["nodes"]] == [
            (f"node {n}", n) for n in range(hops + 1)
        ]
        assert len(answer["edges"]) == hops
    cut = ask(gateway, key, "traverse", node_id=ids[0], hops=3, limit=2)
    assert (len(cut["nodes"]), cut["degraded"]) == (3, ["cut_by_limit"])


def test_graph_traversal_shows_edges_of_equally_far_nodes(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada uses three boats; four are moored in a row, of which one left since."""
    key, graph = gateway.key(), Graph(gateway, gateway.key(), tuple(WHO))
    boats = [f"boat {n}" for n in range(4)]
    ada, *ids = graph.create(entity("Ada"), *map(entity, boats))
    uses = [graph.relate("USES", ada, boat) for boat in ids[:3]]
    moored = [graph.relate("RELATES_TO", ids[n], ids[n + 1]) for n in range(3)]
    answer = ask(gateway, key, "traverse", node_id=ada)
    assert (names(answer)[0], set(names(answer)[1:])) == ("Ada", set(boats[:3]))
    edge_ids = {edge["id"] for edge in answer["edges"]}
    assert edge_ids == {edge["id"] for edge in (*uses, *moored[:2])}
    assert (answer["degraded"], {node["hops"] for node in answer["nodes"]}) == ([], {0, 1})
    around = ask(gateway, key, "search", mode="graph", query=ada)
    assert {edge["id"] for edge in around["edges"]} == {e["id"] for e in (*uses, *moored)}

    graph.relate("RELATES_TO", ids[0], ids[1])
    with monkeypatch.context() as patch:
        for module in (store_joined, search):
            patch.setattr(module, "MAX_EDGES_BETWEEN", 1)
        cut = ask(gateway, key, "traverse", node_id=ada)
    assert (len(cut["edges"]), cut["degraded"]) == (4, ["cut_by_limit"])
    assert moored[0]["id"] in {edge["id"] for edge in cut["edges"]}, "the heavier one"

    then = graph.recorded_at(moored[1]["event_id"])
    graph.write("POST", f"edges/{moored[1]['id']}/end", reason="She left")
    for when, count in (({}, 4), ({"as_of": then}, 5)):
        assert len(ask(gateway, key, "traverse", node_id=ada, **when)["edges"]) == count


def test_graph_traversal_shows_only_followed_edges(gateway: Gateway) -> None:
    """Two facts about Ada are related by an edge that leads to no fact from an entity."""
    key, graph = gateway.key(), Graph(gateway, gateway.key(), tuple(WHO))
    about = [{"edge": "fact_entity", "target": "ada"}]
    ada, *facts = graph.create(
        entity("Ada", ref="ada"),
        fact("Ada rows", relationships=about),
        fact("Ada sails", relationships=about),
    )
    graph.relate("RELATES_TO", *facts)
    for traversal, count in (("neighbours", 3), ("related_facts", 2)):
        answer = ask(gateway, key, "traverse", node_id=ada, traversal=traversal)
        assert (len(answer["nodes"]), len(answer["edges"])) == (3, count)


def test_graph_search_joins_same_name_over_scopes(gateway: Gateway) -> None:
    key = gateway.key()
    ids = store(gateway, key, NODES)
    link = {"edge": "fact_entity", "target": "ada"}
    more = [NODES[0], {"type": "fact", "content": "Ada has a dog", "relationships": [link]}]
    others = store(gateway, key, more, OTHERS)
    answer = ask(gateway, key, "traverse", node_id=ids[0], traversal="related_facts")
    assert set(names(answer)) == {"Ada", "Ada lives in Oslo", "Ada has a dog"}
    assert set(answer["nodes"][0]["members"]) == {ids[0], others[0]}
    assert {edge["to_id"] for edge in answer["edges"]} == {ids[0]}, "the node that the answer names"
    assert names(ask(gateway, key, "search", mode="exact", query="Ada", types=["entity"])) == [
        "Ada"
    ]
    alone = ask(gateway, key, "traverse", node_id=others[0], participants=OTHERS)
    assert names(alone) == ["Ada", "Ada has a dog"]


def test_graph_search_as_of_earlier_time_finds_replaced_fact(gateway: Gateway) -> None:
    key = gateway.key()
    ada, _, _, oslo, *_ = store(gateway, key, NODES)
    gateway.sweep()
    reply = gateway.call("GET", f"/api/v1/graph/nodes/{oslo}", key=key, query={"participants": WHO})
    bergen = {
        "type": "fact",
        "content": "Ada lives in Bergen",
        "invalidates": oslo,
        "reason": "She moved.",
        "relationships": [{"edge": "fact_entity", "target": ada}],
    }
    store(gateway, key, [bergen])
    gateway.sweep()
    then = reply.body["updated_at"]
    for when, lives in (({}, "Bergen"), ({"as_of": then}, "Oslo")):
        answer = ask(gateway, key, "search", query="Where does Ada live?", types=["fact"], **when)
        assert f"Ada lives in {lives}" in names(answer)
        assert len([name for name in names(answer) if "lives" in name]) == 1
        exact = ask(gateway, key, "search", mode="exact", query="lives in", **when)
        assert names(exact) == [f"Ada lives in {lives}"]
        about = ask(gateway, key, "traverse", node_id=ada, traversal="related_facts", **when)
        assert names(about)[1:] == [f"Ada lives in {lives}"]
        around = ask(gateway, key, "search", mode="graph", query=ada, types=["fact"], **when)
        assert names(around) == [f"Ada lives in {lives}"]
    chain = ask(gateway, key, "traverse", node_id=oslo, traversal="invalidation_chain")
    assert names(chain) == ["Ada lives in Oslo", "Ada lives in Bergen"]
    assert [node["valid_to"] is None for node in chain["nodes"]] == [False, True]
    (edge,) = chain["edges"]
    assert (edge["type"], edge["to_id"]) == ("invalidates", oslo)
    early = call(gateway, key, "traverse", node_id=ada, as_of="2020-01-01T00:00:00Z")
    assert early.status == 404, "it was not known yet"


def test_graph_search_of_nearest_topics_omits_archived(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    store(gateway, key, [*NODES, {"type": "topic", "name": "Tax returns"}])
    gateway.sweep()
    answer = ask(gateway, key, "topics/nearest", query="oars for a race")
    assert names(answer) == ["Rowing", "Tax returns"]
    scratch_db.rows("update graph_nodes set archived = true where name = 'Rowing'")
    assert names(ask(gateway, key, "topics/nearest", query="oars")) == ["Tax returns"]
    body = ask(gateway, key, "topics/nearest", query="oars", archived=True, limit=1)
    assert (names(body), body["nodes"][0]["archived"]) == (["Rowing"], True)


def test_graph_search_without_vector_says_so(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    store(gateway, key, NODES)
    gateway.sweep()

    class Away:
        space, dimensions = "minilm-l6-v2-int8/384", 384

        def embed(
            self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
        ) -> list[list[float]]:
            raise EmbeddingUnavailable("away")

    service: Any = importlib.import_module("functions.query.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", Away())
    answer = ask(gateway, key, "search", query="the regatta")
    assert (names(answer), answer["degraded"]) == (
        ["The regatta is rowed in June"],
        ["no_query_vector"],
    )
    answer = ask(gateway, key, "conflicts", content="Ada lives in Rome")
    assert (answer["conflicts"], answer["degraded"]) == ([], ["no_query_vector", "no_model"])


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("search", {"query": ""}, "query"),
        ("search", {"query": "x", "mode": "vague"}, "mode"),
        ("search", {"query": "x", "types": []}, "types"),
        ("search", {"query": "x", "limit": 51}, "limit"),
        ("search", {"query": "x", "as_of": "yesterday"}, "as_of"),
        ("traverse", {}, "node_id"),
        ("traverse", {"node_id": "ent:x", "traversal": "away"}, "traversal"),
        ("traverse", {"node_id": "ent:x", "hops": 4}, "hops"),
        ("traverse", {"node_id": "ent:x", "limit": 501}, "limit"),
        ("conflicts", {"content": "x", "node_id": "fact:x"}, "body"),
        ("conflicts", {"threshold": 0}, "threshold"),
        ("analyze", {"content": ""}, "content"),
        ("topics/nearest", {"query": "x", "archived": "no"}, "archived"),
    ],
)
def test_graph_search_refuses_invalid_field_by_name(
    gateway: Gateway, path: str, body: dict[str, object], field: str
) -> None:
    reply = call(gateway, gateway.key(), path, **body)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)


def test_graph_traversal_refuses_wrong_start(gateway: Gateway) -> None:
    key = gateway.key()
    ada, *_ = store(gateway, key, NODES)
    reply = call(gateway, key, "traverse", node_id=ada, traversal="decision_entities")
    assert (reply.status, reply.error["details"]["field"]) == (422, "traversal")
    reply = call(gateway, key, "traverse", node_id=ada.replace("ent:", "topic:"))
    assert reply.status == 404
    assert call(gateway, key, "conflicts", node_id=ada).error["details"]["field"] == "node_id"


def test_graph_search_is_hidden_from_non_participants(gateway: Gateway) -> None:
    ids = store(gateway, gateway.key(), NODES)
    gateway.sweep()
    strangers = {
        gateway.key(user="user:bo"): [],
        gateway.key("globex"): ["user:ada"],
        gateway.key("globex", user="user:ada", rights=("read", "admin")): [],
    }
    for key, who in strangers.items():
        more: dict[str, object] = {"participants": who} if who else {"participants": None}
        for body in ({}, {"mode": "exact"}, {"mode": "graph"}):
            answer = ask(gateway, key, "search", query="Ada", **body, **more)
            assert (answer["nodes"], answer["edges"]) == ([], [])
        assert ask(gateway, key, "topics/nearest", query="Rowing", **more)["nodes"] == []
        assert ask(gateway, key, "analyze", content="Ada", **more)["related"] == []
        assert call(gateway, key, "traverse", node_id=ids[0], **more).status == 404
        by_id = call(gateway, key, "search", mode="graph", query=ids[0], **more)
        assert by_id.status == 404
        stated = ask(gateway, key, "conflicts", content="Ada lives in Rome", **more)
        assert (stated["conflicts"], stated["compared"]) == ([], 0)
    together = ask(gateway, gateway.key(), "search", query="Ada", participants=[*WHO, "user:bo"])
    assert together["nodes"] == []


def test_graph_traversal_edge_has_first_and_last_seen(gateway: Gateway) -> None:
    graph = Graph(gateway, gateway.key())
    ada, boat = graph.create(entity("Ada"), entity("the Petrel"))
    moments = [
        graph.recorded_at(graph.relate("USES", ada, boat)["event_id"]),
        graph.recorded_at(graph.relate("USES", ada, boat)["event_id"]),
    ]

    def traverse(**more: Any) -> Any:
        fields = {"participants": graph.who, "node_id": ada, **more}
        reply = gateway.call("POST", "/api/v1/graph/traverse", fields, key=graph.key)
        (edge,) = reply.body["edges"]
        return edge["created_at"], edge["last_seen"]

    assert traverse() == (moments[0], moments[1])
    assert moments[0] < moments[1]
    assert traverse(as_of=moments[0]) == (moments[0], moments[0])
