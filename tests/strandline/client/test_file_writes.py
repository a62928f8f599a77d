"""A file that is written is there whole or not at all, and nothing else is touched."""

import os
import stat
import threading
from pathlib import Path

import pytest

from strandline.client.whole_files import open_atomic_draft


def write(target: Path, text: str) -> None:
    with open_atomic_draft(target) as draft:
        draft.write_text(text)


def test_file_write_is_private_or_keeps_mode(tmp_path: Path) -> None:
    for name in ("a.jsonl", "x" * 255):
        write(tmp_path / name, "1")
        assert (tmp_path / name).read_text() == "1"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    (tmp_path / "a.jsonl").chmod(0o640)
    write(tmp_path / "a.jsonl", "2")
    assert stat.S_IMODE((tmp_path / "a.jsonl").stat().st_mode) == 0o640
    assert len([*tmp_path.iterdir()]) == 2, "no draft is left"


def test_file_write_error_leaves_old_file(tmp_path: Path) -> None:
    write(tmp_path / "a", "was")
    with pytest.raises(FileNotFoundError), open_atomic_draft(tmp_path / "a") as draft:
        draft.with_name("none").replace(draft)
    assert ((tmp_path / "a").read_text(), len([*tmp_path.iterdir()])) == ("was", 1)


def test_file_write_drafts_do_not_mix(tmp_path: Path) -> None:
    with open_atomic_draft(tmp_path / "a") as first, open_atomic_draft(tmp_path / "a") as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a").read_text() == "first", "the last one to end"


def test_file_write_keeps_links_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts = list[str]()
    reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
    reader.start()
    write(pipe, "y")
    reader.join(10)
    assert texts == ["y"]
    assert pipe.is_fifo()


def test_file_write_says_what_is_wrong_with_folder(tmp_path: Path) -> None:
    write(tmp_path / "file", "was")
    for name in ("file/a", "file/folder/a"):
        with pytest.raises(NotADirectoryError) as error:
            write(tmp_path / name, "x")
        assert str(error.value.strerror) == f"{tmp_path / 'file'} is no folder"
        assert error.value.filename == str(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="Its folder does not exist"):
        write(tmp_path / "none/a", "x")
    assert (tmp_path / "file").read_text() == "was"
