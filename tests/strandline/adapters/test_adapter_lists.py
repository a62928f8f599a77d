"""Lists of the adapters while another program erases what is in view, between two pages."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from strandline import AsyncStrandline, Strandline
from strandline.adapters import (
    agent_memory,
    mem0_records,
    memory_file_store,
    namespace_topics,
    session_records,
)
from strandline.adapters.agent_memory import AgentMemory
from strandline.adapters.keyed_values import KeyedValues
from strandline.adapters.mem0 import Memory
from strandline.adapters.memory_files import MemoryFiles
from strandline.adapters.openai_agents import StrandlineSession
from strandline.adapters.step_runners import run_steps
from strandline.client.errors import GoneError
from tests.strandline.adapters.conftest import Service, Users


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (agent_memory, mem0_records, memory_file_store, session_records):
        monkeypatch.setattr(module, "_PAGE", 2)
    monkeypatch.setattr(namespace_topics, "_TOPICS_PAGE", 2)


def has_cursor(call: Any) -> bool:
    """Whether a request is that of a later page."""
    return any(name == "cursor" for name, _ in call.query) or (
        call.path.endswith("/query") and "cursor" in json.loads(call.body)
    )


def act_before_later_page(
    monkeypatch: pytest.MonkeyPatch, client: Strandline, act: Callable[[], object], times: int = 1
) -> list[object]:
    """Let another program act before the requests of later pages, so many times. Gives what it
    did."""
    perform, acts = client.perform, list[object]()

    def perform_after_other(call: Any) -> Any:
        if has_cursor(call) and len(acts) < times:
            acts.append(None)
            acts[-1] = act()
        return perform(call)

    monkeypatch.setattr(client, "perform", perform_after_other)
    return acts


@pytest.fixture
def other(service: Service) -> Any:
    """The client of another program."""
    with Strandline(service.url, service.erasing_key) as client:
        yield client


def test_adapter_list_of_mem0_begins_again(
    monkeypatch: pytest.MonkeyPatch, client: Strandline, other: Strandline, users: Users
) -> None:
    memory, whose = Memory(client=client, user=users.alice), {"user_id": users.alice}
    ids = [memory.add(f"secret {n}")["results"][0]["id"] for n in range(8)]
    others_memory = Memory(client=other, user=users.alice)
    for n in (0, 1, 2, 6):
        memory.update(ids[n], f"secret new {n}")

    def erase_next() -> object:
        return others_memory.delete(ids.pop())

    uses: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: memory.get_all(filters=whose),
        lambda: memory.search("secret", filters=whose, threshold=0.0),
    )
    for use in uses:
        with monkeypatch.context() as patch:
            acts = act_before_later_page(patch, client, erase_next)
            results = use()["results"]
        assert len(acts) == 1
        assert {item["id"] for item in results} == set(ids)
    with monkeypatch.context() as patch:
        act_before_later_page(patch, client, erase_next)
        memory.delete_all(user_id=users.alice)
    assert memory.get_all(filters=whose) == {"results": []}
    assert "secret" not in str([*client.get_all(user=users.alice)])


def test_adapter_list_of_openai_session_begins_again(service: Service, users: Users) -> None:
    async def use() -> None:
        async with (
            AsyncStrandline(service.url, service.erasing_key) as own,
            AsyncStrandline(service.url, service.erasing_key) as others,
        ):
            session, other = (
                StrandlineSession(users.alice, user=users.alice, async_client=client)
                for client in (own, others)
            )
            items: list[Any] = [{"role": "user", "content": f"{n} metres"} for n in range(7)]
            await session.add_items(items)
            perform, items_of_other = own.perform, list[Any]()

            async def perform_after_other(call: Any) -> Any:
                if has_cursor(call) and not items_of_other:
                    items_of_other.append(await other.pop_item())
                return await perform(call)

            own.perform = perform_after_other
            assert await session.get_items() == items[:6]
            assert items_of_other == items[6:]
            assert await session.get_items(3) == items[3:6]

    asyncio.run(use())


def test_adapter_list_of_session_texts_begins_again(
    monkeypatch: pytest.MonkeyPatch, client: Strandline, other: Strandline, users: Users
) -> None:
    who = [f"user:{users.alice}"]
    events = [
        client.add(f"{n} metres", participants=who, session_id=users.alice, role="user")
        for n in range(5)
    ]
    act_before_later_page(monkeypatch, client, lambda: other.erase(event_ids=[events[4].event_id]))
    texts = run_steps(client, AgentMemory(user=users.alice).read_said(who, users.alice))
    assert texts == [("user", f"{n} metres") for n in range(4)]


def test_adapter_list_of_file_events_begins_again(
    monkeypatch: pytest.MonkeyPatch, client: Strandline, other: Strandline, users: Users
) -> None:
    """A file with a history is deleted while another one is."""
    files, theirs = (MemoryFiles(user=users.alice, client=one) for one in (client, other))
    for name in ("a.md", "b.md"):
        create = {"command": "create", "path": f"/memories/{name}", "file_text": "secret 0"}
        files.execute(create)
    for n in range(4):
        edit = {"command": "str_replace", "path": "/memories/a.md"}
        files.execute({**edit, "old_str": f"secret {n}", "new_str": f"secret {n + 1}"})
    delete_other = {"command": "delete", "path": "/memories/b.md"}
    acts = act_before_later_page(monkeypatch, client, lambda: theirs.execute(delete_other))
    files.execute({"command": "delete", "path": "/memories/a.md"})
    assert acts == ["Successfully deleted /memories/b.md"]
    assert "secret" not in str([*client.get_all(user=users.alice)])


def test_adapter_list_of_namespaces_begins_again(
    monkeypatch: pytest.MonkeyPatch, client: Strandline, other: Strandline, users: Users
) -> None:
    monkeypatch.setattr(namespace_topics, "_LISTED_NAMESPACES", 1)
    who = [f"user:{users.alice}"]
    for n in range(6):
        run_steps(client, KeyedValues("langgraph").put_value(who, (f"n{n}",), "key", {"n": n}))
    event = client.add("Any.", participants=who)
    act_before_later_page(monkeypatch, client, lambda: other.erase(event_ids=[event.event_id]))
    namespaces = run_steps(client, KeyedValues("langgraph").list_namespaces(who, ()))
    assert namespaces == [(f"n{n}",) for n in range(6)]


def test_adapter_list_that_always_changes_is_an_error(
    monkeypatch: pytest.MonkeyPatch, client: Strandline, other: Strandline, users: Users
) -> None:
    memory = Memory(client=client, user=users.alice)
    for n in range(3):
        memory.add(f"secret {n}")

    def erase_something() -> object:
        return other.erase(event_ids=[other.add("Any.", user=users.alice).event_id])

    acts = act_before_later_page(monkeypatch, client, erase_something, 100)
    with pytest.raises(GoneError, match="Begin it again"):
        memory.get_all(filters={"user_id": users.alice})
    assert len(acts) == 20
