"""Nodes of the graph through the API: stated, read, repeated, refused."""

from typing import Any

import pytest

from tests.support import Gateway, ScratchDatabase

WHO = ["user:ada", "agent:helper"]
NODES: list[dict[str, Any]] = [
    {"type": "entity", "ref": "ada", "name": "Ada", "kind": "person"},
    {
        "type": "fact",
        "content": "Ada lives in Oslo",
        "category": "personal",
        "relationships": [{"edge": "fact_entity", "target": "ada"}],
    },
    {
        "type": "decision",
        "title": "Buy the red kayak",
        "rationale": "It is the lightest.",
        "alternatives": ["the blue one"],
        "relationships": [{"edge": "decision_entity", "target": "ada", "role": "buyer"}],
    },
]


def store(
    gateway: Gateway, key: str, nodes: list[dict[str, Any]], request_key: str | None = None
) -> Any:
    headers = {"Idempotency-Key": request_key} if request_key else {}
    body = {"participants": WHO, "nodes": nodes}
    return gateway.call("POST", "/api/v1/graph/nodes", body, key=key, headers=headers)


def get(gateway: Gateway, key: str, path: str, **query: object) -> Any:
    reply = gateway.call("GET", f"/api/v1/{path}", key=key, query={"participants": WHO, **query})
    assert reply.status == 200, reply.body
    return reply.body


def test_graph_node_is_stored_with_statement_and_read(gateway: Gateway) -> None:
    key = gateway.key()
    answer = store(gateway, key, NODES, "k1")
    assert answer.status == 201, answer.body
    ada, fact, decision = answer.body["nodes"]
    assert [edge["type"] for edge in answer.body["edges"]] == ["fact_entity", "decision_entity"]
    read = get(gateway, key, f"graph/nodes/{fact['id']}")
    assert (read["name"], read["properties"]) == (
        "Ada lives in Oslo",
        {"category": "personal"},
    )
    event = get(gateway, key, f"events/{decision['event_id']}")
    assert event["type"] == "statement"
    assert event["content"] == (
        "Decided: Buy the red kayak. It is the lightest. Instead of: the blue one."
    )
    again = store(gateway, key, NODES, "k1")
    assert (again.status, again.body) == (201, answer.body)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert get(gateway, key, f"graph/nodes/{ada['id']}")["weight"] == 3, (
        "its own statement, and two that lead to it"
    )


def test_graph_node_replaced_is_read_as_of_earlier_time(gateway: Gateway) -> None:
    key = gateway.key()
    first = store(gateway, key, [{"type": "fact", "content": "Ada lives in Oslo"}]).body
    (old,) = first["nodes"]
    recorded_at = get(gateway, key, f"events/{old['event_id']}")["recorded_at"]
    newer = {
        "type": "fact",
        "content": "Ada lives in Bergen.",
        "invalidates": old["id"],
        "reason": "She moved.",
    }
    answer = store(gateway, key, [newer]).body
    assert [(edge["type"], edge["to_id"]) for edge in answer["edges"]] == [
        ("invalidates", old["id"])
    ]
    now = get(gateway, key, f"graph/nodes/{old['id']}")
    assert now["valid_to"] is not None
    assert now["properties"] == {"category": "general", "reason": "She moved."}
    before = get(gateway, key, f"graph/nodes/{old['id']}", as_of=recorded_at)
    assert (before["valid_to"], before["properties"]) == (None, {"category": "general"})


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"type": "fact"}, "nodes.0.content"),
        ({"type": "fact", "content": " . "}, "nodes.0.content"),
        ({"type": "person", "name": "Ada"}, "nodes.0"),
        ({"type": "entity", "name": "Ada", "kind": "robot"}, "nodes.0.kind"),
        (
            {"type": "fact", "content": "x", "relationships": [{"edge": "USES", "target": "y"}]},
            "nodes.0.relationships.0",
        ),
        (
            {"type": "fact", "content": "x", "invalidates": "ent:7", "reason": "r"},
            "nodes.0.invalidates",
        ),
        ({"type": "fact", "content": "x", "reason": "r"}, "nodes.0"),
        ({"type": "fact", "content": "\U0001f6f6" * 4000}, "nodes.0"),
        (
            {
                "type": "topic",
                "name": "x",
                "ref": "x",
                "relationships": [{"edge": "fact_topic", "target": "x"}],
            },
            "nodes.0.relationships.0",
        ),
    ],
)
def test_graph_node_refuses_invalid_field_by_name(
    gateway: Gateway, scratch_db: ScratchDatabase, node: dict[str, Any], field: str
) -> None:
    answer = store(gateway, gateway.key(), [node])
    assert (answer.status, answer.error["details"]["field"]) == (422, field)
    assert scratch_db.rows("select count(*) from graph_nodes") == [(0,)]
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_graph_node_refusal_names_types_and_quotes_nothing(gateway: Gateway) -> None:
    key = gateway.key()
    answer = store(gateway, key, [{"type": "person", "name": "Ada"}])
    expected = "nodes.0: 'type' must be one of 'fact', 'decision', 'entity', 'event', 'topic'"
    assert answer.error["message"] == expected
    assert "'type' is missing" in store(gateway, key, [{"name": "Ada"}]).error["message"]
    link = {"edge": "USES", "target": "a secret"}
    answer = store(gateway, key, [{"type": "fact", "content": "x", "relationships": [link]}])
    assert "secret" not in answer.text


def test_graph_node_of_largest_decision_is_stored(gateway: Gateway) -> None:
    decision = {
        "type": "decision",
        "title": "t" * 500,
        "rationale": "r" * 4000,
        "alternatives": ["a" * 200] * 10,
    }
    assert store(gateway, gateway.key(), [decision] * 50).status == 201


def test_graph_node_request_with_reused_key_conflicts(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    assert store(gateway, key, NODES, "k").status == 201
    before = scratch_db.rows("select count(*) from graph_observations")
    answer = store(gateway, key, [*NODES[:2], {**NODES[2], "title": "Buy none"}], "k")
    assert (answer.status, answer.error["code"]) == (409, "key_conflict")
    assert scratch_db.rows("select count(*) from graph_observations") == before


def test_graph_node_is_hidden_from_non_participants(gateway: Gateway) -> None:
    answer = store(gateway, gateway.key(), NODES).body
    for user, status in (("user:ada", 200), ("user:bo", 404)):
        key = gateway.key(user=user)
        for node in answer["nodes"]:
            reply = gateway.call("GET", f"/api/v1/graph/nodes/{node['id']}", key=key)
            assert reply.status == status
    link = {"edge": "fact_entity", "target": answer["nodes"][0]["id"]}
    fact = {"type": "fact", "content": "Bo knows Ada", "relationships": [link]}
    body = {"participants": ["user:bo"], "nodes": [fact]}
    reply = gateway.call("POST", "/api/v1/graph/nodes", body, key=gateway.key(user="user:bo"))
    assert (reply.status, reply.error["details"]["field"]) == (422, "nodes.0.relationships.0")
    body = {"participants": ["user:ada"], "nodes": [fact]}
    reply = gateway.call("POST", "/api/v1/graph/nodes", body, key=gateway.key(user="user:ada"))
    assert reply.status == 201, "all who listen now were there then"
    (edge,) = reply.body["edges"]
    assert edge["to_id"] != link["target"], "a node of the same name in the new scope"
