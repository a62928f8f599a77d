"""Files of conversations become events with their order, their times and keys that stay."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.commands.import_formats import (
    DefaultParticipants,
    UnreadableFile,
    parse_locomo_time,
    read_events,
)

PEOPLE = DefaultParticipants("alice", "helper")


def write(tmp_path: Path, name: str, content: Any) -> Path:
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return file


def chatgpt_node(
    name: str, parent: str | None, role: str, text: object, at: float | None
) -> dict[str, Any]:
    message = {
        "id": f"m-{name}",
        "author": {"role": role},
        "content": {"content_type": "text", "parts": [text]},
        "create_time": at,
    }
    return {"id": name, "parent": parent, "children": [], "message": message}


def chatgpt(count: int = 0) -> dict[str, Any]:
    """A conversation whose second question was edited: the first one lies on another branch."""
    nodes = [
        {"id": "root", "parent": None, "children": ["s"], "message": None},
        chatgpt_node("s", "root", "system", "", None),
        chatgpt_node("q1", "s", "user", "Is the Petrel free?", 1_714_000_000.5),
        chatgpt_node("a1", "q1", "assistant", "On which day?", 1_714_000_010),
        chatgpt_node("old", "a1", "user", "Thursday", 1_714_000_020),
        chatgpt_node("q2", "a1", "user", "Friday", 1_714_000_030),
        chatgpt_node("t", "q2", "tool", '{"free": true}', 1_714_000_031),
        chatgpt_node("img", "t", "assistant", {"asset_pointer": "file"}, 1_714_000_032),
        chatgpt_node("a2", "img", "assistant", "Yes.", None),
    ]
    last = "a2"
    for n in range(count):
        nodes.append(chatgpt_node(f"n{n}", last, "user", f"more {n}", 1_714_000_100 + n))
        last = f"n{n}"
    return {
        "title": "Boats",
        "conversation_id": "c-1",
        "current_node": last,
        "mapping": {node["id"]: node for node in nodes},
    }


def test_chatgpt_s_last_branch(tmp_path: Path) -> None:
    events = [*read_events(write(tmp_path, "conversations.json", [chatgpt()]), PEOPLE)]
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
    assert "occurred_at" not in events[-1]
    no_leaf = {name: value for name, value in chatgpt().items() if name != "current_node"}
    newest = [*read_events(write(tmp_path, "c.json", no_leaf), PEOPLE)]
    assert newest[-1]["content"] == '{"free": true}', "up from the newest node"


def test_claude(tmp_path: Path) -> None:
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
    events = [*read_events(file, PEOPLE)]
    assert [(e["role"], e["content"], e["occurred_at"]) for e in events] == [
        ("user", "Hello.", "2026-05-08T13:56:00Z"),
        ("agent", "Good day.", "2026-05-08T13:56:09Z"),
    ]
    assert events[1]["source_event_key"] == "claude:c:2"


def test_locomo(tmp_path: Path) -> None:
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "Later."}],
        "session_10_date_time": "12:05 am on 1 June, 2023",
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "First."}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
    }
    sample: dict[str, Any] = {"sample_id": "conv-1", "conversation": conversation, "qa": []}
    events = [*read_events(write(tmp_path, "locomo.json", [sample]), PEOPLE)]
    assert [e["content"] for e in events] == ["First.", "Later."], "sessions in order of number"
    assert events[0]["participants"] == ["user:Ann", "user:Bo"]
    assert events[0]["speaker"] == "user:Ann"
    assert events[0]["occurred_at"] == "2023-05-08T13:56:00+00:00"
    assert parse_locomo_time("12:05 am on 1 June, 2023").hour == 0


def test_lines_keep_their_keys_or_get_one(tmp_path: Path) -> None:
    lines = '{"content": "a", "source_event_key": "k"}\n\n{"content": "b"}\n'
    events = [*read_events(write(tmp_path, "events.jsonl", lines), PEOPLE)]
    assert events == [
        {"content": "a", "source_event_key": "k"},
        {"content": "b", "channel": "import", "source_event_key": "events.jsonl:3"},
    ]


UNREADABLE: list[tuple[str, Any, str]] = [
    ("x.json", "{", "not JSON"),
    ("x.json", "[1]", "entry 0 is no conversation"),
    (
        "x.json",
        [{"chat_messages": []}, {"chat_messages": [{"text": "x"}]}],
        "entry 1 cannot be read",
    ),
    ("x.json", [{"mapping": {}, "conversation_id": "c", "current_node": "gone"}], "KeyError"),
    ("x.jsonl", '{"a": 1}\n{', "line 2 is not JSON"),
    ("x.jsonl", "[]", "line 1 is no object"),
]


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: Any, message: str
) -> None:
    with pytest.raises(UnreadableFile, match=message):
        list(read_events(write(tmp_path, name, content), PEOPLE))
