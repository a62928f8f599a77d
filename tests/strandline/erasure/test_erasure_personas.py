"""Erasure of what personas hold: memories, acts, and answers that wait to be fetched."""

from typing import Any
from uuid import UUID

import pytest

from strandline.db.database import Caller
from strandline.erasure import erase_events as erasing
from strandline.personas import store_deferred_answers
from tests.chat_service import (
    SONAS,
    TURNS,
    chat,
    deliver_turn,
    front,
    provider,
    query,
    says,
    shown_lines,
)
from tests.model_server import ModelServer, Says
from tests.strandline.erasure.erasure_calls import ALICE, BOB, CANARY, ERASURES, HELPER, traces
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase, Tell

__all__ = ["front", "provider"]


_MATS = tuple(
    f"Mat {n} of the porch has a pattern of {n} red boats on the waves." for n in range(9)
)


@pytest.fixture
def late_turn(front: Gateway, eraser: str, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A question of Bob's whose answer rests on what Alice said to him; ids of what she said."""
    event_ids = [
        tell(eraser, text, ALICE, BOB, speaker=ALICE)["event_id"]
        for text in ("The zyxcanary is under the mat.", "The mat is red.", "The mat is new.")
    ]
    bob = front.key(user=BOB)
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        turn_id = query(front, bob, "Where is the zyxcanary?").body["turn_id"]
    assert deliver_turn(turn_id) == []
    turn = front.call("GET", f"{TURNS}/{turn_id}", key=bob).body
    assert turn["state"] == "done"
    assert event_ids[0] in {citation["event_id"] for citation in turn["citations"]}
    return bob, turn_id, event_ids


@pytest.mark.parametrize("at_once", [1000, 2])
def test_erasure_persona_memories_and_foreign_answer_go(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    late_turn: Any,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    """At once, also where a mark hides it until the job clears it; Bob's answer is not in the view
    of Alice, who erases."""
    monkeypatch.setattr(erasing, "EVENTS_AT_ONCE", at_once)
    bob, turn_id, message = late_turn
    gateway.sweep()
    sona = gateway.call("POST", SONAS, {"name": "Keeper"}, key=eraser).body["uuid"]
    memories = {"event_ids": message}
    response = gateway.call("POST", f"{SONAS}/{sona}/memories", memories, key=eraser)
    assert (response.status, response.body["added"]) == (200, 3), response.text
    act = gateway.call("POST", f"{SONAS}/{sona}/acts", {"event_id": message[0]}, key=eraser)
    assert act.status == 201, act.text
    thread = {"participants": ALICE}

    def count_memories() -> tuple[int, int, int]:
        turn = gateway.call("GET", f"{TURNS}/{turn_id}", key=bob).status
        acts = gateway.call("GET", f"{SONAS}/{sona}/acts", key=eraser, query=thread).body["acts"]
        memories = gateway.call("GET", f"/sona/{sona}", key=eraser, query=thread).body["memories"]
        return turn, len(acts), memories

    assert count_memories() == (200, 1, 3)
    alice = gateway.key(user=ALICE, rights=["read", "erase"])
    body = {"participant": ALICE}
    reply = gateway.call("POST", ERASURES, body, key=alice)
    assert reply.status in (200, 202), reply.text
    assert count_memories() == (404, 0, 0)
    gateway.run_job("eraser")
    assert count_memories() == (404, 0, 0)
    reply_body = gateway.call("GET", f"{ERASURES}/{reply.body['erasure_id']}", key=alice).body
    assert reply_body["counts"]["events"] == 3
    assert reply_body["counts"].keys().isdisjoint({"turns", "sona_members", "acts"}), (
        "what others did"
    )
    assert traces(scratch_db) == []
    statement = """
        select (select count(*) from sona_members), (select count(*) from sona_centroids),
            (select count(*) from acts), (select count(*) from turns),
            (select count(*) from turn_events)
    """
    assert scratch_db.rows(statement) == [(0, 0, 0, 0, 0)]


def test_erasure_persona_answer_goes_with_uncited_source(
    front: Gateway,
    scratch_db: ScratchDatabase,
    provider: ModelServer,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a topic with all events of its chain, also those that the text has no room for."""
    event_ids = [
        tell(eraser, text, ALICE, BOB, speaker=ALICE, session_id="mat")["event_id"]
        for text in ("The zyxcanary key is under the mat.", *_MATS)
    ]
    fold_all(front, scratch_db)
    lines: list[str] = []

    def answer(request: dict[str, Any]) -> Says:
        lines.extend(shown_lines(request).values())
        return says("The zyxcanary is under the mat.")

    provider.otherwise = answer
    bob = front.key(user=BOB)
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        turn_id = query(front, bob, "List all patterns of the porch.", budget=300).body["turn_id"]
    assert deliver_turn(turn_id) == []
    assert 0 < len(lines) < len(event_ids), "the text is to have no room for all"
    sources = scratch_db.rows("select event_id::text from turn_events where part = 'source'")
    assert {row[0] for row in sources} == {*event_ids}
    everything = front.database.connect_as(Caller.background("acme"))
    chain = store_deferred_answers.list_events_of_same_chains(everything, [UUID(event_ids[0])])
    assert {str(one) for one in chain} == {*event_ids}, "whatever part of them a topic names"
    body = {"event_ids": event_ids[:1]}
    assert front.call("POST", ERASURES, body, key=eraser).status == 202
    assert front.call("GET", f"{TURNS}/{turn_id}", key=bob).status == 404
    assert traces(scratch_db) == []


def test_erasure_persona_count_includes_turns_of_others(
    gateway: Gateway, late_turn: Any, eraser: str
) -> None:
    _, _, message = late_turn
    reply = gateway.call("DELETE", f"/api/v1/events/{message[0]}", key=eraser)
    assert reply.body["counts"]["turns"] == 1, reply.text


@pytest.mark.parametrize("at_once", [1000, 1])
def test_erasure_persona_reply_on_erased_source_is_not_stored(
    front: Gateway,
    scratch_db: ScratchDatabase,
    provider: ModelServer,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    """Cited or not, a tombstone or marked; what is asked again is answered without it."""
    monkeypatch.setattr(erasing, "EVENTS_AT_ONCE", at_once)
    for text in ("The zyxcanary key is under the mat.", "The mat is red."):
        tell(eraser, text, speaker=ALICE, session_id="mat")
    front.sweep()
    erased_ids: list[int] = []

    def answer(request: dict[str, Any]) -> Says:
        lines = " ".join(shown_lines(request).values())
        if not erased_ids:
            assert CANARY in lines
            reply = front.call("POST", ERASURES, {"session_id": "mat"}, key=eraser)
            erased_ids.append(reply.status)
        return says("The zyxcanary is under the mat." if CANARY in lines else "I never saw it.")

    provider.otherwise = answer
    params = {"once": "a chat"}
    reply = chat(front, eraser, "Where is the key and the mat?", ALICE, HELPER, **params)
    assert (erased_ids, reply.status, reply.error["code"]) == ([202], 503, "unavailable"), (
        reply.text
    )
    front.run_job("eraser")
    assert traces(scratch_db) == []
    again = chat(front, eraser, "Where is the key and the mat?", ALICE, HELPER, **params)
    assert (again.status, CANARY in again.text) == (200, False), again.text


def test_erasure_persona_thread_skips_erased_acts(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    """Two in a row; also by a reader who sees but some of its acts, and nothing after those of
    others."""
    sona = gateway.call("POST", SONAS, {"name": "Keeper"}, key=eraser).body["uuid"]
    path = f"{SONAS}/{sona}/acts"
    acts: list[dict[str, str]] = []
    for who in ((ALICE, BOB), (BOB,), (ALICE, BOB), (ALICE, BOB), (BOB,), (ALICE, BOB)):
        event = tell(eraser, f"step {len(acts)}", *who)["event_id"]
        after = {"after": acts[-1]["act_id"]} if acts else {}
        acts.append(gateway.call("POST", path, {"event_id": event, **after}, key=eraser).body)
    for n in (1, 2, 3):
        reply = gateway.call("DELETE", f"/api/v1/events/{acts[n]['event_id']}", key=eraser)
        assert reply.status == 200, reply.text

    def following(n: int, who: str) -> Any:
        after = {"participants": who, "after": acts[n]["act_id"]}
        return gateway.call("GET", f"{path}/next", key=eraser, query=after).body["act"]

    assert [following(n, BOB) for n in range(6)] == [acts[4]] * 4 + [acts[5], None]
    assert [following(n, ALICE) for n in range(6)] == [acts[5], None, acts[5], acts[5], None, None]


def test_erasure_persona_sona_names_go_with_tenant(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Also those that a user gave; the other tenant's stay."""
    tell(eraser, "The mat is red.", ALICE)
    other = gateway.key("globex")
    for key in (eraser, gateway.key(user=ALICE), other):
        assert gateway.call("POST", SONAS, {"name": CANARY}, key=key).status == 201
    reply = gateway.call("POST", ERASURES, {"tenant": True}, key=eraser)
    assert reply.status in (200, 202), reply.text
    assert reply.body["counts"]["sona_names"] == 2
    names = scratch_db.rows("select tenant_id, name from sona_names")
    assert names == [("globex", CANARY)]
    assert gateway.call("GET", "/sonas/list", key=eraser).body["sonas"] is not None


@pytest.mark.parametrize("is_bound", [True, False])
def test_erasure_persona_names_and_questions_go_with_person(
    front: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    is_bound: bool,
) -> None:
    """Whoever erases what Alice said erases what she named and asked; what another user, a service
    or another tenant named and asked stays, and so does what was asked for her and Bob."""
    alice, globex = front.key(user=ALICE), front.key("globex", user=ALICE)
    for key in (eraser, globex):
        tell(key, "The mat is red.", ALICE, BOB, HELPER, speaker=ALICE)
        tell(key, "The mat is new.", ALICE, BOB, HELPER, role="agent")
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        for key in (eraser, alice, front.key(user=BOB), globex):
            body = {"name": f"Keeper of {CANARY}"}
            assert front.call("POST", SONAS, body, key=key).status == 201
        shared = ((eraser, ALICE, HELPER), (eraser, ALICE, BOB))
        for key, *who in ((alice, ALICE), *shared, (globex, ALICE)):
            assert query(front, key, "Where is the mat?", participants=who).status == 202
    rights = ["read", "erase"]
    key = front.key(user=ALICE, rights=rights) if is_bound else eraser
    reply = front.call("POST", ERASURES, {"participant": ALICE}, key=key)
    assert reply.status in (200, 202), reply.text
    assert reply.body["counts"]["sona_names"] == 1
    assert reply.body["counts"]["turns"] == (1 if is_bound else 2)
    names = scratch_db.rows("select tenant_id, writer from sona_names order by 1, 2")
    assert names == [("acme", "*"), ("acme", BOB), ("globex", ALICE)]
    asked = scratch_db.rows("select tenant_id, asked_by, participants from turns order by 1, 2, 3")
    served = [] if not is_bound else [("acme", "*", [HELPER, ALICE])]
    assert asked == [*served, ("acme", "*", [ALICE, BOB]), ("globex", ALICE, [ALICE])]


@pytest.mark.parametrize("at_once", [1000, 1])
def test_erasure_persona_questions_go_with_tenant(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    front: Gateway,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    """Also what waits for its answer, and rests on nothing yet, also where a mark hides the
    events; the other tenant's stay."""
    monkeypatch.setattr(erasing, "EVENTS_AT_ONCE", at_once)
    for key in (eraser, eraser, gateway.key("globex")):
        tell(key, "The mat is red.", ALICE, BOB, speaker=ALICE)
    monkeypatch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
    bob, other = front.key(user=BOB), front.key("globex", user=BOB)
    turn_ids = [
        query(front, key, f"Where is the {CANARY}?").body["turn_id"] for key in (bob, other)
    ]
    reply = gateway.call("POST", ERASURES, {"tenant": True}, key=eraser)
    assert (reply.status, reply.body["counts"]["turns"]) == (202, 1)
    statement = "select tenant_id, turn_id::text from turns"
    assert scratch_db.rows(statement) == [("globex", turn_ids[1])]
    assert front.call("GET", f"{TURNS}/{turn_ids[0]}", key=bob).status == 404
    assert deliver_turn(turn_ids[0]) == []
    gateway.run_job("eraser")
    assert scratch_db.rows(statement) == [("globex", turn_ids[1])]
