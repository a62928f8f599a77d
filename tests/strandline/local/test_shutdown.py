"""What `make run` does when its database cannot start or its files go, and how it all ends."""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from strandline.local import postgres_supervisor
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.postgres_installation import PostgresUnusable
from strandline.local.postgres_supervisor import PostgresSupervisor, find_cause_line
from strandline.local.run_interruptible import EXIT_INTERRUPTED
from strandline.local.runtime import RunningService, run_local_service
from tests.strandline.local.programs import (
    ROOT,
    RUN,
    WAIT_SECONDS,
    Program,
    data_directory,
    database_processes,
    end_database,
    migrated_directory,
    signal_database,
    small_disk,
    started,
)

pytestmark = pytest.mark.integration

READY = "Ctrl-C stops everything"
EVENT = {"participants": ["user:alice"], "role": "user", "content": "The buoy is out."}
DISK_MEGABYTES = 200


class FirstRun(NamedTuple):
    """A service that was ended by SIGTERM under load."""

    directory: Path
    program: Program
    seconds: float
    """Its end took so many."""


@pytest.fixture(scope="module")
def first_run() -> Iterator[FirstRun]:
    """The first run on the directory of the others."""
    with migrated_directory() as directory:
        with started(RUN, directory) as program:
            program.wait_for(READY)
            _load(directory, 8)
            time.sleep(1)
            seconds = program.terminate()
        yield FirstRun(directory, program, seconds)


@pytest.fixture
def place(first_run: FirstRun) -> Path:
    """A data directory whose database is there already."""
    return first_run.directory


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new data directory for a service in this process."""
    for name in ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
        monkeypatch.setenv(f"STRANDLINE_{name}", "")  # whatever a start sets is taken back
    with data_directory() as directory:
        yield directory


def call(url: str, key: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data, headers)  # noqa: S310 -- our own
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def append(service: RunningService, content: str) -> Any:
    """The receipt, or None where the service says to try again; any other refusal is an error."""
    try:
        event = EVENT | {"content": content, "source_event_key": str(uuid.uuid4())}
        return call(service.url, service.key, "/api/v1/events", event)
    except urllib.error.HTTPError as error:
        if error.code != 503 or not error.headers["Retry-After"]:
            raise
        return None


def until[T](what: Callable[[], T | None], seconds: float) -> T:
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)
    return result


class Tries:
    """Counts the failed starts of every embedded server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed = 0
        start = EmbeddedPostgres.start

        def count(server: EmbeddedPostgres, **more: bool) -> EmbeddedPostgres:
            try:
                return start(server, **more)
            except Exception:
                self.failed += 1
                raise

        monkeypatch.setattr(EmbeddedPostgres, "start", count)


@contextlib.contextmanager
def no_room(directory: Path, is_mounted: bool) -> Generator[None]:
    """Fill the disk to the last byte; where it could not be mounted, let the server's account no
    longer write the database's directory, which every start must."""
    data = directory / "postgres" / "pgdata"
    ballast, mode = directory / "ballast", stat.S_IMODE(data.stat().st_mode)
    if is_mounted:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        assert os.statvfs(directory).f_bavail == 0
    else:
        data.chmod(0o500)
    yield
    if is_mounted:
        ballast.unlink()
    else:
        data.chmod(mode)


@pytest.mark.proof
def test_local_service_full_disk_needs_no_restart(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Tries(monkeypatch)
    with small_disk(fresh, DISK_MEGABYTES) as mounted, run_local_service(fresh, 0) as service:
        receipts: list[Any] = [append(service, f"before {n}") for n in range(5)]
        with no_room(fresh, mounted):
            receipts += [append(service, f"full {n}") for n in range(3)]
            signal_database(service.directory, signal.SIGKILL)
            until(lambda: tries.failed >= 2, 30)
            assert append(service, "away") is None
        after = until(lambda: append(service, "after"), 60)
        remaining = [receipt for receipt in receipts if receipt]
        for receipt in [*remaining, after]:
            path = f"/api/v1/events/{receipt['event_id']}?participants=user:alice"
            assert call(service.url, service.key, path)["seq"] == receipt["seq"]
        assert after["seq"] == len(remaining) + 1


def test_local_service_failed_start_says_one_line() -> None:
    text = (
        "Postgres did not start in /data: 2026-01-01 00:00:00 UTC [7] LOG:  starting\n"
        '2026-01-01 00:00:00 UTC [7] FATAL:  could not write "postmaster.pid": No space left\n'
        "2026-01-01 00:00:00 UTC [7] LOG:  database system is shut down\n"
    )
    assert (
        find_cause_line(PostgresUnusable(text)) == 'could not write "postmaster.pid": No space left'
    )
    assert (
        find_cause_line(OSError(28, "No space left on device"))
        == "[Errno 28] No space left on device"
    )
    assert find_cause_line(TimeoutError()) == "TimeoutError"
    error_text = (
        'Postgres did not start in /data: postgres: could not access directory "/data/pgdata": '
        "Permission denied\nRun initdb or pg_basebackup to initialize a data directory.\n"
    )
    reason = 'could not access directory "/data/pgdata": Permission denied'
    assert find_cause_line(PostgresUnusable(error_text)) == reason
    assert find_cause_line(KeyError("pid")) == "KeyError: 'pid'"


class Failing(EmbeddedPostgres):
    """A server that died, and whose first two starts fail."""

    def __init__(self, data: Path, error: Exception) -> None:
        self.data, self.starts, self._error = data, 0, error

    def has_exited(self) -> bool:
        return self.starts < 3

    def cancel_start(self) -> None:
        """No start of it lasts."""

    def start(self, *, create: bool = True) -> "Failing":
        assert not create
        self.starts += 1
        if self.starts < 3:
            raise self._error
        return self


@pytest.mark.parametrize(
    "error",
    [
        ValueError("pid"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        RuntimeError("can't start new thread"),
        MemoryError(),
        psycopg.OperationalError("away"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_local_service_retries_database_start(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_supervisor, "FIRST_PAUSE_SECONDS", 0.01)
    server, losses = Failing(tmp_path, error), list[str]()
    with contextlib.closing(PostgresSupervisor(server, [], losses.append)):
        until(lambda: not server.has_exited(), 5)
    assert losses == []


def test_local_service_detects_replaced_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system gives the next directory the inode of one that nobody has open."""
    monkeypatch.setattr(postgres_supervisor, "CHECK_SECONDS", 0.02)
    server, losses, blobs = Failing(tmp_path, ValueError()), list[str](), tmp_path / "blobs"
    server.starts = 3
    blobs.mkdir()
    with contextlib.closing(PostgresSupervisor(server, [blobs], losses.append)):
        for _ in range(3):
            blobs.rmdir()
            blobs.mkdir()
        until(lambda: bool(losses), 5)
    assert "was removed or replaced" in losses[0]


@pytest.mark.proof
def test_local_service_pid_file_without_text_needs_no_restart(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Tries(monkeypatch)
    with run_local_service(fresh, 0) as service:
        data = fresh / "postgres" / "pgdata"
        signal_database(service.directory, signal.SIGKILL)
        (data / "postmaster.pid").write_bytes(b"\xff\xfe\x00\n" * 9)
        until(lambda: tries.failed, 30)
        (data / "postmaster.pid").unlink(missing_ok=True)
        until(lambda: append(service, "after"), 60)


def test_local_service_start_without_create_makes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    server = EmbeddedPostgres(tmp_path / "moved")
    with pytest.raises(PostgresUnusable, match="is gone"):
        server.start(create=False)
    (tmp_path / "moved" / "pgdata").mkdir(parents=True)
    with pytest.raises((PostgresUnusable, OSError)):
        server.start(create=False)
    shutil.rmtree(tmp_path / "moved")
    with pytest.raises(PostgresUnusable, match="is gone"):
        server.start(create=False)
    assert not (tmp_path / "moved").exists()


@pytest.mark.parametrize("missing", ["", "blobs"])
@pytest.mark.proof
def test_local_service_stops_when_files_are_gone(missing: str) -> None:
    with data_directory() as directory, started(RUN, directory) as program:
        program.wait_for(READY)
        new_directory = directory.with_name("moved")
        (directory / missing).rename(
            new_directory
        )  # at once: a removal would miss what is written meanwhile
        shutil.rmtree(new_directory, ignore_errors=True)
        assert program.end(WAIT_SECONDS) == 1
        end_database(directory)
    assert "was removed or replaced while the service ran" in program.output
    assert "restore a copy" in program.output
    assert program.traceback == ""


# How it ends, in every state ----------------------------------------------------------------------


def _while_the_model_loads(program: Program, directory: Path) -> None:
    program.wait_for(READY)


def _with_the_database_suspended(program: Program, directory: Path) -> None:
    program.wait_for(READY)
    signal_database(directory, signal.SIGSTOP)
    _load(directory, 4)
    time.sleep(0.5)


def _with_the_database_killed(program: Program, directory: Path) -> None:
    program.wait_for(READY)
    signal_database(directory, signal.SIGKILL)


def _with_a_database_that_does_not_start(program: Program, directory: Path) -> None:
    program.wait_for(READY)
    (directory / "postgres" / "pgdata").chmod(0o500)
    signal_database(directory, signal.SIGKILL)
    program.wait_for("the database does not start")
    (directory / "postgres" / "pgdata").chmod(0o700)


def _while_the_database_starts(program: Program, directory: Path) -> None:
    while not (result := database_processes(directory)):
        time.sleep(0.001)
    os.kill(result[0], signal.SIGSTOP)
    time.sleep(1)
    signal_database(directory, signal.SIGSTOP)


def _while_it_starts(program: Program, directory: Path) -> None:
    time.sleep(1.5)


def _load(directory: Path, clients: int) -> None:
    """Clients that append until they are refused."""
    document = json.loads((directory / "local.json").read_text())

    def work() -> None:
        with contextlib.suppress(OSError):  # the service is gone, as it should
            while True:
                call(document["url"], document["key"], "/api/v1/events", EVENT)

    for _ in range(clients):
        threading.Thread(target=work, daemon=True).start()


@pytest.fixture
def end_seconds(request: pytest.FixtureRequest) -> float:
    """What SIGTERM may take, in every state: the promise where nothing else runs, and beside other
    tests as long as it takes."""
    return 5.0 if request.config.getoption("--full") else WAIT_SECONDS


def test_shutdown_by_sigterm_under_load_ends_in_five_seconds(
    first_run: FirstRun, end_seconds: float
) -> None:
    program = first_run.program
    assert first_run.seconds < end_seconds, program.output
    assert program.end(0) in (0, 130)
    assert program.traceback == ""


@pytest.mark.parametrize(
    "state",
    [
        _while_it_starts,
        _with_the_database_killed,
        _while_the_database_starts,
        _while_the_model_loads,
        _with_the_database_suspended,
        _with_a_database_that_does_not_start,
    ],
)
@pytest.mark.proof
def test_shutdown_by_sigterm_ends_in_five_seconds(
    state: Callable[[Program, Path], None], place: Path, end_seconds: float
) -> None:
    end_database(place)
    with started(RUN, place) as program:
        state(program, place)
        assert program.terminate() < end_seconds, program.output
    assert program.end(0) in (0, 130)
    assert program.traceback == ""


@pytest.mark.parametrize("command", [RUN, (sys.executable, "-m", "strandline.local.run")])
@pytest.mark.proof
def test_shutdown_by_sigterm_works_in_any_thread(
    command: Sequence[str], place: Path, end_seconds: float
) -> None:
    end_database(place)
    with started(command, place) as program:
        program.wait_for(READY)
        assert program.terminate_thread() < end_seconds, program.output
    assert program.end(0) == 0
    assert program.traceback == ""


@pytest.mark.proof
def test_shutdown_by_sigterm_works_on_full_disk(end_seconds: float) -> None:
    with data_directory() as directory, small_disk(directory, DISK_MEGABYTES) as mounted:
        with started(RUN, directory) as program:
            program.wait_for(READY)
            with no_room(directory, mounted):
                signal_database(directory, signal.SIGKILL)
                program.wait_for("the database does not start")
                assert program.terminate() < end_seconds, program.output
        assert program.traceback == ""
        assert program.output.count("the database does not start") == 1, "once a minute"


@pytest.mark.proof
def test_shutdown_by_sigterm_works_without_files(end_seconds: float) -> None:
    with data_directory() as directory, started(RUN, directory) as program:
        program.wait_for(READY)
        shutil.rmtree(directory, ignore_errors=True)  # the server writes meanwhile
        assert program.terminate() < end_seconds, program.output
        assert program.traceback == ""


# Ctrl-C -------------------------------------------------------------------------------------------


def _make(target: str) -> list[str]:
    """With the environment as it is: its making has a test of its own."""
    return ["make", "-o", ".venv/.ready-run", target]


@pytest.mark.parametrize(
    ("target", "moments", "step"),
    [("run", 5.0, 4.0), ("demo", 1.2, 0.8), ("key", 1.2, 0.8)],
)
def test_shutdown_by_ctrl_c_leaves_no_traceback(
    target: str,
    moments: float,
    step: float,
    place: Path,
    end_seconds: float,
    request: pytest.FixtureRequest,
) -> None:
    step = 0.5 if request.config.getoption("--full") else step
    at = 0.02
    while at < moments:
        with started(_make(target), place) as program:
            time.sleep(at)
            program.interrupt()
            program.end(end_seconds)
        assert program.traceback == "", at
        lines = program.output.strip().splitlines()
        assert len([line for line in lines if "interrupted" in line]) <= 1, (at, program.output)
        at += step


@pytest.mark.proof
def test_shutdown_by_ctrl_c_ends_demo(place: Path, end_seconds: float) -> None:
    with started(RUN, place) as service:
        service.wait_for(READY)
        with started(_make("demo"), place) as program:
            program.wait_for("1. A memory fills")
            program.interrupt()
            program.end(end_seconds)
        assert program.traceback == ""
        assert program.output.count("strandline: interrupted") == 1, program.output
        assert "Go on" not in program.output
        assert service.terminate() < end_seconds, "that goes on"


def test_shutdown_repeats_lost_stop_signal() -> None:
    """As one is lost that comes while the shell's child is not the program yet."""
    deaf = 'trap "" TERM; sleep 1; trap - TERM; sleep 60; echo "not stopped"'
    command = ["sh", "layers/call.sh", "sh", "-c", deaf]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as program:
        time.sleep(0.3)
        program.terminate()
        try:
            assert program.wait(20) == EXIT_INTERRUPTED
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


@pytest.mark.proof
def test_shutdown_by_ctrl_c_ends_setup(
    place: Path, tmp_path: Path, end_seconds: float, request: pytest.FixtureRequest
) -> None:
    """Making an environment: the interpreter's part of it, and the first packages."""
    step, until_second = (1.0, 12.0) if request.config.getoption("--full") else (1.3, 4.0)
    command = ["sh", "layers/venv.sh", str(tmp_path / "venv"), "requirements/run.lock"]
    at = 0.02
    while at < until_second:
        with started(command, place) as program:
            time.sleep(at)
            program.interrupt()
            program.end(end_seconds)
        assert program.traceback == "", at
        assert program.output.count("interrupted") <= 1, (at, program.output)
        assert not (tmp_path / "venv" / ".installed").exists()
        assert not (tmp_path / "venv" / ".scratch").exists()
        at += step


# The key ------------------------------------------------------------------------------------------


@pytest.mark.proof
def test_local_service_keys_are_kept_while_valid(fresh: Path) -> None:
    with run_local_service(fresh, 0) as service:
        first, agents = service.key, service.agents.token
        assert "created just now" in service.admin.notice
        file = service.admin.file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(service.agents.file.stat().st_mode) == 0o600
        body = call(service.url, first, "/api/v1/usage")
        assert body
    with run_local_service(fresh, 0) as service:
        assert (service.key, service.agents.token) == (first, agents)
        assert "the same" in service.admin.notice
        with psycopg.connect(service.postgres.dsn("strandline"), autocommit=True) as administrator:
            (count,) = administrator.execute("select count(*) from api_keys").fetchone() or (0,)
            assert count == 2
            administrator.execute("update api_keys set revoked_at = now()")
    with run_local_service(fresh, 0) as service:
        assert service.key != first
        assert service.agents.token != agents
        assert "was revoked" in service.admin.notice
        service.agents.file.write_text(service.key)
        assert append(service, "by the new one")
    file.write_text("strandline_of_another_directory")
    with run_local_service(fresh, 0) as service:
        assert "not from this data directory" in service.admin.notice
        assert "has other rights" in service.agents.notice, "an admin's key is none for agents"
        assert append(service, "by the newest")


# What is missing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["test", "layers", "synth"])
def test_local_make_without_npm_says_so_first(target: str, tmp_path: Path) -> None:
    output = _without(tmp_path, ["sh", "awk"], target)
    assert "Node.js" in output
    assert "install" in output


@pytest.mark.parametrize("major", [18, 20])
def test_local_make_with_old_node_says_which_is_needed(major: int, tmp_path: Path) -> None:
    for name, prints in {"npm": "", "node": f"echo {major}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{prints}\n")
        (tmp_path / name).chmod(0o755)
    output = _without(tmp_path, ["sh"], "npm", is_refused=major < 20)
    assert ("Node.js 18 is here, and the CDK needs 20 or later: install it" in output) is (
        major == 18
    )


@pytest.mark.parametrize("target", ["run", "demo", "key"])
def test_local_make_without_python_says_so_first(target: str, tmp_path: Path) -> None:
    output = _without(tmp_path, ["sh", "awk", "dirname"], target, "LEAN=build/.never-there")
    assert "Python 3.13 is not here: install it" in output


def _without(tmp_path: Path, programs: list[str], *arguments: str, is_refused: bool = True) -> str:
    """What make says where no other program is there."""
    for name in [*programs, "make"]:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    process = subprocess.run(
        [tmp_path / "make", *arguments],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == (2 if is_refused else 0)
    assert "making" not in process.stdout
    return process.stderr
