"""Exactly once by key: replays say the same, and a key used for something else is a conflict."""

from typing import Any

import pytest

from strandline.log.event_draft import EventDraft
from strandline.log.schemas_append import AppendRequest
from tests.support import Gateway, ScratchDatabase, user_message

PATH, BATCH = "/api/v1/events", "/api/v1/events/batch"
REPLAY_HEADER = "Idempotent-Replayed"
FULL: dict[str, Any] = {
    "participants": ["user:alice", "user:bob", "agent:helper", "agent:other"],
    "role": "agent",
    "type": "message",
    "content": "The tide is out.",
    "speaker": "agent:helper",
    "session_id": "s",
    "channel": "slack",
    "mime_type": "text/plain",
    "name": "tide.txt",
    "occurred_at": "2026-05-08T13:56:00Z",
    "metadata": {"a": 1},
    "stop_reason": "endTurn",
}
CHANGES: dict[str, Any] = {
    "participants": ["user:alice", "user:bob", "agent:helper"],
    "role": "user",
    "type": "thought",
    "content": "The tide is in.",
    "parts": [{"content": "The tide is out.", "model": "m2"}],
    "model": "m2",
    "mime_type": "text/markdown",
    "name": "other.txt",
    "speaker": "agent:other",
    "session_id": "t",
    "channel": "mail",
    "occurred_at": "2026-05-08T13:56:01Z",
    "metadata": {"a": 2},
    "stop_reason": "maxTokens",
}


def key_header(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


@pytest.mark.parametrize("way", ["header", "field"])
def test_idempotency_key_replay_repeats_first_answer(
    gateway: Gateway, scratch_db: ScratchDatabase, way: str
) -> None:
    key = gateway.key()
    body = FULL if way == "header" else {**FULL, "source_event_key": "k"}
    headers = key_header("k") if way == "header" else None
    replies = [gateway.call("POST", PATH, body, key=key, headers=headers) for _ in range(3)]
    assert {(reply.status, reply.text) for reply in replies} == {(201, replies[0].text)}
    assert [reply.headers.get(REPLAY_HEADER) for reply in replies] == [None, "true", "true"]
    assert scratch_db.rows("select count(*), max(seq) from events") == [(1, 1)]


def test_idempotency_key_replays_large_content(gateway: Gateway) -> None:
    body = user_message("x" * 70_000, name="big.txt", source_event_key="k")
    first, second = (gateway.call("POST", PATH, body, key=gateway.key()) for _ in range(2))
    assert (first.text, second.headers.get(REPLAY_HEADER)) == (second.text, "true")


def first_and_second(field: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Two requests that differ in one field, and what a conflict calls the difference."""
    first, names = {**FULL, "session_id": f"s-{field}"}, [field]
    if field == "parts":
        first |= {"content": None, "parts": [{"content": "The tide is out.", "model": "m"}]}
    second = {**first, field: CHANGES[field]}
    if field == "role":  # who speaks must have the role: the speaker changes with it
        second["speaker"], names = "user:alice", ["role", "speaker", "stop_reason"]
        del second["stop_reason"]  # an agent's alone
    return first, second, names


def test_ingest_keeps_every_event_field(gateway: Gateway) -> None:
    """By every way into the log. Its parts are in another test, of which `model` is short."""
    key, headers = (
        gateway.key(user="user:alice"),
        {**FULL, "participants": sorted(FULL["participants"])},
    )
    assert set(headers) == set(CHANGES) - {"parts", "model"}
    batch = {"events": [user_message("The tide is in."), headers]}
    replies = [gateway.call("POST", path, headers, key=key) for path in (PATH, "/api/v1/insert")]
    receipts = [reply.body for reply in replies]
    receipts.append(gateway.call("POST", BATCH, batch, key=key).body["results"][1]["event"])
    for receipt in receipts:
        read = gateway.call("GET", f"/api/v1/events/{receipt['event_id']}", key=key).body
        assert {name: read[name] for name in headers} == headers


def test_idempotency_key_conflict_names_changed_field(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    # A payload and edges have tests of their own; of the others no column is made.
    others = {"blob", "edges", "source_event_key", "timestamp", "tenant_id", "user_id"}
    assert set(CHANGES) == AppendRequest.model_fields.keys() - others
    key = gateway.key(user="user:alice")
    event: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for field in CHANGES:
        first, second, name = first_and_second(field)
        response = gateway.call("POST", PATH, first, key=key, headers=key_header(field))
        assert response.status == 201, response.text
        reply = gateway.call("POST", PATH, second, key=key, headers=key_header(field))
        assert (reply.status, reply.error["code"]) == (409, "key_conflict"), reply.text
        assert reply.error["retryable"] is False
        event[field] = reply.error["details"]
        settings[field] = {"fields": name, "event_id": response.body["event_id"]}
    assert event == settings
    assert scratch_db.rows("select count(*) from events") == [(len(CHANGES),)]


def test_idempotency_key_conflict_names_changed_edges(gateway: Gateway) -> None:
    key = gateway.key()
    bodies = [gateway.call("POST", PATH, user_message(word), key=key).body for word in ("a", "b")]
    one = {"event_id": bodies[0]["event_id"], "weight": 0.5}
    first = user_message("x", edges=[one])
    assert gateway.call("POST", PATH, first, key=key, headers=key_header("k")).status == 201
    for edges in (
        [],
        [{**one, "weight": 0.6}],
        [{"event_id": bodies[1]["event_id"], "weight": 0.5}],
    ):
        reply = gateway.call(
            "POST", PATH, user_message("x", edges=edges), key=key, headers=key_header("k")
        )
        assert (reply.status, reply.error["details"].get("fields")) == (409, ["edges"])


def test_idempotency_key_conflict_names_changed_blob(gateway: Gateway) -> None:
    key = gateway.key()
    cids = [
        gateway.call("POST", PATH, user_message(c * 70_000), key=key).body["blob"]["cid"]
        for c in "ab"
    ]
    statuses: list[Any] = []
    for cid in cids:
        body = {**user_message(""), "content": None, "blob": {"cid": cid}}
        reply = gateway.call("POST", PATH, body, key=key, headers=key_header("k"))
        statuses.append(
            (reply.status, reply.body.get("error", {}).get("details", {}).get("fields"))
        )
    assert statuses == [(201, None), (409, ["blob"])]


def test_source_event_key_is_per_channel(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    for channel in ("slack", "mail", "slack"):
        body = user_message("x", channel=channel, source_event_key="k")
        assert gateway.call("POST", PATH, body, key=key).status == 201
    assert scratch_db.rows("select channel from events order by seq") == [("slack",), ("mail",)]


def test_idempotency_key_belongs_to_channel_http(gateway: Gateway) -> None:
    key = gateway.key()
    first = gateway.call("POST", PATH, user_message("x", source_event_key="k"), key=key)
    second = gateway.call("POST", PATH, user_message("x"), key=key, headers=key_header("k"))
    assert (second.text, second.headers.get(REPLAY_HEADER)) == (first.text, "true")


def test_idempotency_key_excludes_source_event_key(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    body = user_message("x", source_event_key="k")
    reply = gateway.call("POST", PATH, body, key=gateway.key(), headers=key_header("k"))
    assert (reply.status, reply.error["details"]["field"]) == (422, "source_event_key")
    assert scratch_db.rows("select count(*) from event_keys") == [(0,)]


def test_idempotency_key_conflict_hides_unseen_event(
    gateway: Gateway,
) -> None:
    key = gateway.key()
    first = user_message("x", "user:alice", "agent:helper")
    body = gateway.call("POST", PATH, first, key=key, headers=key_header("k")).body
    for who in (["user:bob", "agent:helper"], ["user:alice", "user:bob", "agent:helper"]):
        reply = gateway.call(
            "POST", PATH, user_message("y", *who), key=key, headers=key_header("k")
        )
        assert (reply.status, reply.error["details"]) == (409, {})
        assert body["event_id"] not in reply.text
        assert "content" not in reply.error["message"]
    part = gateway.call(
        "POST", PATH, user_message("y", "user:alice"), key=key, headers=key_header("k")
    )
    assert part.error["details"]["event_id"] == body["event_id"]


def test_idempotency_key_is_per_user_and_tenant(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Not of another bound user, not of unbound keys, not of another tenant: each has its own."""
    callers = [gateway.key(user="user:alice"), gateway.key(user="user:bob"), gateway.key()]
    callers.append(gateway.key("other"))
    for n, key in enumerate(callers):
        body = user_message(f"words of {n}", "user:alice", "user:bob")
        reply = gateway.call("POST", PATH, body, key=key, headers=key_header("k"))
        assert (reply.status, reply.headers.get(REPLAY_HEADER)) == (201, None)
    assert scratch_db.rows("select count(*), count(distinct content) from events") == [(4, 4)]


def test_idempotency_key_is_shared_by_api_keys_of_user(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    for _ in range(2):
        key = gateway.key(user="user:alice")
        assert (
            gateway.call("POST", PATH, user_message("x"), key=key, headers=key_header("k")).status
            == 201
        )
    assert scratch_db.rows("select count(*) from events") == [(1,)]


def test_idempotency_key_omitted_stores_two_events(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    for _ in range(2):
        assert gateway.call("POST", PATH, user_message("x"), key=key).status == 201
    assert scratch_db.rows("select count(*), count(distinct cid) from events") == [(2, 1)]


def test_idempotency_key_is_not_kept_by_refused_request(gateway: Gateway) -> None:
    key = gateway.key()
    bad = user_message(
        "x", edges=[{"cid": "bafyreihyrpefhacm6kkp4ql6j6udakdit7g3dmkzfriqfykhjw6cad5lrm"}]
    )
    reply = gateway.call("POST", PATH, bad, key=key, headers=key_header("k"))
    assert (reply.status, reply.error["details"]["field"]) == (422, "edges")
    good = gateway.call("POST", PATH, user_message("x"), key=key, headers=key_header("k"))
    assert (good.status, good.headers.get(REPLAY_HEADER)) == (201, None)


def test_idempotency_key_replays_blank_event_of_earlier_version(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is stored: a new one is refused, with a key or without."""
    key = gateway.key()
    batch = {"events": [user_message("\n", source_event_key="b"), user_message("x" * 9)]}
    large = user_message(" " * 70_000)
    with monkeypatch.context() as earlier:
        earlier.setattr(EventDraft, "blank_text_error", None)
        first = gateway.call("POST", PATH, user_message(""), key=key, headers=key_header("k"))
        large_first = gateway.call("POST", PATH, large, key=key, headers=key_header("large"))
        batch_first = gateway.call("POST", BATCH, batch, key=key).body["results"]
    for path in (PATH, "/api/v1/insert"):
        status = gateway.call("POST", path, user_message(""), key=key).status
        assert status == 422, "no key"
    second = gateway.call("POST", PATH, user_message(""), key=key, headers=key_header("k"))
    assert (second.status, second.text) == (201, first.text)
    assert second.headers[REPLAY_HEADER] == "true"
    large_second = gateway.call("POST", PATH, large, key=key, headers=key_header("large"))
    assert (large_second.status, large_second.text) == (201, large_first.text)
    results = gateway.call("POST", BATCH, batch, key=key).body["results"]
    assert results[0] == batch_first[0]
    other = gateway.call("POST", PATH, user_message(" "), key=key, headers=key_header("k"))
    assert (other.status, other.error["details"]["fields"]) == (409, ["content"])
    for body in (user_message(""), large):
        new = gateway.call("POST", PATH, body, key=key, headers=key_header("new"))
        assert (new.status, new.error["details"]["field"]) == (422, "content")
    batch["events"][0]["source_event_key"] = "new"
    new = gateway.call("POST", BATCH, {**batch, "atomic": True}, key=key)
    assert new.status == 422, new.text
    assert scratch_db.rows("select count(*) from events") == [(5,)]
