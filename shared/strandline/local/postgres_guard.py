"""Runs a server as its child and stops it once the process that started the guard is gone.

Usage: python -I -S postgres_guard.py PARENT UID GID LOCK_FD COMMAND... (UID -1: keep the account).

The parent holds the other end of stdin: when it dies, however it dies, the guard reads an end of
file. A second sign is a new parent process id, because a forked child may keep the pipe open.
PR_SET_PDEATHSIG would be shorter, but it fires when the *thread* that started the server ends, is
lost when the account changes, and exists only on Linux.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

POLL_SECONDS = 0.1
# The server gets none of this environment: PG* and LC_* variables would change it. The guard itself
# keeps it, because a Python may need LD_LIBRARY_PATH to start.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}
# Fast shutdown first; the harder signals are for a server that does not react, each with time to.
ESCALATION = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


class ParentProcessWatcher:
    """Watches one parent process on behalf of one server."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.stop_requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.request_stop)

    def request_stop(self, *_: object) -> None:
        """Record that this process itself was asked to end."""
        self.stop_requested = True

    def wait_and_check_stop(self) -> bool:
        """Wait one step; returns whether the server must stop."""
        readable, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        return bool(readable) or self.stop_requested or os.getppid() != self.parent


def stop(server: "subprocess.Popen[bytes]") -> int:
    """Stop the server, gently first; returns its exit code."""
    for number, seconds in ESCALATION:
        server.send_signal(number)
        resume(server.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return server.wait(seconds)
    return 1


def resume(server: int) -> None:
    """Resume what was suspended (SIGSTOP), so that it sees the signal to end: the server and, where
    /proc lists them, its processes."""
    pids = [server]
    with contextlib.suppress(OSError), open(f"/proc/{server}/task/{server}/children") as children:
        pids += map(int, children.read().split())
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def main(arguments: list[str]) -> int:
    """Start the server that the command line names; end with it, or end it when the parent ends."""
    parent, uid, gid, lock = (int(a) for a in arguments[:4])
    guard = ParentProcessWatcher(parent)
    # The server inherits the lock, so it is held exactly as long as one of its processes lives.
    server = subprocess.Popen(  # noqa: S603 - the command is the launcher's own
        arguments[4:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=(lock,),
        env=ENVIRONMENT,
        user=None if uid < 0 else uid,
        group=None if uid < 0 else gid,
        extra_groups=None if uid < 0 else [],
    )
    os.close(lock)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone already: the loop notices
        os.write(1, f"{server.pid}\n".encode())
    while server.poll() is None:
        if guard.wait_and_check_stop():
            return stop(server)
    return server.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
