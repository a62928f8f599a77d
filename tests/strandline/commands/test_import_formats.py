"""Files of conversations become events with their order, their times and keys that stay."""

import json
import math
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
    iso_time_to_rfc3339,
)
from strandline.commands.imports.locomo import parse_locomo_time
from strandline.commands.imports.reading import read_import_items
from tests.strandline.commands.chatgpt_files import chatgpt, chatgpt_node

PEOPLE = ImportOptions("alice", "helper")


def read_items(*paths: Path, options: ImportOptions = PEOPLE) -> list[Item]:
    return [*read_import_items(paths, options)]


def read_events(*paths: Path, options: ImportOptions = PEOPLE) -> list[Event]:
    return [i.event for i in read_items(*paths, options=options) if isinstance(i, NewEvent)]


def write(tmp_path: Path, name: str, content: Any) -> Path:
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return file


def test_import_chatgpt_reads_last_branch(tmp_path: Path) -> None:
    events = read_events(write(tmp_path, "conversations.json", [chatgpt()]))
    assert [(e["role"], e["content"], e.get("type")) for e in events] == [
        ("user", "Is the Petrel free?", None),
        ("agent", "On which day?", None),
        ("user", "Friday", None),
        ("agent", '{"free": true}', "observation"),
        ("agent", "Yes.", None),
    ]
    assert events[0] | {"content": ""} == {
        "participants": ["user:alice", "agent:helper"],
        "channel": "import",
        "source_event_key": "chatgpt:c-1:m-q1",
        "session_id": "chatgpt-c-1",
        "role": "user",
        "content": "",
        "occurred_at": "2024-04-24T23:06:40.500000+00:00",
    }
    assert events[-1]["occurred_at"] == "2024-04-24T23:07:12+00:00", "as the message before it"
    no_leaf = {name: value for name, value in chatgpt().items() if name != "current_node"}
    newest = read_events(write(tmp_path, "c.json", no_leaf))
    assert newest[-1]["content"] == "Yes.", "the branch with the newest time"


def test_import_claude_reads_messages(tmp_path: Path) -> None:
    messages = [
        {"uuid": "1", "sender": "human", "text": "Hello.", "created_at": "2026-05-08T13:56:00Z"},
        {
            "uuid": "2",
            "sender": "assistant",
            "text": "",
            "content": [{"type": "text", "text": "Good day."}, {"type": "tool_use"}],
            "created_at": "2026-05-08T13:56:09Z",
        },
        {"uuid": "3", "sender": "human", "text": " ", "created_at": "2026-05-08T13:57:00Z"},
    ]
    file = write(tmp_path, "conversations.json", [{"uuid": "c", "chat_messages": messages}])
    events = read_events(file)
    assert [(e["role"], e["content"], e["occurred_at"]) for e in events] == [
        ("user", "Hello.", "2026-05-08T13:56:00Z"),
        ("agent", "Good day.", "2026-05-08T13:56:09Z"),
    ]
    assert events[1]["source_event_key"] == "claude:c:2"


def test_import_locomo_reads_sessions_in_order(tmp_path: Path) -> None:
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "Later."}],
        "session_10_date_time": "12:05 am on 1 June, 2023",
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "First."}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
    }
    sample: dict[str, Any] = {"sample_id": "conv-1", "conversation": conversation, "qa": []}
    events = read_events(write(tmp_path, "locomo.json", [sample]))
    assert [e["content"] for e in events] == ["First.", "Later."], "sessions in order of number"
    assert events[0]["participants"] == ["user:Ann", "user:Bo"]
    assert events[0]["speaker"] == "user:Ann"
    assert events[0]["occurred_at"] == "2023-05-08T13:56:00+00:00"
    assert parse_locomo_time("12:05 am on 1 June, 2023").hour == 0


def test_import_lines_keep_or_get_event_keys(tmp_path: Path) -> None:
    lines = '{"content": "a", "source_event_key": "k"}\n\n{"content": "b"}\n'
    events = read_events(write(tmp_path, "events.jsonl", lines))
    assert events == [
        {"content": "a", "source_event_key": "k"},
        {"content": "b", "channel": "import", "source_event_key": "events.jsonl:3"},
    ]


def chatgpt_of(**nodes: Any) -> dict[str, Any]:
    return {"title": "T", "id": "c", "mapping": nodes}


A = chatgpt_node("a", None, "user", "hi", 1.7e9)
UNREADABLE: list[tuple[str, Any, int, str]] = [
    ("x.json", "{", 0, "entry 0: it is not JSON"),
    ("x.json", "", 0, "skipped"),
    ("x.json", "[1]", 0, "skipped"),
    (
        "x.json",
        [{"a": 1}, {"chat_messages": []}, 1],
        0,
        "entry 0 and 1 more: it is no conversation",
    ),
    ("x.json", [{"uuid": "u", "chat_messages": [{"text": "x"}]}], 0, "message 1: uuid or sender"),
    ("x.json", [{"uuid": "u", "chat_messages": [5, None, "x"]}], 0, "message 2: uuid or sender"),
    ("x.json", [{"uuid": {}, "chat_messages": [5]}], 0, "it has no uuid"),
    ("x.json", [{"mapping": [1, 2]}], 0, "empty conversations"),
    ("x.json", [chatgpt_of(a=A) | {"current_node": "gone"}], 1, "current_node names no message"),
    ("x.json", [chatgpt_of(a=A | {"parent": "zzz"})], 1, "message zzz, which another one follows"),
    ("x.json", [chatgpt_of(a=A | {"parent": "a"})], 1, "circle"),
    ("x.json", [chatgpt_of(a=A | {"parent": "b"}, b=A | {"parent": "a"})], 2, "circle"),
    ("x.json", [chatgpt_of(a=A | {"parent": {"x": 1}})], 1, ""),
    ("x.json", [chatgpt_of(a=5, b=A)], 1, ""),
    (
        "x.json",
        [{"conversation": {"speaker_a": "a", "session_1": None}}],
        0,
        "speaker_a or speaker_b",
    ),
    (
        "x.json",
        [{"conversation": {"speaker_a": "a", "speaker_b": "b", "session_1": [1]}}],
        0,
        "session 1: its time cannot be read",
    ),
    ("x.json", "[" * 300_000 + "]" * 300_000, 0, "it is not JSON"),
    ("x.jsonl", '{"a": 1}\n{\n{"a": 2}', 2, "line 2: it is not JSON"),
    ("x.jsonl", "[" * 300_000 + '\n{"a": 2}', 1, "line 1: it is not JSON"),
    ("x.jsonl", '{"a":' * 300_000 + '\n{"a": 2}', 1, "line 1: it is not JSON"),
    ("x.jsonl", '{"a":' + "9" * 5000 + "}", 0, "line 1: it is not JSON"),
    ("x.jsonl", "[]", 0, "line 1: it is no object"),
    ("x.jsonl", "\n\n", 0, "skipped"),
]


@pytest.mark.parametrize(
    ("name", "content", "count", "message"),
    UNREADABLE,
    ids=[str(n) for n in range(len(UNREADABLE))],
)
def test_import_unreadable_item_fails_alone(
    tmp_path: Path, name: str, content: Any, count: int, message: str
) -> None:
    items = read_items(write(tmp_path, name, content))
    assert sum(isinstance(item, NewEvent) for item in items) == count
    texts = [f"{i.place}: {i.reason}" if isinstance(i, RefusedItem) else str(i) for i in items]
    assert message.replace("skipped", "it holds no conversation") in "\n".join(texts)


@pytest.mark.parametrize("moment", [None, 0, -1, 1e30, math.nan, math.inf, True, "x", [], 1e13])
def test_import_invalid_time_takes_previous_time(tmp_path: Path, moment: Any) -> None:
    nodes = {"a": A, "b": chatgpt_node("b", "a", "assistant", "x", moment)}
    events = read_events(write(tmp_path, "c.json", json.dumps([chatgpt_of(**nodes)])))
    assert [e["occurred_at"] for e in events] == ["2023-11-14T22:13:20+00:00"] * 2
    messages = [
        {"uuid": "1", "sender": "human", "text": "a", "created_at": "2026-02-10T01:00:00Z"},
        {"uuid": "2", "sender": "human", "text": "b", "created_at": moment},
    ]
    file = write(tmp_path, "k.json", [{"uuid": "u", "chat_messages": messages}])
    assert [e["occurred_at"] for e in read_events(file)] == ["2026-02-10T01:00:00Z"] * 2


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-10T01:00:00.123456Z", "2026-02-10T01:00:00.123456Z"),
        ("2026-02-10 01:00:00", "2026-02-10T01:00:00+00:00"),
        ("2026-02-10T01:00:00.5", "2026-02-10T01:00:00.500000+00:00"),
        ("2026-02-10T01:00:00+0230", "2026-02-10T01:00:00+0230"),
        ("2026-02-10T01:00:00z", "2026-02-10T01:00:00z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:60Z"),
        ("2026-02-10T01:00:00+23:59", None),
        ("2026-02-30T01:00:00Z", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("1970-01-01T00:00:00Z", None),
    ],
)
def test_import_parses_times(text: str, moment: str | None) -> None:
    assert iso_time_to_rfc3339(text) == moment


def test_import_long_ids_stay_distinct(tmp_path: Path) -> None:
    conversations = [chatgpt_of(a=A) | {"id": "c" * 100_000 + end} for end in "xy"]
    events = read_events(write(tmp_path, "c.json", conversations))
    assert len({e["source_event_key"] for e in events}) == 2
    assert len({e["session_id"] for e in events}) == 2
    assert max(len(e["session_id"]) for e in events) == 128


def test_import_counts_every_message_once(tmp_path: Path) -> None:
    """Of a tree with two branches, each message is an event or left out."""
    items = read_items(write(tmp_path, "conversations.json", [chatgpt()]))
    left_out = {item.kind: item.count for item in items if isinstance(item, LeftOutItem)}
    assert left_out == {
        "system messages": 1,
        "empty messages": 1,
        "messages of other branches": 1,
    }
    assert not [item for item in items if isinstance(item, RefusedItem)]
    assert sum(left_out.values()) + 5 == 8
