"""Files that import does not know: each is refused once, and its refusal names the way out."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from strandline.commands.imports.items import (
    ImportOptions,
    Item,
    NewEvent,
    RefusedItem,
    SkippedFile,
)
from strandline.commands.imports.reading import WAY_OUT, read_import_items

EVENT = {"participants": ["user:ann"], "role": "user", "content": "x"}


def read(*paths: Path) -> list[Item]:
    return [*read_import_items(paths, ImportOptions())]


def write(file: Path, text: str) -> Path:
    file.write_text(text, "utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("people.csv", "id,person,text\n" + '7,ann,"Hello, [you]"\n' * 1000),
        ("chat.txt", "[12/05/24, 10:00:01] Ann: Hello\n" * 1000),
        ("mail.mbox", "From ann@x.org Mon May  6\nSubject: a, b\n\n<p>Hello</p>\n" * 1000),
        ("chat.jsonl", "[12/05/24, 10:00:01] Ann: Hello\nBo: No.\n" * 1000),
    ],
)
def test_import_file_without_json_is_refused_once(tmp_path: Path, name: str, text: str) -> None:
    assert read(write(tmp_path / name, text)) == [RefusedItem(name, f"it is not JSON. {WAY_OUT}")]


def test_import_file_that_is_packed_is_to_be_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(b"\x1f\x8b\x08\0, [,\xff]\n" * 1000)
    reason = "it is not JSON. Unpack it, and import what is in it."
    assert read(packed) == [RefusedItem("a.jsonl.gz", reason)]


def test_import_file_with_text_between_events_names_each_line(tmp_path: Path) -> None:
    lines = "# begin\n" + f"{json.dumps(EVENT)}\nnonsense\n" * 150
    items = read(write(tmp_path / "a.jsonl", lines))
    assert sum(isinstance(item, NewEvent) for item in items) == 150
    refusals = [item for item in items if isinstance(item, RefusedItem)]
    assert [item.place for item in refusals[:2]] == ["a.jsonl, line 1", "a.jsonl, line 3"]
    assert sum(item.count for item in refusals) == 151
    assert len(refusals) == 101
    items = read(write(tmp_path / "b.json", '[{"a": 1}, nonsense]'))
    assert [i.place for i in items if isinstance(i, RefusedItem)] == [
        "b.json, entry 1",
        "b.json, entry 0",
    ]


@pytest.mark.parametrize("value", [[EVENT, EVENT], EVENT, {"messages": [{"text": "x"}]}, []])
def test_import_file_of_another_shape_names_way_out(tmp_path: Path, value: object) -> None:
    """In a folder or an archive it is skipped."""
    file = write(tmp_path / "people.json", json.dumps(value))
    (refusal,) = read(file)
    assert isinstance(refusal, RefusedItem)
    assert refusal.place == "people.json"
    assert refusal.reason.startswith("it holds no conversation of ChatGPT")
    assert refusal.reason.endswith(WAY_OUT)
    skipped = SkippedFile("people.json", "it holds no conversation")
    assert read(tmp_path) == [skipped]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(file, "people.json")
    assert read(tmp_path / "a.zip") == [skipped]


def test_import_file_of_another_shape_becomes_events_by_recipe(
    tmp_path: Path, repository: Path
) -> None:
    """The code of the documentation's section that refusals name, and the example in them."""
    section = re.search(r"docs/commands\.md, “(.+?)”", WAY_OUT)
    example = re.search(r"\{.*\}", WAY_OUT)
    assert section
    assert example
    (item,) = read(write(tmp_path / "example.jsonl", example[0]))
    assert isinstance(item, NewEvent)
    page = (repository / "docs" / "commands.md").read_text("utf-8")
    _, _, text = page.partition(f"### {section[1]}\n")
    code = text.partition("```python\n")[2].partition("```")[0]
    write(tmp_path / "messages.csv", "person,time,text\nann,2026-05-08T13:56:00Z,Tromsø\n")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    (item,) = read(tmp_path / "messages.jsonl")
    assert isinstance(item, NewEvent)
    expected = {
        "participants": ["user:ann", "agent:helper"],
        "role": "user",
        "content": "Tromsø",
        "occurred_at": "2026-05-08T13:56:00Z",
    }
    assert {name: item.event[name] for name in expected} == expected
