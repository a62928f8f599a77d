"""What a sona is worth to queries and chats: its weight chooses what the model is shown, in time or
later, with a model or without; and who may fetch an answer for the whole tenant."""

from collections.abc import Callable
from typing import Any

import pytest

from strandline.personas.chats import ChatParameters
from tests.chat_service import (
    CHAT,
    QUERY,
    TURNS,
    chat,
    deliver_turn,
    front,
    provider,
    query,
    shown_lines,
)
from tests.model_server import ModelServer, task_of
from tests.strandline.personas.roles import (
    ALICE,
    BOB,
    HELPER,
    ROLES,
    ROOM,
    WHO,
    forty,
    roles_in,
    shown_memories,
    tell_roles,
)
from tests.support import Gateway, Reply, Tell

__all__ = ["front", "provider"]  # fixtures

QUESTION_TEXT = "What is the budget?"

type Ask = Callable[..., Reply]


@pytest.fixture
def key(front: Gateway) -> str:
    return front.key(user=ALICE)


def ask_query(gateway: Gateway, key: str, **more: Any) -> Reply:
    return query(gateway, key, QUESTION_TEXT, **ROOM, **more)


def ask_chat(gateway: Gateway, key: str, **more: Any) -> Reply:
    return chat(gateway, key, QUESTION_TEXT, *WHO, **ROOM, **more)


ASKS = (ask_query, ask_chat)


def test_chat_sona_weight_chooses_shown_memories(
    front: Gateway, provider: ModelServer, key: str, tell: Tell
) -> None:
    """And without it both sonas are shown the same."""
    provider.otherwise = forty
    sonas = tell_roles(front, key, tell)
    for ask in ASKS:
        for name, uuid in sonas.items():
            for sona in (name, uuid):
                reply = ask(front, key, sona=sona, weights={"sona": 1.0})
                assert (reply.status, reply.body["sona"]) == (200, uuid), reply.text
                assert shown_memories(provider) == {name}
    plain = list[dict[int, str]]()
    for more in ({}, {"weights": {"sona": 1.0}}, *({"sona": name} for name in ROLES)):
        assert ask_query(front, key, **more).status == 200
        plain.append(shown_lines(provider.requests[-1]))
    assert all(lines == plain[0] for lines in plain)


def test_chat_sona_weight_applies_to_late_answer(
    front: Gateway,
    provider: ModelServer,
    key: str,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider.otherwise = forty
    sonas = tell_roles(front, key, tell)
    for ask in ASKS:
        for name, uuid in sonas.items():
            with monkeypatch.context() as patch:
                patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
                turn = ask(front, key, sona=name, weights={"sona": 1.0})
            assert (turn.status, turn.body["sona"]) == (202, uuid) if ask is ask_query else True
            assert deliver_turn(turn.body["turn_id"]) == []
            body = front.call("GET", f"{TURNS}/{turn.body['turn_id']}", key=key).body
            assert (body["state"], body["sona"]) == ("done", uuid)
            assert shown_memories(provider) == {name}


def test_chat_sona_weight_is_optional_in_stored_chat() -> None:
    fields = ChatParameters("k", WHO, HELPER, None, 500, None, None, None).to_json()
    assert "weights" not in fields
    assert ChatParameters.from_json(fields).weights is None


def test_chat_sona_weight_applies_without_model(gateway: Gateway, tell: Tell) -> None:
    """And no sona is made for it."""
    key = gateway.key(user=ALICE)
    sonas = tell_roles(gateway, key, tell)
    for ask in ASKS:
        for name in sonas:
            reply = ask(gateway, key, sona=name, weights={"sona": 1.0})
            assert reply.status == 409, reply.text
            assert roles_in(reply.error["details"]["block"]) == {name}
    reply = ask_chat(gateway, key, sona="Astronaut", weights={"sona": 1.0})
    assert reply.status == 409, reply.text
    names = [one["names"] for one in gateway.call("GET", "/sonas/list", key=key).body["sonas"]]
    assert sorted(names) == [[name] for name in sorted(ROLES)]


def test_chat_sona_of_other_user_has_no_weight(
    front: Gateway, provider: ModelServer, key: str, tell: Tell
) -> None:
    """It is refused as one that is not there; and the same weights of an own one show nothing of
    where the other's is."""
    provider.otherwise = forty
    sonas = tell_roles(front, key, tell)
    bob = front.key(user=BOB)
    for reply in (
        query(front, bob, QUESTION_TEXT, sona=sonas["Accountant"], weights={"sona": 1.0}),
        chat(
            front, bob, QUESTION_TEXT, BOB, HELPER, sona=sonas["Accountant"], weights={"sona": 1.0}
        ),
    ):
        assert (reply.status, reply.error["details"]["field"]) == (422, "sona")
    assert {task_of(request) for request in provider.requests}.isdisjoint({"answer", "reply"})


@pytest.mark.parametrize("path", [QUERY, CHAT])
@pytest.mark.parametrize(
    ("weights", "field"),
    [
        ({"sona": 1.5}, "weights.sona"),
        ({"sona": "much"}, "weights.sona"),
        ({"recency": -1}, "weights.recency"),
        ({"luck": 1}, "weights.luck"),
        (0.5, "weights"),
    ],
)
def test_chat_sona_weight_refuses_wrong_value_by_name(
    front: Gateway, key: str, path: str, weights: object, field: str
) -> None:
    body = {QUERY: {"query": "x"}, CHAT: {"message": "x", "participants": [*WHO]}}[path]
    reply = front.call("POST", path, {**body, "weights": weights}, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)


def test_chat_late_answer_for_everybody_needs_whole_view(
    front: Gateway,
    provider: ModelServer,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An admin that means everybody gets a turn to poll, which neither a user nor a key that names
    participants can fetch."""
    admin, plain = front.key(rights=("read", "admin")), front.key()
    everybody = {"everybody": "true"}
    event_ids = [
        tell(plain, f"The buoy of {who} goes out on Friday.", who)["event_id"]
        for who in (ALICE, BOB)
    ]
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.answer_generation.RESERVE_SECONDS", 25.0)
        body = {"query": "When does the buoy go out?"}
        late = front.call("POST", QUERY, body, key=admin, query=everybody)
    assert (late.status, late.body["state"]) == (202, "waiting")
    path = f"{TURNS}/{late.body['turn_id']}"
    strangers: list[tuple[str, dict[str, str]]] = [
        (front.key(user=ALICE), {}),
        (front.key(user=ALICE, rights=("read", "admin")), {}),
        (plain, {"participants": ALICE}),
        (admin, {"participants": ALICE}),
        (front.key("globex", rights=("read", "admin")), everybody),
    ]
    for state in ("waiting", "done"):
        got = front.call("GET", path, key=admin, query=everybody).body
        assert got["state"] == state
        for stranger, who in strangers:
            assert front.call("GET", path, key=stranger, query=who).status == 404
        assert deliver_turn(late.body["turn_id"]) == []
    got = front.call("GET", path, key=admin, query=everybody).body
    assert {citation["event_id"] for citation in got["citations"]} == {*event_ids}
    assert len(provider.requests) == 1
