"""Promise: a field keeps every revision, in the order in which they were stated, by any number at
the same time; it serves the newest 500; and its salience counts each answer that gave it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from strandline.graph.fields import store_read as fields_store
from tests.support import Gateway, ScratchDatabase

REVISIONS, READS = 1_000, 200
WHO = ["agent:helper", "user:ada", "user:bo"]


def state_topic(gateway: Gateway, key: str) -> str:
    """A topic; gives the path of its fields."""
    body = {"participants": WHO, "nodes": [{"type": "topic", "name": "The Petrel"}]}
    (node,) = gateway.call("POST", "/api/v1/graph/nodes", body, key=key).body["nodes"]
    return f"/api/v1/graph/topics/{node['id']}/fields"


def read_pages(gateway: Gateway, path: str, key: str, **query: object) -> list[dict[str, Any]]:
    """A field's history, page by page."""
    history: list[dict[str, Any]] = []
    cursor: dict[str, object] = {}
    while True:
        reply = gateway.call("GET", path, key=key, query={**query, **cursor})
        assert reply.status == 200, reply.text
        history += reply.body["history"]
        if reply.body["next_cursor"] is None:
            return history
        cursor = {"cursor": reply.body["next_cursor"]}


def test_field_history_of_two_writers_loses_nothing(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    proof_size: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = proof_size(500)
    monkeypatch.setattr(fields_store, "MAX_SERVED", served)
    each = proof_size(REVISIONS) // 2
    keys = {user: plenty.key(user=user) for user in WHO[1:]}
    path = f"{state_topic(plenty, keys['user:ada'])}/berth"
    begin = threading.Barrier(2)

    def write(user: str) -> list[int]:
        begin.wait()
        replies = [
            plenty.call("POST", path, {"participants": WHO, "value": [user, n]}, key=keys[user])
            for n in range(each)
        ]
        assert {reply.status for reply in replies} == {201}
        return [reply.body["revision"] for reply in replies]

    with ThreadPoolExecutor() as pool:
        numbers = list(pool.map(write, keys))
    assert sorted(numbers[0] + numbers[1]) == list(range(1, 2 * each + 1)), "none lost, none twice"
    rows = scratch_db.rows(
        "select r.revision, e.speaker, r.value from topic_field_revisions r"
        " join events e using (tenant_id, event_id) order by e.seq"
    )
    assert [row[0] for row in rows] == list(range(1, 2 * each + 1)), "the order of the log"
    for user in keys:
        assert [row[2] for row in rows if row[1] == user] == [[user, n] for n in range(each)]

    history = read_pages(plenty, path, keys["user:bo"], limit=max(1, served // 3))
    assert [item["revision"] for item in history] == list(
        range(2 * each, 2 * each - min(served, 2 * each), -1)
    ), "the newest, newest first"
    assert [item["value"] for item in history] == [row[2] for row in rows][::-1][:served]


def test_field_history_salience_counts_each_answer(
    plenty: Gateway, scratch_db: ScratchDatabase, proof_size: Callable[[int], int]
) -> None:
    reads = proof_size(READS)
    key = plenty.key(user="user:ada")
    path = state_topic(plenty, key)
    for field in ("berth", "skipper"):
        body = {"participants": WHO, "value": 17}
        assert plenty.call("POST", f"{path}/{field}", body, key=key).status == 201

    def read(_: int) -> int:
        return plenty.call("GET", f"{path}/berth", key=key).status

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(read, range(reads))) == {200}
    plenty.sweep()
    plenty.sweep()  # what is folded is not folded again
    berth = min(10.0, round(1 + 0.1 * reads, 6))
    assert scratch_db.rows("select field, salience from topic_fields order by field") == [
        ("berth", berth),
        ("skipper", 1.0),
    ]
    ((topic,),) = scratch_db.rows("select salience from graph_nodes")
    assert topic == pytest.approx((berth + 1) / 2)
