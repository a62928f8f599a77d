"""What a scope stores is counted where its events get their seq: once, and only what was stored."""

import json
import uuid
from typing import Any

import pytest

from strandline.local.aws import LocalAws
from tests.support import Gateway, ScratchDatabase, user_message
from tests.uploads import citing, objects, upload_file

PATH, BATCH = "/api/v1/events", "/api/v1/events/batch"
EMPTY = len("{}")


def count(base: ScratchDatabase) -> int:
    """Over all scopes."""
    ((total,),) = base.rows("select coalesce(sum(stored_bytes), 0)::bigint from scopes")
    return total


def size(text: str, metadata: object = None) -> int:
    """UTF-8 of the text, and of the metadata as compact JSON."""
    document = json.dumps(metadata or {}, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + len(document.encode())


@pytest.mark.parametrize(
    ("text", "metadata"),
    [("Plain.", {}), ("Grüße, 海", {"wörter": ["ü", 1.5, None]}), ("", {"a": {"b": [1, 2]}})],
)
def test_ingest_bytes_count_content_and_metadata(
    gateway: Gateway, scratch_db: ScratchDatabase, text: str, metadata: dict[str, Any]
) -> None:
    event = user_message(text, metadata=metadata, type="message" if text else "observation")
    reply = gateway.call("POST", PATH, event, key=gateway.key())
    assert reply.status == 201
    assert count(scratch_db) == size(text, metadata)


def test_ingest_bytes_skip_replay_and_conflict(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key, first = gateway.key(), user_message("Once.", source_event_key="1")
    replies = [gateway.call("POST", PATH, first, key=key) for _ in range(2)]
    replies.append(gateway.call("POST", PATH, {**first, "content": "Another one."}, key=key))
    assert [reply.status for reply in replies] == [201, 201, 409]
    assert count(scratch_db) == size("Once.")


@pytest.mark.parametrize("atomic", [False, True])
def test_ingest_bytes_of_batch_count_only_created_events(
    gateway: Gateway, scratch_db: ScratchDatabase, atomic: bool
) -> None:
    """A new event, a double of it, two in another scope, and one that cites what does not exist."""
    edge = {"event_id": "01890a5d-ac96-774b-bcce-b302099a8057", "weight": 1.0}
    events = [
        user_message("New.", source_event_key="a"),
        user_message("New.", source_event_key="a"),
        user_message("There.", "user:bob"),
        user_message("Also there.", "user:bob"),
        user_message("Refused, and long besides.", edges=[edge]),
    ]
    body = {"events": events, "atomic": atomic}
    reply = gateway.call("POST", BATCH, body, key=gateway.key())
    assert reply.status == (422 if atomic else 200)
    by_scope = dict(scratch_db.rows("select participants[1], stored_bytes from scopes"))
    there = size("There.") + size("Also there.")
    assert by_scope == ({} if atomic else {"agent:helper": size("New."), "user:bob": there})


def test_ingest_bytes_count_payload_for_bringing_request(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key, text = gateway.key(), "long " * 20_000
    response = gateway.call("POST", PATH, user_message(text), key=key)
    assert count(scratch_db) == len(text) + EMPTY
    citations: dict[str, object] = {
        **user_message(""),
        "blob": {"cid": response.body["blob"]["cid"]},
    }
    del citations["content"]
    reply = gateway.call("POST", PATH, citations, key=key)
    assert reply.status == 201, reply.text
    assert reply.body["blob"]["size"] == len(text)
    assert count(scratch_db) == len(text) + 2 * EMPTY


def test_ingest_bytes_count_payload_of_many_events_once(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key, text = gateway.key(), "long " * 20_000
    upload = upload_file(gateway, key, b"put " * 20_000, mime_type="application/octet-stream")
    events = [user_message(text), user_message(text), *(citing(upload["cid"]) for _ in range(3))]
    reply = gateway.call("POST", BATCH, {"events": events}, key=key)
    assert reply.body["stored"] == 5, reply.text
    assert count(scratch_db) == len(text) + 80_000 + 5 * EMPTY


def test_ingest_bytes_of_refused_event_leave_no_payload(gateway: Gateway, aws: LocalAws) -> None:
    key = gateway.key("refusals")
    for event in (
        user_message("First.", source_event_key="k"),
        user_message("Here.", session_id="s"),
    ):
        assert gateway.call("POST", PATH, event, key=key).status == 201
    before = objects(aws, "refusals/")
    for n, (refusal, status) in enumerate(
        [
            ({"source_event_key": "k"}, 409),
            ({"session_id": "s", "participants": ["user:alice", "user:bob"]}, 422),
            ({"edges": [{"event_id": str(uuid.uuid4())}]}, 422),
        ]
    ):
        long = gateway.call("POST", PATH, {**user_message(f"{n} " * 50_000), **refusal}, key=key)
        assert long.status == status, long.text
        upload = upload_file(gateway, key, f"{n}!".encode() * 50_000)
        reply = gateway.call("POST", PATH, {**citing(upload["cid"]), **refusal}, key=key)
        assert reply.status == status, reply.text
    assert objects(aws, "refusals/") == before


def test_ingest_bytes_replay_of_large_event_is_answered(gateway: Gateway) -> None:
    key, large = gateway.key(), user_message("large " * 20_000, source_event_key="k")
    first, again = (gateway.call("POST", PATH, large, key=key) for _ in range(2))
    assert (first.status, again.status) == (201, 201)
    assert again.text == first.text
    assert again.headers["Idempotent-Replayed"] == "true"
