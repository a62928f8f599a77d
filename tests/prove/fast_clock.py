"""A local service whose days pass in moments, and a count of who touches its database when.

The clock is one for all: the functions are handed it, and the database's own `now()` and
`clock_timestamp()` are replaced, before any migration, by ones that run ahead as far. It jumps from
one schedule's time to the next: in between nothing could happen but what is counted.
"""

import importlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from strandline.clock import utc_now
from strandline.function_specs import FUNCTIONS
from strandline.local import runtime
from strandline.local.aws import make_local_client
from strandline.local.event_sources import GROUP, LocalScheduler, find_next_fire_time
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.runtime import RunningService, run_local_service
from strandline.local.state_machine import is_execution_running, list_executions
from tests.strandline.embeddings.fake_embedders import WordEmbedder

DATABASE = "strandline"
_REPLACE_CLOCK = """
alter function pg_catalog.now() rename to real_now;
alter function pg_catalog.clock_timestamp() rename to real_clock_timestamp;
create table public.fast_clock (ahead interval not null);
insert into public.fast_clock values ('0');
grant select on public.fast_clock to public;
create function pg_catalog.now() returns timestamptz language sql stable
    as 'select pg_catalog.real_now() + (select ahead from public.fast_clock)';
create function pg_catalog.clock_timestamp() returns timestamptz language sql volatile
    as 'select pg_catalog.real_clock_timestamp() + (select ahead from public.fast_clock)';
"""
_CACHING_RESOURCES = ("quotas", "authenticator", "llm")
"""What a process believes for a while by time.monotonic(), which does not run ahead."""
_SETTLE_SECONDS = 60.0
_STILL_SECONDS = 0.3
"""Nothing under way for so long is nothing at all, once schedules were looked at meanwhile: longer
than any hand-over between queues takes."""
_TICKS = 2
"""The first look that ends may have begun before, and be about to start what it found due."""


class FastClock:
    """The present, and as much more as was jumped over."""

    def __init__(self) -> None:
        self.offset = timedelta()
        self.url = ""
        """The database's, as its administrator."""

    def __call__(self) -> datetime:
        return utc_now() + self.offset

    def jump(self, to: datetime) -> None:
        """Let it be then, if it is not later already; what lapsed meanwhile is known no more.

        The database first: what runs schedules begins as soon as this clock says so, and a sweep
        whose database is still hours behind has everything come due at other times than it did.
        """
        offset = self.offset + max(timedelta(), to - self())
        with psycopg.connect(self.url, autocommit=True) as administrator:
            administrator.execute("update fast_clock set ahead = %s", (offset,))
        for fn in FUNCTIONS:
            if "database" in fn.needs:
                service = importlib.import_module(f"functions.{fn.name}.handler").resources
                for name in _CACHING_RESOURCES:
                    service.__dict__.pop(name, None)
        self.offset = offset


class CountingProxy:
    """TCP to the database, and when anybody connected or said anything, by the clock."""

    def __init__(self, port: int, clock: FastClock) -> None:
        self.contact_times: list[datetime] = []
        self._clock, self._target = clock, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._stopping.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            cast("socket.socket", key.fileobj).close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(0.1):
                if key.data is None:
                    self._connect()
                elif key.fd in self._selector.get_map():  # or its other end hung up just now
                    self._forward(key.fileobj, *key.data)

    def _connect(self) -> None:
        caller, _ = self._listener.accept()
        self.contact_times.append(self._clock())
        server = socket.create_connection(("127.0.0.1", self._target))
        for source, target, is_counted in ((caller, server, True), (server, caller, False)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(source, selectors.EVENT_READ, (target, is_counted))

    def _forward(self, source: Any, target: socket.socket, is_counted: bool) -> None:
        try:
            data = source.recv(65536)
            if data:
                target.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (source, target):
                self._selector.unregister(end)
                end.close()
        elif is_counted and data[:1] != b"X":  # a driver that hangs up says so: nobody is woken
            self.contact_times.append(self._clock())


class TickCounter:
    """How many looks at the schedules have ended. One takes a schedule away before it starts what
    that names, and several may be due at once: in between nothing else shows that there is more."""

    def __init__(self) -> None:
        self.finished_count = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        original = LocalScheduler.fire_due_schedules

        def counting_look(ticker: LocalScheduler) -> None:
            original(ticker)
            self.finished_count += 1

        monkeypatch.setattr(LocalScheduler, "fire_due_schedules", counting_look)


class ProofService:
    """A service that runs, its clock, its proxy, and the looks at its schedules."""

    def __init__(
        self,
        local_service: RunningService,
        clock: FastClock,
        proxy: CountingProxy,
        ticks: TickCounter,
    ) -> None:
        self.local_service, self.clock, self.proxy, self._ticks = local_service, clock, proxy, ticks
        self._sqs, self._scheduler = make_local_client("sqs"), make_local_client("scheduler")

    @property
    def machine(self) -> str:
        """The state machine's ARN."""
        return os.environ["STRANDLINE_STATE_MACHINE"]

    def rows(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """What lies in the database, beside the proxy."""
        with psycopg.connect(self.clock.url, autocommit=True) as administrator:
            cursor = administrator.execute(statement.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def advance_to(self, moment: datetime) -> None:
        """Let time pass, and everything happen that happens meanwhile."""
        self.settle()
        while (next_due := self._next_due()) <= moment:
            last_arn = self._last_arn()
            self.clock.jump(next_due)
            _wait_until(lambda before=last_arn: self._last_arn() != before)
            self.settle()
        self.clock.jump(moment)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is under way."""
        still_since, ticks, last_arn = time.monotonic(), self._ticks.finished_count, ""

        def is_still() -> bool:
            nonlocal still_since, ticks, last_arn
            current_arn = self._last_arn()
            if self._is_busy() or current_arn != last_arn:
                still_since, ticks, last_arn = (
                    time.monotonic(),
                    self._ticks.finished_count,
                    current_arn,
                )
            has_rested = time.monotonic() > still_since + _STILL_SECONDS
            return has_rested and self._ticks.finished_count >= ticks + _TICKS

        _wait_until(is_still)

    def session_count(self) -> int:
        """How many sessions of the service the database has."""
        query = "select count(*)::int from pg_stat_activity where usename = 'strandline_app'"
        return self.rows(query)[0][0]

    def _last_arn(self) -> str | None:
        """Of the run that was started last: moto forgets old ones, so their number does not tell
        whether there is a new one."""
        executions = list_executions()
        return executions[-1].exec_arn if executions else None

    def _is_busy(self) -> bool:
        if any(is_execution_running(execution) for execution in list_executions()):
            return True
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        for url in (
            os.environ["STRANDLINE_WORK_QUEUE_URL"],
            os.environ["STRANDLINE_JOB_QUEUE_URL"],
        ):
            attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
            if any(int(number) for number in attributes["Attributes"].values()):
                return True
        return False

    def _next_due(self) -> datetime:
        now = self.clock()
        schedules = self._scheduler.list_schedules(GroupName=GROUP, MaxResults=100)["Schedules"]
        return min(
            find_next_fire_time(
                self._scheduler.get_schedule(GroupName=GROUP, Name=schedule["Name"]), now
            )
            for schedule in schedules
        )


def _wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, "something does not come to its end"
        time.sleep(0.02)


@contextmanager
def run_service(
    directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> Generator[ProofService]:
    """A stage on this directory, as `make run` starts it, with spacings as they are deployed."""
    clock, proxies = FastClock(), list[CountingProxy]()
    migrate = runtime._create_and_migrate_database  # pyright: ignore[reportPrivateUsage]
    configure = runtime._set_environment  # pyright: ignore[reportPrivateUsage]

    def migrate_with_fast_clock(postgres: EmbeddedPostgres, passwords: dict[str, str]) -> None:
        with psycopg.connect(postgres.dsn("template1"), autocommit=True) as administrator:
            administrator.execute(_REPLACE_CLOCK)
        migrate(postgres, passwords)
        clock.url = postgres.dsn(DATABASE)
        with psycopg.connect(clock.url, autocommit=True) as administrator:
            for name, value in settings.items():
                administrator.execute(f"alter role strandline_app set {name} = '{value}'".encode())
        proxies.append(CountingProxy(postgres.port, clock))

    def configure_through_proxy(url: str, *arguments: Any) -> dict[str, str]:
        port = url.rpartition(":")[2].partition("/")[0]
        return configure(url.replace(f":{port}/", f":{proxies[0].port}/"), *arguments)

    word_embedder, ticks = WordEmbedder(), TickCounter()
    ticks.install(monkeypatch)

    def make_embedder(*_: object) -> WordEmbedder:
        return word_embedder

    monkeypatch.setenv("STRANDLINE_SWEEP_SECONDS", "300")
    monkeypatch.setattr(runtime, "_create_and_migrate_database", migrate_with_fast_clock)
    monkeypatch.setattr(runtime, "_set_environment", configure_through_proxy)
    monkeypatch.setattr("strandline.resources.make_embedder", make_embedder)
    with run_local_service(directory, 0, clock) as local_service, closing(proxies[0]) as proxy:
        yield ProofService(local_service, clock, proxy, ticks)


def next_daily_sweep(moment: datetime) -> datetime:
    """The next daily sweep."""
    today = moment.astimezone(UTC).replace(hour=3, minute=30, second=0, microsecond=0)
    return today if today > moment else today + timedelta(days=1)
