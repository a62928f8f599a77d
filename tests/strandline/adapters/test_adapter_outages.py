"""32 threads or tasks through one store, while the service and its database are killed and started
again: nothing is lost, and nothing doubled."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from strands.types.session import SessionMessage

from strandline import AsyncStrandline, Strandline
from strandline.adapters.langgraph import StrandlineStore
from strandline.adapters.openai_agents import StrandlineSession
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


async def write_by_tasks(client: AsyncStrandline, user: str, started: threading.Event) -> None:
    """By the session of the OpenAI Agents SDK and Strands's store, which do not block."""
    session = StrandlineSession(f"talk-{user}", user=user, agent="helper", async_client=client)
    memory = StrandlineMemoryStore(user=user, agent="helper", async_client=client)

    async def write(writer: int) -> None:
        for number in range(EACH):
            await session.add_items([{"role": "user", "content": f"item {writer} {number}"}])
            message: Any = {"role": "user", "content": [{"text": f"words {writer} {number}"}]}
            await memory.add_messages([message])
            started.set()

    await asyncio.gather(*map(write, range(WRITERS)))
    items: list[Any] = await session.get_items()
    texts = [item["content"] for item in items]
    assert sorted(texts) == sorted(f"item {writer} {number}" for writer, number in PAIRS)
    of_first = [text for text in texts if text.startswith("item 0 ")]
    assert of_first == [f"item 0 {number}" for number in range(EACH)], "in order"


def test_adapter_outage_loses_and_doubles_nothing(service: Service, users: Users) -> None:
    with Strandline(service.url, service.key, retry=PATIENT) as client:

        async def use_tasks(started: threading.Event) -> None:
            async with AsyncStrandline(service.url, service.key, retry=PATIENT) as own:
                await write_by_tasks(own, users.bob, started)

        threads, tasks = threading.Event(), threading.Event()
        with ThreadPoolExecutor(2) as pool:
            writing = [
                pool.submit(write_by_threads, client, users.alice, threads),
                pool.submit(lambda: asyncio.run(use_tasks(tasks))),
            ]
            for started in (threads, tasks):
                assert started.wait(60)
            assert not any(one.done() for one in writing)
            service.restart()
            for one in writing:
                one.result()
        for user in users:
            events = client.get_all(user=user, agent="helper", page_size=500)
            said = [str(event.content) for event in events if event.type == "message"]
            words = [text for text in said if text.startswith("words ")]
            assert sorted(words) == sorted(f"words {writer} {number}" for writer, number in PAIRS)
            assert len(said) == len(set(said))
