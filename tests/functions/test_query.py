"""Reading, called as API Gateway calls it: each route, its answer and its refusals."""

import base64
import importlib
import json
import urllib.request
import uuid
from typing import Any

import dag_cbor
import pytest

from strandline.config import get_settings
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable, StrandlineError
from strandline.local.lambda_context import LambdaContext
from strandline.resources import Resources
from tests.functions.recorded_events import from_file
from tests.support import Gateway, ScratchDatabase, Tell

ALICE, HELPER = "user:alice", "agent:helper"


def contents(reply: Any) -> list[str]:
    """The texts of an events/query answer, scope by scope."""
    return [event["content"] for scope in reply.body["scopes"] for event in scope["events"]]


def invoke(event: dict[str, Any]) -> Any:
    """What the function answers to API Gateway."""
    handler = importlib.import_module("functions.query.handler").lambda_handler
    return handler(event, LambdaContext("query", 29))


def test_query_serves_recorded_event_request(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key()
    receipt = tell(key, "The buoy is out.")
    event = from_file("query_event.json", key)
    event["pathParameters"]["event_id"] = receipt["event_id"]
    answer = invoke(event)
    assert answer["statusCode"] == 200
    document = json.loads(answer["body"])
    assert document["content"] == "The buoy is out."
    assert {name: document[name] for name in receipt if name != "blob"} == {
        name: value for name, value in receipt.items() if name != "blob"
    }


def test_query_counts_both_recorded_participants(gateway: Gateway, tell: Tell) -> None:
    """`?participants=` twice: API Gateway puts the last into the single-valued map."""
    key = gateway.key()
    alone = tell(key, "Without the helper.", ALICE)
    event = from_file("query_event.json", key)
    event["pathParameters"]["event_id"] = alone["event_id"]
    assert invoke(event)["statusCode"] == 404


def test_query_serves_recorded_recall(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key()
    receipt = tell(key, "The harbour buoy gets its new battery on Monday.")
    answer = invoke(from_file("query_recall.json", key))
    assert answer["statusCode"] == 200
    assert json.loads(answer["body"])["hits"][0]["event_id"] == receipt["event_id"]


def test_query_returns_scopes_with_events_by_seq(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key()
    for n in range(3):
        tell(key, f"alone {n}", ALICE)
        tell(key, f"helped {n}", ALICE, HELPER)
    tell(key, "not hers", "user:bob")
    reply = gateway.call("POST", "/api/v1/events/query", {"participants": [ALICE]}, key=key)
    assert reply.status == 200
    assert reply.body["query"] == {"participants": [ALICE], "mode": "words", "text": None}
    scopes = {tuple(scope["participants"]): scope for scope in reply.body["scopes"]}
    assert set(scopes) == {(ALICE,), (HELPER, ALICE)}
    for scope in scopes.values():
        assert [event["seq"] for event in scope["events"]] == [1, 2, 3]
        assert {event["scope_id"] for event in scope["events"]} == {scope["scope_id"]}
    assert [e["content"] for e in scopes[(ALICE,)]["events"]] == [f"alone {n}" for n in range(3)]
    assert reply.body["next_cursor"] is None


FILTERS: list[tuple[dict[str, object], set[str]]] = [
    ({"session_id": "s1"}, {"one"}),
    ({"session_id": "no such"}, set()),
    ({"channel": "slack"}, {"two"}),
    ({"role": "agent"}, {"two", "three"}),
    ({"type": "thought"}, {"three"}),
    ({"speaker": ALICE}, {"one"}),
    ({"origin": "tool"}, {"four"}),
    ({"since": "2026-05-02T00:00:00Z"}, {"two", "three", "four"}),
    ({"since": "2026-05-02T02:00:00+02:00", "until": "2026-05-03T00:00:00Z"}, {"two"}),
    ({"until": 1777680000}, {"one"}),
    ({"metadata": {"place": {"pier": 3}}}, {"two"}),
    ({"metadata": {"place": {"pier": "3"}}}, set()),
    ({"text": "harbours"}, {"one", "two"}),
    ({"text": 'harbour -"new crane"'}, {"one"}),
    ({"text": "the"}, set()),
    ({"text": "HARBOURS T", "mode": "exact"}, {"two"}),
    ({"text": "arbour", "mode": "exact", "role": "user"}, {"one"}),
    ({"role": "agent", "type": "message"}, {"two"}),
    ({}, {"one", "two", "three", "four"}),
]


@pytest.fixture
def four(gateway: Gateway, tell: Tell) -> str:
    """Four events that differ in everything a read may narrow by; gives the key."""
    key = gateway.key()
    agent: dict[str, object] = {"role": "agent", "speaker": HELPER}
    days = [f"2026-05-0{n}T00:00:00Z" for n in range(1, 5)]
    tell(key, "harbour one", session_id="s1", occurred_at=days[0])
    place = {"place": {"pier": 3, "side": "north"}}
    two: dict[str, object] = {"channel": "slack", "occurred_at": days[1], "metadata": place}
    tell(key, "harbours two and a new crane", **(agent | two))
    tell(key, "three", **(agent | {"type": "thought", "occurred_at": days[2]}))
    tell(key, "four", role="system", type="observation", occurred_at=days[3])
    return key


def test_query_narrows_by_every_filter(gateway: Gateway, four: str) -> None:
    for narrowing, expected in FILTERS:
        body = {"participants": [ALICE], **narrowing}
        reply = gateway.call("POST", "/api/v1/events/query", body, key=four)
        assert reply.status == 200, reply.text
        numbers = {word for text in contents(reply) for word in text.split()}
        assert numbers & {"one", "two", "three", "four"} == expected, narrowing


def test_query_narrows_by_scope_id(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    scope = tell(key, "alone", ALICE)["scope_id"]
    tell(key, "helped")
    for scope_id, expected in ((scope, ["alone"]), (str(uuid.uuid4()), [])):
        reply = gateway.call("POST", "/api/v1/events/query", {"scope_id": scope_id}, key=key)
        assert contents(reply) == expected


UNACCEPTABLE: list[tuple[object, str]] = [
    ({"sesion_id": "x"}, "sesion_id"),
    ({"metadata": []}, "metadata"),
    ({"since": "yesterday"}, "since"),
    ({"since": "2026-05-02T00:00:00Z", "until": "2026-05-01T00:00:00Z"}, "until"),
    ({"since": "2026-05-02T00:00:00Z", "until": "2026-05-02T02:00:00+02:00"}, "until"),
    ({"role": "robot"}, "role"),
    ({"limit": 0}, "limit"),
    ({"limit": 501}, "limit"),
    ({"limit": "many"}, "limit"),
    ({"scope_id": "x"}, "scope_id"),
    ({"text": ""}, "text"),
    ({"participants": []}, "participants"),
    ({"participants": ["Alice"]}, "participants"),
    ({"participants": ["user:a", 7]}, "participants.1"),
    ([], "body"),
]


def test_query_refusal_names_field(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for body, field in UNACCEPTABLE:
        reply = gateway.call("POST", "/api/v1/events/query", body, key=key)
        assert (reply.status, reply.error["details"].get("field")) == (422, field), body


def test_query_lists_scopes_newest_first(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    scope_ids = [tell(key, "x", ALICE, f"agent:{n}")["scope_id"] for n in range(3)]
    tell(key, "again", ALICE, "agent:0")
    body = gateway.call("GET", "/api/v1/scopes", key=key).body
    assert [scope["scope_id"] for scope in body["scopes"]] == scope_ids[::-1]
    assert body["next_cursor"] is None
    one = gateway.call("GET", f"/api/v1/scopes/{scope_ids[0]}", key=key)
    assert one.body == body["scopes"][-1]
    assert (one.body["last_seq"], one.body["participants"]) == (2, ["agent:0", ALICE])


def test_query_scope_feed_is_gapless_and_ordered(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    (scope,) = {tell(key, f"turn {n}", ALICE)["scope_id"] for n in range(7)}
    path, ids, after = f"/api/v1/scopes/{scope}/events", list[int](), 0
    while True:
        query = {"after_seq": after, "limit": 3}
        page = gateway.call("GET", path, key=key, query=query).body
        assert page["last_seq"] == 7
        ids += [event["seq"] for event in page["events"]]
        if page["next_after_seq"] == after:
            break
        after = page["next_after_seq"]
    assert ids == list(range(1, 8))
    beyond = gateway.call("GET", path, key=key, query={"after_seq": 2**63 - 1})
    assert (beyond.status, beyond.body["events"]) == (200, [])


def test_query_lists_memories_newest_first(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    for n in range(4):
        tell(key, f"turn {n}", ALICE, f"agent:{n % 2}", occurred_at=f"2020-01-0{4 - n}T00:00:00Z")
    events = gateway.call("GET", "/memories/list", key=key).body["events"]
    assert [event["content"] for event in events] == ["turn 3", "turn 2", "turn 1", "turn 0"]


def test_query_finds_memory_and_block_by_cid(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    first = tell(key, "Same words.", ALICE)
    second = tell(key, "Same words.", ALICE, HELPER)
    assert first["cid"] == second["cid"]
    memory = gateway.call("GET", f"/memory/{first['cid']}", key=key)
    assert memory.body["event_id"] == first["event_id"], "the earliest in view"
    reply = gateway.call("GET", f"/memory/{first['cid']}", key=key, query={"participants": HELPER})
    assert reply.body["event_id"] == second["event_id"]
    event = invoke(
        from_file("query_event.json", key)
        | {
            "resource": "/ipfs/{cid}",
            "pathParameters": {"cid": first["cid"]},
            "multiValueQueryStringParameters": None,
        }
    )
    assert (event["statusCode"], event["isBase64Encoded"]) == (200, True)
    assert event["headers"]["Content-Type"] == "application/vnd.ipld.raw"
    block = dag_cbor.decode(base64.b64decode(event["body"]))
    assert isinstance(block, dict)
    assert block["data"] == {"kind": "other", "name": ALICE, "content": "Same words."}


def test_query_file_redirects_to_location(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    text = "Wärme — " * 20_000
    blob = tell(key, text, ALICE, name='log "1".txt')["blob"]
    reply = gateway.call("GET", f"/file/{blob['cid']}", key=key)
    assert (reply.status, reply.headers["Location"]) == (307, reply.body["url"])
    assert (reply.body["size"], reply.headers["Cache-Control"]) == (len(text.encode()), "no-store")
    with urllib.request.urlopen(reply.headers["Location"]) as response:  # noqa: S310 - local S3
        assert response.read().decode() == text
        assert response.headers["Content-Disposition"].startswith("attachment")
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("kind", ["memory", "ipfs", "file"])
def test_query_refuses_invalid_cid(gateway: Gateway, kind: str) -> None:
    for cid in ("nonsense", "Qm" + "a" * 44, "b" * 5000, "%00", "%F0%9F%8C%8A"):
        reply = gateway.call("GET", f"/{kind}/{cid}", key=gateway.key(user=ALICE))
        assert reply.status in (404, 422), reply.text


def test_query_health_needs_no_key_or_database(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", "postgresql://strandline_app@127.0.0.1:1/none")
    get_settings.cache_clear()
    service = Resources()
    monkeypatch.setattr(importlib.import_module("functions.query.handler"), "resources", service)
    reply = gateway.call("GET", "/health")
    assert (reply.status, reply.body) == (200, {"status": "ok"})
    assert "database" not in vars(service), "nothing so much as made a way to it"


def test_query_health_dependencies_need_key(gateway: Gateway) -> None:
    own = gateway.new_key(user=ALICE)
    reply = gateway.call("GET", "/api/v1/health", key=own.token)
    assert reply.status == 200
    names = ("database", "blobs", "queue", "embedding")
    assert reply.body == {
        "status": "ok",
        "dependencies": dict.fromkeys(names, "ok"),
        "language": {
            "provider": None,
            "failure": None,
            "failed_at": None,
            "resting_until": None,
        },
        "caller": {
            "tenant": "acme",
            "user": ALICE,
            "rights": ["read", "write"],
            "key_id": own.key.key_id,
            "may_read_everybody": False,
            "agents_share": False,
        },
        "background": {
            "scopes_stuck": 0,
            "jobs_failed": 0,
            "turns_late": 0,
            "erasures_waiting": 0,
            "oldest_erasure_seconds": 0,
            "rows_unreadable": 0,
        },
        "memory": None,
        "warnings": [],
    }
    for key in (None, "strandline_made-up", gateway.key()[:-2] + "AA"):
        response = gateway.call("GET", "/api/v1/health", key=key)
        assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EmbeddingUnavailable("The provider answered HTTP 401."), "embedding_unavailable"),
        (EmbeddingRefused("It returned 65 dimensions instead of 64."), "embedding_refused"),
    ],
)
def test_query_health_says_why_embedding_model_fails(
    gateway: Gateway,
    embedder: object,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: StrandlineError,
    code: str,
) -> None:
    """The code alone does not tell an operator which setting is wrong."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(embedder, "embed", fail)
    body = gateway.call("GET", "/api/v1/health", key=gateway.key(user=ALICE)).body
    assert (body["status"], body["dependencies"]["embedding"]) == ("degraded", code)
    assert [error.message in warning for warning in body["warnings"]] == [True]
    service = Resources()
    service.__dict__["embedder"] = embedder
    service.warm_up_embedder()
    assert [getattr(record, "error", None) for record in caplog.records][-1] == (
        f"{code}: {error.message}"
    )


def test_query_health_shows_memory_counts_to_admin(gateway: Gateway) -> None:
    key, who = gateway.key(rights=("read", "write", "admin")), ["user:alice"]
    for text in ("The buoy goes out on Friday.", "It is red."):
        body = {"participants": who, "role": "user", "content": text}
        assert gateway.call("POST", "/api/v1/events", body, key=key).status == 201
    fact = {"type": "fact", "content": "Alice lives in Oslo", "category": "personal"}
    body = {"participants": who, "nodes": [fact]}
    assert gateway.call("POST", "/api/v1/graph/nodes", body, key=key).status == 201
    memory = gateway.call("GET", "/api/v1/health", key=key).body["memory"]
    assert memory.pop("chains_due_at") is not None
    assert memory == {"events": 3, "scopes": 1, "topics": 0, "facts": 1}


def test_query_health_names_unavailable_database(
    gateway: Gateway, scratch_db: ScratchDatabase, embedder: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key(user=ALICE)
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", "postgresql://strandline_app@127.0.0.1:1/none")
    get_settings.cache_clear()
    service = Resources()
    service.__dict__["embedder"] = embedder
    monkeypatch.setattr(importlib.import_module("functions.query.handler"), "resources", service)
    down = gateway.call("GET", "/api/v1/health", key=key)
    assert (down.status, down.headers["Retry-After"]) == (503, "2")
    assert down.body["status"] == "unavailable"
    assert down.body["dependencies"]["database"] == "unavailable"
    assert down.body["dependencies"]["blobs"] == "ok"
    reading = gateway.call("GET", "/memories/list", key=key)
    assert (reading.status, reading.error["retryable"]) == (503, True)
