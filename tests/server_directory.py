"""Where the server of the tests keeps its files: in memory, if there is plenty of it. On a disk its
clones of databases, commits and checkpoints cost a third more processor time."""

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it
ROOM = 8 * 2**30
"""Bytes of free memory without which files go to the disk. A server takes some hundred MB."""
_PREFIX = "strandline-test-"


@contextmanager
def make_server_directory() -> Generator[Path]:
    """A directory for a server that loses nothing of worth, removed at the end. What a process that
    was killed left in memory is removed, too."""
    for old in MEMORY.glob(f"{_PREFIX}*"):
        process = old.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(old, ignore_errors=True)
    # Root's server runs as nobody, who must be able to enter: pytest's own folders are closed.
    directory = Path(
        tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=MEMORY if has_room() else None)
    )
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def has_room(memory: Path = MEMORY, meminfo: Path = Path("/proc/meminfo")) -> bool:
    """Whether so much memory is free, and may hold files. Only Linux tells."""
    if not (memory.is_dir() and os.access(memory, os.W_OK) and meminfo.exists()):
        return False
    available = re.search(r"^MemAvailable: +(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    free = shutil.disk_usage(memory).free
    return available is not None and min(int(available[1]) * 1024, free) >= ROOM


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True
