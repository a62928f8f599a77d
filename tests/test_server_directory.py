"""The tests' server is in memory where there is plenty, and leaves nothing there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import server_directory
from tests.server_directory import ROOM, has_room, make_server_directory


def patch_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """A file system has so many bytes left."""

    def usage(place: object) -> SimpleNamespace:
        return SimpleNamespace(place=place, free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)


def test_server_directory_is_in_memory_if_plenty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    assert not has_room(tmp_path, meminfo), "nobody tells"
    for size, expected in ((2**60, True), (ROOM - 2**20, False)):
        meminfo.write_text(f"MemTotal:  1 kB\nMemAvailable:   {size // 1024} kB\n")
        for free in (2**60, ROOM - 1):
            patch_free(monkeypatch, free)
            assert has_room(tmp_path, meminfo) is (expected and free >= ROOM)
    assert not has_room(tmp_path / "none", meminfo)


def test_server_directory_of_killed_process_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_directory, "MEMORY", tmp_path)
    process = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    rest, in_use = (tmp_path / f"strandline-test-{pid}-x" for pid in (process, os.getpid()))
    for directory in (rest, in_use):
        (directory / "pgdata").mkdir(parents=True)
    with make_server_directory() as directory:
        assert not rest.exists()
        assert in_use.exists()
        (directory / "pgdata").mkdir()
    assert not directory.exists()
