"""Answers that stay within their size and their listeners, and addresses that are found."""

from typing import Any

import pytest

from tests.support import Gateway, Tell, user_message

ALICE, BOB = "user:alice", "user:bob"
QUERY = "/api/v1/events/query"
EMOJI = "\U0001f30a"


def test_page_fits_scopes_of_many_long_names(gateway: Gateway) -> None:
    """Who shares a scope with somebody chooses its other names, and stops nobody by them."""
    key = gateway.key()
    crowds = [[ALICE, *(f"user:{n}-{m}-{EMOJI * 186}" for m in range(63))] for n in range(50)]
    for start in (0, 17, 34):
        batch = {"events": [user_message("sea", *who) for who in crowds[start : start + 17]]}
        reply = gateway.call("POST", "/api/v1/events/batch", batch, key=key)
        assert reply.body["failed"] == 0, reply.text[:300]
    alice, count, cursor = gateway.key(user=ALICE), 0, None
    for _ in range(10):
        page = gateway.call("POST", QUERY, {"limit": 50, "cursor": cursor}, key=alice)
        assert page.status == 200, page.text[:300]
        assert len(page.text.encode()) < 4.3 * 1024 * 1024, "in base64 it is 6 MiB at most"
        count += sum(len(scope["events"]) for scope in page.body["scopes"])
        cursor = page.body["next_cursor"]
        if cursor is None:
            break
    assert count == 50


def test_page_of_batch_refusal_fits_response_limit(gateway: Gateway) -> None:
    odd = {f"{n}{EMOJI * 80}": 1 for n in range(20)}
    batch = {"events": [{**user_message("x"), **odd} for _ in range(500)], "atomic": True}
    raw = str(batch).replace("'", '"').replace("True", "true").encode()
    reply = gateway.call("POST", "/api/v1/events/batch", raw=raw, key=gateway.key())
    assert (reply.status, reply.error["code"]) == (422, "invalid_field"), reply.text[:300]
    assert len(reply.text.encode()) < 4.3 * 1024 * 1024, "in base64 it is 6 MiB at most"


@pytest.mark.parametrize(
    "address", ["https://example.com/reset?id=5", "db1.example.org:5432", "file:///var/log/a.txt"]
)
def test_search_words_find_address_as_written(gateway: Gateway, tell: Tell, address: str) -> None:
    key = gateway.key(user=ALICE)
    tell(key, f"See {address} for it.", ALICE)
    tell(key, "Something else.", ALICE)
    scopes = gateway.call("POST", QUERY, {"text": address}, key=key).body["scopes"]
    assert [event["content"] for scope in scopes for event in scope["events"]] == [
        f"See {address} for it."
    ]
    without = gateway.call("POST", QUERY, {"text": f"something -{address}"}, key=key).body
    assert len(without["scopes"]) == 1


def test_page_of_payload_needs_event_visible_to_all_readers(gateway: Gateway, tell: Tell) -> None:
    alice = gateway.key(user=ALICE)
    receipt: Any = tell(alice, "word " * 20_000, ALICE, speaker=ALICE)
    event = gateway.call("GET", f"/api/v1/events/{receipt['event_id']}", key=alice).body
    path = f"/file/{event['blob']['cid']}"
    assert gateway.call("GET", path, key=alice).status == 307
    both = gateway.call("GET", path, key=alice, query={"participants": BOB})
    assert both.status == 404, "bob listens, and was not there"


def test_page_is_unchanged_by_writes_of_other_tenant(gateway: Gateway, tell: Tell) -> None:
    key, other = gateway.key(user=ALICE), gateway.key("beta")
    for n in range(3):
        body = {"session_id": f"s-{n}", "participants": [ALICE]}
        assert gateway.call("POST", "/api/v1/sessions", body, key=key).status == 201
    first = gateway.call("GET", "/api/v1/sessions", key=key, query={"limit": 1}).body
    again = {"limit": 1, "cursor": first["next_cursor"]}
    second = gateway.call("GET", "/api/v1/sessions", key=key, query=again)
    tell(other, "elsewhere", BOB)
    assert second.body["next_cursor"]
    assert gateway.call("GET", "/api/v1/sessions", key=key, query=again).text == second.text
