"""The embedded Postgres: real servers, real signals, real crashes."""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from strandline.local import postgres_installation, postgres_lock
from strandline.local.postgres import EmbeddedPostgres, PostgresUnusable
from strandline.local.postgres_installation import ServerAccount

pytestmark = pytest.mark.integration

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
PARENT = """
import signal, sys, time
from pathlib import Path
from strandline.local.postgres import EmbeddedPostgres
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
server.start()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that the server's account reaches; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="strandline-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(place / "shared", durable=False) as running:
        yield running


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row and row[0]


def tell(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def await_end(data: Path) -> None:
    deadline = time.monotonic() + 10
    while postgres_lock.list_server_processes(data):
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.02)


def test_postgres_pgvector_answers_over_tcp_and_socket(server: EmbeddedPostgres) -> None:
    tell(server.dsn(), "CREATE EXTENSION vector")
    distance = "SELECT '[1,0]'::vector <-> '[1,2]'::vector"
    assert ask(server.dsn(), distance) == ask(server.socket_dsn(), distance) == 2.0


def test_postgres_cluster_fits_migrations(server: EmbeddedPostgres) -> None:
    assert str(ask(server.dsn(), "SHOW server_version")).startswith("18.")
    assert ask(server.dsn(), "SHOW server_encoding") == "UTF8"
    assert ask(server.dsn(), "SHOW max_connections") == "100"
    assert ask(server.dsn(), "SHOW timezone") == "UTC"
    assert ask(server.dsn(), "SHOW fsync") == "off"


@pytest.mark.parametrize("way", ["dsn", "socket_dsn"])
@pytest.mark.parametrize("password", ["", "wrong"])
def test_postgres_requires_password(server: EmbeddedPostgres, way: str, password: str) -> None:
    dsn = getattr(server, way)(password=password)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn)


def test_postgres_secrets_and_socket_are_private(server: EmbeddedPostgres) -> None:
    secret = server.directory / "password"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text() == server.password
    assert len(server.password) >= 24
    assert stat.S_IMODE(server.socket_directory.stat().st_mode) == 0o700


def test_postgres_clone_has_template_rows_and_is_dropped(server: EmbeddedPostgres) -> None:
    tell(server.dsn(), 'CREATE DATABASE "odd template"')
    tell(server.dsn("odd template"), "CREATE TABLE kept AS SELECT 7 AS n")
    server.clone_database("odd template", "clone")
    assert ask(server.dsn("clone"), "SELECT n FROM kept") == 7
    with psycopg.connect(server.dsn("clone")):
        server.drop_database("clone")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(server.dsn("clone"))


def test_postgres_refuses_directory_in_use(server: EmbeddedPostgres) -> None:
    with pytest.raises(PostgresUnusable, match=f"in use by a server of process {os.getpid()}"):
        EmbeddedPostgres(server.directory).start()
    with pytest.raises(PostgresUnusable, match="in use"):
        server.start()
    assert ask(server.dsn(), "SELECT 1") == 1


def test_postgres_refuses_port_in_use_naming_setting(place: Path, server: EmbeddedPostgres) -> None:
    other = EmbeddedPostgres(place / "other", port=server.port, durable=False)
    with pytest.raises(PostgresUnusable, match="STRANDLINE_PG_PORT"):
        other.start()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        assert connection.getpeername()[1] == server.port


def test_postgres_rows_survive_stop_and_crash(place: Path) -> None:
    durable = EmbeddedPostgres(place / "durable", settings={"work_mem": "5MB"})
    durable.start()
    port = durable.port
    tell(durable.dsn(), "CREATE TABLE kept (n int)")
    tell(durable.dsn(), "INSERT INTO kept VALUES (1)")
    durable.stop()
    durable.stop()
    assert postgres_lock.list_server_processes(durable.directory / "pgdata") == []
    durable.start()
    tell(durable.dsn(), "INSERT INTO kept VALUES (2)")
    durable.kill()
    assert postgres_lock.list_server_processes(durable.directory / "pgdata") == []
    assert (durable.directory / "pgdata" / "postmaster.pid").exists()
    with durable:
        assert durable.port == port
        assert ask(durable.dsn(), "SELECT sum(n) FROM kept") == 3
        assert ask(durable.dsn(), "SHOW fsync") == "on"
        assert ask(durable.dsn(), "SHOW work_mem") == "5MB"


def test_postgres_starts_despite_orphans_of_killed_server(place: Path) -> None:
    crashed = EmbeddedPostgres(place / "orphans", durable=False).start()
    data = crashed.directory / "pgdata"
    postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])
    # A backend in the middle of work does not notice that its server is gone.
    busy = "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$"
    dsn = crashed.dsn()

    def work() -> None:
        with pytest.raises(psycopg.OperationalError):
            tell(dsn, busy)

    backend = threading.Thread(target=work)
    backend.start()
    while not ask(dsn, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO%'"):
        time.sleep(0.01)
    os.kill(postmaster, signal.SIGKILL)
    time.sleep(0.3)
    assert postgres_lock.list_server_processes(data), "no orphan was left to be found"
    crashed.start()
    assert ask(crashed.dsn(), "SELECT 1") == 1
    backend.join(5)
    assert not backend.is_alive()
    crashed.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_postgres_dies_with_its_parent(place: Path, number: signal.Signals) -> None:
    directory = place / "child"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        assert postgres_lock.list_server_processes(directory / "pgdata")
        parent.send_signal(number)
    await_end(directory / "pgdata")
    log = (directory / "postgres.log").read_text()
    assert log.rstrip().endswith("database system is shut down")


def test_postgres_start_waits_for_stopping_server(place: Path) -> None:
    directory = place / "child"
    command = [sys.executable, "-c", PARENT, directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        parent.kill()
    with EmbeddedPostgres(directory, durable=False) as next_server:
        assert ask(next_server.dsn(), "SELECT 1") == 1


def test_postgres_processes_are_found_without_proc(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = server.directory / "pgdata"
    results = set(postgres_lock.list_server_processes(data))
    monkeypatch.setattr(postgres_lock, "PROCESSES", Path("/absent"))
    assert len(results & set(postgres_lock.list_server_processes(data))) >= 5
    assert postgres_lock.list_server_processes(data.parent) == []


def test_postgres_long_path_gets_short_socket(place: Path) -> None:
    with EmbeddedPostgres(place / ("long" * 30), durable=False) as server:
        assert len(os.fsencode(server.socket_directory)) < 40
        assert stat.S_IMODE(server.socket_directory.stat().st_mode) == 0o700
        assert ask(server.socket_dsn(), "SELECT 1") == 1
    shutil.rmtree(server.socket_directory)


def test_postgres_failed_start_quotes_server(place: Path) -> None:
    wrong = EmbeddedPostgres(place / "wrong", durable=False, settings={"work_mem": "plenty"})
    with pytest.raises(PostgresUnusable, match="invalid value for parameter"):
        wrong.start()
    assert postgres_lock.list_server_processes(wrong.directory / "pgdata") == []


def test_postgres_as_root_leaves_closed_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_installation, "FALLBACK_DIRECTORY", place / "shelter")
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedPostgres(closed / "data", durable=False) as server:
        assert ask(server.dsn(), "SELECT 1") == 1
    if os.geteuid() == 0:
        assert server.directory.parent == place / "shelter"
        assert str(server.directory) in caplog.text
    else:
        assert server.directory == closed / "data"


def test_postgres_unreachable_binaries_are_copied_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_installation, "FALLBACK_DIRECTORY", place / "copies")

    def nothing(self: ServerAccount, path: Path) -> bool:
        return False

    monkeypatch.setattr(ServerAccount, "can_reach", nothing)
    account = ServerAccount(os.geteuid(), os.getegid())
    programs = postgres_installation.find_or_copy_binaries(account)
    assert programs.is_relative_to(place / "copies")
    assert postgres_installation.find_or_copy_binaries(account) == programs
    assert len(list((place / "copies").iterdir())) == 1
    process = subprocess.run([programs / "initdb", "--version"], capture_output=True, check=True)
    assert process.stdout.startswith(b"initdb (PostgreSQL) 18.")
    assert all(p.stat().st_mode & 0o022 == 0 for p in programs.iterdir())


@pytest.mark.parametrize(
    "statement",
    [
        "select 'told-in-confidence'::uuid",  # in the error's own message
        "do $$ begin raise exception 'x' using detail = 'told-in-confidence'; end $$",
        'select 1 / 0 as "told-in-confidence"',  # in the statement
        "do $$ begin raise warning 'told-in-confidence'; end $$",
    ],
)
def test_local_postgres_log_shows_no_value_of_an_error(
    server: EmbeddedPostgres, statement: str
) -> None:
    log = server.directory / "postgres.log"
    before = log.stat().st_size
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        with contextlib.suppress(psycopg.Error):
            connection.execute(statement.encode())
        # What the server says of itself is still there.
        connection.execute("do $$ begin raise log 'said later'; end $$")
    said = log.read_bytes()[before:].decode()
    assert "said later" in said
    assert "told-in-confidence" not in said
