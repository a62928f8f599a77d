"""Erasures of more events than one transaction takes: unreadable at once, by a mark that row-level
security honours; tombstones by and by, by the job."""

from typing import Any

import pytest

from strandline.erasure import erase_events as erasing
from strandline.erasure import store
from tests.strandline.erasure.erasure_calls import (
    ALICE,
    BOB,
    CANARY,
    ERASURES,
    EVERYBODY,
    HELPER,
    READS,
    talk,
    traces,
)
from tests.support import Gateway, ScratchDatabase, Tell, user_message
from tests.uploads import cid_of

LARGE = "zyxcanary payload " * 5000


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "EVENTS_AT_ONCE", 2)


def tombstones(base: ScratchDatabase) -> int:
    return base.rows("select count(*) from events where erased_at is not null")[0][0]


def visible_ids(gateway: Gateway, key: str) -> list[str]:
    """The reads that show what was erased, or fail otherwise than for a session that is gone."""
    results: list[str] = []
    for method, path, fields in READS:
        query = None if method == "POST" or "sessions" in path else {"participants": ALICE}
        body = {**fields, "participants": [ALICE]} if method == "POST" else None
        reply = gateway.call(method, path, body, key=key, query=query)
        text = reply.text.lower().replace("zyxcanary sister friday", "")
        text = text if fields.get("text") != CANARY else text.replace('"zyxcanary"', "", 1)
        if CANARY in text or reply.status not in ((200, 404) if "sessions" in path else (200,)):
            results.append(f"{path}: {reply.text}")
    return results


@pytest.mark.parametrize(
    "kind",
    [
        "participant",
        pytest.param("scope_id", marks=pytest.mark.proof),
        pytest.param("session_id", marks=pytest.mark.proof),
        "tenant",
    ],
)
def test_erasure_mark_hides_many_events_before_tombstones(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str, kind: str
) -> None:
    ids = talk(gateway, scratch_db, tell, eraser)
    large = tell(eraser, LARGE, session_id="harbour")
    others = tell(eraser, "Bob keeps the lighthouse.", BOB, speaker=BOB)
    page = {"participants": ALICE, "limit": 2}
    cursor = gateway.call("GET", "/memories/list", key=eraser, query=page).body["next_cursor"]
    assert visible_ids(gateway, eraser) != []
    selector: dict[str, Any] = {
        "participant": ALICE,
        "scope_id": large["scope_id"],
        "session_id": "harbour",
        "tenant": True,
    }
    reply = gateway.call("POST", ERASURES, {kind: selector[kind]}, key=eraser)
    assert (reply.status, reply.body["state"]) == (202, "hidden")
    assert tombstones(scratch_db) == 0, "the mark alone"

    assert visible_ids(gateway, eraser) == []
    for event_id in (ids[2], large["event_id"]):
        reply_of_it = gateway.call("GET", f"/api/v1/events/{event_id}", key=eraser, query=EVERYBODY)
        assert reply_of_it.status == 410
    file = f"/file/{cid_of(LARGE.encode())}"
    assert gateway.call("GET", file, key=eraser, query=EVERYBODY).status == 404
    again = gateway.call("DELETE", f"/api/v1/events/{ids[2]}", key=eraser)
    assert again.body["erasure_id"] == reply.body["erasure_id"]
    replay = user_message("anything", session_id="harbour", source_event_key="key 2")
    assert gateway.call("POST", "/api/v1/events", replay, key=eraser).status == 410
    late = gateway.call("GET", "/memories/list", key=eraser, query={**page, "cursor": cursor})
    assert (late.status, late.error["details"]["field"]) == (410, "cursor")
    node = {"participants": [ALICE, HELPER], "nodes": [{"type": "topic", "name": "The Petrel"}]}
    assert gateway.call("POST", "/api/v1/graph/nodes", node, key=eraser).status == 503
    path = f"/api/v1/events/{others['event_id']}"
    view_status = gateway.call("GET", path, key=eraser, query=EVERYBODY).status
    assert view_status == (410 if kind == "tenant" else 200)
    fresh = tell(eraser, "The tide is fresh.", session_id="harbour")

    totals = gateway.run_job("eraser", "acme")
    assert totals["events_erased"] == (7 if kind == "tenant" else 6)
    assert scratch_db.rows("select count(*) from erasure_marks") == [(0,)]
    assert traces(scratch_db) == []
    for event_id, status in ((fresh["event_id"], 200), (others["event_id"], view_status)):
        reply_of_it = gateway.call("GET", f"/api/v1/events/{event_id}", key=eraser, query=EVERYBODY)
        assert reply_of_it.status == status
    assert gateway.call("POST", "/api/v1/graph/nodes", node, key=eraser).status == 201
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    gateway.run_job("eraser", "acme")
    path = f"{ERASURES}/{reply.body['erasure_id']}"
    body = gateway.call("GET", path, key=eraser).body
    assert (body["state"], body["receipt"]["event_count"]) == ("complete", totals["events_erased"])


def test_erasure_mark_covers_one_speaker_only(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """In a scope of two, of which one is erased."""
    for n in range(3):
        tell(eraser, f"zyxcanary {n} of alice", ALICE, BOB, speaker=ALICE)
    event_ids = [
        tell(eraser, f"bob says {n}", ALICE, BOB, speaker=BOB)["event_id"] for n in range(2)
    ]
    alice = gateway.key(user=ALICE, rights=["read", "write", "erase"])
    assert gateway.call("POST", ERASURES, {"participant": ALICE}, key=alice).status == 202
    bob = gateway.key(user=BOB)

    def listed_ids() -> list[str]:
        events = gateway.call("GET", "/memories/list", key=bob).body["events"]
        return [event["event_id"] for event in events]

    assert listed_ids() == event_ids[::-1]
    edge = {"event_id": event_ids[0], "weight": 0.5}
    event_ids.append(tell(bob, "bob goes on", ALICE, BOB, edges=[edge])["event_id"])
    scope = {"participants": [ALICE, BOB], "query": "zyxcanary of alice", "min_relevance": 0}
    reply = gateway.call("POST", "/api/v1/recall", scope, key=bob)
    assert reply.status == 200
    assert 'of alice"' not in reply.text.replace("zyxcanary of alice", "")
    gateway.run_job("eraser", "acme")
    assert listed_ids() == event_ids[::-1]
    assert tombstones(scratch_db) == 3
    assert traces(scratch_db) == []


def test_erasure_mark_ends_lists_of_affected_readers_only(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    eve, bob = gateway.key(user="user:eve"), gateway.key(user=BOB)
    for n in range(3):
        tell(eve, f"eve {n}", "user:eve")
        tell(eraser, f"alice {n}", ALICE, BOB, speaker=ALICE)
    pages: dict[str, dict[str, object]] = {
        key: {"limit": 1, **(EVERYBODY if key == eraser else {})} for key in (eve, bob, eraser)
    }
    for key, page in pages.items():
        first = gateway.call("GET", "/memories/list", key=key, query=page)
        page["cursor"] = first.body["next_cursor"]
    assert gateway.call("POST", ERASURES, {"participant": ALICE}, key=eraser).status == 202

    def go_on(key: str) -> int:
        return gateway.call("GET", "/memories/list", key=key, query=pages[key]).status

    assert [go_on(key) for key in (eve, bob, eraser)] == [200, 410, 410]
    gateway.run_job("eraser", "acme")
    assert [go_on(key) for key in (eve, bob, eraser)] == [200, 410, 410]


def test_erasure_mark_job_resumes_between_tombstones(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n in range(5):
        tell(eraser, f"zyxcanary {n}", session_id="harbour")
    erasure = gateway.call("POST", ERASURES, {"session_id": "harbour"}, key=eraser).body
    add_counts, calls = store.add_erasure_counts, [0]

    def crash(*arguments: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise RuntimeError
        add_counts(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(store, "add_erasure_counts", crash)
        gateway.run_job("eraser", "acme")
    assert tombstones(scratch_db) == 2
    assert scratch_db.rows("select count(*) from erasure_marks") == [(1,)]
    gateway.run_job("eraser", "acme")
    assert (tombstones(scratch_db), traces(scratch_db)) == (5, [])
    state = gateway.call("GET", f"{ERASURES}/{erasure['erasure_id']}", key=eraser).body
    assert (state["state"], state["receipt"]["event_count"]) == ("complete", 5)


def test_erasure_mark_check_notices_missing_policy(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Teeth: without its policy a table shows what the mark is about."""
    talk(gateway, scratch_db, tell, eraser)
    assert gateway.call("POST", ERASURES, {"tenant": True}, key=eraser).status == 202
    assert visible_ids(gateway, eraser) == []
    for table in ("events", "graph_nodes"):
        scratch_db.rows(f"drop policy is_unmarked on {table}")
        assert visible_ids(gateway, eraser) != [], table
