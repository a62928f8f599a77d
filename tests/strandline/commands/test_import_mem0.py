"""Exports of mem0: what its `get_all` and its export give, as JSON and as JSON Lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.commands.imports.items import (
    Event,
    ImportOptions,
    Item,
    LeftOutItem,
    NewEvent,
    RefusedItem,
)
from strandline.commands.imports.reading import read_import_items

MEMORY: dict[str, Any] = {
    "id": "5a4c",
    "memory": "Moors at pier B.",
    "hash": "0f",
    "metadata": {"kind": "note"},
    "score": None,
    "created_at": "2024-07-20T01:30:36.275141-07:00",
    "updated_at": "2024-07-20T01:30:36.275141-07:00",
    "user_id": "alice",
    "agent_id": "helper",
    "run_id": "r1",
    "actor_id": None,
    "role": "user",
    "categories": ["places"],
}
HISTORY: list[dict[str, Any]] = [
    {"id": "h1", "memory_id": "5a4c", "old_memory": None, "new_memory": "Moors at pier A.",
     "event": "ADD", "created_at": "2024-07-20T01:30:36-07:00", "updated_at": None,
     "is_deleted": False, "actor_id": None, "role": None},
    {"id": "h2", "memory_id": "5a4c", "old_memory": "Moors at pier A.",
     "new_memory": "Moors at pier B.", "event": "UPDATE",
     "created_at": "2024-07-20T01:30:36-07:00", "updated_at": "2024-08-01T00:00:00Z",
     "is_deleted": False, "actor_id": None, "role": None},
]  # fmt: skip


def read(tmp_path: Path, content: Any, name: str = "mem0.json") -> list[Item]:
    """The items of a file: a document, or a text as it stands."""
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return [*read_import_items([file], ImportOptions("ann", "helper"))]


def list_events(items: list[Item]) -> list[Event]:
    events = [item.event for item in items if isinstance(item, NewEvent)]
    assert len(events) == len(items), items
    return events


def test_import_mem0_memory_becomes_event(tmp_path: Path) -> None:
    (event,) = list_events(read(tmp_path, {"results": [MEMORY]}))
    assert event.pop("session_id").startswith("mem0-")
    assert event == {
        "participants": ["user:alice", "agent:helper"],
        "role": "user",
        "content": "Moors at pier B.",
        "channel": "import",
        "source_event_key": "mem0:5a4c",
        "occurred_at": "2024-07-20T08:30:36.275141+00:00",
        "metadata": {
            "mem0": {
                "id": "5a4c",
                "event": "ADD",
                "user_id": "alice",
                "agent_id": "helper",
                "run_id": "r1",
                "role": "user",
                "metadata": {"categories": ["places"], "kind": "note"},
            }
        },
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", {"results": [MEMORY, {**MEMORY, "id": "b"}]}),
        ("a.json", {"count": 2, "next": None, "previous": None,
                    "results": [MEMORY, {**MEMORY, "id": "b"}]}),
        ("a.json", {"memories": [MEMORY, {**MEMORY, "id": "b"}]}),
        ("a.json", [MEMORY, {**MEMORY, "id": "b"}]),
        ("a.jsonl", f"{json.dumps(MEMORY)}\n\n{json.dumps({**MEMORY, 'id': 'b'})}\n"),
        ("a.ndjson", json.dumps({"results": [MEMORY, {**MEMORY, "id": "b"}]})),
    ],
)  # fmt: skip
def test_import_mem0_reads_each_shape(tmp_path: Path, name: str, content: Any) -> None:
    events = list_events(read(tmp_path, content, name))
    assert [event["source_event_key"] for event in events] == ["mem0:5a4c", "mem0:b"]
    assert {event["content"] for event in events} == {"Moors at pier B."}


@pytest.mark.parametrize("is_beside", [True, False])
def test_import_mem0_keeps_history(tmp_path: Path, is_beside: bool) -> None:
    """Rows stand within a memory or beside all of them, as mem0's table has them."""
    document = {"results": [MEMORY], "history": HISTORY}
    if not is_beside:
        document = {"results": [{**MEMORY, "history": HISTORY}]}
    first, second = list_events(read(tmp_path, document))
    assert [event["content"] for event in (first, second)] == [
        "Moors at pier A.", "Moors at pier B.",
    ]  # fmt: skip
    assert first["source_event_key"] == "mem0:5a4c:h1"
    assert first["occurred_at"] == "2024-07-20T08:30:36+00:00"
    assert second["occurred_at"] == "2024-08-01T00:00:00+00:00"
    note = second["metadata"]["mem0"]
    assert (note["event"], note["is_change"]) == ("UPDATE", True)
    assert note["created_at"] == "2024-07-20T08:30:36.275141+00:00"
    changed = {**MEMORY, "memory": "Moors at pier C.", "updated_at": "2024-09-01T00:00:00Z"}
    events = list_events(read(tmp_path, {"results": [changed], "history": HISTORY}))
    assert [event["content"][-2] for event in events] == ["A", "B", "C"]
    assert events[-1]["occurred_at"] == "2024-09-01T00:00:00+00:00"


def test_import_mem0_memory_without_user_is_of_option(tmp_path: Path) -> None:
    memory = {"id": "b", "memory": "x", "expiration_date": "2030-01-01T00:00:00"}
    (event,) = list_events(read(tmp_path, [memory]))
    assert event["participants"] == ["user:ann"]
    assert "occurred_at" not in event
    assert "session_id" not in event
    assert event["metadata"]["mem0"]["expiration_date"] == "2030-01-01"
    (item,) = read(tmp_path, {"results": []})
    assert item == LeftOutItem("empty lists of memories")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": 5}, "id: it is no text"),
        ({"memory": None}, "memory: it is no text"),
        ({"memory": "  "}, "memory: it is no text"),
        ({"created_at": "yesterday"}, "created_at: it is no time: 'yesterday'"),
        ({"updated_at": 7}, "updated_at: it is no time: '7'"),
        ({"user_id": ["a"]}, "user_id: it is no text"),
        ({"user_id": "a b"}, "user_id: it has white space: 'a b'"),
        ({"metadata": "x"}, "metadata: it is no object"),
        ({"expiration_date": "soon"}, "expiration_date: it is no day as YYYY-MM-DD"),
        ({"history": "x"}, "history: it is no list"),
        ({"history": [{**HISTORY[0], "event": "X"}]},
         "history[0].event: it is none of ADD, UPDATE, DELETE"),
        ({"history": [HISTORY[0], {**HISTORY[1], "new_memory": 1}]},
         "history[1].new_memory: it is no text"),
        ({"history": [{**HISTORY[0], "created_at": "x"}]},
         "history[0].created_at: it is no time: 'x'"),
        ({"history": [{"event": "ADD"}]}, "history[0].id: it is no text"),
    ],
)  # fmt: skip
def test_import_mem0_refuses_by_line_and_field(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    """A memory that cannot be read costs itself alone."""
    lines = "\n".join(map(json.dumps, (MEMORY, {**MEMORY, **change}, {**MEMORY, "id": "c"})))
    items = read(tmp_path, lines, "a.jsonl")
    assert [type(item) for item in items] == [RefusedItem, NewEvent, NewEvent]
    assert isinstance(items[0], RefusedItem)
    assert items[0].reason == reason
    assert items[0].place.startswith("a.jsonl, line 2")
    (item,) = read(tmp_path, {"results": {"id": 1}})
    assert item == RefusedItem("mem0.json, entry 0", "results is no list")


def test_import_mem0_counts_relations_that_it_leaves_out(tmp_path: Path) -> None:
    relation = {"source": "ann", "relationship": "owns", "target": "petrel"}
    items = read(tmp_path, {"results": [MEMORY], "relations": [relation] * 2})
    assert [type(item) for item in items] == [LeftOutItem, NewEvent]
    assert items[0] == LeftOutItem("relations of mem0's graph", 2)
