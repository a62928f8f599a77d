"""Conversations and memories are stored in the order in which they happened: exports begin with the
newest, and the log's latest events are those that were stored last."""

import json
import re
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline.commands.imports.items import ImportOptions, NewEvent
from strandline.commands.imports.reading import read_import_items
from strandline.moments import parse_moment


def read_texts(folder: Path) -> list[str]:
    items = read_import_items([folder], ImportOptions())
    return [item.event["content"] for item in items if isinstance(item, NewEvent)]


def write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), "utf-8")


def chatgpt(name: str, *turns: tuple[str, float | None]) -> dict[str, Any]:
    """A conversation of one branch; a turn is what was said, and when."""
    mapping, parent = dict[str, Any](), None
    for text, time in turns:
        content = {"content_type": "text", "parts": [text]}
        message = {"author": {"role": "user"}, "content": content, "create_time": time}
        mapping[text] = {"id": text, "parent": parent, "message": message}
        parent = text
    return {"title": name, "id": name, "mapping": mapping, "current_node": parent}


def test_import_order_is_that_of_time_across_files(tmp_path: Path) -> None:
    newest, oldest = chatgpt("c", ("c1", 500.0)), chatgpt("a", ("a1", 100.0), ("a2", 900.0))
    write(tmp_path / "conversations-000.json", [newest, chatgpt("b", ("b1", 300.0))])
    write(tmp_path / "conversations-001.json", [oldest])
    time = "1970-01-01T01:03:20.5+01:00"
    claude = {"uuid": "m1", "sender": "human", "text": "d1", "created_at": time}
    write(tmp_path / "zz.json", [{"uuid": "d", "name": "d", "chat_messages": [claude]}])
    assert read_texts(tmp_path) == ["a1", "d1", "b1", "c1", "a2"]


def test_import_order_within_conversation_stands(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [chatgpt("b", ("b1", 300.0), ("b2", 200.0), ("b3", None))])
    write(tmp_path / "b.json", [chatgpt("a", ("a1", 250.0)), chatgpt("c", ("c1", 400.0))])
    assert read_texts(tmp_path) == ["a1", "b1", "b2", "b3", "c1"]


def test_import_order_of_memories_is_that_of_time(tmp_path: Path) -> None:
    """A memory without a time gets that of its storing, and so is the latest."""
    times = ["2025-03-01T10:00:00+02:00", None, "2025-03-01T09:00:00+00:00", "2024-01-01T00:00:00Z"]
    memories = [{"id": f"m{n}", "memory": f"m{n}", "created_at": t} for n, t in enumerate(times)]
    write(tmp_path / "memories.json", {"results": memories})
    assert read_texts(tmp_path) == ["m3", "m0", "m2", "m1"]


def test_import_order_of_lines_is_that_of_the_file(tmp_path: Path) -> None:
    event = {"participants": ["user:ann"], "role": "user"}
    lines = [{**event, "content": f"{n}", "occurred_at": 9 - n} for n in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert read_texts(tmp_path) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("buffering", [0, 100])
@pytest.mark.parametrize("length", [1, 100_000])
def test_import_order_without_room_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, buffering: int
) -> None:
    """Also where the file is closed with texts that it could not write."""
    write(tmp_path / "a.json", [chatgpt("b", ("b" * length, 300.0))])
    open_full = partial(open, "/dev/full", "r+b", buffering)
    monkeypatch.setattr(tempfile, "TemporaryFile", open_full)
    with pytest.raises(OSError, match="Set TMPDIR to a directory that has room"):
        read_texts(tmp_path)


@pytest.mark.parametrize(
    "time", ["2025-03-01T10:00:00+0200", "2025-03-01 10:00:00.12 +02:00", "2025-03-01t10:00:00z"]
)
def test_import_order_takes_times_that_older_pythons_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: str
) -> None:
    def parse(value: str) -> datetime:
        assert re.fullmatch(r"\S{19}\.\d{6}[+-]\d\d:\d\d", value), "of Python 3.10"
        return parse_moment(value)

    monkeypatch.setattr("strandline.commands.imports.items.parse_moment", parse)
    late = {"uuid": "m", "sender": "human", "text": "late", "created_at": time}
    early = {**late, "text": "early", "created_at": "2025-03-01T07:00:00.5Z"}
    conversations = [
        {"uuid": name, "name": name, "chat_messages": [message]}
        for name, message in (("late", late), ("early", early))
    ]
    write(tmp_path / "claude.json", conversations)
    write(tmp_path / "memories.json", {"results": [{"id": "m", "memory": "m", "created_at": time}]})
    assert read_texts(tmp_path) == ["early", "late", "m"]
