"""The memory service for Google's ADK. No contract tests of memory services
are published: its tools and callbacks are tried with this one, and its tests of its own service
were (docs/adapters/google-adk.md)."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, FunctionCall, Part

from strandline import Strandline
from strandline.adapters.google_adk import StrandlineMemoryService
from strandline.client.errors import ForbiddenError, KeyConflictError
from tests.strandline.adapters.conftest import Service, Users, list_texts, lose_first_answer


def make_event(author: str, text: str, *others: Part, **fields: Any) -> Event:
    parts = [Part(text=text), *others]
    role = "user" if author == "user" else "model"
    return Event(author=author, content=Content(role=role, parts=parts), **fields)


def make_session(user: str, *events: Event, name: str = "s1") -> Session:
    return Session(id=name, app_name="helper", user_id=user, events=[*events])


def use(
    talk: Callable[[StrandlineMemoryService], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Use a memory service in an event loop."""

    async def run() -> None:
        memory = StrandlineMemoryService(**options)
        try:
            await talk(memory)
        finally:
            await memory.aclose()

    asyncio.run(run())


async def search(memory: StrandlineMemoryService, user: str, query: str) -> list[MemoryEntry]:
    answer = await memory.search_memory(app_name="helper", user_id=user, query=query)
    return answer.memories


def test_google_adk_memory_service_adds_and_searches(users: Users, client: Strandline) -> None:
    thought = Part(text="She is hard of hearing.", thought=True)
    call = Part(function_call=FunctionCall(name="tide", args={"site": "Auk"}))

    async def talk(memory: StrandlineMemoryService) -> None:
        session = make_session(
            users.alice,
            make_event("user", "The tide turns at noon.", timestamp=1_750_000_000.5),
            make_event("pilot", "Noted.", thought, call),
            Event(author="pilot", content=Content(role="model", parts=[call])),
            Event(author="pilot"),
            make_event("pilot", "Not", partial=True),
        )
        await memory.add_session_to_memory(session)
        found = await search(memory, users.alice, "When does the tide turn?")
        assert found[0].content == Content(
            role="user", parts=[Part(text="The tide turns at noon.")]
        )
        assert found[0].author == "user"
        assert found[0].timestamp == "2025-06-15T15:06:40.500000+00:00"
        assert found[0].custom_metadata["relevance"] > 0.5
        assert await search(memory, users.alice, "  ") == []
        assert await search(memory, users.bob, "When does the tide turn?") == []
        other = await memory.search_memory(app_name="x", user_id=users.alice, query="tide turn")
        assert other.memories == []
        assert await search(memory, users.alice, "Is there tea?") == []
        assert len(await search(memory, users.alice, "noon")) == 1

    use(talk)
    assert list_texts(client, users.alice) == [
        ("user", "The tide turns at noon.", True), ("agent", "Noted.", True),
    ]  # fmt: skip


def test_google_adk_memory_service_stores_events_once(users: Users, client: Strandline) -> None:
    """A session is added after each turn, and one answer of the service is lost."""
    first = [make_event("user", "Yes."), make_event("pilot", "Aye.")]
    second = [make_event("user", "Yes."), make_event("pilot", "Aye, aye.")]

    async def talk(memory: StrandlineMemoryService) -> None:
        lose_first_answer(memory)
        with pytest.raises(ConnectionError):
            await memory.add_session_to_memory(make_session(users.alice, *first))
        await memory.add_session_to_memory(make_session(users.alice, *first))
        await memory.add_session_to_memory(make_session(users.alice, *first, *second))
        await memory.add_events_to_memory(
            app_name="helper",
            user_id=users.alice,
            events=second,
            session_id="s1",
        )
        await memory.add_session_to_memory(make_session(users.bob, *first, name="s1"))
        for app, user in (("a/b", users.bob), ("a", f"b/{users.bob}")):
            await memory.add_events_to_memory(
                app_name=app, user_id=user, events=first, session_id="s1"
            )

    use(talk)
    assert [text for _, text, _ in list_texts(client, users.alice)] == [
        "Yes.", "Aye.", "Yes.", "Aye, aye.",
    ]  # fmt: skip
    assert [text for _, text, _ in list_texts(client, users.bob)] == ["Yes.", "Aye."]


def test_google_adk_memory_service_adds_memories_as_they_are(
    users: Users, client: Strandline
) -> None:
    """Those with an id once; of others each attempt that failed is made good by the next one."""

    def make_entry(text: str, **fields: Any) -> MemoryEntry:
        return MemoryEntry(content=Content(parts=[Part(text=text)]), **fields)

    memories = [
        make_entry(
            "She moors at pier B.", id="m1", author="user", timestamp="2025-06-15T15:06:40Z"
        ),
        make_entry("She likes tea.", custom_metadata={"source": "form"}),
    ]

    async def talk(memory: StrandlineMemoryService) -> None:
        whose: Any = {"app_name": "helper", "user_id": users.alice}
        lose_first_answer(memory)
        with pytest.raises(ConnectionError):
            await memory.add_memory(memories=memories, custom_metadata={"by": "import"}, **whose)
        await memory.add_memory(memories=memories, custom_metadata={"by": "import"}, **whose)
        await memory.add_memory(memories=memories[:1], custom_metadata={"by": "import"}, **whose)

    use(talk)
    events = [*client.get_all(user=users.alice, agent="helper")][::-1]
    assert [(event.role, event.content) for event in events] == [
        ("user", "She moors at pier B."), ("agent", "She likes tea."),
    ]  # fmt: skip
    assert events[0].occurred_at == datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)
    assert events[1].metadata == {
        "google_adk": {"custom_metadata": {"source": "form", "by": "import"}}
    }


def test_google_adk_memory_service_keeps_first_metadata(users: Users, client: Strandline) -> None:
    """What is added again under its id stays as it was; it is not added to another memory."""
    whose: Any = {"app_name": "helper", "user_id": users.alice}
    event = make_event("user", "The tide turns at noon.")
    entry = MemoryEntry(id="m1", content=Content(parts=[Part(text="She likes tea.")]))

    async def talk(memory: StrandlineMemoryService) -> None:
        for form in ("first", "second"):
            added: Any = {"custom_metadata": {"form": form}, **whose}
            entry.timestamp = "2025-06-15T15:06:40Z" if form == "first" else None
            await memory.add_events_to_memory(events=[event], session_id="s1", **added)
            await memory.add_memory(memories=[entry], **added)

    use(talk)
    events = [*client.get_all(user=users.alice, agent="helper")]
    assert [one.metadata["google_adk"]["custom_metadata"]["form"] for one in events] == [
        "first", "first",
    ]  # fmt: skip

    async def talk_of_another(memory: StrandlineMemoryService) -> None:
        with pytest.raises(KeyConflictError):
            await memory.add_memory(memories=[entry], **whose)

    use(talk_of_another, agent="pilot")


def test_google_adk_memory_service_finds_authors_and_metadata(
    users: Users, client: Strandline
) -> None:
    """Agents of one app stay apart; what another program says has its speaker as the author."""
    client.add("The ferry is late.", user=users.alice, agent="helper", role="agent")

    async def talk(memory: StrandlineMemoryService) -> None:
        await memory.add_events_to_memory(
            app_name="helper",
            user_id=users.alice,
            events=[make_event("pilot", "The lighthouse is lit.")],
            custom_metadata={"source": "log", "superseded_by": "found before"},
        )
        (entry, *_) = await search(memory, users.alice, "lighthouse")
        assert (entry.author, entry.content.role) == ("pilot", "model")
        assert entry.custom_metadata["relevance"] > 0.5
        assert entry.custom_metadata.keys() == {"source", "relevance"}
        (other, *_) = await search(memory, users.alice, "ferry")
        assert (other.author, other.custom_metadata.keys()) == ("helper", {"relevance"})

    use(talk)


def test_google_adk_memory_service_reads_timestamps(
    users: Users, client: Strandline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADK itself writes local times without a zone; any text is allowed."""
    at = datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)
    expected_times = {
        "2025-06-15T17:06:40": at,
        "2025-06-15T15:06:40Z": at,
        "2025-06-15T15:06:40+00:00": at,
        "yesterday": None,
        "0001-01-01T00:00:00": None,
    }
    memories = [
        MemoryEntry(content=Content(parts=[Part(text=text)]), timestamp=text)
        for text in expected_times
    ]

    async def talk(memory: StrandlineMemoryService) -> None:
        await memory.add_memory(app_name="helper", user_id=users.alice, memories=memories)

    with monkeypatch.context() as context:
        context.setenv("TZ", "Europe/Berlin")
        time.tzset()
        use(talk)
    time.tzset()
    events = client.get_all(user=users.alice, agent="helper")
    assert {event.content: event.occurred_at for event in events} == expected_times


def test_google_adk_memory_service_deletes(service: Service, users: Users) -> None:
    """What was deleted is not added again with the rest of its session."""
    events = [make_event("user", "My number is 12 34."), make_event("user", "I like tea.")]

    async def talk(memory: StrandlineMemoryService) -> None:
        whose: Any = {"app_name": "helper", "user_id": users.alice}
        session = make_session(users.alice, *events)
        await memory.add_session_to_memory(session)
        (entry, *_) = await search(memory, users.alice, "my number")
        await memory.delete_memory(app_name="helper", user_id=users.bob, memory_id=entry.id)
        assert await search(memory, users.alice, "my number")
        for _ in range(2):
            await memory.delete_memory(memory_id=entry.id, **whose)
        await memory.delete_memory(memory_id="of another service", **whose)
        session.events.append(make_event("user", "And milk."))
        await memory.add_session_to_memory(session)
        texts = [str(one.content) for one in await search(memory, users.alice, "my number")]
        assert not any("12 34" in text for text in texts)
        assert await search(memory, users.alice, "milk")
        with pytest.raises(ValueError, match="memory_id: name the memory"):
            await memory.delete_memory(**whose)
        with pytest.raises(ValueError, match="user_id: "):
            await memory.delete_memory(app_name="helper", user_id="", memory_id=entry.id)

    use(talk, key=service.erasing_key)

    async def talk_without_right(memory: StrandlineMemoryService) -> None:
        (entry, *_) = await search(memory, users.alice, "milk")
        with pytest.raises(ForbiddenError):
            await memory.delete_memory(app_name="helper", user_id=users.alice, memory_id=entry.id)

    use(talk_without_right)


def test_google_adk_memory_service_names_users_plainly(users: Users, client: Strandline) -> None:
    async def talk(memory: StrandlineMemoryService) -> None:
        await memory.add_session_to_memory(make_session(users.alice, make_event("user", "Hello.")))
        assert await search(memory, users.alice, "Hello.")
        for user in ("", " ", f"{users.alice} ", "e\N{COMBINING ACUTE ACCENT}"):
            with pytest.raises(ValueError, match="user_id: "):
                await search(memory, user, "Hello.")
        assert await search(memory, f"user:{users.alice}", "Hello.") == []

    use(talk, agent="pilot")
    (event,) = client.get_all(user=users.alice, agent="pilot")
    assert event.participants == ["agent:pilot", f"user:{users.alice}"]

    def choose(app_name: str, user_id: str) -> list[str]:
        return [f"user:{user_id}", f"user:{users.bob}", f"agent:{app_name}"]

    async def talk_among_three(memory: StrandlineMemoryService) -> None:
        long_name = "s" * 200
        session = make_session(users.alice, make_event("user", "Hello, you."), name=long_name)
        await memory.add_session_to_memory(session)
        assert [one.author for one in await search(memory, users.alice, "Hello")] == ["user"]

    use(talk_among_three, participants=choose)
    with pytest.raises(ValueError, match="names the agent, too"):
        StrandlineMemoryService(agent="pilot", participants=choose)
