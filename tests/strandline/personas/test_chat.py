"""Queries and chats with a scripted model: what it is shown, what is stored, and what becomes of a
request that is cut short, repeated, late, or without a model."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from strandline.context.fence import sanitize_to_one_line
from strandline.db.database import Caller
from strandline.errors import QuotaExceeded, Unavailable
from strandline.personas import chats, store_memories
from tests.chat_service import (
    CHAT,
    QUERY,
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
from tests.model_server import ModelServer, Says, completion, error
from tests.support import Gateway, Reply, ScratchDatabase, Tell, user_message

__all__ = ["front", "provider"]  # fixtures

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
WHO = (ALICE, HELPER)
FACTS = (
    "The buoy goes out on Friday.",
    "The Petrel has a new engine.",
    "My dog has to see the vet on Thursday.",
)


@pytest.fixture
def key(front: Gateway) -> str:
    return front.key(user=ALICE)


@pytest.fixture
def facts(key: str, tell: Tell) -> list[str]:
    return [tell(key, text, *WHO)["event_id"] for text in FACTS]


def finished_body(reply: Reply) -> Any:
    assert reply.status == 200, reply.text
    assert reply.body["state"] == "done"
    return reply.body


def event(gateway: Gateway, key: str, event_id: str) -> Any:
    return gateway.call("GET", f"/api/v1/events/{event_id}", key=key).body


def list_texts(gateway: Gateway, key: str) -> list[str]:
    page = gateway.call("GET", "/memories/list", key=key).body
    return [one["content"] for one in reversed(page["events"])]


def test_chat_ten_turns_cite_shown_events(
    front: Gateway, provider: ModelServer, key: str, facts: list[str]
) -> None:
    """Each citation is a stored event whose words stood in the prompt under its number; the reply's
    edges lead to the message and to the citations. Earlier turns are remembered."""
    citations = set[str]()
    for n in range(10):
        text = f"Turn {n}: when does the buoy go out, and what about the engine?"
        turn = finished_body(chat(front, key, text, *WHO, session_id="talk"))
        request = provider.requests[-1]
        lines = shown_lines(request)
        assert not {"tools", "functions", "tool_choice"} & request.keys()
        assert text not in "".join(lines.values()), "the message is no memory yet"
        for citation in turn["citations"]:
            view = event(front, key, citation["event_id"])
            assert sanitize_to_one_line(view["content"])[:40] in lines[citation["n"]]
        reply = event(front, key, turn["answer_id"])
        assert (reply["role"], reply["speaker"], reply["content"]) == (
            "agent",
            HELPER,
            turn["text"],
        )
        assert {edge["event_id"] for edge in reply["edges"]} == {
            turn["input_id"],
            *(citation["event_id"] for citation in turn["citations"]),
        }
        assert event(front, key, turn["input_id"])["content"] == text
        citations |= {citation["event_id"] for citation in turn["citations"]}
    assert set(facts[:2]) <= citations
    assert "Turn 8" in "".join(shown_lines(provider.requests[-1]).values())
    assert len(list_texts(front, key)) == len(FACTS) + 20


class Kill(BaseException):
    """The process is gone: nothing catches it."""


def test_chat_killed_midway_has_one_message_and_one_reply(
    front: Gateway, key: str, facts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Kill

    for place in ("chats.ask_model", "chats._make_reply_event"):
        with monkeypatch.context() as patch:
            patch.setattr(f"strandline.personas.{place}", die)
            with pytest.raises(Kill):
                chat(front, key, "When does the buoy go out?", *WHO, once="k-1")
    assert list_texts(front, key)[len(FACTS) :] == ["When does the buoy go out?"]
    first = chat(front, key, "When does the buoy go out?", *WHO, once="k-1")
    again = chat(front, key, "When does the buoy go out?", *WHO, once="k-1")
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(list_texts(front, key)) == len(facts) + 2


def test_chat_concurrent_repeats_have_one_reply(front: Gateway, key: str, facts: list[str]) -> None:
    def race(_: int) -> Reply:
        return chat(front, key, "And the dog?", *WHO, once="k-1")

    with ThreadPoolExecutor(3) as pool:
        racers = list(pool.map(race, range(3)))
    assert [racer.status for racer in racers] == [200] * 3
    assert len({racer.body["answer_id"] for racer in racers}) == 1
    assert len(list_texts(front, key)) == len(facts) + 2
    other = chat(front, key, "And the cat?", *WHO, once="k-1")
    assert (other.status, other.error["code"]) == (409, "key_conflict")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([error(500)], "unavailable"),
        ([completion("no JSON")] * 2, "invalid_output"),
        ([says("From nowhere.", 99)] * 2, "invalid_output"),
    ],
)
def test_chat_model_failure_keeps_message_and_is_reported(
    front: Gateway,
    provider: ModelServer,
    key: str,
    facts: list[str],
    bad: list[Says],
    reason: str,
) -> None:
    provider.script = [*bad]
    reply = chat(front, key, "When does the buoy go out?", *WHO, once="k-1")
    assert (reply.status, reply.error["code"]) == (503, "model_unavailable")
    assert reply.error["details"]["reason"] == reason
    assert reply.error["retryable"]
    assert list_texts(front, key)[len(FACTS) :] == ["When does the buoy go out?"]
    turn = finished_body(chat(front, key, "When does the buoy go out?", *WHO, once="k-1"))
    assert turn["input_id"] == reply.error["details"]["input_id"]
    assert len(list_texts(front, key)) == len(facts) + 2
    provider.script = [*bad]
    failed = query(front, key, "When does the buoy go out?")
    assert (failed.status, failed.error["details"]) == (503, {"reason": reason})


@pytest.mark.parametrize(
    ("budget_usd", "reason", "way_out"),
    [
        (None, "refused", "in other words"),
        (0, "budget_spent", "model_usd_per_month"),
    ],
)
def test_chat_answer_refused_for_good_is_not_retryable(
    front: Gateway,
    provider: ModelServer,
    scratch_db: ScratchDatabase,
    key: str,
    facts: list[str],
    budget_usd: int | None,
    reason: str,
    way_out: str,
) -> None:
    """A client that repeated it would pay for each refusal, or wait for nothing."""
    del facts
    scratch_db.rows("update tenants set model_usd_per_month = %s", budget_usd)
    provider.otherwise = lambda _: completion("", refusal="I cannot.")
    for failed in (
        query(front, key, "When does the buoy go out?"),
        chat(front, key, "When does the buoy go out?", *WHO, once="k-1"),
    ):
        assert (failed.status, failed.error["details"]["reason"]) == (503, reason)
        assert not failed.error["retryable"]
        assert "Retry-After" not in failed.headers
        assert way_out in failed.error["message"]


def test_chat_failure_after_storing_is_retryable_under_key_alone(
    front: Gateway,
    provider: ModelServer,
    key: str,
    facts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the model, and of the database once the message is stored."""

    def fail(*_: object) -> None:
        raise Unavailable("The database is unreachable. Try again.")

    for n, code in enumerate(("model_unavailable", "unavailable")):
        for once in (None, f"k-{n}"):
            with monkeypatch.context() as patch:
                provider.script = [completion("no JSON")] * 2
                if code == "unavailable":
                    patch.setattr(chats, "find_chat_session", fail)
                failed = chat(front, key, "When does the buoy go out?", *WHO, once=once)
            assert (failed.status, failed.error["code"]) == (503, code)
            assert failed.error["retryable"] == ("Retry-After" in failed.headers) == bool(once)
            own_key = failed.error["details"]["idempotency_key"]
            provider.script = []
            again = chat(front, key, "When does the buoy go out?", *WHO, once=own_key)
            assert finished_body(again)["input_id"] == failed.error["details"]["input_id"]
    assert len(list_texts(front, key)) == len(facts) + 4 * 2


def test_chat_reply_refused_by_quota_is_retryable_under_key(
    front: Gateway,
    provider: ModelServer,
    key: str,
    facts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider.script = [says("On Friday.", 1)] * 2

    def refuse(*_: object, **__: object) -> None:
        raise QuotaExceeded("The quota is used up.", quota="appends", retry_after=7)

    monkeypatch.setattr(chats, "generate_and_store_reply", refuse)
    for once in (None, "k-1"):
        failed = chat(front, key, "When does the buoy go out?", *WHO, once=once)
        assert (failed.status, failed.error["details"]["quota"]) == (429, "appends")
        assert failed.error["retryable"] == ("Retry-After" in failed.headers) == bool(once)
        assert failed.error["details"]["idempotency_key"]
    assert len(list_texts(front, key)) == len(facts) + 2


def test_chat_wrong_model_key_is_reported_everywhere(
    front: Gateway, provider: ModelServer, key: str, facts: list[str]
) -> None:
    def health() -> Any:
        return front.call("GET", "/api/v1/health", key=key).body

    del facts
    assert health()["language"]["failure"] is None
    provider.otherwise = lambda _: error(401, "Incorrect API key provided: sk-mine")
    replies = [query(front, key, "When does the buoy go out?") for _ in range(2)]
    for reply in replies:
        assert (reply.status, reply.error["code"]) == (503, "model_misconfigured")
        assert reply.error["details"] == {"reason": "misconfigured"}
        assert not reply.error["retryable"]
        assert "Retry-After" not in reply.headers
        assert "HTTP 401" in reply.error["message"]
        assert "STRANDLINE_LLM_API_KEY" in reply.error["message"]
        assert "sk-mine" not in reply.text
    assert re.search(r"again in \d+ s", replies[1].error["message"])
    assert len(provider.requests) == 1
    state = health()
    assert state["status"] == "degraded"
    assert "HTTP 401" in state["language"]["failure"]
    assert state["language"]["resting_until"] is not None
    assert "HTTP 401" in state["warnings"][0]


def test_chat_open_breaker_names_cause_and_retry_time(
    front: Gateway, provider: ModelServer, key: str, facts: list[str]
) -> None:
    del facts
    provider.otherwise = lambda _: completion("no JSON")
    for _ in range(5):
        query(front, key, "When does the buoy go out?")
    reply = query(front, key, "When does the buoy go out?")
    assert reply.error["details"] == {"reason": "breaker_open"}
    assert "not what its tasks ask for" in reply.error["message"]
    seconds = re.search(r"again in (\d+) s", reply.error["message"])
    assert seconds is not None
    assert abs(int(reply.headers["Retry-After"]) - int(seconds[1])) <= 1
    assert 50 < int(seconds[1]) <= 60


def test_chat_query_answers_and_stores_nothing(
    front: Gateway, provider: ModelServer, key: str, facts: list[str], scratch_db: ScratchDatabase
) -> None:
    provider.otherwise = lambda request: says("On Friday.", *list(shown_lines(request))[:1])
    before = list_texts(front, key)
    answer = finished_body(query(front, key, "When does the buoy go out?"))
    assert (answer["text"], answer["remembers"]) == ("On Friday.", True)
    assert [citation["event_id"] for citation in answer["citations"]] == [facts[0]]
    assert (answer["model"], answer["prompt"]) == ("openai:tiny", "answer/1")
    assert (answer["turn_id"], answer["input_id"], answer["answer_id"]) == (None, None, None)
    assert list_texts(front, key) == before
    assert scratch_db.rows("select from turns") == []


def test_chat_without_memory_says_not_remembered(
    front: Gateway, provider: ModelServer, key: str, facts: list[str]
) -> None:
    """A query without memory asks no model; a model may say so, too."""
    del facts
    nobody = front.key(user="user:zoe")
    answer = finished_body(query(front, nobody, "When does the buoy go out?"))
    assert (answer["text"], answer["remembers"], answer["citations"]) == (
        "I don't remember.",
        False,
        [],
    )
    assert provider.requests == []
    front.sweep()
    provider.otherwise = lambda _: says("I don't remember.", remembers=False)
    turn = finished_body(chat(front, key, "What is the boiling point of mercury?", *WHO))
    assert (turn["remembers"], turn["citations"]) == (False, [])
    assert "No event clearly answers the question." in provider.prompt_text()


def test_chat_without_model_says_how_to_configure(gateway: Gateway, tell: Tell) -> None:
    """And gives the block that would have been sent; nothing is stored."""
    key = gateway.key(user=ALICE)
    tell(key, FACTS[0], *WHO)
    for reply in (
        query(gateway, key, "When does the buoy go out?"),
        chat(gateway, key, "When does the buoy go out?", *WHO, sona="Harbour master"),
    ):
        assert (reply.status, reply.error["code"]) == (409, "state_conflict")
        details = reply.error["details"]
        assert "STRANDLINE_LLM_PROVIDER" in details["settings"]
        assert details["block"].startswith("<memory-")
        assert FACTS[0] in details["block"]
    assert list_texts(gateway, key) == [FACTS[0]]
    assert gateway.call("GET", "/sonas/list", key=key).body["sonas"] == []


def test_chat_late_answer_is_polled_as_turn(
    front: Gateway,
    provider: ModelServer,
    key: str,
    facts: list[str],
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One message and one reply, no matter who else asks or works; told to nobody else."""
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        waiting = [
            chat(front, key, "When does the buoy go out?", *WHO, once="k-1"),
            query(front, key, "When does the buoy go out?"),
        ]
        again = chat(front, key, "When does the buoy go out?", *WHO, once="k-1")
    assert provider.requests == []
    assert again.body == waiting[0].body
    assert list_texts(front, key)[len(FACTS) :] == ["When does the buoy go out?"]
    for reply in waiting:
        assert (reply.status, reply.body["state"]) == (202, "waiting")
        path = f"{TURNS}/{reply.body['turn_id']}"
        assert front.call("GET", path, key=key).body["state"] == "waiting"
        for _ in range(2):
            assert deliver_turn(reply.body["turn_id"]) == []
        turn = finished_body(front.call("GET", path, key=key))
        assert turn["turn_id"] == reply.body["turn_id"]
        assert turn["citations"][0]["event_id"] in facts
        for stranger in (front.key(user=BOB), front.key("globex", user=ALICE)):
            assert front.call("GET", path, key=stranger).status == 404
    assert len(provider.requests) == 2
    assert len(list_texts(front, key)) == len(facts) + 2
    replay = finished_body(chat(front, key, "When does the buoy go out?", *WHO, once="k-1"))
    assert (
        replay["answer_id"]
        == front.call("GET", f"{TURNS}/{waiting[0].body['turn_id']}", key=key).body["answer_id"]
    )
    paths = [f"{TURNS}/{reply.body['turn_id']}" for reply in waiting]
    forget = "select * from forget_in_personas(array(select event_id from events))"
    nobodys = [("sona_members", 0), ("acts", 0), ("turns", 0)]
    assert scratch_db.rows(forget) == nobodys, "without a tenant"
    assert [front.call("GET", path, key=key).status for path in paths] == [200, 200]
    access = front.database.connect_as(Caller.background("acme"))
    with access.transaction():
        event_ids = [UUID(facts[0]), UUID(str(waiting[0].body["input_id"]))]
        assert store_memories.delete_persona_rows_of_events(access, event_ids)["turns"] == 2
    assert [front.call("GET", path, key=key).status for path in paths] == [404, 404]


def test_chat_turn_fails_after_three_attempts(
    front: Gateway,
    provider: ModelServer,
    key: str,
    facts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del facts
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        turn_id = query(front, key, "When does the buoy go out?").body["turn_id"]
    provider.script = [error(500)] * 3
    failures = [len(deliver_turn(turn_id)) for _ in range(4)]
    assert failures == [1, 1, 0, 0]
    reply = front.call("GET", f"{TURNS}/{turn_id}", key=key).body
    assert (reply["state"], reply["reason"], reply["text"]) == ("failed", "unavailable", None)


def test_chat_turn_with_lost_message_is_found_by_sweep(
    front: Gateway,
    key: str,
    facts: list[str],
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two minutes after the question, and from then on every ten. One whose workers die is told as
    failed; and a day later nothing is left of it, nor of the question."""
    del facts
    front.sweep()
    bodies: list[str] = []

    def send(_: object, tenant: str, turn_id: UUID) -> None:
        assert tenant == "acme"
        bodies.append(str(turn_id))

    monkeypatch.setattr("strandline.aws.work_queue.WorkQueue.send_turn", send)
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        turns = [query(front, key, "When does the buoy go out?").body["turn_id"] for _ in range(2)]
    assert bodies == turns
    due_in = "select extract(epoch from next_turn('5 minutes', now()) - now())::float8"
    assert 60 < scratch_db.rows(due_in)[0][0] <= 120
    front.sweep()
    assert bodies == turns
    age = "update turns set due_at = due_at - interval '2 minutes'"
    scratch_db.rows(age)
    front.sweep()
    assert sorted(bodies[2:]) == sorted(turns)
    assert 540 < scratch_db.rows(due_in)[0][0] <= 600
    front.sweep()
    assert len(bodies) == 4
    scratch_db.rows("update turns set created_at = created_at - interval '11 minutes'")
    health = front.call("GET", "/api/v1/health", key=key).body["background"]
    assert health["turns_late"] == 2
    assert deliver_turn(bodies[2]) == []
    scratch_db.rows("update turns set attempts = 3 where state = 'waiting'")
    assert deliver_turn(bodies[3]) == []
    states = {front.call("GET", f"{TURNS}/{one}", key=key).body["reason"] for one in turns}
    assert (states, scratch_db.rows(due_in)) == ({"", "worker_lost"}, [(None,)])
    scratch_db.rows("update turns set finished_at = finished_at - interval '25 hours'")
    front.run_job("sweeper", "acme")
    assert scratch_db.rows("select from turns") == []


def test_chat_prompt_marks_events_added_later(
    front: Gateway, provider: ModelServer, key: str, tell: Tell
) -> None:
    tell(key, "The buoy goes out on Friday.", *WHO)
    tell(key, "The buoy broke loose.", *WHO, occurred_at="2026-05-08T13:56:00Z")
    finished_body(query(front, key, "What about the buoy?"))
    lines = "\n".join(shown_lines(provider.requests[-1]).values())
    assert "Fri 8 May 2026 13:56, alice (remembered later): The buoy broke loose." in lines
    assert lines.count("remembered later") == 1
    assert "added later than it happened" in provider.prompt_text()
    plain = front.call("POST", "/api/v1/context", {"query": "What about the buoy?"}, key=key)
    assert "remembered later" not in plain.body["text"].lower()


def test_chat_recalls_only_events_all_participants_see(
    front: Gateway, provider: ModelServer, tell: Tell
) -> None:
    """No matter who asks: the reply is read by all of them."""
    key = front.key(user=ALICE)
    tell(key, "The buoy is alice's secret.", ALICE)
    tell(key, "The buoy is told to the helper.", ALICE, HELPER)
    tell(key, "The buoy is told to all.", ALICE, BOB, HELPER)
    for caller in (key, front.key()):
        finished_body(chat(front, caller, "What of the buoy?", ALICE, BOB, HELPER, speaker=ALICE))
        assert "told to all" in provider.prompt_text()
        assert "secret" not in provider.prompt_text()
        assert "to the helper" not in provider.prompt_text()
    reply = chat(front, key, "What of the buoy?", BOB, HELPER)
    assert (reply.status, len(provider.requests)) == (403, 2)
    assert chat(front, front.key(rights=("write",)), "Hello?", *WHO).status == 403
    assert chat(front, front.key(rights=("read",)), "Hello?", *WHO).status == 403


def test_chat_in_sona_becomes_its_memory(
    front: Gateway, provider: ModelServer, key: str, facts: list[str]
) -> None:
    """Both events are; the model is told in whose name it replies."""
    turn = finished_body(
        chat(front, key, "When does the buoy go out?", *WHO, sona="Harbour master")
    )
    document = json.loads(provider.prompt_text().rpartition("<message>\n")[2].splitlines()[0])
    assert (document["persona"], document["to"], document["from"]) == (
        "Harbour master",
        "helper",
        "alice",
    )
    body = front.call("POST", SONAS, {"name": "harbour master"}, key=key).body
    assert (body["found_by"], body["uuid"]) == ("name", turn["sona"])
    front.sweep()
    assert front.call("GET", f"/sona/{turn['sona']}", key=key).body["memories"] == 2
    reply = query(front, key, "When does the buoy go out?", sona="Harbour master")
    assert finished_body(reply)["sona"] == turn["sona"]
    unknown = query(front, key, "When?", sona="Astronaut")
    assert (unknown.status, unknown.error["details"]["field"]) == (422, "sona")


def test_chat_refuses_foreign_sona_and_other_body_under_key(
    front: Gateway, provider: ModelServer, key: str, facts: list[str]
) -> None:
    """An id of another writer or tenant is as one that nobody has. A key stands for one request,
    also while its answer is outstanding."""
    del facts
    strangers = (front.key(user=BOB), front.key("globex", user=ALICE), front.key())
    foreign = [
        front.call("POST", SONAS, {"name": "Pilot"}, key=one).body["uuid"] for one in strangers
    ]
    for sona in (*foreign, str(UUID(int=7))):
        for reply in (
            chat(front, key, "Hello?", *WHO, sona=sona),
            query(front, key, "Hello?", sona=sona),
            front.call("POST", "/api/v1/recall", {"query": "Hello?", "sona": sona}, key=key),
        ):
            assert (reply.status, reply.error["details"]["field"]) == (422, "sona")
            assert sona not in reply.text
    assert len(list_texts(front, key)) == len(FACTS)
    provider.script = [error(500)]
    assert chat(front, key, "And the dog?", *WHO, once="k-2").status == 503
    others: list[tuple[str, dict[str, Any]]] = [
        ("And the cat?", {}),
        ("And the dog?", {"session_id": "another"}),
        ("And the dog?", {"metadata": {"a": 1}}),
    ]
    for text, other in others:
        reply = chat(front, key, text, *WHO, once="k-2", **other)
        assert (reply.status, reply.error["code"]) == (409, "key_conflict"), other
    assert chat(front, key, "And the dog?", HELPER, ALICE, once="k-2").status == 200
    for n, note in enumerate(({}, {"chat": "x"}, {"chat": {"text": "x", "citations": 7}})):
        event, headers = (
            user_message("No.", *WHO, metadata=note),
            {"Idempotency-Key": f"k{n}#answer"},
        )
        response = front.call("POST", "/api/v1/events", event, key=key, headers=headers)
        assert response.status == 201
        reply = chat(front, key, "And the dog?", *WHO, once=f"k{n}")
        assert (reply.status, reply.error["code"]) == (409, "key_conflict"), note
    assert chat(front, key, "And the dog?", *WHO, once="k" * 500).status == 200
    assert len(list_texts(front, key)) == len(FACTS) + 2 + 3 * 2 + 2


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (QUERY, {"query": "x" * 10_000}, "query"),
        (QUERY, {"query": "x", "sona": "x" * 10_000}, "sona"),
        (SONAS, {"name": "x" * 10_000}, "name"),
        (SONAS, {"name": " \u3000 "}, "name"),
        (
            CHAT,
            {"message": "x", "participants": ["user:" + "x" * 10_000, HELPER]},
            "participants.0",
        ),
        (QUERY, {"query": ""}, "query"),
        (QUERY, {"query": "x", "budget": 99}, "budget"),
        (CHAT, {"message": "x", "participants": [ALICE]}, "reply_as"),
        (CHAT, {"message": "x", "participants": [ALICE, HELPER, "agent:b"]}, "reply_as"),
        (CHAT, {"message": "x", "participants": [*WHO], "reply_as": "agent:b"}, "reply_as"),
        (CHAT, {"message": " \n", "participants": [*WHO]}, "message"),
        (CHAT, {"message": "x" * 8001, "participants": [*WHO]}, "message"),
        (CHAT, {"message": "x", "participants": [*WHO], "sona": "   "}, "sona"),
    ],
)
def test_chat_refuses_invalid_field_by_name(
    front: Gateway, key: str, path: str, body: dict[str, Any], field: str
) -> None:
    reply = front.call("POST", path, body, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)
    assert list_texts(front, key) == []
