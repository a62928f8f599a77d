"""The ingest function, called as API Gateway calls it: events, receipts, sessions, authority."""

import base64
import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.ingest.handler import lambda_handler
from strandline.local.lambda_context import LambdaContext
from tests.support import EVENTS, Gateway, Reply, ScratchDatabase, user_message

PATH, BATCH = "/api/v1/events", "/api/v1/events/batch"


def context() -> Any:
    """A fresh one: its time runs from when it is made."""
    return LambdaContext("ingest", 29)


def event(name: str, key: str) -> dict[str, Any]:
    """A proxy event from events/, with a key of this test's deployment."""
    document = json.loads((EVENTS / name).read_text())
    document["headers"]["X-API-Key"] = key
    document["multiValueHeaders"]["X-API-Key"] = [key]
    return document


def test_ingest_stores_and_acknowledges_event(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    result = lambda_handler(event("ingest.json", gateway.key()), context())
    assert (result["statusCode"], result["isBase64Encoded"]) == (201, False)
    assert result["headers"] == {"Content-Type": "application/json"}
    receipt = json.loads(result["body"])
    assert set(receipt) == {"event_id", "cid", "scope_id", "seq", "recorded_at", "blob"}
    assert (receipt["seq"], receipt["blob"]) == (1, None)
    rows = scratch_db.rows(
        "select event_id::text, cid, scope_id::text, participants, role, type, origin, speaker,"
        " content, session_id, channel, occurred_at, metadata, writer from events"
    )
    assert rows == [
        (
            receipt["event_id"],
            receipt["cid"],
            receipt["scope_id"],
            ["agent:helper", "user:alice", "user:bob"],
            "user",
            "message",
            "user",
            "user:alice",
            "The north buoy drifted 40 m in the night; please note it for Köhler. 🌊",
            "watch-2026-11-06",
            "slack",
            datetime(2026, 11, 6, 11, 4, 13, 200_000, tzinfo=UTC),
            {"workflow_id": "buoys", "thread": {"ts": "1793966653.000200"}},
            "*",
        )
    ]
    moment = datetime.fromisoformat(receipt["recorded_at"])
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    assert scratch_db.rows("select channel, source_event_key from event_keys") == [
        ("slack", "C04B7/1793966653.000200")
    ]


def test_ingest_batch_stores_good_items_and_reports_each(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    result = lambda_handler(event("ingest_batch.json", gateway.key()), context())
    answer = json.loads(result["body"])
    assert (result["statusCode"], answer["stored"], answer["failed"]) == (200, 2, 1)
    assert [item["status"] for item in answer["results"]] == [201, 201, 422]
    assert answer["results"][2]["error"]["details"]["field"] == "role"
    assert scratch_db.rows("select seq, role, type from events order by seq") == [
        (1, "user", "message"),
        (2, "agent", "action"),
    ]


def test_ingest_stores_event_delivered_twice_once(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    proxied = event("ingest.json", gateway.key())
    first, second = (
        lambda_handler(copy.deepcopy(proxied), context()),
        lambda_handler(proxied, context()),
    )
    assert (first["statusCode"], first["body"]) == (second["statusCode"], second["body"])
    assert "Idempotent-Replayed" not in first["headers"]
    assert second["headers"]["Idempotent-Replayed"] == "true"
    assert scratch_db.rows("select count(*) from events") == [(1,)]


def test_ingest_reads_base64_body(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    proxied = event("ingest.json", gateway.key())
    text = json.dumps(user_message("Grüße"), ensure_ascii=False)
    proxied["body"] = base64.b64encode(text.encode()).decode()
    proxied["isBase64Encoded"] = True
    assert lambda_handler(proxied, context())["statusCode"] == 201
    assert scratch_db.rows("select content from events") == [("Grüße",)]


@pytest.mark.parametrize("body", ["{}", "e30", "e3=0", "e30=\u00e9"])
def test_ingest_refuses_invalid_base64_body(gateway: Gateway, body: str) -> None:
    proxied = event("ingest.json", gateway.key()) | {"body": body, "isBase64Encoded": True}
    answer = lambda_handler(proxied, context())
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["error"]["details"] == {"field": "body"}


def test_ingest_seq_counts_each_scope_without_gap(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    for n in range(6):
        who = ["user:alice"] if n % 2 else ["user:alice", "user:bob"]
        reply = gateway.call("POST", PATH, user_message(f"turn {n}", *who), key=key)
        assert reply.body["seq"] == n // 2 + 1
    assert scratch_db.rows("select last_seq from scopes") == [(3,), (3,)]


def test_ingest_scope_is_same_for_any_participant_spelling(gateway: Gateway) -> None:
    key = gateway.key()
    spellings = [["user:Zo\u00eb", "agent:a"], [" agent:a", "user:Zoe\u0308", "agent:a"]]
    replies = [
        gateway.call("POST", PATH, user_message("x", *who), key=key).body for who in spellings
    ]
    assert replies[0]["scope_id"] == replies[1]["scope_id"]
    assert [reply["seq"] for reply in replies] == [1, 2]
    other = gateway.call("POST", PATH, user_message("x", "user:zo\u00eb", "agent:a"), key=key).body
    assert other["scope_id"] != replies[0]["scope_id"]


# authority ---------------------------------------------------------------------------------------


@pytest.fixture
def append_and_read(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> Callable[..., tuple[Reply, list[tuple[Any, ...]]]]:
    """Append as a user (or unbound); the answer, and what lies in the log of it."""
    keys = {user: gateway.key(user=user) for user in ("user:alice", "user:bob", None)}

    def append(user: str | None, **more: Any) -> tuple[Reply, list[tuple[Any, ...]]]:
        body = {**user_message("x", "user:alice", "user:bob", "agent:helper"), **more}
        reply = gateway.call("POST", PATH, body, key=keys[user])
        query = "select speaker, origin, writer from events where event_id::text = %s"
        return reply, scratch_db.rows(query, reply.body.get("event_id"))

    return append


def test_ingest_origin_and_writer_follow_credential(
    append_and_read: Callable[..., tuple[Reply, list[tuple[Any, ...]]]],
) -> None:
    alice = "user:alice"
    for user, more, row in (
        (alice, {}, (alice, "user", alice)),
        (alice, {"role": "agent"}, ("agent:helper", "agent", alice)),
        (alice, {"type": "observation"}, (alice, "user", alice)),
        (alice, {"type": "upload"}, (alice, "user", alice)),
        (alice, {"role": "system"}, (None, "user", alice)),
        (None, {"speaker": "user:bob"}, ("user:bob", "user", "*")),
        (None, {"role": "agent"}, ("agent:helper", "agent", "*")),
        (None, {"role": "system"}, (None, "system", "*")),
        (None, {"role": "agent", "type": "observation"}, ("agent:helper", "tool", "*")),
        (None, {"type": "upload"}, (None, "document", "*")),
    ):
        reply, rows = append_and_read(user, **more)
        assert (reply.status, rows) == (201, [row]), more


def test_ingest_bound_key_cannot_write_for_others(
    append_and_read: Callable[..., tuple[Reply, list[tuple[Any, ...]]]], scratch_db: ScratchDatabase
) -> None:
    for more, status, field in (
        ({"participants": ["user:bob"]}, 403, "participants"),
        ({"speaker": "user:bob"}, 403, "speaker"),
        ({"tenant_id": "other"}, 403, "tenant_id"),
        ({"user_id": "user:bob"}, 403, "user_id"),
        ({"origin": "system"}, 422, "origin"),
        ({"speaker": "user:carol"}, 422, "speaker"),
    ):
        reply, _ = append_and_read("user:alice", **more)
        assert (reply.status, reply.error["details"]["field"]) == (status, field)
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_ingest_body_may_repeat_credential_ids(
    append_and_read: Callable[..., tuple[Reply, list[tuple[Any, ...]]]],
) -> None:
    for user_id in ("user:alice", "alice"):
        assert append_and_read("user:alice", tenant_id="acme", user_id=user_id)[0].status == 201
    assert append_and_read(None, tenant_id="acme")[0].status == 201


# sessions ----------------------------------------------------------------------------------------


def test_ingest_session_has_one_set_of_participants(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user="user:alice")
    assert gateway.call("POST", PATH, user_message("x", session_id="s"), key=key).status == 201
    assert gateway.call("POST", PATH, user_message("y", session_id="s"), key=key).status == 201
    other = user_message("z", "user:alice", "user:bob", session_id="s")
    reply = gateway.call("POST", PATH, other, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (422, "session_id")
    assert scratch_db.rows("select last_seq from scopes") == [(2,)]


def test_ingest_session_is_not_revealed_to_others(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Two people may call their sessions the same; neither learns of the other's."""
    alice, bob = gateway.key(user="user:alice"), gateway.key(user="user:bob")
    first = gateway.call("POST", PATH, user_message("x", "user:alice", session_id="s"), key=alice)
    reply = gateway.call("POST", PATH, user_message("x", "user:bob", session_id="s"), key=bob)
    free = gateway.call("POST", PATH, user_message("x", "user:bob", session_id="t"), key=bob)
    assert [first.status, reply.status, free.status] == [201, 201, 201]
    assert set(reply.body) == set(free.body)
    assert scratch_db.rows("select session_id, count(*) from sessions group by 1 order by 1") == [
        ("s", 2),
        ("t", 1),
    ]


def test_ingest_unbound_key_sees_sessions_of_own_tenant_only(gateway: Gateway) -> None:
    for tenant, status in (("acme", 422), ("other", 201)):
        gateway.call(
            "POST", PATH, user_message("x", "user:alice", session_id="s"), key=gateway.key()
        )
        body = user_message("x", "user:bob", session_id="s")
        assert gateway.call("POST", PATH, body, key=gateway.key(tenant)).status == status
