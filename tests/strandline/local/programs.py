"""`make run` and its like as processes of their own, for tests that end them."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from strandline.local import postgres_lock
from tests.seed_cluster import copy_service_seed
from tests.server_directory import make_server_directory

ROOT = Path(__file__).parents[3]
WAIT_SECONDS = 60.0
"""After so long a program does not end by itself."""
RUN = (sys.executable, "-m", "strandline.local.run_interruptible", "strandline.local.run")


@contextlib.contextmanager
def data_directory() -> Generator[Path]:
    """A data directory that the database's account can enter; what still runs there is ended."""
    parent = Path(tempfile.mkdtemp(prefix="strandline-endings-"))
    parent.chmod(0o711)
    try:
        yield parent / "data"
    finally:
        end_database(parent / "data")
        shutil.rmtree(parent)


@contextlib.contextmanager
def migrated_directory() -> Generator[Path]:
    """A data directory with a database that has no rows yet, in memory where there is plenty: what
    outlives a process there outlives it on a disk, too."""
    with make_server_directory() as parent:
        directory = parent / "data"
        copy_service_seed(directory)
        try:
            yield directory
        finally:
            end_database(directory)


def end_database(directory: Path) -> None:
    """SIGKILL what still runs on a data directory, and wait until it is gone."""
    home = directory / "postgres"
    postgres_lock.kill_server_processes(home / "pgdata")
    if (home / "lock").exists():
        postgres_lock.kill_until_lock_is_free(home)


def database_processes(directory: Path) -> list[int]:
    """Of the server on a data directory."""
    return postgres_lock.list_server_processes(directory / "postgres" / "pgdata")


def signal_database(directory: Path, number: signal.Signals) -> None:
    """To every process of the server."""
    for pid in database_processes(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _accept_interrupts() -> None:
    """A shell starts its background jobs deaf to Ctrl-C, and so would be all that they start: CI's
    tests, for one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """A program under way, with all it says."""

    def __init__(self, command: Sequence[str], directory: Path, **environment: str) -> None:
        remaining = {
            name: v for name, v in os.environ.items() if not name.startswith("STRANDLINE_")
        }
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=remaining
            | {"STRANDLINE_DATA_DIR": str(directory), "STRANDLINE_PORT": "0"}
            | {"STRANDLINE_EMBEDDING_THREADS": "1"}  # those that have nothing to do spin
            | {"PYTHONPATH": f"{ROOT / 'shared'}{os.pathsep}{ROOT}"}
            | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_accept_interrupts,
        )
        self.output = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self.output += line

    @property
    def traceback(self) -> str:
        """The first that it said, empty if none."""
        return "".join(self.output.partition("Traceback")[1:])

    def wait_for(self, words: str, seconds: float = 90) -> None:
        """Until it has said these words."""
        deadline = time.monotonic() + seconds
        while words not in self.output:
            assert time.monotonic() < deadline, self.output
            assert self._process.poll() is None, self.output
            time.sleep(0.02)

    def interrupt(self) -> None:
        """SIGINT to it and all in its group, as a terminal sends for Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> float:
        """SIGTERM; gives how many seconds its end took."""
        began = time.monotonic()
        self._process.terminate()
        self.end(WAIT_SECONDS)
        return time.monotonic() - began

    def terminate_thread(self) -> float:
        """As `terminate`, but the signal reaches a thread that is not the main one, as it may
        whenever the kernel so chooses. Without /proc it chooses here too."""
        began = time.monotonic()
        tasks = Path(f"/proc/{self._process.pid}/task")
        if not tasks.exists():
            return self.terminate()
        thread = max(int(task.name) for task in tasks.iterdir())
        os.kill(thread, signal.SIGTERM)
        self.end(WAIT_SECONDS)
        return time.monotonic() - began

    def end(self, seconds: float) -> int:
        """Its exit code, once it has ended by itself."""
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code

    def kill(self) -> None:
        """What a failed test left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()


@contextlib.contextmanager
def started(command: Sequence[str], directory: Path, **environment: str) -> Generator[Program]:
    """A program, whatever the test does to it."""
    program = Program(command, directory, **environment)
    try:
        yield program
    finally:
        program.kill()


@contextlib.contextmanager
def small_disk(directory: Path, megabytes: int) -> Generator[bool]:
    """Make `directory` a file system of its own; says False where nothing may be mounted."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            end_database(directory)
            subprocess.run(["umount", "-l", str(directory)], check=True)
