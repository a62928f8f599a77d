"""Nodes of the graph as lists, and their history, through the API."""

from typing import Any

import pytest

from tests.graph_calls import WHO, Graph, entity, fact, topic
from tests.support import Gateway


@pytest.fixture
def graph(gateway: Gateway) -> Graph:
    """For an unbound key, among ada and her helper."""
    return Graph(gateway, gateway.key())


def names(graph: Graph, **query: Any) -> list[str]:
    """The names of the first page."""
    return [node["name"] for node in graph.read("nodes", **query)["nodes"]]


def pages(graph: Graph, **query: Any) -> list[str]:
    """The names of all pages."""
    results: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = graph.read("nodes", **query, **cursor)
        results += [node["name"] for node in page["nodes"]]
        if page["next_cursor"] is None:
            return results
        cursor = {"cursor": page["next_cursor"]}


def test_graph_list_filters_by_node_fields(graph: Graph) -> None:
    buy = {"type": "decision", "title": "Buy a kayak", "rationale": "It is light."}
    sell = {**buy, "title": "Sell the boat", "status": "superseded"}
    ids = graph.create(
        entity("Ada", kind="person"),
        entity("Oslo", kind="place"),
        fact("Ada rows", category="preference"),
        fact("Ada is tall", category="personal"),
        *(buy, sell, topic("rowing")),
    )
    graph.write("PATCH", f"nodes/{ids[1]}", archived=True)
    order = {"sort": "name", "order": "asc"}
    assert names(graph, **order) == [
        *("Ada", "Ada is tall", "Ada rows", "Buy a kayak", "rowing", "Sell the boat")
    ]
    assert names(graph, type="entity") == ["Ada"]
    assert names(graph, type="entity", archived=True, **order) == ["Ada", "Oslo"]
    assert names(graph, category="place", archived="true") == ["Oslo"]
    assert names(graph, category="preference") == ["Ada rows"]
    assert names(graph, status="active") == ["Buy a kayak"]
    assert names(graph, type="decision", status="superseded") == ["Sell the boat"]
    assert names(graph, type="fact", status="active") == []
    assert graph.read("nodes", type="topic")["nodes"] == [graph.read(f"nodes/{ids[6]}")]


@pytest.mark.parametrize("sort", ["updated_at", "created_at", "name", "weight", "confidence"])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_graph_list_pages_keep_first_page_state(graph: Graph, sort: str, order: str) -> None:
    nodes = [topic(f"Topic {n % 3}{n}", confidence=0.1 * (n % 4)) for n in range(9)]
    ids = graph.create(*nodes)
    graph.create(*nodes[:4])
    query = {"sort": sort, "order": order}
    whole = names(graph, **query)
    assert sorted(whole) == sorted(node["name"] for node in nodes)
    assert pages(graph, **query, limit=2) == whole
    if sort == "name":
        assert whole == sorted(whole, reverse=order == "desc")
    page = graph.read("nodes", **query, limit=4)
    results = [node["name"] for node in page["nodes"]]
    graph.write("PATCH", f"nodes/{ids[5]}", archived=True)
    graph.create(topic("a new one"), *nodes[4:])
    while page["next_cursor"]:
        page = graph.read("nodes", **query, limit=4, cursor=page["next_cursor"])
        results += [node["name"] for node in page["nodes"]]
    assert results == whole


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"type": "person"}, 422, "type"),
        ({"category": "weather"}, 422, "category"),
        ({"sort": "colour"}, 422, "sort"),
        ({"limit": 101}, 422, "limit"),
        ({"limit": 0}, 422, "limit"),
        ({"as_of": "yesterday"}, 422, "as_of"),
        ({"archived": "yes"}, 422, "archived"),
        ({"cursor": "x"}, 400, "cursor"),
        ({"colour": "red"}, 422, "colour"),
    ],
    ids=str,
)
def test_graph_list_refuses_invalid_query_by_field(
    graph: Graph, query: dict[str, Any], status: int, field: str
) -> None:
    reply = graph.ask("nodes", **query)
    assert (reply.status, reply.error["details"]["field"]) == (status, field)


def test_graph_list_cursor_is_bound_to_its_list(graph: Graph) -> None:
    graph.create(topic("a"), topic("b"), topic("c"))
    cursor = graph.read("nodes", limit=1)["next_cursor"]
    for path, query in (
        ("nodes", {"type": "topic"}),
        ("nodes", {"order": "asc"}),
        ("nodes", {"participants": ["user:ada"]}),
        (f"nodes/{graph.create(topic('a'))[0]}/history", {}),
    ):
        reply = graph.ask(path, cursor=cursor, **query)
        assert (reply.status, reply.error["details"]) == (400, {"field": "cursor"}), path


def test_graph_list_joins_nodes_of_several_scopes(graph: Graph) -> None:
    """Joined, with what the latest said; only what all readers may see."""
    other = Graph(graph.gateway, graph.key, ("agent:helper", "user:ada", "user:bo"))
    (ada,) = graph.create(entity("Ada", kind="person", confidence=0.4))
    (same,) = other.create(entity("ADA", kind="other", description="A sailor", confidence=0.6))
    (node,) = graph.read("nodes")["nodes"]
    assert (node["id"], node["name"]) == (ada, "Ada")
    assert set(node["members"]) == {ada, same}
    assert node["properties"] == {"kind": "other", "description": "A sailor"}
    assert (node["weight"], node["confidence"]) == (2, pytest.approx(0.5))
    assert names(graph, category="other") == ["Ada"]
    assert names(graph, category="person") == [], "the latest says what it is"
    (view,) = other.read("nodes")["nodes"]
    assert (view["id"], view["members"], view["weight"]) == (same, [same], 1)
    graph.write("PATCH", f"nodes/{ada}", archived=True)
    assert names(graph) == ["Ada"], "elsewhere it is not archived"
    other.write("PATCH", f"nodes/{same}", archived=True)
    assert names(graph) == []


def test_graph_list_shows_no_foreign_nodes(graph: Graph) -> None:
    """Two tenants, and two users of one: another's nodes change no byte of an answer."""
    ada = Graph(graph.gateway, graph.gateway.key(user="user:ada"), ("user:ada",))
    bo = Graph(graph.gateway, graph.gateway.key(user="user:bo"), ("user:bo",))
    far = Graph(graph.gateway, graph.gateway.key("globex", user="user:ada"), ("user:ada",))
    (node,) = ada.create(topic("rowing", description="by ada"))
    paths = ("nodes", f"nodes/{node}", f"nodes/{node}/history", "merges/proposals")
    before = [ada.ask(path).text for path in paths]
    for stranger in (bo, far):
        stranger.create(topic("rowing", description="mine"), topic("rowings"))
        (view, _) = stranger.read("nodes", sort="name", order="asc")["nodes"]
        assert view["properties"] == {"description": "mine"}
        assert stranger.ask(f"nodes/{node}/history").status == 404
    assert [ada.ask(path).text for path in paths] == before
    assert graph.ask("nodes", participants=["user:ada", "user:bo"]).body["nodes"] == []
    unbound = graph.gateway.call("GET", "/api/v1/graph/nodes", key=graph.key)
    assert (unbound.status, unbound.error["details"]["field"]) == (422, "participants")


# history -----------------------------------------------------------------------------------------


def test_graph_history_names_and_cites_speakers(graph: Graph) -> None:
    (ada,) = graph.create(entity("Ada", kind="person"))
    helper = {"speaker": "agent:helper", "description": "A sailor", "confidence": 0.5}
    patched = graph.write("PATCH", f"nodes/{ada}", **helper)
    graph.write("PATCH", f"nodes/{ada}", description=None, archived=True)
    history = graph.read(f"nodes/{ada}/history")
    assert (history["id"], history["members"], history["revisions"]) == (ada, [ada], [])
    observations = history["observations"]
    assert [(o["speakers"], o["changes"], o["is_evidence"], o["trust"]) for o in observations] == [
        (["user:ada"], {"kind": "person"}, True, "user"),
        (["agent:helper"], {"description": "A sailor"}, True, "agent"),
        (["user:ada"], {"description": None, "archived": True}, False, "user"),
    ]
    assert observations[1]["event_ids"] == [patched["event_id"]] == [observations[1]["source_id"]]
    assert [o["confidence"] for o in observations] == [None, 0.5, None]
    assert {(o["source_kind"], o["version"], o["member"]) for o in observations} == {
        ("statement", None, ada)
    }
    times = [o["observed_at"] for o in observations]
    assert times == sorted(times)


def test_graph_history_pages_over_all_members(graph: Graph) -> None:
    other = Graph(graph.gateway, graph.key, ("agent:helper", "user:ada", "user:bo"))
    (ada,) = graph.create(entity("Ada"))
    (same,) = other.create(entity("Ada"))
    for n in range(3):
        graph.write("PATCH", f"nodes/{ada}", description=f"{n}")
    whole = graph.read(f"nodes/{ada}/history")["observations"]
    assert [o["member"] for o in whole] == [ada, same, ada, ada, ada]
    results: list[Any] = []
    cursor: dict[str, str] = {}
    for length in (2, 2, 1):
        page = graph.read(f"nodes/{ada}/history", limit=2, **cursor)
        assert len(page["observations"]) == length
        assert (page["next_cursor"] is None) == (length == 1)
        results += page["observations"]
        cursor = {"cursor": page["next_cursor"]}
    assert results == whole
    assert [o["member"] for o in other.read(f"nodes/{same}/history")["observations"]] == [same]
    assert graph.ask(f"nodes/{ada}/history", participants=["user:bo"]).status == 404


def test_graph_history_is_hidden_from_other_tenant(graph: Graph) -> None:
    (ada,) = graph.create(entity("Ada"))
    far = graph.gateway.key("globex")
    query = {"participants": WHO}
    path = f"/api/v1/graph/nodes/{ada}/history"
    assert graph.gateway.call("GET", path, key=far, query=query).status == 404
    wrong = path.replace("ent:", "topic:")
    assert graph.gateway.call("GET", wrong, key=graph.key, query=query).status == 404
