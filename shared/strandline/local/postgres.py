"""An embedded Postgres 18 with pgvector: installed from a wheel, stopped when its process ends."""

import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from strandline.local import postgres_initdb, postgres_installation, postgres_lock
from strandline.local.postgres_initdb import SUPERUSER
from strandline.local.postgres_installation import PostgresUnusable

__all__ = ["EmbeddedPostgres", "PostgresUnusable"]

HOST = "127.0.0.1"
START_SECONDS = 120.0  # a start after a crash replays the write-ahead log first
STOP_SECONDS = 35.0  # the guard's own escalation ends within 30
LOG_BYTES = 8 * 1024 * 1024
# Below every system's range for outgoing connections: while a crashed server is down, no passing
# client takes its port.
PORTS = range(15432, 32000)
# sun_path holds 107 bytes on Linux and 103 on macOS; the longest name in the directory is
# `.s.PGSQL.65535`.
SOCKET_PATH_BYTES = 103
# After a crash the server syncs its files before it replays: with syncfs one call per disk, not one
# per file.
SYNC_SETTINGS = {"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}
# An error's detail quotes its row, a statement its values, and some errors' own message a value
# (`invalid input syntax for type uuid: "..."`). That is memory, which must not be in a log: no
# error of a session is. The service logs its kind.
LOG_REDACTION = {
    "log_min_messages": "log",
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
}
SETTINGS = (
    {"max_connections": "100", "timezone": "UTC", "log_timezone": "UTC"}
    | LOG_REDACTION
    | SYNC_SETTINGS
)
# For data that may be lost with the machine; a crash of the server alone loses none of it.
NON_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """One server on one directory; a context manager.

    `port` 0 takes a free one and keeps it for the object's life. `durable=False` is for tests: no
    fsync. `settings` are server parameters. The `directory` attribute is the one in use: for root
    it can differ from the argument (see postgres_installation.choose_reachable_directory).
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = postgres_installation.choose_reachable_directory(directory)
        self.port = port
        self.socket_directory = _choose_socket_directory(self.directory / "run")
        self.password = ""
        self._durable = durable
        self._settings = SETTINGS | ({} if durable else NON_DURABLE) | dict(settings or {})
        self.data = self.directory / "pgdata"
        self._account = postgres_installation.choose_server_account(self.data)
        self._cancel_event = threading.Event()
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self, *, create: bool = True) -> Self:
        """Start the server and return once it accepts connections. If `create` is true the
        directory and the database cluster are created on first use; otherwise this object must have
        started them before.

        Raises PostgresUnusable, or OSError when the directory cannot be written; then no part of
        the server runs.
        """
        if self._guard is not None and self._guard.poll() is None:
            raise PostgresUnusable(f"{self.directory} is in use by a server of this very object.")
        self._stop_via_guard()
        if not create and not self.data.exists():
            raise PostgresUnusable(f"{self.data} is gone.")
        if create:
            postgres_installation.create_enterable_directory(self.directory, self._account)
        lock = postgres_lock.acquire_directory_lock(self.directory)
        try:
            durable, account = self._durable, self._account
            if create:
                cluster = postgres_initdb.create_cluster_if_missing(
                    self.directory, account, lock, durable=durable
                )
                self.password = cluster
            postgres_installation.make_private_directory(self.socket_directory, account)
            self.port = _require_free_port(self.port) if self.port else _find_free_port()
            log_start = self._rotate_log()
            server = self._launch_guard(lock)
        except BaseException:
            self._stop_via_guard()
            raise
        finally:
            os.close(lock)
        try:
            self._wait_until_ready(server, log_start)
        except BaseException:
            self._stop_via_guard()
            raise
        return self

    def stop(self) -> None:
        """Stop the server, rolling back open transactions; does nothing if it is not running."""
        self._stop_via_guard()
        self._cancel_event.clear()

    def cancel_start(self) -> None:
        """Make the start that another thread waits for, or the next one, fail soon, until
        `stop`."""
        self._cancel_event.set()

    def has_exited(self) -> bool:
        """Whether a server that was started and not stopped has ended by itself."""
        return self._guard is not None and self._guard.poll() is not None

    def kill(self) -> None:
        """SIGKILL every process of the server, as a crash would; `start` recovers from it."""
        if self._guard is not None:
            postgres_lock.kill_server_processes(self.data)
            postgres_lock.kill_until_lock_is_free(self.directory)
            self._stop_via_guard()

    def dsn(
        self, database: str = "postgres", user: str = SUPERUSER, password: str | None = None
    ) -> str:
        """A libpq URL over TCP; the superuser's password is filled in."""
        login = self._make_url_login(user, password)
        return f"postgresql://{login}@{HOST}:{self.port}/{quote(database, safe='')}"

    def socket_dsn(
        self, database: str = "postgres", user: str = SUPERUSER, password: str | None = None
    ) -> str:
        """A libpq URL over the Unix socket, which only this account and the server's can access."""
        host_query = f"host={quote(str(self.socket_directory), safe='')}&port={self.port}"
        login = self._make_url_login(user, password)
        return f"postgresql://{login}@/{quote(database, safe='')}?{host_query}"

    def clone_database(self, template: str, name: str) -> None:
        """Create database `name` as a copy of `template`, which must have no connections."""
        # A copy of the files costs two checkpoints. Through the write-ahead log it costs twice as
        # much processor time: each page is read, logged, and written later.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self._execute_as_superuser(statement.format(sql.Identifier(name), sql.Identifier(template)))

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, ending its connections."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._execute_as_superuser(statement.format(sql.Identifier(name)))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _execute_as_superuser(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)

    def _make_url_login(self, user: str, password: str | None) -> str:
        if password is None and user == SUPERUSER:
            password = self.password
        name = quote(user, safe="")
        return name if password is None else f"{name}:{quote(password, safe='')}"

    def _launch_guard(self, lock: int) -> int:
        """Start the guard, which starts the server; returns the server's process id."""
        with (self.directory / "postgres.log").open("ab") as log:
            self._guard = postgres_lock.launch_under_guard(
                lock, self._account, self._make_server_command(), log
            )
        assert self._guard.stdout is not None
        return int(self._guard.stdout.readline() or 0)

    def _make_server_command(self) -> list[str]:
        command = [
            str(postgres_installation.find_or_copy_binaries(self._account) / "postgres"),
            "-D",
            str(self.data),
        ]
        command += ["-k", str(self.socket_directory), "-h", HOST, "-p", str(self.port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _wait_until_ready(self, server: int, log_start: int) -> None:
        """Wait for the state `ready` in postmaster.pid, as pg_ctl does."""
        deadline = time.monotonic() + START_SECONDS
        while self._read_server_state(server) != "ready":
            running = self._guard is not None and self._guard.poll() is None
            if running and time.monotonic() < deadline and not self._cancel_event.is_set():
                time.sleep(0.005)
                continue
            self._stop_via_guard()  # first: its last log lines are part of the cause
            log_tail = (self.directory / "postgres.log").read_bytes()[log_start:][-2000:]
            raise PostgresUnusable(
                f"Postgres did not start in {self.directory}: {log_tail.decode(errors='replace')}"
            )

    def _read_server_state(self, server: int) -> str:
        try:
            text = (self.data / "postmaster.pid").read_text(errors="replace")
        except FileNotFoundError:
            return ""
        lines = text.splitlines()
        return lines[7].strip() if len(lines) > 7 and lines[0] == str(server) else ""

    def _rotate_log(self) -> int:
        """Keep one older log besides the current; returns the offset where this start's lines
        begin."""
        log = self.directory / "postgres.log"
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_name("postgres.log.1"))
        log.touch(mode=0o600)
        return log.stat().st_size

    def _stop_via_guard(self) -> None:
        """Tell the guard to stop what still runs, and release it."""
        if self._guard is not None:
            # A byte besides the end of file: a forked child of this process may hold the pipe open.
            self._guard.communicate(b"\n", timeout=STOP_SECONDS)
            self._guard = None


def _choose_socket_directory(path: Path) -> Path:
    """The socket directory; one below /tmp if the path is too long for a socket."""
    if len(os.fsencode(path / ".s.PGSQL.65535")) <= SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path("/tmp", f"strandline-{digest}")  # noqa: S108 - made private, its owner checked


def _require_free_port(port: int) -> int:
    if not _is_port_free(port):
        raise PostgresUnusable(
            f"Port {port} is in use by another program: set STRANDLINE_PG_PORT to a free one, or "
            "to 0 for any free one."
        )
    return port


def _find_free_port() -> int:
    for port in random.sample(PORTS, 100):
        if _is_port_free(port):
            return port
    raise PostgresUnusable(f"No free port found between {PORTS.start} and {PORTS.stop}.")


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
