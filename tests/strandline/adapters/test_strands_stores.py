"""The memory store and the session repository for Strands, as Strands's own tests have theirs: its
contracts are the protocol `MemoryStore` and the class `SessionRepository`."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from strands.memory import AddMessagesContext, MemoryManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from strandline import Strandline
from strandline.adapters.strands import StrandlineMemoryStore
from strandline.adapters.strands_sessions import StrandlineSessionRepository
from tests.strandline.adapters.conftest import Service, Users, lose_first_answer

MESSAGES: list[Any] = [
    {"role": "user", "content": [{"text": "The tide turns at noon."}]},
    {"role": "assistant", "content": [{"text": "Noted."}]},
]


def run(use: Callable[[StrandlineMemoryStore], Coroutine[Any, Any, None]], user: str) -> None:
    """Use a store of a user in an event loop."""

    async def go() -> None:
        store = StrandlineMemoryStore(user=user, agent="helper", session_id=f"tide-{user}")
        await use(store)
        await store.aclose()

    asyncio.run(go())


def test_strands_store_adds_and_searches(users: Users, client: Strandline) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await store.add("She moors at pier B.", {"source": "form"})
        await store.add_messages(MESSAGES)
        (entry,) = await store.search("pier", {"max_search_results": 1})
        assert entry.content == "She moors at pier B."
        assert entry.metadata
        assert entry.metadata["speaker"] == "agent:helper"
        assert "The tide turns at noon." in [e.content for e in await store.search("the tide")]
        manager = MemoryManager(stores=[store])
        found = await manager.search("Which pier does she moor at?")
        assert [one.store_name for one in found][:1] == ["strandline"]

    run(use, users.alice)
    events = [*client.get_all(user=users.alice, agent="helper")][::-1]
    assert [(event.role, event.session_id is None) for event in events] == [
        ("agent", True), ("user", False), ("agent", False),
    ]  # fmt: skip
    assert events[0].metadata == {"strands": {"source": "form"}}
    assert not client.recall("pier", user=users.bob, agent="helper", min_relevance=0).hits


def test_strands_store_replaces_what_no_event_can_have(users: Users, client: Strandline) -> None:
    result = {"toolResult": {"toolUseId": "1", "content": [{"text": "tide\x00noon\udc80"}]}}
    messages: list[Any] = [{"role": "user", "content": [result]}]

    async def use(store: StrandlineMemoryStore) -> None:
        await store.add_messages(messages)
        (entry,) = await store.search("tide\x00 noon")
        assert entry.content == "tide\ufffdnoon\ufffd"

    run(use, users.alice)


def test_strands_store_searches_within_limits(users: Users) -> None:
    """Whatever the manager asks for: a long message is a query, and any number a limit."""

    async def use(store: StrandlineMemoryStore) -> None:
        await store.add("She moors at pier B.")
        assert await store.search("pier " * 2000, {"max_search_results": 500})
        assert await store.search(" \n") == []
        assert await store.search("pier", {"max_search_results": 0}) == []
        store.max_search_results = 0
        assert await store.search("pier") == []
        assert await store.search("pier", {"max_search_results": 1})

    run(use, users.alice)


def test_strands_store_stores_retried_messages_once(users: Users, client: Strandline) -> None:
    """The manager delivers a batch again under the same sequence numbers."""

    async def use(store: StrandlineMemoryStore) -> None:
        lose_first_answer(store)
        context = AddMessagesContext(sequence_numbers=[0, 2])
        with pytest.raises(ConnectionError):
            await store.add_messages(MESSAGES, context)
        more: Any = {"role": "user", "content": [{"text": "Thanks."}]}
        await store.add_messages([*MESSAGES, more], AddMessagesContext(sequence_numbers=[0, 2, 3]))
        await store.add_messages(MESSAGES[:1], AddMessagesContext(sequence_numbers=[0]))

    run(use, users.alice)
    events = [*client.get_all(user=users.alice, agent="helper")][::-1]
    assert [event.content for event in events] == [
        "The tide turns at noon.", "Noted.", "Thanks.", "The tide turns at noon.",
    ]  # fmt: skip
    numbers = [str(event.source_event_key).rpartition("/")[2] for event in events]
    assert numbers == ["0", "2", "3", "0"]


def test_strands_store_needs_user() -> None:
    for make in (StrandlineMemoryStore, StrandlineSessionRepository):
        with pytest.raises(ValueError, match="name the user"):
            make(agent="helper")


def make_message(number: int, text: str) -> SessionMessage:
    return SessionMessage.from_message({"role": "user", "content": [{"text": text}]}, number)


def test_strands_repository_keeps_sessions_agents_and_messages(
    client: Strandline, users: Users
) -> None:
    repository = StrandlineSessionRepository(user=users.alice, agent="helper", client=client)
    name = f"tour-{users.alice}"
    assert repository.read_session(name) is None
    session = repository.create_session(Session(name, SessionType.AGENT))
    read = repository.read_session(name)
    assert read
    assert read.to_dict() == session.to_dict()
    with pytest.raises(SessionException, match="already exists"):
        repository.create_session(session)
    assert repository.read_agent(name, "one") is None
    agent = SessionAgent("one", {"likes": ["tea"]}, {"removed": 0})
    with pytest.raises(SessionException, match="does not exist"):
        repository.update_agent(name, agent)
    repository.create_agent(name, agent)
    for size in (1, 30_000, 200_000):
        changed = SessionAgent("one", {"notes": "x" * size}, {})
        repository.update_agent(name, changed)
        stored = repository.read_agent(name, "one")
        assert stored
        assert stored.to_dict() == {**changed.to_dict(), "created_at": agent.created_at}
    image: Any = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\x00"}}}
    tool: Any = {"toolUse": {"toolUseId": "t1", "name": "tide", "input": {"site": "Auk"}}}
    result: Any = {"toolResult": {"toolUseId": "t1", "status": "success", "content": [
        {"text": "noon"}, {"json": {"hour": 12}}]}}  # fmt: skip
    contents: list[Any] = [[{"text": "When?"}, image], [tool], [result], [{"text": "At noon."}]]
    for number, content in enumerate(contents):
        role: Any = "assistant" if number % 2 else "user"
        message = SessionMessage.from_message({"role": role, "content": content}, number)
        repository.create_message(name, "one", message)
    listed = repository.list_messages(name, "one")
    assert [message.to_message()["content"] for message in listed] == contents
    assert [message.message_id for message in listed] == [0, 1, 2, 3]
    assert repository.list_messages(name, "one", limit=2, offset=1) == listed[1:3]
    assert repository.list_messages(name, "two") == []
    assert repository.read_message(name, "one", 3) == listed[3]
    assert repository.read_message(name, "one", 9) is None


@pytest.mark.parametrize("may_erase", [True, False])
def test_strands_repository_redacts_and_deletes(
    service: Service, users: Users, may_erase: bool, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"tour-{users.alice}"
    with Strandline(service.url, service.erasing_key if may_erase else service.key) as client:
        repository = StrandlineSessionRepository(user=users.alice, agent="helper", client=client)
        repository.create_session(Session(name, SessionType.AGENT))
        repository.create_agent(name, SessionAgent("one", {}, {}))
        message = make_message(0, "My number is 12 34.")
        with pytest.raises(SessionException, match="does not exist"):
            repository.update_message(name, "one", message)
        repository.create_message(name, "one", message)
        repository.create_message(name, "one", make_message(1, "Hello."))
        message.redact_message = {"role": "user", "content": [{"text": "[redacted]"}]}
        with caplog.at_level(logging.WARNING, "strandline"):
            repository.update_message(name, "one", message)
            texts = [str(m.to_message()["content"]) for m in repository.list_messages(name, "one")]
            assert texts == ["[{'text': '[redacted]'}]", "[{'text': 'Hello.'}]"]
            said = str([*client.get_all(user=users.alice, agent="helper")])
            assert ("12 34" in said) is not may_erase
            repository.delete_session(name)
        assert repository.read_session(name) is None
        assert repository.list_messages(name, "one") == []
        with pytest.raises(SessionException, match="does not exist"):
            repository.delete_session(name)
        repository.create_session(Session(name, SessionType.AGENT))
        assert repository.read_session(name)
    assert len([one for one in caplog.messages if "stays in the log" in one]) == int(not may_erase)


def test_strands_repository_stores_retried_message_once(client: Strandline, users: Users) -> None:
    repository = StrandlineSessionRepository(user=users.alice, agent="helper", client=client)
    name = f"tour-{users.alice}"
    perform = client.perform
    lost = [True]

    def lose(call: Any) -> Any:
        answer = perform(call)
        if lost:
            raise ConnectionError(f"the answer was lost {lost.pop()}")
        return answer

    client.perform = lose
    with pytest.raises(ConnectionError):
        repository.create_message(name, "one", make_message(0, "Hello."))
    repository.create_message(name, "one", make_message(0, "Hello."))  # made later: another time
    client.perform = perform
    assert len(repository.list_messages(name, "one")) == 1
    assert [e.content for e in client.get_all(user=users.alice, agent="helper")] == ["Hello."]
