"""The topic index as a tree, level by level: who sees which topics, of which snapshot."""

from typing import Any

import pytest

from tests.strandline.topics.outline import build, read_tree
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

TOPICS = "/api/v1/topics"


@pytest.fixture
def world(scratch_db: ScratchDatabase, gateway: Gateway) -> ScopeWorld:
    """A scope with two published versions of its tree."""
    assert gateway
    world = ScopeWorld(scratch_db)
    for _ in range(2):
        world.add(14)
        assert build(gateway)["snapshots_published"] == 1
    return world


def walk_topics(gateway: Gateway, key: str, **query: Any) -> list[tuple[str, str | None, str]]:
    """Slot, slot above and content of all topics, read from the roots down."""
    pending = gateway.call("GET", TOPICS, key=key, query=query).body["topics"]
    found: list[tuple[str, str | None, str]] = []
    while pending:
        topic = pending.pop()
        found.append((topic["slot"], topic["parent_slot"], topic["node_id"]))
        below = {**query, "scope_id": topic["scope_id"], "slot": topic["slot"]}
        children = gateway.call("GET", TOPICS, key=key, query=below).body["topics"]
        assert bool(children) == (topic["kind"] == "inner")
        assert [it["started_at"] for it in children] == sorted(it["started_at"] for it in children)
        pending += children
    return found


@pytest.mark.parametrize("version", [1, 2, None])
def test_topic_pages_show_tree_of_version(
    scratch_db: ScratchDatabase, gateway: Gateway, world: ScopeWorld, version: int | None
) -> None:
    expected = {(str(row[2]), str(row[4])) for row in read_tree(scratch_db, version or 2)}
    admin = gateway.key("acme", rights=["admin"])
    query = {"everybody": "true"} | ({"version": version} if version else {})
    found = walk_topics(gateway, admin, **query)
    assert {(slot, node_id) for slot, _, node_id in found} == expected
    assert len(found) == len(expected) > 14
    page = gateway.call("GET", TOPICS, key=admin, query=query).body
    assert (page["snapshot"]["version"], page["snapshot"]["active"]) == (
        version or 2,
        version != 1,
    )
    (root,) = page["topics"]
    assert root["event_count"] == root["cutoff"] == world.seq // (2 if version == 1 else 1)
    contents = gateway.call(
        "GET", TOPICS, key=admin, query={"everybody": "true", "node_id": [found[1][2], found[0][2]]}
    ).body
    assert contents["snapshot"] is None
    assert [it["node_id"] for it in contents["topics"]] == [found[1][2], found[0][2]]


def test_topic_pages_show_only_topics_in_view(
    scratch_db: ScratchDatabase, gateway: Gateway, world: ScopeWorld
) -> None:
    scratch_db.rows(
        "insert into scope_members (tenant_id, participant, scope_id, participants)"
        " select tenant_id, unnest(participants), scope_id, participants from scopes"
    )
    admin = gateway.key("acme", rights=["admin"])
    (root,) = gateway.call("GET", TOPICS, key=admin, query={"everybody": "true"}).body["topics"]
    assert world.seq == root["event_count"]
    below = {"scope_id": root["scope_id"], "slot": root["slot"]}
    member = gateway.key("acme", "user:alice", rights=["read"])
    assert gateway.call("GET", TOPICS, key=member).body["topics"] == [root]
    assert gateway.call("GET", TOPICS, key=member, query=below).body["topics"]
    stranger = gateway.key("acme", "user:stranger", rights=["read"])
    for query in ({}, below, {"node_id": root["node_id"]}):
        assert gateway.call("GET", TOPICS, key=stranger, query=query).body["topics"] == []
    elsewhere = gateway.key("globex", rights=["admin"])
    for query in (below, {"node_id": root["node_id"]}):
        reply = gateway.call("GET", TOPICS, key=elsewhere, query={**query, "everybody": "true"})
        assert reply.body["topics"] == []
    assert gateway.call("GET", TOPICS, key=gateway.key("acme", rights=["write"])).status == 403
    assert gateway.call("GET", TOPICS, key=gateway.key("acme")).error["code"] == "invalid_field"


def test_topic_pages_follow_cursor_over_scopes(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    key = gateway.key("acme", rights=["admin"])
    assert gateway.call("GET", TOPICS, key=key, query={"everybody": "true"}).body == {
        "snapshot": None,
        "topics": [],
        "next_cursor": None,
    }
    for n in range(3):
        ScopeWorld(scratch_db, members=("agent:helper", f"user:p{n}"), seed=n).add(4)
    build(gateway)
    query: dict[str, Any] = {"everybody": "true", "limit": 2}
    first = gateway.call("GET", TOPICS, key=key, query=query).body
    assert len(first["topics"]) == 2
    query["cursor"] = first["next_cursor"]
    second = gateway.call("GET", TOPICS, key=key, query=query).body
    assert second["next_cursor"] is None
    scopes = [it["scope_id"] for it in first["topics"] + second["topics"]]
    assert len(scopes) == len(set(scopes)) == 3
    only = gateway.call("GET", TOPICS, key=key, query={"everybody": "true", "scope_id": scopes[1]})
    assert [it["scope_id"] for it in only.body["topics"]] == [scopes[1]]


def test_topic_pages_follow_cursor_below_a_place(gateway: Gateway, world: ScopeWorld) -> None:
    key = gateway.key("acme", rights=["admin"])

    def ask(**query: Any) -> dict[str, Any]:
        return gateway.call("GET", TOPICS, key=key, query={"everybody": "true", **query}).body

    (root,) = ask()["topics"]
    place = {"scope_id": root["scope_id"], "slot": root["slot"]}
    whole = ask(**place)
    assert whole["next_cursor"] is None
    assert len(whole["topics"]) > 2
    found: list[Any] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not found or page["next_cursor"]:
        cursor = {"cursor": page["next_cursor"]} if found else {}
        page = ask(**place, limit=1, **cursor)
        found += page["topics"]
        assert len(page["topics"]) == 1
    assert found == whole["topics"]
    first = ask(**place, limit=1)["next_cursor"]
    others = {**place, "slot": whole["topics"][0]["slot"]}
    reply = gateway.call(
        "GET", TOPICS, key=key, query={"everybody": "true", **others, "cursor": first}
    )
    assert reply.error["message"].startswith("cursor: belongs to another list")
    assert world.seq


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"version": 9}, 404, None),
        ({"version": 0}, 422, "version"),
        ({"version": "x"}, 422, "version"),
        ({"slot": "01a229a6-5677-7328-b685-aa77cca37505"}, 422, None),
        ({"node_id": "01a229a6-5677-7328-b685-aa77cca37505", "version": 1}, 422, None),
        ({"node_id": "x"}, 422, "node_id"),
        ({"cursor": "x"}, 400, "cursor"),
    ],
)
def test_topic_pages_refuse_wrong_query(
    gateway: Gateway, world: ScopeWorld, query: dict[str, Any], status: int, field: str | None
) -> None:
    key = gateway.key("acme", rights=["admin"])
    reply = gateway.call("GET", TOPICS, key=key, query={**query, "everybody": "true"})
    assert reply.status == status, reply.text
    assert world.seq
    assert reply.error["message"]
    if field:
        assert reply.error["details"]["field"].startswith(field)
