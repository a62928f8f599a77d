"""Restarts the embedded database when it dies, and notices when its files are removed."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from strandline.local.postgres import EmbeddedPostgres
from strandline.local.postgres_installation import PostgresUnusable
from strandline.observability import logger

CHECK_SECONDS = 0.5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Seconds between two tries to start; doubled after each, up to the second."""
REMINDER_SECONDS = 60.0
_MISSES_TO_FAIL = 2
"""So many checks in a row must miss a file: a short absence may be the file system's."""
_FAILURES = (PostgresUnusable, OSError, subprocess.SubprocessError)
"""The expected errors of a start; for any other the log shows the type too."""


class PostgresSupervisor:
    """Restarts a dead database on the same port until it runs or `close` is called.

    `on_loss` is called once, with what happened and what to do, when one of `files` or the
    database's directory was removed. Nothing can be stored any more then, and nothing is tried
    again.
    """

    def __init__(
        self, postgres: EmbeddedPostgres, files: Sequence[Path], on_loss: Callable[[str], None]
    ) -> None:
        self._postgres, self._on_loss = postgres, on_loss
        paths = (postgres.data, *files)
        # Held open: the inode of a removed file that nobody has open may be given to the next file.
        self._descriptors = [os.open(path, os.O_RDONLY) for path in paths if path.exists()]
        self._identities = {path: _read_device_and_inode(path) for path in paths}
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._supervise_until_stopped, name="postgres-supervisor", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop supervising; call it before the database's own stop."""
        self._stopping.set()
        self._postgres.cancel_start()
        self._thread.join()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _supervise_until_stopped(self) -> None:
        miss_count = 0
        while not self._stopping.wait(CHECK_SECONDS):
            missing = self._find_replaced_path()
            miss_count = miss_count + 1 if missing else 0
            if missing and miss_count >= _MISSES_TO_FAIL:
                self._on_loss(_make_data_loss_message(missing))
                return
            if not missing and self._postgres.has_exited():
                self._restart_with_growing_pauses()

    def _find_replaced_path(self) -> Path | None:
        """The first path that is not the same file or directory as at the start. None if all are,
        or if the file system does not answer, which is not a loss."""
        try:
            return next(
                (
                    p
                    for p, identity in self._identities.items()
                    if _read_device_and_inode(p) != identity
                ),
                None,
            )
        except OSError:
            return None

    def _restart_with_growing_pauses(self) -> None:
        """Start the database again and again, with growing pauses."""
        logger.warning("the database exited; restarting it")
        start, last_reminder, pause = time.monotonic(), -REMINDER_SECONDS, FIRST_PAUSE_SECONDS
        while not self._stopping.is_set() and not self._find_replaced_path():
            try:
                self._postgres.start(create=False)
            except Exception as error:  # any error: without this thread nothing tries again
                elapsed = time.monotonic() - start
                if elapsed - last_reminder >= REMINDER_SECONDS and not self._stopping.is_set():
                    last_reminder = elapsed
                    logger.error(
                        "the database does not start; trying for %.0f s so far, at least "
                        "every %.0f s: %s", elapsed, LONGEST_PAUSE_SECONDS, find_cause_line(error)
                    )  # fmt: skip
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                logger.warning("the database restarted after %.0f s", time.monotonic() - start)
                return


def find_cause_line(error: BaseException) -> str:
    """The one line of a failed start's message that says why, without the hint that may follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for pattern in (r"(?:FATAL|PANIC):\s*(.*)", r"(could not .*)"):
        if matches := [match for line in lines if (match := re.search(pattern, line))]:
            return matches[-1][1]
    if not lines:
        return type(error).__name__
    return lines[-1] if isinstance(error, _FAILURES) else f"{type(error).__name__}: {lines[-1]}"


def _read_device_and_inode(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file or directory; None if it does not exist."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _make_data_loss_message(missing: Path) -> str:
    return (
        f"{missing} was removed or replaced while the service ran, so it stops: nothing more "
        "can be stored there. If the data directory was moved, move it back; if it was deleted, "
        "restore a copy of it. Then start again; without a copy the next start begins with an "
        "empty memory."
    )
