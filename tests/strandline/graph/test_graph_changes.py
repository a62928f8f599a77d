"""Nodes and edges of the graph are changed and ended through the API, each by a statement."""

from typing import Any

import pytest

from strandline.config import get_settings
from tests.graph_calls import WHO, Graph, entity, fact, topic
from tests.support import Gateway, ScratchDatabase


@pytest.fixture
def graph(gateway: Gateway) -> Graph:
    """For an unbound key, among ada and her helper."""
    return Graph(gateway, gateway.key())


# fields ------------------------------------------------------------------------------------------


def test_graph_patch_changes_named_fields_and_null_clears(graph: Graph) -> None:
    (ada,) = graph.create(entity("Ada", kind="person", description="A rower"))
    reply = graph.write("PATCH", f"nodes/{ada}", description="A sailor")
    assert graph.read(f"nodes/{ada}")["properties"] == {
        "kind": "person",
        "description": "A sailor",
    }
    query = {"participants": WHO}
    path = f"/api/v1/events/{reply['event_id']}"
    event = graph.gateway.call("GET", path, key=graph.key, query=query).body
    assert (event["type"], event["content"]) == ("statement", "Ada: description is A sailor.")
    assert event["metadata"]["graph"] == {
        "update": {"type": "entity", "name": "Ada", "fields": {"description": "A sailor"}}
    }
    graph.write("PATCH", f"nodes/{ada}", description=None, kind="other", name="ada.")
    assert graph.read(f"nodes/{ada}")["properties"] == {"kind": "other"}
    (plan,) = graph.create(
        {"type": "decision", "title": "Buy a kayak", "rationale": "It is light."}
    )
    graph.write("PATCH", f"nodes/{plan}", status="reversed", alternatives=["a canoe"])
    assert graph.read(f"nodes/{plan}")["properties"] == {
        "status": "reversed",
        "rationale": "It is light.",
        "alternatives": ["a canoe"],
    }


def test_graph_patch_is_evidence_only_with_confidence(graph: Graph) -> None:
    (ada,) = graph.create(entity("Ada", confidence=0.4))
    graph.write("PATCH", f"nodes/{ada}", description="A sailor")
    graph.write("PATCH", f"nodes/{ada}", archived=True)
    read = graph.read(f"nodes/{ada}")
    assert (read["weight"], read["confidence"], read["archived"]) == (1, 0.4, True)
    graph.write("PATCH", f"nodes/{ada}", confidence=0.6, archived=False)
    read = graph.read(f"nodes/{ada}")
    assert (read["weight"], read["confidence"], read["archived"]) == (2, 0.5, False)


def test_graph_confidence_halving_is_set_by_tenant(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    operator = graph.gateway.key("ops", rights=["operator"])
    for mode, expected in (("mean", 0.5), ("halving", 0.375), (None, 0.5)):
        tuning = {"tuning": {"edge_confidence": mode}}
        path = "/api/v1/admin/tenants/acme"
        assert graph.gateway.call("PATCH", path, tuning, key=operator).status == 200
        a, b = graph.create(topic(f"a {mode}"), topic(f"b {mode}"))
        for confidence in (0.75, 0.75, 0.0):
            graph.relate("RELATES_TO", a, b, confidence=confidence)
        rows = scratch_db.rows(
            "select e.weight, e.confidence from graph_edges e join graph_nodes n"
            " on n.node_id = e.from_id where n.name = %s",
            f"a {mode}",
        )
        assert rows == [(3, pytest.approx(expected))]
        assert graph.read(f"nodes/{a}")["confidence"] == pytest.approx(0.8)


def test_graph_confidence_halving_is_set_by_deployment(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the tenant says nothing; now, and as of a time."""
    monkeypatch.setenv("STRANDLINE_TUNING", '{"edge_confidence": "halving"}')
    get_settings.cache_clear()
    (ada,) = graph.create(entity("Ada", confidence=0.75))
    graph.create(entity("Ada", confidence=0.75))
    last = graph.write("PATCH", f"nodes/{ada}", confidence=0.0)
    as_of = graph.recorded_at(last["event_id"])
    for when in ({}, {"as_of": as_of}):
        views = [graph.read(f"nodes/{ada}", **when), *graph.read("nodes", **when)["nodes"]]
        for path, body in (
            ("traverse", {"node_id": ada}),
            ("search", {"query": "Ada"}),
            ("search", {"query": ada, "mode": "graph"}),
        ):
            query = {"participants": WHO, **body, **when}
            reply = graph.gateway.call("POST", f"/api/v1/graph/{path}", query, key=graph.key)
            views += reply.body["nodes"]
        assert [node["confidence"] for node in views] == [pytest.approx(0.375)] * 5


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({}, 422, "body"),
        ({"content": "Ada lives in Bergen"}, 409, "content"),
        ({"content": "ADA lives in Oslo."}, 422, "body"),
        ({"description": "x"}, 422, "description"),
        ({"kind": "person"}, 422, "kind"),
        ({"category": "weather"}, 422, "category"),
        ({"category": None}, 422, "category"),
        ({"archived": "yes"}, 422, "archived"),
        ({"confidence": 1.1}, 422, "confidence"),
        ({"colour": "red"}, 422, "colour"),
        ({"participants": ["user:ada"], "archived": True}, 409, "participants"),
    ],
    ids=str,
)
def test_graph_patch_refuses_fixed_field_by_name(
    graph: Graph, scratch_db: ScratchDatabase, fields: dict[str, Any], status: int, field: str
) -> None:
    (node,) = graph.create(fact("Ada lives in Oslo"))
    reply = graph.send("PATCH", f"nodes/{node}", fields)
    assert (reply.status, reply.error["details"]["field"]) == (status, field), reply.text
    if field == "content":
        assert "/invalidate" in reply.error["message"]
    assert scratch_db.rows("select count(*) from events") == [(1,)]


def test_graph_patch_refuses_name_and_points_to_merges(graph: Graph) -> None:
    (ada,) = graph.create(entity("Ada"))
    reply = graph.send("PATCH", f"nodes/{ada}", {"name": "Ada Byron"})
    assert (reply.status, reply.error["details"]["field"]) == (409, "name")
    assert "/graph/merges" in reply.error["message"]
    long = {"description": "\U0001f6f6" * 4000}
    reply = graph.send("PATCH", f"nodes/{ada}", long)
    assert (reply.status, reply.error["details"]["field"]) == (422, "body")


# facts that end ----------------------------------------------------------------------------------


def test_graph_invalidation_keeps_truth_of_each_time(graph: Graph) -> None:
    """Oslo, then Bergen, then Oslo again: three facts, each with its time."""
    first = graph.write("POST", "nodes", nodes=[fact("Ada lives in Oslo", category="personal")])
    oslo = first["nodes"][0]["id"]
    move = graph.write(
        "POST",
        f"nodes/{oslo}/invalidate",
        reason="She moved",
        replacement={"content": "Ada lives in Bergen", "category": "personal"},
    )
    bergen = move["replacement"]
    back = graph.write(
        "POST",
        f"nodes/{bergen}/invalidate",
        reason="She came back",
        replacement={"content": "Ada lives in Oslo"},
    )
    again = back["replacement"]
    assert len({oslo, bergen, again}) == 3

    times = [first["nodes"][0]["event_id"], move["event_id"], back["event_id"]]
    for event_id, content in zip(times, ("Oslo", "Bergen", "Oslo"), strict=True):
        as_of = graph.recorded_at(event_id)
        page = graph.read("nodes", type="fact", as_of=as_of)["nodes"]
        assert [node["name"] for node in page] == [f"Ada lives in {content}"]
    before = graph.read(f"nodes/{oslo}", as_of=graph.recorded_at(times[0]))
    assert (before["valid_to"], before["properties"]) == (None, {"category": "personal"})
    now = graph.read(f"nodes/{oslo}")
    assert now["valid_to"] == move["valid_to"]
    assert now["properties"] == {"category": "personal", "reason": "She moved"}
    assert (now["weight"], now["members"]) == (1, [oslo])

    for node in (oslo, bergen, again):
        revisions = graph.read(f"nodes/{node}/history")["revisions"]
        assert [(r["id"], r["reason"], r["replaced_by"]) for r in revisions] == [
            (oslo, "She moved", [bergen]),
            (bergen, "She came back", [again]),
            (again, None, []),
        ]


def test_graph_invalidation_takes_no_or_existing_replacement(graph: Graph) -> None:
    oslo, bergen, tromso = graph.create(
        *(fact(f"Ada lives in {town}") for town in ("Oslo", "Bergen", "Tromsø"))
    )
    ending = graph.write("POST", f"nodes/{oslo}/invalidate", reason="Nobody knows")
    assert (ending["replacement"], ending["edge_id"]) == (None, None)
    replaced = graph.write(
        *("POST", f"nodes/{bergen}/invalidate"), reason="She said so", replacement_id=tromso
    )
    assert replaced["replacement"] == tromso
    assert {node["id"] for node in graph.read("nodes")["nodes"]} == {tromso}
    assert {node["id"] for node in graph.read("nodes", valid_only=False)["nodes"]} == {
        oslo,
        bergen,
        tromso,
    }
    reply = graph.send("POST", f"nodes/{oslo}/invalidate", {"reason": "Once more"})
    assert (reply.status, reply.error["code"]) == (409, "state_conflict")
    body = {"reason": "So it is", "replacement_id": oslo}
    reply = graph.send("POST", f"nodes/{tromso}/invalidate", body)
    assert (reply.status, reply.error["details"]["field"]) == (409, "replacement_id")


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({}, 422, "reason"),
        ({"reason": "r", "replacement": {"content": " . "}}, 422, "replacement.content"),
        ({"reason": "r", "replacement": {"content": "ADA rows"}}, 422, "replacement.content"),
        ({"reason": "r", "replacement_id": "fact:x"}, 422, "replacement_id"),
        ({"reason": "r", "replacement_id": "{fact}"}, 422, "replacement_id"),
        ({"reason": "r", "replacement_id": "{ada}"}, 422, "replacement_id"),
        (
            {"reason": "r", "replacement_id": "{ada}", "replacement": {"content": "x"}},
            *(422, "body"),
        ),
        ({"reason": "r", "valid_from": "2001-01-01T00:00:00Z"}, 422, "valid_from"),
    ],
    ids=str,
)
def test_graph_invalidation_refuses_invalid_field_by_name(
    graph: Graph, fields: dict[str, Any], status: int, field: str
) -> None:
    ada, node = graph.create(entity("Ada"), fact("Ada rows"))
    options = {"{ada}": ada, "{fact}": node}
    body = {n: options.get(v, v) if isinstance(v, str) else v for n, v in fields.items()}
    reply = graph.send("POST", f"nodes/{node}/invalidate", body)
    assert (reply.status, reply.error["details"]["field"]) == (status, field), reply.text
    reply = graph.send("POST", f"nodes/{ada}/invalidate", {"reason": "r"})
    assert (reply.status, reply.error["code"]) == (409, "state_conflict")


# edges -------------------------------------------------------------------------------------------


def test_graph_edge_of_unknown_verb_is_corrected_and_counted(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    ada, kayak = graph.create(entity("Ada"), entity("kayak"))
    links = [
        {"edge": "uses", "from_id": ada, "to_id": kayak, "nuance": "at dawn"},
        {"edge": "PAINTS", "from_id": ada, "to_id": kayak},
    ]
    answer = graph.write("POST", "edges", edges=links)
    assert [(e["type"], e["corrected_from"]) for e in answer["edges"]] == [
        ("USES", None),
        ("RELATES_TO", "PAINTS"),
    ]
    contents = scratch_db.rows("select content from events order by seq desc limit 2")
    assert contents == [("Ada paints kayak.",), ("Ada uses kayak.",)]
    assert graph.relate("USES", ada, kayak)["id"] == answer["edges"][0]["id"]
    rows = scratch_db.rows("select type, weight, properties from graph_edges order by type")
    assert rows == [("RELATES_TO", 1, {}), ("USES", 2, {"nuance": "at dawn"})]


def test_graph_edge_ends_and_holds_again_when_restated(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    ada, kayak = graph.create(entity("Ada"), entity("kayak"))
    edge = graph.relate("USES", ada, kayak, confidence=0.6)
    ending = graph.write("POST", f"edges/{edge['id']}/end", reason="It sank")
    state = "select valid_to is null, properties, weight, confidence from graph_edges"
    assert scratch_db.rows(state) == [(False, {"reason": "It sank"}, 1, 0.6)]
    assert ending["valid_to"] is not None
    reply = graph.send("POST", f"edges/{edge['id']}/end")
    assert (reply.status, reply.error["code"]) == (409, "state_conflict")
    graph.relate("USES", ada, kayak, confidence=0.8)
    assert scratch_db.rows(state) == [(True, {}, 2, pytest.approx(0.7))]
    assert graph.read(f"nodes/{ada}")["weight"] == 3, "the end of an edge is no evidence"
    early = {"valid_to": "2001-01-01T00:00:00Z"}
    reply = graph.send("POST", f"edges/{edge['id']}/end", early)
    assert (reply.status, reply.error["details"]["field"]) == (422, "valid_to")


@pytest.mark.parametrize(
    ("link", "field"),
    [
        ({"from_id": "{fact}"}, "edges.0.edge"),
        ({"edge": "invalidates"}, "edges.0.edge"),
        ({"edge": "related"}, "edges.0.edge"),
        ({"to_id": "{ada}"}, "edges.0.to_id"),
        ({"to_id": "ent:7"}, "edges.0.to_id"),
        ({"from_id": "fact:00000000-0000-8000-8000-000000000000"}, "edges.0.from_id"),
        ({"confidence": "high"}, "edges.0.confidence"),
    ],
    ids=str,
)
def test_graph_edge_refuses_invalid_field_by_name(
    graph: Graph, scratch_db: ScratchDatabase, link: dict[str, Any], field: str
) -> None:
    ada, kayak, node = graph.create(entity("Ada"), topic("kayaks"), fact("Ada rows"))
    whole = {"edge": "entity_topic", "from_id": ada, "to_id": kayak, **link}
    fields = {"{ada}": ada, "{fact}": node}
    whole = {name: fields.get(value, value) for name, value in whole.items()}
    reply = graph.send("POST", "edges", {"edges": [whole]})
    assert (reply.status, reply.error["details"]["field"]) == (422, field), reply.text
    assert scratch_db.rows("select count(*) from graph_edges") == [(0,)]


def test_graph_edge_of_invalidation_cannot_be_ended(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    (node,) = graph.create(fact("Ada rows"))
    replacement = {"content": "Ada sails"}
    graph.write("POST", f"nodes/{node}/invalidate", reason="r", replacement=replacement)
    ((edge_id,),) = scratch_db.rows("select edge_id from graph_edges")
    reply = graph.send("POST", f"edges/{edge_id}/end")
    assert (reply.status, reply.error["code"]) == (409, "state_conflict")


# all of them -------------------------------------------------------------------------------------


def _changes(graph: Graph) -> list[tuple[str, str, dict[str, Any]]]:
    """One change of each kind, that can be made."""
    oslo, bergen = graph.create(fact("Ada lives in Oslo"), fact("Ada lives in Bergen"))
    ada, adah, kayak = graph.create(entity("Ada"), entity("Adah"), entity("kayak"))
    edge = graph.relate("USES", ada, kayak)["id"]
    merge = graph.write("POST", "merges", from_id=kayak, into_id=adah)["merge_id"]
    link = {"edge": "KNOWS", "from_id": ada, "to_id": adah}
    return [
        ("PATCH", f"nodes/{ada}", {"archived": True}),
        ("POST", f"nodes/{oslo}/invalidate", {"reason": "r", "replacement": {"content": "x"}}),
        ("POST", f"nodes/{bergen}/invalidate", {"reason": "r"}),
        ("POST", "edges", {"edges": [link]}),
        ("POST", f"edges/{edge}/end", {}),
        ("POST", f"merges/{merge}/undo", {}),
        ("POST", "merges", {"from_id": adah, "into_id": ada}),
    ]


STATE = "select * from {} order by 1, 2, 3, 4"
TABLES = ("graph_nodes", "graph_edges", "graph_observations", "graph_sources", "events")


def test_graph_change_replay_changes_nothing(graph: Graph, scratch_db: ScratchDatabase) -> None:
    for n, (method, path, fields) in enumerate(_changes(graph)):
        first = graph.send(method, path, fields, f"k{n}")
        assert first.status in (200, 201), first.text
        state = [scratch_db.rows(STATE.format(table)) for table in TABLES]
        again = graph.send(method, path, fields, f"k{n}")
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert [scratch_db.rows(STATE.format(table)) for table in TABLES] == state
        other = {"reason": "another"} if path.endswith(("end", "undo", "invalidate")) else {}
        if other:
            assert graph.send(method, path, {**fields, **other}, f"k{n}").status == 409


def test_graph_change_without_permission_changes_nothing(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    """Another user, another tenant's user of the same name, and a key that only reads."""
    changes = _changes(graph)
    before = [scratch_db.rows(STATE.format(table)) for table in TABLES]
    bo = Graph(graph.gateway, graph.gateway.key(user="user:bo"), ("user:bo",))
    elsewhere = Graph(graph.gateway, graph.gateway.key("globex", user="user:ada"), WHO)
    for method, path, fields in changes:
        for stranger in (bo, elsewhere):
            reply = stranger.send(method, path, fields)
            expected = 404 if "/" in path else 422
            assert reply.status == expected, (path, reply.text)
        intruder = Graph(graph.gateway, bo.key, WHO)
        assert intruder.send(method, path, fields).status == 403
        reader = Graph(graph.gateway, graph.gateway.key(rights=["read"]))
        assert reader.send(method, path, fields).status == 403
    assert [scratch_db.rows(STATE.format(table)) for table in TABLES] == before


def test_graph_change_needs_participants_of_its_node(graph: Graph) -> None:
    """Ada alone sees what she and her helper have; she changes it among both."""
    changes = _changes(graph)
    alone = Graph(graph.gateway, graph.gateway.key(user="user:ada"), ("user:ada",))
    for method, path, fields in changes:
        reply = alone.send(method, path, fields)
        if path == "edges":
            assert reply.status == 201, "an edge leads to the nodes of that name in its scope"
        else:
            assert (reply.status, reply.error["code"]) == (409, "state_conflict"), path
    both = Graph(graph.gateway, alone.key, WHO)
    for method, path, fields in changes:
        assert both.send(method, path, fields).status in (200, 201), path
