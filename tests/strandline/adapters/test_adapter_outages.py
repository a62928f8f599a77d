"""32 threads or tasks through one store, while the service and its database are killed and started
again: nothing is lost, and nothing doubled."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent_framework import Message
from google.adk.events.event import Event
from google.genai.types import Content, Part
from llama_index.core.llms import ChatMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from strands.types.session import SessionMessage

from strandline import AsyncStrandline, Strandline
from strandline.adapters.agent_framework import StrandlineHistoryProvider
from strandline.adapters.google_adk import StrandlineMemoryService
from strandline.adapters.langgraph import StrandlineStore
from strandline.adapters.llama_index import StrandlineMemoryBlock
from strandline.adapters.openai_agents import StrandlineSession
from strandline.adapters.pydantic_ai import StrandlineMemory
from strandline.adapters.strands import StrandlineMemoryStore
from strandline.adapters.strands_sessions import StrandlineSessionRepository
from strandline.client.retries import Retry
from tests.strandline.adapters.conftest import Service, Users

WRITERS, EACH = 32, 2
PAIRS = [(writer, number) for writer in range(WRITERS) for number in range(EACH)]
PATIENT = Retry(seconds=120)


def write_by_threads(client: Strandline, user: str, started: threading.Event) -> None:
    """By LangGraph's store and Strands's repository, which block."""
    store = StrandlineStore(user=user, agent="helper", client=client)
    repository = StrandlineSessionRepository(user=user, agent="helper", client=client)

    def write(writer: int) -> None:
        for number in range(EACH):
            store.put(("many",), f"{writer}-{number}", {"n": number, "writer": writer})
            content: Any = [{"text": f"words {writer} {number}"}]
            message = SessionMessage({"role": "user", "content": content}, number)
            repository.create_message(f"talk-{user}", f"agent-{writer}", message)
            started.set()

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    found = store.search(("many",), limit=WRITERS * EACH * 2)
    assert sorted((item.value["writer"], item.value["n"]) for item in found) == PAIRS
    assert all(item.created_at == item.updated_at for item in found), "one revision each"
    listed = repository.list_messages(f"talk-{user}", f"agent-{WRITERS - 1}")
    assert [message.message_id for message in listed] == [*range(EACH)]


type StoreText = Callable[[str, int], Coroutine[Any, Any, object]]
"""Stores a text of one of the writers."""


def make_stores(client: AsyncStrandline, user: str) -> dict[str, StoreText]:
    """Of each framework whose adapter does not block, how it stores a text."""
    whose: Any = {"user": user, "agent": "helper", "async_client": client}
    session = StrandlineSession(f"talk-{user}", **whose)
    memory = StrandlineMemoryStore(**whose)
    model = FunctionModel(lambda messages, info: ModelResponse([TextPart("")]))
    agent: Any = Agent(model, output_type=[str, None], capabilities=[StrandlineMemory(**whose)])

    async def add_strands_message(text: str, writer: int) -> None:
        await memory.add_messages([{"role": "user", "content": [{"text": text}]}])

    async def add_item(text: str, writer: int) -> None:
        await session.add_items([{"role": "user", "content": text}])

    adk = StrandlineMemoryService(agent="helper", async_client=client)

    async def add_adk_event(text: str, writer: int) -> None:
        event = Event(author="user", content=Content(role="user", parts=[Part(text=text)]))
        whose: Any = {"app_name": "helper", "user_id": user, "session_id": f"{writer}"}
        for _ in range(2):
            await adk.add_events_to_memory(events=[event], **whose)

    history = StrandlineHistoryProvider(**whose)

    async def save_history(text: str, writer: int) -> None:
        await history.save_messages(f"history-{user}", [Message("user", [text])])

    block = StrandlineMemoryBlock(**whose)

    async def put_message(text: str, writer: int) -> None:
        message = ChatMessage(role="user", content=text)
        await block.aput([message], session_id=f"block-{user}")

    return {
        "agent_framework": save_history,
        "google_adk": add_adk_event,
        "llama_index": put_message,
        "strands": add_strands_message,
        "openai_agents": add_item,
        "pydantic_ai": lambda text, writer: agent.run(text),
    }


async def write_by_tasks(client: AsyncStrandline, user: str, started: threading.Event) -> None:
    """By adapters that do not block, all in one event loop."""
    stores = make_stores(client, user)

    async def write(writer: int) -> None:
        for number in range(EACH):
            for name, store in stores.items():
                await store(f"{name} {writer} {number}", writer)
            started.set()

    await asyncio.gather(*map(write, range(WRITERS)))
    session = StrandlineSession(f"talk-{user}", user=user, agent="helper", async_client=client)
    items: list[Any] = await session.get_items()
    of_first = [item["content"] for item in items if " 0 " in item["content"]]
    assert of_first == [f"openai_agents 0 {number}" for number in range(EACH)], "in order"


def list_said(client: Strandline, user: str) -> list[str]:
    """What a user said, in order of the alphabet."""
    events = client.get_all(user=user, agent="helper", page_size=500)
    return sorted(str(event.content) for event in events if event.type == "message")


def test_adapter_outage_loses_and_doubles_nothing(service: Service, users: Users) -> None:
    with Strandline(service.url, service.key, retry=PATIENT) as client:

        async def use_tasks(started: threading.Event) -> list[str]:
            async with AsyncStrandline(service.url, service.key, retry=PATIENT) as own:
                await write_by_tasks(own, users.bob, started)
                return [*make_stores(own, users.bob)]

        threads, tasks = threading.Event(), threading.Event()
        with ThreadPoolExecutor(2) as pool:
            by_tasks = pool.submit(lambda: asyncio.run(use_tasks(tasks)))
            assert tasks.wait(60), "they take longer to begin, and to end"
            by_threads = pool.submit(write_by_threads, client, users.alice, threads)
            assert threads.wait(60)
            assert not by_threads.done()
            assert not by_tasks.done()
            service.restart()
            by_threads.result()
            names = by_tasks.result()
        expected = [f"words {writer} {number}" for writer, number in PAIRS]
        assert list_said(client, users.alice) == sorted(expected)
        expected = [f"{name} {writer} {number}" for writer, number in PAIRS for name in names]
        assert list_said(client, users.bob) == sorted(expected)
