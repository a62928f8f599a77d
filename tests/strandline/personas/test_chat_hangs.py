"""A model that hangs in the middle of a conversation: it takes the request and says nothing, or
starts to answer and never ends. A real server on loopback, and real time."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.chat_service import (
    TURNS,
    chat,
    cite_all,
    deliver_turn,
    front,
    provider,
    query,
    says,
)
from tests.model_server import Handler, ModelServer, Says, drip, stay_silent
from tests.support import Gateway, Reply, ScratchDatabase, Tell

__all__ = ["front", "provider"]  # fixtures

ALICE, HELPER = "user:alice", "agent:helper"
WHO = (ALICE, HELPER)
TALK: dict[str, Any] = {"session_id": "talk"}
HUNG_SECONDS = 0.5
"""How long a model may take that hangs: the least that one is called for."""


@pytest.fixture
def key(front: Gateway) -> str:
    return front.key(user=ALICE)


def turn_states(base: ScratchDatabase) -> list[tuple[str, str]]:
    return base.rows("select role, content from events order by seq")


def speak(front: Gateway, key: str, turn: int) -> Reply:
    """A turn of the conversation; the same turn is the same request."""
    return chat(
        front, key, f"Turn {turn}: when does the buoy go out?", *WHO, once=f"{turn}", **TALK
    )


@contextmanager
def hanging(
    provider: ModelServer, hold: Callable[[Handler], None], patch: pytest.MonkeyPatch
) -> Generator[None]:
    """The model hangs, and is waited for no longer than it must be."""
    with patch.context() as short:
        short.setattr("strandline.llm.client._ANSWER_SECONDS", HUNG_SECONDS)
        provider.otherwise = lambda _: Says({}, hold=hold)
        yield
    provider.otherwise = cite_all


@pytest.mark.parametrize("hold", [stay_silent, pytest.param(drip, marks=pytest.mark.proof)])
def test_chat_hang_of_model_loses_and_doubles_nothing(
    front: Gateway,
    provider: ModelServer,
    key: str,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    hold: Callable[[Handler], None],
) -> None:
    """In the third of five turns: the request ends as late, the worker's attempts end, the failure
    is told; the same request has one reply once the model is back, and the others go on."""
    for turn in range(2):
        assert speak(front, key, turn).status == 200
    before = turn_states(scratch_db)
    with hanging(provider, hold, monkeypatch):
        late = speak(front, key, 2)
        assert (late.status, late.body["state"]) == (202, "waiting"), late.text
        assert turn_states(scratch_db) == [*before, ("user", "Turn 2: when does the buoy go out?")]
        assert speak(front, key, 2).body == late.body
        failures = [len(deliver_turn(late.body["turn_id"])) for _ in range(4)]
        request_count = len(provider.requests)
    assert failures == [1, 1, 0, 0], "tried three times, and no more"
    assert request_count == 2 + 1 + 3, (
        "turns before, the request, the worker: none for the repetition"
    )
    body = front.call("GET", f"{TURNS}/{late.body['turn_id']}", key=key).body
    assert (body["state"], body["text"], body["answer_id"]) == ("failed", None, None)
    assert (body["reason"], body["input_id"]) == ("late", late.body["input_id"])
    assert len(turn_states(scratch_db)) == len(before) + 1
    for turn in range(3, 5):
        assert speak(front, key, turn).status == 200
    replies = [speak(front, key, 2) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].body["input_id"] == late.body["input_id"]
    assert replies[0].body["answer_id"] == replies[1].body["answer_id"]
    roles = [role for role, _ in turn_states(scratch_db)]
    assert (roles.count("user"), roles.count("agent")) == (5, 5)


def test_chat_hang_keeps_others_from_asking_model(
    front: Gateway,
    provider: ModelServer,
    key: str,
    tell: Tell,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker's call that hangs holds its turn: the caller that repeats or polls is told that it
    waits, another worker leaves it alone, and the reply that comes in the end is the only one."""
    tell(key, "The buoy goes out on Friday.", *WHO)
    entry_signal, let_go = threading.Event(), threading.Event()

    def hold(_: Handler) -> None:
        entry_signal.set()
        assert let_go.wait(30)

    with hanging(provider, stay_silent, monkeypatch):
        turn_id = speak(front, key, 0).body["turn_id"]
    body = says("On Friday.").body
    provider.otherwise = lambda _: Says(body, hold=hold)
    failed = list[Any]()
    worker = threading.Thread(target=lambda: failed.append(deliver_turn(turn_id)))
    worker.start()
    try:
        assert entry_signal.wait(30)
        request_count = len(provider.requests)
        again = speak(front, key, 0)
        assert (again.status, again.body["turn_id"]) == (202, turn_id)
        reply_body = front.call("GET", f"{TURNS}/{turn_id}", key=key).body
        assert (reply_body["state"], reply_body["input_id"]) == ("waiting", again.body["input_id"])
        assert deliver_turn(turn_id) == []
        assert len(provider.requests) == request_count
    finally:
        let_go.set()
        worker.join()
    assert failed == [[]]
    result = front.call("GET", f"{TURNS}/{turn_id}", key=key).body
    assert (result["state"], result["text"]) == ("done", "On Friday.")
    assert speak(front, key, 0).body["answer_id"] == result["answer_id"]
    assert [role for role, _ in turn_states(scratch_db)] == ["user", "user", "agent"]


def test_chat_hang_of_model_fails_query(
    front: Gateway,
    provider: ModelServer,
    key: str,
    tell: Tell,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell(key, "The buoy goes out on Friday.", *WHO)
    with hanging(provider, stay_silent, monkeypatch):
        late = query(front, key, "When does the buoy go out?")
        assert late.status == 202, late.text
        assert [len(deliver_turn(late.body["turn_id"])) for _ in range(4)] == [1, 1, 0, 0]
    body = front.call("GET", f"{TURNS}/{late.body['turn_id']}", key=key).body
    assert (body["state"], body["reason"]) == ("failed", "late")
    assert len(turn_states(scratch_db)) == 1
