"""The session of the OpenAI Agents SDK, as the SDK's own tests have theirs: the published contract
is the protocol `Session`, and its tests are those of its SQLite session."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from agents.memory import Session, SessionSettings

from strandline import AsyncStrandline, Strandline
from strandline.adapters.openai_agents import StrandlineSession
from tests.strandline.adapters.conftest import Service, Users, lose_first_answer

ITEMS: list[Any] = [
    {"role": "user", "content": "What is the depth at Auk?"},
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Look it up."}]},
    {"type": "function_call", "call_id": "c1", "name": "depth", "arguments": '{"site": "Auk"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "42 metres"},
    {
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [
            {"type": "output_text", "text": "It is 42 metres.", "annotations": [], "logprobs": []},
            {"type": "output_text", "text": "Yes.", "annotations": []},
        ],
    },
    {"role": "user", "content": [
        {"type": "input_text", "text": "And this picture?"},
        {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 20_000},
    ]},
    {"type": "function_call_output", "call_id": "c2", "output": "line\n" * 30_000},
    {"role": "assistant", "content": ""},
    {"role": "developer", "content": "  "},
]  # fmt: skip
"""Of each kind, with texts of all sizes."""


def run(use: Callable[[StrandlineSession], Coroutine[Any, Any, None]], user: str, key: str) -> None:
    """Use a session of a user in an event loop."""

    async def go() -> None:
        async with AsyncStrandline(key=key) as client:
            session = StrandlineSession(
                f"talk-{user}", user=user, agent="helper", async_client=client
            )
            await use(session)

    asyncio.run(go())


def test_openai_agents_session_gives_items_back(service: Service, users: Users) -> None:
    async def use(session: StrandlineSession) -> None:
        assert isinstance(session, Session)
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.clear_session()
        await session.add_items([])
        await session.add_items(ITEMS[:4])
        await session.add_items(ITEMS[4:])
        assert await session.get_items() == ITEMS
        assert await session.get_items(2) == ITEMS[-2:]
        assert await session.get_items(0) == []
        assert await session.get_items(100) == ITEMS
        session.session_settings = SessionSettings(limit=3)
        assert await session.get_items() == ITEMS[-3:]
        assert await session.get_items(1) == ITEMS[-1:]

    run(use, users.alice, service.key)


@pytest.mark.parametrize("may_erase", [True, False])
def test_openai_agents_session_pops_and_clears(
    service: Service, users: Users, may_erase: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(session: StrandlineSession) -> None:
        await session.add_items(ITEMS[:4])
        assert await session.pop_item() == ITEMS[3]
        assert await session.pop_item() == ITEMS[2]
        assert await session.get_items() == ITEMS[:2]
        await session.add_items(ITEMS[3:5])
        assert await session.get_items() == [*ITEMS[:2], *ITEMS[3:5]]
        assert await session.get_items(2) == ITEMS[3:5]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items(ITEMS[:1])
        assert await session.get_items() == ITEMS[:1]

    with caplog.at_level(logging.WARNING, "strandline"):
        run(use, users.alice, service.erasing_key if may_erase else service.key)
    assert len([one for one in caplog.messages if "stays in the log" in one]) == int(not may_erase)
    with Strandline(service.url, service.key) as client:
        said = [event.content for event in client.get_all(user=users.alice, agent="helper")]
    assert (ITEMS[3]["output"] in said) is not may_erase


def test_openai_agents_session_keeps_what_no_event_can_have(service: Service, users: Users) -> None:
    """A NUL and half a character, also where they stand for themselves in JSON."""
    items: list[Any] = [
        {"type": "function_call_output", "call_id": "c1", "output": text}
        for text in ("a\x00b", "\udc80 é 中 🌊", "\\u0000 \\ud800 \x00\ud800", "\\\x00", "\x00")
    ]
    items += [{"role": "user", "content": "yes", "note\x00": ["\ud83c"]}]

    async def use(session: StrandlineSession) -> None:
        await session.add_items(items)
        assert await session.get_items() == items

    run(use, users.alice, service.key)


def test_openai_agents_session_adds_items_larger_than_request(
    service: Service, users: Users
) -> None:
    items: list[Any] = [{"role": "user", "content": f"{n}" + "x" * 1_500_000} for n in range(4)]

    async def use(session: StrandlineSession) -> None:
        await session.add_items(items)
        assert await session.get_items() == items

    run(use, users.alice, service.key)


def test_openai_agents_session_stores_retried_items_once(service: Service, users: Users) -> None:
    """The answer to an attempt is lost; the SDK adds the same items again."""

    async def use(session: StrandlineSession) -> None:
        lose_first_answer(session)
        with pytest.raises(ConnectionError):
            await session.add_items(ITEMS[:2])
        await session.add_items(ITEMS[:2])
        assert await session.get_items() == ITEMS[:2]
        await session.add_items(ITEMS[:2])
        assert await session.get_items() == ITEMS[:2] * 2, "said twice"

    run(use, users.alice, service.key)


def test_openai_agents_session_is_found_by_recall(
    service: Service, users: Users, client: Strandline
) -> None:
    async def use(session: StrandlineSession) -> None:
        await session.add_items(ITEMS[:5])

    run(use, users.alice, service.key)
    events = [*client.get_all(user=users.alice, agent="helper")][::-1]
    assert [(event.role, event.type, event.content) for event in events] == [
        ("user", "message", "What is the depth at Auk?"),
        ("agent", "thought", "Look it up."),
        ("agent", "action", 'depth {"site": "Auk"}'),
        ("agent", "observation", "42 metres"),
        ("agent", "message", "It is 42 metres."),
    ]
    hits = client.recall("depth at Auk", user=users.alice, agent="helper", min_relevance=0).hits
    assert "What is the depth at Auk?" in [hit.text for hit in hits]
    assert not client.recall("depth at Auk", user=users.bob, agent="helper", min_relevance=0).hits
    with pytest.raises(ValueError, match="name the user"):
        StrandlineSession("talk", agent="helper")
    settings: Any = {"limit": 2}
    session = StrandlineSession(
        "talk", user="ann", async_client=AsyncStrandline(service.url), session_settings=settings
    )
    assert session.session_settings == SessionSettings(limit=2)


def test_openai_agents_session_of_same_name_is_told_apart(service: Service) -> None:
    """Ann sees what Ben said among both, but her own conversation of that name has none of it."""

    async def use() -> None:
        async with (
            AsyncStrandline(key=service.key_of_ben) as bens,
            AsyncStrandline(key=service.key_of_ann) as anns,
        ):
            both = ["user:ann", "user:ben", "agent:helper"]
            his = StrandlineSession("standup", participants=both, async_client=bens)
            await his.add_items(ITEMS[3:4])
            hers = StrandlineSession("standup", user="ann", agent="helper", async_client=anns)
            assert await hers.get_items() == []
            await hers.add_items(ITEMS[:2])
            assert await hers.get_items() == ITEMS[:2]
            assert await his.get_items() == ITEMS[3:4]

    asyncio.run(use())
