"""Erasure of sessions: also of those without events, and while something is said in them."""

import threading
from typing import Any

import psycopg
import pytest

from strandline.erasure import erase_events as erasing
from strandline.erasure import store_selections
from tests.strandline.erasure.erasure_calls import ALICE, ERASURES, HELPER, traces
from tests.support import Gateway, Reply, ScratchDatabase, Tell, user_message

NAME = "zyxcanary-session"


def begin(gateway: Gateway, key: str, **more: object) -> None:
    body = {"session_id": NAME, "participants": [ALICE, HELPER], **more}
    assert gateway.call("POST", "/api/v1/sessions", body, key=key).status == 201


@pytest.mark.parametrize("kind", ["delete", "session_id", "scope_id", "tenant"])
def test_erasure_session_without_events_is_erased(
    gateway: Gateway, scratch_db: ScratchDatabase, eraser: str, kind: str
) -> None:
    begin(gateway, eraser, metadata={"note": "zyxcanary"})

    def erase_it() -> Reply:
        if kind == "delete":
            path, query = f"/api/v1/sessions/{NAME}", {"erase": "true"}
            return gateway.call("DELETE", path, key=eraser, query=query)
        ((scope_id,),) = scratch_db.rows("select scope_id::text from scopes")
        selector: dict[str, Any] = {"session_id": NAME, "scope_id": scope_id, "tenant": True}
        return gateway.call("POST", ERASURES, {kind: selector[kind]}, key=eraser)

    reply = erase_it()
    assert (reply.status, reply.body["counts"]) == (202, {"sessions": 1})
    assert traces(scratch_db) == []
    gateway.run_job("eraser")
    path = f"{ERASURES}/{reply.body['erasure_id']}"
    assert gateway.call("GET", path, key=eraser).body["state"] == "complete"
    again = erase_it()
    assert again.status == (202 if kind == "delete" else 404)
    assert kind != "delete" or again.body["erasure_id"] == reply.body["erasure_id"]
    assert scratch_db.rows("select count(*) from erasures") == [(1,)]


@pytest.mark.parametrize("at_once", [1000, 1])
def test_erasure_session_with_concurrent_event_stays(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    """With that alone; of many events the mark is about that, too. It can be erased again."""
    monkeypatch.setattr(erasing, "EVENTS_AT_ONCE", at_once)
    begin(gateway, eraser, metadata={"note": "zyxcanary"})
    for text in ("one", "two"):
        tell(eraser, text, session_id=NAME)
    list_some = store_selections.list_event_ids

    def list_early(*arguments: Any) -> Any:
        some = list_some(*arguments)
        tell(eraser, "late", session_id=NAME)
        return some

    def erase_it() -> int:
        return gateway.call("POST", ERASURES, {"session_id": NAME}, key=eraser).status

    with monkeypatch.context() as patch:
        patch.setattr(store_selections, "list_event_ids", list_early)
        assert erase_it() == 202
    if at_once == 1000:
        query = (
            "select s.session_id, s.metadata, e.content from sessions s"
            " join events e using (tenant_id, scope_id, session_id)"
        )
        assert scratch_db.rows(query) == [(NAME, {}, "late")]
        assert erase_it() == 202
    assert scratch_db.rows("select count(*) from sessions") == [(0,)]
    gateway.run_job("eraser", "acme")
    assert scratch_db.rows("select count(*) from events where erased_at is null") == [(0,)]
    assert traces(scratch_db) == []


@pytest.mark.parametrize("edges", [False, True])
def test_erasure_session_race_leaves_no_orphan_event(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str, edges: bool
) -> None:
    """The one of most appends, and the general one."""
    receipt = tell(eraser, "kept")
    begin(gateway, eraser)
    body = user_message("late", session_id=NAME)
    body |= {"edges": [{"event_id": receipt["event_id"], "weight": 0.5}]} if edges else {}
    replies: list[Reply] = []

    def append() -> None:
        replies.append(gateway.call("POST", "/api/v1/events", body, key=eraser))

    with psycopg.connect(scratch_db.admin_url) as erasure:
        erasure.execute("select from scopes for update")
        thread = threading.Thread(target=append)
        thread.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while scratch_db.rows(waiting) == [(0,)]:
            pass
        erasure.execute("delete from sessions")
    thread.join()
    orphans = "select seq from events where session_id <> '' and not exists (select from sessions)"
    assert (replies[0].status, scratch_db.rows(orphans)) == (503, [])
    assert gateway.call("POST", "/api/v1/events", body, key=eraser).status == 201
