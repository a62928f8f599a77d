"""One server per directory: a lock that lives as long as any process of the server."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from strandline.local import postgres_guard
from strandline.local.postgres_installation import PostgresUnusable, ServerAccount

# The guard itself gives a server 30 s to stop, by ever harder signals.
STOP_SECONDS = 35.0
PROCESSES = Path("/proc")
_RECORD_BYTES = 64


def acquire_directory_lock(directory: Path) -> int:
    """Lock `directory`, after ending what a killed guard left behind. Returns the lock's file
    descriptor.

    A process that inherits the descriptor holds the lock too. Raises PostgresUnusable when a live
    process runs a server there.
    """
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + STOP_SECONDS
    while not _try_exclusive_lock(lock):
        owner, guard = _read_lock_holders(lock)
        is_stopping = guard is not None and not (
            _is_process_alive(owner) and _is_process_alive(guard)
        )
        if not is_stopping or time.monotonic() > deadline:
            os.close(lock)
            raise PostgresUnusable(
                f"{directory} is in use by a server of process {owner or 'unknown'}: stop that "
                "one, or choose another directory."
            )
        if not _is_process_alive(guard):
            kill_server_processes(directory / "pgdata")
        time.sleep(0.02)
    _write_lock_holders(lock, b"")
    return lock


def launch_under_guard(
    lock: int, account: ServerAccount | None, command: Sequence[object], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program under a guard that ends it when this process ends; both hold the lock.

    The guard writes the program's process id to its stdout, and stops it for a byte on its stdin.
    """
    identity = (-1, -1) if account is None else (account.uid, account.gid)
    arguments = map(str, (os.getpid(), *identity, lock, *command))
    guard = subprocess.Popen(  # noqa: S603 - this package's own script
        [sys.executable, "-I", "-S", postgres_guard.__file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        pass_fds=(lock,),
        cwd="/",
        # a terminal's Ctrl-C must reach only this process, which stops the program
        start_new_session=True,
    )
    try:
        # A start that finds the lock taken uses this to distinguish a live server from a dying one.
        _write_lock_holders(lock, f"{os.getpid()} {guard.pid}".encode())
    except OSError:
        guard.communicate(b"\n")
        raise
    return guard


def _write_lock_holders(lock: int, holders: bytes) -> None:
    """Write the holders in place, at a fixed length: on a full disk the file cannot grow."""
    os.pwrite(lock, holders.ljust(_RECORD_BYTES - 1) + b"\n", 0)


def kill_until_lock_is_free(directory: Path) -> None:
    """Wait until no process of the server is left. Raises TimeoutError."""
    deadline = time.monotonic() + STOP_SECONDS
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        while not _try_exclusive_lock(lock):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of the server in {directory} do not end")
            kill_server_processes(directory / "pgdata")
            time.sleep(0.005)
    finally:
        os.close(lock)


def kill_server_processes(data: Path) -> None:
    """SIGKILL every process of the server whose data directory is `data`."""
    for pid in list_server_processes(data):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def list_server_processes(data: Path) -> list[int]:
    """The server's processes, found by their working directory, the data directory; orphans too."""
    if not (PROCESSES / "self").exists():
        return _list_process_tree(data)
    pids: list[int] = []
    for entry in PROCESSES.iterdir():
        # A process may end meanwhile, and other users' processes cannot be inspected.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if (
                entry.name.isdigit()
                and (entry / "comm").read_text() == "postgres\n"
                and (entry / "cwd").readlink() == data
            ):
                pids.append(int(entry.name))
    return pids


def _list_process_tree(data: Path) -> list[int]:
    """Without /proc: the recorded server and its children. Orphans end by themselves there."""
    try:
        server = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except FileNotFoundError:
        return []
    command = ["ps", "-A", "-o", "pid=,ppid=,comm="]
    result = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    rows = (line.split(None, 2) for line in result.stdout.splitlines())
    # Compare the name too: another program may have the recorded process id by now.
    processes = ((int(pid), int(parent)) for pid, parent, name in rows if "postgres" in name)
    return [pid for pid, parent in processes if server in (pid, parent)]


def _try_exclusive_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_lock_holders(lock: int) -> tuple[int | None, int | None]:
    """Owner and guard as recorded; None while a start is under way."""
    fields = os.pread(lock, _RECORD_BYTES, 0).split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 else (None, None)


def _is_process_alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
