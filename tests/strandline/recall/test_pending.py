"""What recall and contexts say of events that are stored and not processed yet."""

from typing import Any

import pytest

from tests.support import Gateway, ScratchDatabase, user_message

ALICE, BOB, ADA = "user:alice", "user:bob", "user:ada"
QUESTION = "Where is the buoy?"
NOTE = "Many new events were searched by words alone so far."


def tell(gateway: Gateway, key: str, count: int, *people: str) -> None:
    for n in range(count):
        body = user_message(f"The buoy {n} is out.", *people, session_id="s")
        assert gateway.call("POST", "/api/v1/events", body, key=key).status == 201


def ask(gateway: Gateway, key: str, path: str, **body: Any) -> tuple[Any, Any, str]:
    """Both counts of an answer, and its text if it is one."""
    reply = gateway.call("POST", f"/api/v1/{path}", {"query": QUESTION, **body}, key=key)
    assert reply.status == 200, reply.text
    body = reply.body
    return body["not_yet_embedded"], body["not_yet_folded"], body.get("text", "")


def count_unfolded(base: ScratchDatabase) -> int:
    ((count,),) = base.rows("select sum(last_seq - folded_seq)::int from scopes")
    return count


@pytest.mark.parametrize("path", ["recall", "context", "sessions/s/context/search"])
def test_recall_pending_events_are_counted(
    gateway: Gateway, scratch_db: ScratchDatabase, path: str
) -> None:
    key = gateway.key(user=ALICE)
    tell(gateway, key, 3, ALICE)
    assert ask(gateway, key, path)[:2] == (3, 3)
    gateway.sweep()
    tell(gateway, key, 2, ALICE)
    unfolded = count_unfolded(scratch_db)
    assert unfolded >= 2
    assert ask(gateway, key, path)[:2] == (2, unfolded)
    gateway.sweep()
    assert ask(gateway, key, path)[:2] == (0, count_unfolded(scratch_db))


def test_recall_pending_events_of_others_are_not_counted(gateway: Gateway) -> None:
    """The planted fault: who sees them all is told of them."""
    key, other, elsewhere = gateway.key(), gateway.key(user=BOB), gateway.key("other", user=ADA)
    tell(gateway, other, 12, BOB)
    tell(gateway, elsewhere, 12, ADA)
    tell(gateway, key, 1, ALICE)
    for path in ("recall", "context"):
        mine, unfolded, text = ask(gateway, key, path, participants=[ALICE])
        assert (mine, unfolded) == (1, 1)
        assert NOTE not in text
        assert ask(gateway, other, path)[:2] == (12, 12)
    everybody = gateway.key(rights=("read", "admin"))
    reply = gateway.call(
        "POST",
        "/api/v1/recall",
        {"query": QUESTION},
        key=everybody,
        query={"everybody": "true"},
    )
    assert (reply.body["not_yet_embedded"], reply.body["not_yet_folded"]) == (13, 13)


@pytest.mark.parametrize(("count", "is_told"), [(9, False), (10, True)])
def test_recall_pending_events_are_told_in_block_if_many(
    gateway: Gateway, count: int, is_told: bool
) -> None:
    key = gateway.key(user=ALICE)
    tell(gateway, key, count, ALICE)
    embedded, _, text = ask(gateway, key, "context")
    assert (embedded, NOTE in text) == (count, is_told)


def test_recall_pending_events_of_context_need_a_query(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    tell(gateway, key, 12, ALICE)
    body = gateway.call("POST", "/api/v1/context", {}, key=key).body
    assert (body["not_yet_embedded"], body["not_yet_folded"]) == (None, None)
    assert NOTE not in body["text"]
    path = "/api/v1/sessions/s/context"
    plain = gateway.call("GET", path, key=key).body
    assert (plain["not_yet_embedded"], plain["not_yet_folded"]) == (None, None)
    asked = gateway.call("GET", path, key=key, query={"query": QUESTION}).body
    assert (asked["not_yet_embedded"], asked["not_yet_folded"]) == (12, 12)
