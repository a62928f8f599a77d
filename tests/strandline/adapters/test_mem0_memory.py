"""mem0's verbs on the service, with its arguments and results, also on an export of mem0."""

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from strandline import AsyncStrandline, Strandline
from strandline.adapters.mem0 import AsyncMemory, Memory
from tests.strandline.adapters.conftest import ROOT, Service, Users, act_before_request

VERBS = ("add", "search", "get", "get_all", "update", "delete", "delete_all", "history")
TEXT = {"type": "text", "text": "Noted."}
TALK = [
    {"role": "system", "content": "You are a helper."},
    {"role": "user", "content": "I moor at pier B.", "name": "al"},
    {"role": "assistant", "content": [TEXT, {"type": "image_url"}]},
]


def read_mem0_signatures(kind: str) -> dict[str, list[tuple[str, str, str]]]:
    """The parameters of mem0's verbs by its source, which no import of it runs."""
    spec = importlib.util.find_spec("mem0")
    assert spec
    assert spec.origin
    tree = ast.parse((Path(spec.origin).parent / "memory/main.py").read_text("utf-8"))
    (found,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind]
    signatures: dict[str, list[tuple[str, str, str]]] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in VERBS:
            program = f"lambda {strip_types(node.args)}: 0"
            signatures[node.name] = list_parameters(eval(program, {"_UNSET": object()}))  # noqa: S307
    return signatures


def strip_types(arguments: ast.arguments) -> str:
    """Arguments without annotations."""
    for argument in (*arguments.args, *arguments.kwonlyargs, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    return ast.unparse(arguments)


def list_parameters(function: Any) -> list[tuple[str, str, str]]:
    """Names, kinds and defaults."""
    return [
        (one.name, one.kind.name, "KEEP" if type(one.default) is object else str(one.default))
        for one in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("kind", [Memory, AsyncMemory])
def test_mem0_memory_has_signatures_of_installed_package(kind: type[Memory]) -> None:
    theirs = read_mem0_signatures(kind.__name__)
    assert theirs.keys() == {*VERBS}
    assert {name: list_parameters(getattr(kind, name)) for name in VERBS} == theirs


def test_mem0_memory_adds_finds_and_changes(
    client: Strandline, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Memory(client=client)
    whose: Any = {"user_id": users.alice, "agent_id": "helper", "run_id": "r1"}
    more: Any = {
        "metadata": {"kind": "note", "user_id": users.bob},
        "timestamp": "2026-01-02T03:04:05Z",
    }
    with caplog.at_level(logging.WARNING, "strandline"):
        added = memory.add(TALK, **whose, **more, infer=False)["results"]
    assert "user_id is ignored" in caplog.text
    texts = [(one["memory"], one["event"], one["actor_id"], one["role"]) for one in added]
    assert texts == [
        ("I moor at pier B.", "ADD", "al", "user"), ("Noted.", "ADD", None, "assistant"),
    ]  # fmt: skip
    (plain,) = memory.add("Tea, please.", user_id=users.alice)["results"]
    assert plain == {"id": plain["id"], "memory": "Tea, please.", "event": "ADD"}
    memory.add("Coffee at pier B.", user_id=users.bob)

    found = memory.search("Which pier?", filters={"user_id": users.alice}, threshold=0.0)["results"]
    assert found[0]["memory"] == "I moor at pier B."
    assert {one["id"] for one in found} <= {added[0]["id"], added[1]["id"], plain["id"]}
    assert found[0] | {"score": 0, "hash": ""} == {
        "id": added[0]["id"], "memory": "I moor at pier B.", "hash": "", "score": 0,
        "metadata": {"kind": "note"}, **whose, "actor_id": "al", "role": "user",
        "created_at": "2026-01-02T03:04:05+00:00", "updated_at": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    assert 0 <= found[0]["score"] <= 1
    (best,) = memory.search("pier", filters=whose, top_k=1, threshold=0.0, explain=True)["results"]
    assert best["score_details"]

    pier = added[0]["id"]
    changed = memory.update(pier, "I moor at pier C.", {"seen": 2}, expiration_date="2999-01-01")
    assert changed == {"message": "Memory updated successfully!"}
    now = memory.get(pier)
    assert now
    assert (now["memory"], now["metadata"]) == ("I moor at pier C.", {"kind": "note", "seen": 2})
    assert now["created_at"] == "2026-01-02T03:04:05+00:00" < now["updated_at"]
    assert now["expiration_date"] == "2999-01-01"
    listed = memory.get_all(filters={"user_id": users.alice})["results"]
    assert [one["memory"] for one in listed] == ["I moor at pier C.", "Tea, please.", "Noted."]
    assert len(memory.get_all(filters={"user_id": users.alice}, top_k=1)["results"]) == 1
    found = memory.search("pier", filters={"user_id": users.alice}, threshold=0.0)["results"]
    assert "I moor at pier B." not in [one["memory"] for one in found]
    assert "I moor at pier C." in [one["memory"] for one in found]
    history = memory.history(pier)
    assert [(one["old_memory"], one["new_memory"], one["event"]) for one in history] == [
        (None, "I moor at pier B.", "ADD"), ("I moor at pier B.", "I moor at pier C.", "UPDATE"),
    ]  # fmt: skip
    assert {*history[0]} == {
        "id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at",
        "is_deleted", "actor_id", "role",
    }  # fmt: skip
    assert Memory(client=client, user=users.bob).get(pier) is None, "another user's"
    assert Memory(client=client, user=users.alice).get(pier) == now


def test_mem0_memory_passes_filters(
    client: Strandline, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "strandline"):
        Memory.from_config({"vector_store": {"provider": "qdrant"}}).close()
    assert "configuration is not read" in caplog.text
    memory = Memory(client=client)
    for number, kind in enumerate(("tea", "coffee", "Tea house")):
        memory.add(kind, user_id=users.alice, metadata={"n": number, "kind": kind})
    whose: Any = {"user_id": users.alice}
    expected: list[tuple[dict[str, Any], set[int]]] = [
        ({"n": 1}, {1}), ({"n": {"gte": 1, "lt": 2}}, {1}), ({"n": {"in": [0, 2]}}, {0, 2}),
        ({"n": {"nin": [0, 2]}}, {1}), ({"kind": {"ne": "tea"}}, {1, 2}),
        ({"kind": {"contains": "ea"}}, {0, 2}), ({"kind": {"icontains": "TEA"}}, {0, 2}),
        ({"kind": "*"}, {0, 1, 2}), ({"other": "*"}, set()), ({"kind": {"gt": 1}}, set()),
        ({"AND": [{"n": {"gt": 0}}, {"kind": {"contains": "house"}}]}, {2}),
        ({"OR": [{"n": 0}, {"n": 2}]}, {0, 2}), ({"NOT": [{"n": 0}]}, {1, 2}),
    ]  # fmt: skip
    for filters, numbers in expected:
        items = memory.get_all(filters={**whose, **filters})["results"]
        assert {item["metadata"]["n"] for item in items} == numbers, filters
    yesterday = date.today() - timedelta(days=2)  # noqa: DTZ011
    memory.add("gone", user_id=users.alice, expiration_date=yesterday)
    texts = [one["memory"] for one in memory.get_all(filters=whose)["results"]]
    assert "gone" not in texts
    assert "gone" in str(memory.get_all(filters=whose, show_expired=True))
    assert "gone" not in str(memory.search("gone", filters=whose, threshold=0.0))
    assert "gone" in str(memory.search("gone", filters=whose, threshold=0.0, show_expired=True))


@pytest.mark.parametrize("may_erase", [True, False])
def test_mem0_memory_deletes(
    service: Service, users: Users, may_erase: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Strandline(service.url, service.erasing_key if may_erase else service.key) as client:
        memory = Memory(client=client)
        (one,) = memory.add("secret one", user_id=users.alice)["results"]
        memory.update(one["id"], "secret two")
        memory.add("other", user_id=users.alice, run_id="r")
        memory.add("hers", user_id=users.alice, agent_id="helper")
        memory.add("of bob", user_id=users.bob, run_id="r")
        with caplog.at_level(logging.WARNING, "strandline"):
            assert memory.delete(one["id"]) == {"message": "Memory deleted successfully!"}
            assert memory.get(one["id"]) is None
            with pytest.raises(ValueError, match=f"Memory with id {one['id']} not found"):
                memory.delete(one["id"])
            with pytest.raises(ValueError, match=f"Memory with id {one['id']} not found"):
                memory.update(one["id"], "x")
            events = [entry["event"] for entry in memory.history(one["id"])]
            assert events == ([] if may_erase else ["ADD", "UPDATE", "DELETE"])
            said = str([*client.get_all(user=users.alice)])
            assert ("secret" in said) is not may_erase
            assert "secret" not in str(memory.search("secret", filters={"user_id": users.alice}))
            memory.delete_all(user_id=users.alice, run_id="r")
            left = memory.get_all(filters={"user_id": users.alice})["results"]
            assert [item["memory"] for item in left] == ["hers"]
            memory.delete_all(user_id=users.alice)
            memory.delete_all(user_id=users.alice)
        assert memory.get_all(filters={"user_id": users.alice}) == {"results": []}
        assert len(memory.get_all(filters={"user_id": users.bob})["results"]) == 1
    assert len([one for one in caplog.messages if "stays in the log" in one]) == int(not may_erase)


def test_mem0_memory_deletes_all_while_others_delete(
    service: Service, client: Strandline, users: Users
) -> None:
    """Another program deletes 30 of 40 memories just before all of them are erased."""
    memory = Memory(client=client, user=users.alice)
    ids = [memory.add(f"secret {n}")["results"][0]["id"] for n in range(40)]
    with Strandline(service.url, service.erasing_key) as others_client:
        other = Memory(client=others_client, user=users.alice)

        def delete_some() -> None:
            for memory_id in ids[:30]:
                other.delete(memory_id)

        act_before_request(client, "POST", "/erasures", delete_some)
        memory.delete_all(user_id=users.alice)
    assert memory.get_all(filters={"user_id": users.alice}) == {"results": []}
    assert "secret" not in str([*client.get_all(user=users.alice)])


@pytest.fixture
def other(service: Service, users: Users) -> Iterator[Memory]:
    """Another program with the same memories."""
    with Strandline(service.url, service.erasing_key) as client:
        yield Memory(client=client, user=users.alice)


def test_mem0_memory_updates_on_top_of_others(
    client: Strandline, users: Users, other: Memory
) -> None:
    """Another program changes another part of a memory just before it is changed here."""
    memory = Memory(client=client, user=users.alice)
    memory_id = memory.add("I moor at pier B.", metadata={"from": "phone"})["results"][0]["id"]
    act_before_request(
        client,
        "POST",
        "/batch",
        lambda: other.update(memory_id, "I moor at pier C.", metadata={"by": "other"}),
    )
    memory.update(memory_id, metadata={"from": "web"})
    item = memory.get(memory_id)
    assert item
    assert (item["memory"], item["metadata"]) == (
        "I moor at pier C.",
        {"by": "other", "from": "web"},
    )
    assert [entry["event"] for entry in memory.history(memory_id)] == ["ADD", "UPDATE", "UPDATE"]


@pytest.mark.parametrize("is_all", [True, False])
@pytest.mark.parametrize("may_erase", [True, False])
def test_mem0_memory_updates_none_that_others_delete(
    service: Service, client: Strandline, users: Users, other: Memory, may_erase: bool, is_all: bool
) -> None:
    """What is deleted does not come back by an update whose program had read it before."""
    with Strandline(service.url, service.erasing_key if may_erase else service.key) as own:
        memory = Memory(client=own, user=users.alice)
        memory_id = memory.add("secret one")["results"][0]["id"]

        def delete() -> object:
            return memory.delete_all(user_id=users.alice) if is_all else memory.delete(memory_id)

        act_before_request(vars(other)["_clients"].blocking, "POST", "/batch", delete)
        with pytest.raises(ValueError, match="not found"):
            other.update(memory_id, "secret two")
        assert memory.get_all(filters={"user_id": users.alice}) == {"results": []}
    said = str([*client.get_all(user=users.alice)])
    assert "secret two" not in said
    assert ("secret" in said) is not may_erase


@pytest.mark.parametrize("before", ["/batch", "/erasures"])
def test_mem0_memory_deletes_what_others_update(
    client: Strandline, users: Users, other: Memory, before: str
) -> None:
    """Before it is hidden, or before it is erased, when it is no longer there for the other."""
    memory = Memory(client=client, user=users.alice)
    memory_id = memory.add("secret one")["results"][0]["id"]

    def update() -> None:
        with contextlib.suppress(ValueError):
            other.update(memory_id, "secret two")

    act_before_request(client, "POST", before, update)
    memory.delete(memory_id)
    assert memory.history(memory_id) == []
    assert "secret" not in str([*client.get_all(user=users.alice)])


def test_mem0_memory_delete_erases_what_earlier_one_hid(client: Strandline, users: Users) -> None:
    memory = Memory(client=client, user=users.alice)
    memory_id = memory.add("secret")["results"][0]["id"]

    def fail() -> None:
        raise ConnectionError("the connection was lost")

    act_before_request(client, "POST", "/erasures", fail)
    with pytest.raises(ConnectionError):
        memory.delete(memory_id)
    assert memory.get(memory_id) is None
    memory.delete(memory_id)
    assert memory.history(memory_id) == []
    assert "secret" not in str([*client.get_all(user=users.alice)])


def test_mem0_memory_refuses_wrong_arguments(
    service: Service, client: Strandline, users: Users
) -> None:
    memory = Memory(client=client)
    whose: Any = {"user_id": users.alice}
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (memory.add, {"messages": "x"}, "user_id: name the user"),
        (memory.add, {"messages": "x", "agent_id": "a"}, "user_id: name the user"),
        (memory.add, {"messages": "x", "user_id": " "}, "Invalid user_id"),
        (memory.add, {"messages": "x", "user_id": "a b"}, "Invalid user_id"),
        (memory.add, {"messages": 5, **whose}, "messages must be"),
        (memory.add, {"messages": [{"role": "user"}], **whose}, r"messages\[0\]"),
        (memory.add, {"messages": [{"role": "user", "content": TEXT}], **whose}, r"messages\[0\]"),
        (memory.add, {"messages": [{"content": "x"}], **whose}, r"messages\[0\]"),
        (memory.add, {"messages": "x", "prompt": "p", **whose}, "prompt"),
        (memory.add, {"messages": "x", "memory_type": "p", **whose}, "memory_type"),
        (memory.add, {"messages": "x", "expiration_date": "1.2.2026", **whose}, "expiration_date"),
        (memory.search, {"query": "x"}, "filters must contain"),
        (memory.search, {"query": "x", **whose}, "Top-level entity parameters"),
        (memory.search, {"query": " ", "filters": whose}, "Invalid query"),
        (memory.search, {"query": "x", "filters": whose, "threshold": 2}, "Invalid threshold"),
        (memory.search, {"query": "x", "filters": whose, "top_k": -1}, "Invalid top_k"),
        (memory.search, {"query": "x", "filters": whose, "reference_date": 1}, "reference_date"),
        (memory.get_all, {"filters": {"user_id": {"in": ["a"]}}}, "user_id is one id"),
        (memory.get_all, {"filters": {"agent_id": "a"}}, "user_id: name the user"),
        (memory.update, {"memory_id": "x"}, "At least one of"),
        (memory.update, {"memory_id": "x", "text": " "}, "text"),
        (memory.delete_all, {}, "At least one filter"),
        (memory.get, {"memory_id": "x"}, r"Memory\(user='alice'\)"),
    ]
    memory.add("x", **whose)
    for verb, arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            verb(**arguments)
    for part in ("I like tea.", {}, {"type": "text"}, {"type": "txt", "txt": "x"}, None):
        with pytest.raises(ValueError, match=r"messages\[0\]\.content\[1\]: give a part"):
            memory.add([{"role": "user", "content": [TEXT, part]}], **whose)
    with pytest.raises(ValueError, match="Unsupported metadata filter operator: like"):
        memory.get_all(filters={**whose, "n": {"like": 1}})
    with pytest.raises(TypeError, match="limit"):
        memory.search("x", filters=whose, limit=5)
    with Strandline(service.url, service.key_of_ann) as anns:
        bound = Memory(client=anns)
        (one,) = bound.add("mine", user_id="ann")["results"]
        again = Memory(client=anns).get(one["id"])
        assert again
        assert again["memory"] == "mine", "a bound key says whose it is"


def test_mem0_memory_leaves_out_messages_without_text(client: Strandline, users: Users) -> None:
    talk: list[dict[str, Any]] = [
        {"role": "user", "content": "Where do I moor?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "assistant", "tool_calls": [{"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "pier B"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": {"type": "pdf_url", "pdf_url": {"url": "x"}}},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c3"}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "At pier B."},
    ]
    added = Memory(client=client).add(talk, user_id=users.alice)["results"]
    assert [one["memory"] for one in added] == ["Where do I moor?", "pier B", "At pier B."]


def test_mem0_memory_stores_retried_message_once(client: Strandline, users: Users) -> None:
    memory = Memory(client=client)
    perform = client.perform

    def lose(call: Any) -> Any:
        answer = perform(call)
        if call.path.endswith("/batch"):
            raise ConnectionError("the answer was lost")
        return answer

    client.perform = lose
    with pytest.raises(ConnectionError):
        memory.add(TALK, user_id=users.alice)
    client.perform = perform
    one = memory.add(TALK, user_id=users.alice)["results"][0]
    client.perform = lose
    with pytest.raises(ConnectionError):
        memory.update(one["id"], "I moor at pier D.")
    client.perform = perform
    memory.update(one["id"], "I moor at pier D.")
    listed = memory.get_all(filters={"user_id": users.alice})["results"]
    assert [item["memory"] for item in listed] == ["I moor at pier D.", "Noted."]
    assert len(memory.history(one["id"])) == 2


def test_mem0_memory_does_not_block(service: Service, users: Users) -> None:
    async def use() -> None:
        async with AsyncStrandline(service.url, service.erasing_key) as own:
            memory = AsyncMemory(async_client=own)
            await asyncio.gather(*(memory.add(f"note {n}", user_id=users.alice) for n in range(8)))
            whose: Any = {"user_id": users.alice}
            listed = (await memory.get_all(filters=whose))["results"]
            assert sorted(one["memory"] for one in listed) == [f"note {n}" for n in range(8)]
            first = listed[0]["id"]
            await memory.update(first, data="changed")
            assert (await memory.get(first) or {})["memory"] == "changed"
            found = (await memory.search("changed", filters=whose, threshold=0.0))["results"]
            assert "changed" in [one["memory"] for one in found]
            assert len(await memory.history(first)) == 2
            await memory.delete(first)
            await memory.delete_all(user_id=users.alice)
            assert await memory.get_all(filters=whose) == {"results": []}

    asyncio.run(use())


def test_mem0_memory_finds_imported_memories(
    service: Service, client: Strandline, users: Users, tmp_path: Path
) -> None:
    """An export is imported, twice, by the command line; the same ids are found by the verbs."""
    memory = {
        "id": f"m-{users.alice}",
        "memory": "I moor at pier C.",
        "user_id": users.alice,
        "run_id": "r1",
        "metadata": {"kind": "note"},
        "categories": ["places"],
        "created_at": "2024-07-20T01:30:36.275141-07:00",
        "updated_at": "2024-08-01T00:00:00-07:00",
        "history": [
            {"id": "h1", "memory_id": "m1", "old_memory": None, "new_memory": "I moor at pier B.",
             "event": "ADD", "created_at": "2024-07-20T01:30:36.275141-07:00", "updated_at": None},
            {"id": "h2", "memory_id": "m1", "old_memory": "I moor at pier B.",
             "new_memory": "I moor at pier C.", "event": "UPDATE",
             "created_at": "2024-07-20T01:30:36.275141-07:00",
             "updated_at": "2024-08-01T00:00:00-07:00"},
        ],
    }  # fmt: skip
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps({"results": [memory]}))
    for outcome in ("2 stored, 0 known", "0 stored, 2 known"):
        output = subprocess.run(
            [sys.executable, "-m", "strandline.commands.main", "import", str(file)],
            env={
                "PYTHONPATH": str(ROOT / "shared"),
                "PATH": "/usr/bin:/bin",
                "STRANDLINE_URL": service.url,
                "STRANDLINE_API_KEY": service.key,
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert outcome in output.stdout
    ours = Memory(client=client, user=users.alice)
    item = ours.get(f"m-{users.alice}")
    assert item
    assert item["memory"] == "I moor at pier C."
    assert item["created_at"] == "2024-07-20T08:30:36.275141+00:00"
    assert item["metadata"] == {"kind": "note", "categories": ["places"]}
    assert [one["event"] for one in ours.history(f"m-{users.alice}")] == ["ADD", "UPDATE"]
    found = ours.search("pier", filters={"run_id": "r1"}, threshold=0.0)["results"]
    assert [one["memory"] for one in found] == ["I moor at pier C."]
    ours.delete(f"m-{users.alice}")
    assert ours.get_all()["results"] == []
