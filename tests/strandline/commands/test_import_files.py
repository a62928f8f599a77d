"""Files, folders and archives of any size and any content, of which a piece at a time is read."""

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.commands.imports import files
from strandline.commands.imports.files import MAX_MEMBERS
from strandline.commands.imports.items import (
    ImportOptions,
    Item,
    NewEvent,
    RefusedItem,
    SkippedFile,
)
from strandline.commands.imports.json_pieces import (
    open_as_decoded_text,
    split_json_lines,
    split_json_values,
)
from strandline.commands.imports.reading import read_import_items

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)
LINE = json.dumps({"participants": ["user:ann"], "role": "user", "content": "x"})


def read(*paths: Path) -> list[Item]:
    return [*read_import_items(paths, ImportOptions())]


def refusals(items: list[Item]) -> list[str]:
    return [f"{item.place}: {item.reason}" for item in items if isinstance(item, RefusedItem)]


def count_events(items: list[Item]) -> int:
    return sum(isinstance(item, NewEvent) for item in items)


def conversation(name: str, text: str = "hello") -> dict[str, Any]:
    message = {
        "author": {"role": "user"},
        "content": {"content_type": "text", "parts": [text]},
        "create_time": 1.7e9,
    }
    return {"title": name, "id": name, "mapping": {f"{name}-1": {"message": message}}}


@given(values=st.lists(JSON), size=st.integers(1, 9), indent=st.none() | st.integers(0, 2))
def test_import_file_splits_json_array(values: list[Any], size: int, indent: int | None) -> None:
    """Read in chunks of a few characters, so that a string or an escape is cut anywhere."""
    document = json.dumps(values, indent=indent, ensure_ascii=size % 2 == 0)
    document = document.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    pieces = [*split_json_values(io.StringIO(document), chunk_chars=size)]
    found = [json.loads(piece.text or "") for piece in pieces]
    assert found == json.loads(document)
    assert [piece.place for piece in pieces] == [f"entry {n}" for n in range(len(values))]


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ('{"a": 1}\n{"b": [2]}', ['{"a": 1}', '{"b": [2]}']),
        ('{"a": "}"}{"b": 2}', ['{"a": "}"}', '{"b": 2}']),
        ('[{"a": 1}, nonsense, {"b": 2}]', ['{"a": 1}', "nonsense", '{"b": 2}']),
        ('[{"a": 1,}, {"b": 2}]', ['{"a": 1,}', '{"b": 2}']),
        ('[{"a": 1}, {"b": ', ['{"a": 1}', '{"b":']),
        ('[{"a": 1}] [2]', ['{"a": 1}', "2"]),
        ("[[1, 2], [3]]", ["[1, 2]", "[3]"]),
        ("]}][", ["]}]["]),
        ("7", ["7"]),
        ("", []),
        (" [ ] ", []),
    ],
)
def test_import_file_splits_malformed_document(document: str, texts: list[str]) -> None:
    assert [
        (piece.text or "").strip() for piece in split_json_values(io.StringIO(document))
    ] == texts


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_import_file_detects_encoding_by_first_bytes(encoding: str) -> None:
    text = '[{"a": "Tromsø"}]'
    (piece,) = split_json_values(open_as_decoded_text(io.BytesIO(text.encode(encoding))))
    assert json.loads(piece.text or "") == {"a": "Tromsø"}


def test_import_file_replaces_and_names_invalid_utf8(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"content": "caf\xe9 \xf0\x9f"}\n' + LINE.encode())
    items = read(file)
    assert count_events(items) == 2
    assert "a.jsonl, line 1: content: 3 characters became U+FFFD" in str(items)


def test_import_file_refuses_oversized_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not held in memory while its end is looked for."""
    monkeypatch.setattr(split_json_values, "__defaults__", (100_000, 65_536))
    monkeypatch.setattr(split_json_lines, "__defaults__", (100_000,))
    big = conversation("big", "\u00e4" * 8_000_000)
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation("a"), big, conversation("b")], ensure_ascii=False))
    del big
    tracemalloc.start()
    items = read(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count_events(items) == 2
    assert refusals(items) == ["conversations.json, entry 1 “big”: it is over 64 MiB"]
    assert peak < 4_000_000
    lines = tmp_path / "a.jsonl"
    lines.write_text(f'{LINE}\n{{"content": "{"x" * 200_000}"}}\n{LINE}')
    items = read(lines)
    assert (count_events(items), refusals(items)) == (2, ["a.jsonl, line 2: it is over 64 MiB"])


def write_archive(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return path


def add_member(path: Path, name: str, text: str, mode: int = 0o100644, flags: int = 0) -> None:
    member = zipfile.ZipInfo(name)
    member.external_attr = mode << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, text)
        member.flag_bits |= flags


def test_import_archive_refuses_unsafe_members(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "e.zip", conversations_dot_json=json.dumps([conversation("a")]))
    text = json.dumps([conversation("b")])
    add_member(path, "../conversations.json", text)
    add_member(path, "a/../../b.json", text)
    add_member(path, "/etc/c.json", text)
    add_member(path, "C:\\d.json", text)
    add_member(path, "link.json", "conversations.json", 0o120777)
    add_member(path, "inner.zip", "PK")
    add_member(path, "locked.json", text, flags=1)
    add_member(path, "bomb.json", " " * 1_000_000)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json.json", " " * 1_000_000)
    items = read(path)
    assert count_events(items) == 1
    text = "\n".join(refusals(items))
    assert text.count("its name leads out of the archive") == 4
    for reason in ("it is a link", "within the archive", "it is encrypted", "packed more than 100"):
        assert text.count(reason) == 1, (reason, text)


def test_import_archive_over_limit_is_refused_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tmp_path / "many.zip"
    with zipfile.ZipFile(many, "w") as archive:
        for number in range(11):
            archive.writestr(f"{number}.json", "[]")
    monkeypatch.setattr(files, "MAX_MEMBERS", 10)
    assert MAX_MEMBERS == 10_000
    assert refusals(read(many)) == ["many.zip: it has more than 10 members"]
    bomb = write_archive(tmp_path / "bomb.zip", a_dot_json=" " * 10_000_000)
    assert refusals(read(bomb)) == ["bomb.zip: it is packed more than 100 to 1"]
    monkeypatch.setattr(files, "MAX_TOTAL_BYTES", 10)
    large = write_archive(tmp_path / "large.zip", a_dot_json=json.dumps([conversation("a")]))
    assert "more than 10" in refusals(read(large))[0]


def test_import_archive_broken_is_named(tmp_path: Path) -> None:
    path = write_archive(
        tmp_path / "e.zip",
        a_dot_json=json.dumps([conversation("a")]),
        b_dot_json=json.dumps([conversation("b")]),
    )
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "e.zip: it breaks off" in refusals(read(path))[0]
    place = whole.index(b"a.json") + len(b"a.json")
    path.write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
    items = read(path)
    assert count_events(items) == 1
    assert refusals(items)[0].startswith("a.json: it cannot be read to its end")
    for number in range(0, len(whole), 7):
        path.write_bytes(whole[:number] + bytes([whole[number] ^ 0xFF]) + whole[number + 1 :])
        read(path)


def test_import_archive_unreadable_member_fails_alone(tmp_path: Path) -> None:
    text = json.dumps([conversation("b")])
    for number, (name, method) in enumerate(
        [(".", 0), ("lz.json", zipfile.ZIP_LZMA), ("\u00e9.json", 0)]
    ):
        path = write_archive(tmp_path / f"{number}.zip", a_dot_json=json.dumps([conversation("a")]))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, text, method)
        data = path.read_bytes().replace("\u00e9".encode(), b"\xff\xff", 1)
        path.write_bytes(data)
        items = read(path)
        assert (count_events(items), len(refusals(items))) == (1, 1), (name, items)
    assert "by a method other than deflate and bzip2" in refusals(read(tmp_path / "1.zip"))[0]


def test_import_file_skips_macos_metadata(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "e.zip", conversations_dot_json=json.dumps([conversation("a")]))
    add_member(path, "__MACOSX/._conversations.json", "\0\x05\x16\x07")
    (tmp_path / "._a.jsonl").write_text("\0\x05\x16\x07")
    items = read(tmp_path)
    assert (count_events(items), refusals(items)) == (1, [])
    assert [item.name for item in items if isinstance(item, SkippedFile)] == [
        "._a.jsonl",
        "__MACOSX/._conversations.json",
    ]


def test_import_file_unopenable_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.json").write_text(json.dumps([conversation(name)]))
    is_archive, scan = files.is_zip_archive, os.scandir

    def refuse(path: Path) -> bool:
        if path.parent.name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        return is_archive(path)

    def refuse_to_scan(path: str) -> Any:
        if path.endswith("b"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(files, "is_zip_archive", refuse)
    monkeypatch.setattr(os, "scandir", refuse_to_scan)
    items = read(tmp_path)
    assert count_events(items) == 1
    assert [text.split(":")[0] for text in refusals(items)] == ["a/x.json", "b"]


def test_import_file_skips_pipe_in_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps([conversation("b")]))
    items = read(tmp_path)
    assert count_events(items) == 1
    assert SkippedFile("a.json", "it is a pipe; name it itself to read it") in items


def test_import_file_refuses_duplicate_json_name(tmp_path: Path) -> None:
    """Of its two values one would be lost."""
    (tmp_path / "a.jsonl").write_text(LINE + "\n" + LINE[:-1] + ', "content": "y"}\n')
    text = json.dumps([conversation("a"), conversation("b")])
    (tmp_path / "b.json").write_text(text.replace('{"a-1": {', '{"a-1": {}, "a-1": {'))
    items = read(tmp_path)
    assert count_events(items) == 2
    reason = "occurs twice in one object)"
    assert refusals(items) == [
        f"a.jsonl, line 2: it is not JSON (the name “content” {reason}",
        f"b.json, entry 0 “a”: it is not JSON (the name “a-1” {reason}",
    ]


def test_import_file_follows_no_links_or_devices(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "c.json").write_text(json.dumps([conversation("a")]))
    (folder / "up").symlink_to(tmp_path)
    (folder / "link.json").symlink_to("sub/c.json")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    items = read(folder, tmp_path / "zero.jsonl")
    assert count_events(items) == 1
    assert [item.name for item in items if isinstance(item, SkippedFile)] == ["link.json"]
    assert refusals(items) == ["zero.jsonl: it is a device, not a file"]


def test_import_file_memory_does_not_grow_with_size(tmp_path: Path, repository: Path) -> None:
    """Of a process that only reads: 12 MB take as much as 1.5 MB."""
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from strandline.commands.imports.items import ImportOptions\n"
        "from strandline.commands.imports.reading import read_import_items\n"
        "count = sum(1 for _ in read_import_items([Path(sys.argv[1])], ImportOptions()))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )

    def measure(count: int) -> int:
        file = tmp_path / f"{count}.json"
        file.write_text(json.dumps([conversation(str(n), "boats " * 500) for n in range(count)]))
        result = subprocess.run(
            [sys.executable, "-c", script, str(file)],
            env={"PYTHONPATH": str(repository / "shared"), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        found, peak = map(int, result.stdout.split())
        assert found == count
        return peak

    assert measure(4000) < measure(500) * 1.15
