"""Erasure through the API: unreadable at once, in every table and route; complete after the job."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from strandline.commands.main import main
from strandline.config import get_settings
from strandline.erasure import receipts
from strandline.erasure.store import ErasedEvent, Erasure
from tests.strandline.erasure.erasure_calls import (
    ALICE,
    BOB,
    CANARY,
    ERASURES,
    EVERYBODY,
    HELPER,
    erase,
    read_all,
    talk,
    traces,
)
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, Reply, ScratchDatabase, Tell, user_message

SESSION = "zyxcanary-session"


def test_erasure_removes_event_from_answers_and_tables(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    ids = talk(gateway, scratch_db, tell, eraser)
    before = dict(read_all(gateway, eraser))
    assert sum(CANARY in text for text in before.values()) >= 6, "the reads would show it"
    assert {"events", "chain_versions", "event_search", "graph_nodes"} <= set(traces(scratch_db))

    erasure = erase(gateway, eraser, ids[2])
    assert (erasure["state"], erasure["counts"]["events"]) == ("hidden", 1)
    lines = [
        path
        for path, text in read_all(gateway, eraser)
        if CANARY in text and not path.endswith("query")
    ]
    assert lines == []
    assert traces(scratch_db) == []
    reply = gateway.call("GET", f"/api/v1/events/{ids[2]}", key=eraser, query=EVERYBODY)
    assert (reply.status, reply.error["details"]["seq"]) == (410, 3)

    totals = gateway.run_job("eraser")
    assert totals["chains_renewed"] >= 1
    assert totals["erasures_completed"] == 1
    fold_all(gateway, scratch_db)
    gateway.run_job("promoter")
    assert build(gateway).get("snapshots_published") == 1
    assert traces(scratch_db) == []
    (chain,) = scratch_db.rows(
        "select v.summary, v.event_count, c.status from chains c join chain_versions v"
        " using (tenant_id, chain_id, version) join chain_events e using (tenant_id, chain_id)"
        " where e.event_id = %s",
        ids[1],
    )
    assert chain[0] != ""
    assert chain[2] != "rejected" or chain[0] != ""
    state = gateway.call("GET", f"{ERASURES}/{erasure['erasure_id']}", key=eraser).body
    assert state["state"] == "complete"
    assert state["receipt"]["event_ids"] == [ids[2]]


def test_erasure_rebuilds_chain_from_remaining_events(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Refolded from the log it brings nothing back either."""
    ids = talk(gateway, scratch_db, tell, eraser)
    erase(gateway, eraser, ids[2])
    gateway.run_job("eraser")
    scratch_db.rows("update scopes set folded_seq = 0, fold_no = fold_no + 1")
    for table in ("chain_vectors", "chain_events", "chain_versions", "chains", "lanes"):
        scratch_db.rows(f"set session_replication_role = replica; delete from {table}")  # noqa: S608
    scratch_db.rows(
        "insert into scope_work (tenant_id, scope_id, participants, due_at)"
        " select tenant_id, scope_id, participants, now() from scopes on conflict do nothing"
    )
    fold_all(gateway, scratch_db)
    assert traces(scratch_db) == []
    rows = scratch_db.rows("select count(*) from chain_events")
    assert rows == [(4,)]


def test_erasure_makes_replayed_key_gone_for_its_writer(
    gateway: Gateway, scratch_db: ScratchDatabase, eraser: str
) -> None:
    body = user_message("The tide is late.", source_event_key="the key")

    def append(key: str, **more: object) -> Reply:
        return gateway.call("POST", "/api/v1/events", {**body, **more}, key=key)

    event_id = append(eraser).body["event_id"]
    erase(gateway, eraser, event_id)
    assert scratch_db.rows("select count(*) from event_keys") == [(0,)]
    replies = [append(eraser), append(eraser, content="another request")]
    batch = {"events": [body, user_message("This one is new.")]}
    answer = gateway.call("POST", "/api/v1/events/batch", batch, key=eraser).body
    assert [reply.status for reply in replies] == [410, 410]
    assert [item["error"] and item["error"]["code"] for item in answer["results"]] == ["gone", None]
    assert append(gateway.key(user=ALICE)).status == 201, "a user's keys are that user's own"
    assert scratch_db.rows("select count(*) from events where erased_at is null") == [(2,)]


def test_erasure_depends_on_right_speaker_and_view(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    alice = gateway.key(user=ALICE, rights=["read", "write", "erase"])
    message = tell(eraser, "Said by alice.", ALICE, BOB, speaker=ALICE)["event_id"]
    others = tell(eraser, "Said by bob.", ALICE, BOB, speaker=BOB)["event_id"]
    unseen = tell(eraser, "Bob alone.", BOB, speaker=BOB)["event_id"]

    def delete(key: str, event_id: str) -> Reply:
        return gateway.call("DELETE", f"/api/v1/events/{event_id}", key=key)

    assert delete(gateway.key(), message).status == 403
    assert delete(gateway.key(rights=["read", "write", "admin"]), message).status == 403
    assert delete(alice, others).status == 403
    unknown, foreign = delete(alice, str(uuid.uuid4())), delete(alice, unseen)
    assert unknown.status == foreign.status == 404
    other_tenant = gateway.key("globex", rights=["erase"])
    assert delete(other_tenant, message).status == 404
    for selector in ({"tenant": True}, {"participant": BOB}):
        assert gateway.call("POST", ERASURES, selector, key=alice).status == 403
    assert delete(alice, message).status == 200
    again = delete(alice, message)
    assert (again.status, again.body["counts"]["events"]) == (200, 1)
    bob = gateway.key(user=BOB, rights=["read", "erase"])
    assert delete(bob, message).status == 410, "bob sees the tombstone, and not who erased it"
    assert delete(gateway.key(user="user:eve", rights=["erase"]), message).status == 404
    assert gateway.call("GET", f"/api/v1/events/{message}", key=bob).status == 410
    assert (
        gateway.call("GET", f"/api/v1/events/{message}", key=gateway.key(user="user:eve")).status
        == 404
    )
    erasure = again.body["erasure_id"]
    assert gateway.call("GET", f"{ERASURES}/{erasure}", key=alice).status == 200
    assert gateway.call("GET", f"{ERASURES}/{erasure}", key=eraser).status == 200
    assert gateway.call("GET", f"{ERASURES}/{erasure}", key=bob).status == 404


@pytest.mark.parametrize(
    "selector", [{}, {"tenant": True, "participant": ALICE}, {"event_ids": []}, {"tenant": False}]
)
def test_erasure_refuses_empty_selector(
    gateway: Gateway, eraser: str, selector: dict[str, Any]
) -> None:
    assert gateway.call("POST", ERASURES, selector, key=eraser).status == 422


def test_erasure_selectors_count_and_erase_matches(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    for name in ("one", "two"):
        for speaker in (ALICE, BOB):
            tell(eraser, f"{speaker} in {name}", ALICE, BOB, speaker=speaker, session_id=name)
    lonely = tell(eraser, "Bob alone.", BOB, speaker=BOB)

    def count_left() -> int:
        return scratch_db.rows("select count(*) from events where erased_at is null")[0][0]

    def post(status: int = 202, **selector: Any) -> Any:
        reply = gateway.call("POST", ERASURES, selector, key=eraser)
        assert reply.status == status, reply.text
        return reply.body

    assert post(200, participant=ALICE, dry_run=True)["events"] == 2
    assert count_left() == 5
    assert post(participant=ALICE)["counts"]["events"] == 2
    assert count_left() == 3
    reply = gateway.call("DELETE", "/api/v1/sessions/one", key=eraser, query={"erase": "true"})
    assert (reply.status, reply.body["state"]) == (202, "hidden")
    assert "one" not in json.dumps(reply.body["target"])
    assert scratch_db.rows("select session_id from sessions") == [("two",)]
    assert count_left() == 2
    post(scope_id=lonely["scope_id"])
    assert count_left() == 1
    assert post(tenant=True)["counts"]["events"] == 1
    assert (count_left(), scratch_db.rows("select count(*) from sessions")) == (0, [(0,)])
    post(404, tenant=True)
    feed = f"/api/v1/scopes/{lonely['scope_id']}/erasures"
    body = gateway.call("GET", feed, key=eraser, query={"participants": BOB}).body
    assert [(item["n"], item["seq"]) for item in body["erasures"]] == [(1, 1)]
    query = {"participants": BOB, "after": body["next_after"]}
    assert gateway.call("GET", feed, key=eraser, query=query).body["erasures"] == []


def test_erasure_keeps_order_edges_and_neighbour_index(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    first, second, third = (
        tell(eraser, f"{word} words here", session_id="s") for word in ("alpha", "beta", "gamma")
    )
    citing = tell(
        eraser, "It rests on beta.", edges=[{"event_id": second["event_id"], "weight": 0.5}]
    )
    block = gateway.call("GET", f"/ipfs/{citing['cid']}", key=eraser, query={"participants": ALICE})
    erase(gateway, eraser, second["event_id"])
    again = gateway.call("GET", f"/ipfs/{citing['cid']}", key=eraser, query={"participants": ALICE})
    assert (again.status, again.text) == (200, block.text)
    words = scratch_db.rows(
        "select cited_id::text, words::text from event_search where event_id = %s",
        third["event_id"],
    )
    assert words[0][0] == first["event_id"]
    assert "'beta'" not in words[0][1]
    assert "'alpha'" in words[0][1]
    fresh = tell(eraser, "delta words here", session_id="s")
    assert fresh["seq"] == 5
    feed = f"/api/v1/scopes/{first['scope_id']}/events"
    events = gateway.call("GET", feed, key=eraser, query={"participants": ALICE}).body["events"]
    assert [event["seq"] for event in events] == [1, 3, 4, 5]
    tombstone = scratch_db.rows(
        "select seq, recorded_at is not null, cid from events where seq = 2"
    )
    assert tombstone == [(2, True, None)]


def test_erasure_restores_previous_field_revision(
    gateway: Gateway, scratch_db: ScratchDatabase, eraser: str
) -> None:
    who = {"participants": [ALICE, HELPER]}
    nodes = {**who, "nodes": [{"type": "topic", "name": "The Petrel"}]}
    topic = gateway.call("POST", "/api/v1/graph/nodes", nodes, key=eraser).body["nodes"][0]["id"]
    path = f"/api/v1/graph/topics/{topic}/fields/berth"
    for value in ("fourteen", "zyxcanary"):
        reply = gateway.call("POST", path, {**who, "value": value}, key=eraser)
        assert reply.status == 201, reply.text
    erase(gateway, eraser, reply.body["event_id"])
    field = gateway.call("GET", path, key=eraser, query=who).body
    assert (field["current"]["value"], field["revisions"]) == ("fourteen", 1)
    assert traces(scratch_db) == []
    third = gateway.call("POST", path, {**who, "value": "twelve"}, key=eraser).body
    assert third["revision"] == 2
    rows = scratch_db.rows(
        "select count(*) from graph_observations o join graph_nodes n on n.node_id = o.target_id"
    )
    assert rows == [(2,)], "of the topic, and of its field"


def test_erasure_receipt_verifies_unless_forged(
    gateway: Gateway,
    tell: Tell,
    eraser: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    event_id = tell(eraser, "Forget me.")["event_id"]
    erasure_id = erase(gateway, eraser, event_id)["erasure_id"]
    gateway.run_job("eraser")
    body = gateway.call("GET", f"{ERASURES}/{erasure_id}", key=eraser).body
    receipt, signature, key = body["receipt"], body["signature"], body["public_key"]
    assert key == receipts.derive_public_key(get_settings().sealing_secret)
    assert receipts.verify_receipt(key, receipt, signature)
    assert not receipts.verify_receipt(key, {**receipt, "event_count": 2}, signature)
    assert not receipts.verify_receipt(key, receipt, "00" * 64)
    assert not receipts.verify_receipt(key, receipt, signature.upper()), "it has one signature"
    assert not receipts.verify_receipt(
        receipts.derive_public_key("another secret"), receipt, signature
    )
    assert receipt["event_ids"] == [event_id]
    assert len(receipt["not_reached"]) >= 4
    assert receipt["unreadable_at"] <= receipt["vacuumed_at"] <= receipt["complete_at"]
    assert receipt["backups_until"] is None, "this deployment does not say"
    file = tmp_path / "receipt.json"
    forged: dict[str, Any] = {**body, "receipt": {**receipt, "event_count": 2}}
    for answer, code, label in ((body, 0, "valid: 1 events"), (forged, 1, "is not a receipt")):
        file.write_text(json.dumps(answer))
        for more in ([], ["--public-key", key]):
            assert main(["operate", "receipt", str(file), *more]) == code
            assert label in capsys.readouterr().out
    later = receipts.build_receipt("acme", *example_erasure(), 7)
    assert later["backups_until"] == "2026-05-08T00:00:00+00:00"


def example_erasure() -> tuple[Erasure, list[ErasedEvent], datetime]:
    """An erasure of nothing, complete on the first of May."""
    may = datetime(2026, 5, 1, tzinfo=UTC)
    erasure = Erasure(uuid.uuid4(), [], "event", {}, may, {}, may, may, may, 1, may, {}, None, None)
    return erasure, [], may


def test_erasure_invalidates_read_token_and_old_snapshot(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    ids = talk(gateway, scratch_db, tell, eraser)
    question = {"query": "zyxcanary sister friday", "participants": [ALICE]}
    path = "/api/v1/references/query"
    token = gateway.call("POST", path, question, key=eraser).body["read_token"]
    query = {**question, "read_token": token}
    assert gateway.call("POST", path, query, key=eraser).status == 200
    erase(gateway, eraser, ids[2])
    assert gateway.call("POST", path, query, key=eraser).status == 410
    gateway.run_job("eraser")
    build(gateway)
    activate = gateway.call("POST", "/api/v1/admin/snapshots/1/activate", key=eraser)
    assert activate.status == 409
    assert "erased" in activate.error["message"]
