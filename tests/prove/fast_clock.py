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
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from strandline.clock import utc_now
from strandline.deployment import FUNCTIONS
from strandline.local import runtime
from strandline.local.aws import client
from strandline.local.lambda_context import ACCOUNT_ID, REGION
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.runtime import Running, running
from strandline.local.schedule_starter import GROUP, Ticker, next_time
from tests.strandline.services.stand_ins import WordEmbedder

DATABASE = "strandline"
_QUICKEN = """
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
_LAPSES = ("quotas", "authenticator", "reasoner")
"""What a process believes for a while by time.monotonic(), which does not run ahead."""
_SETTLE_SECONDS = 60.0
_STILL_SECONDS = 0.3
"""Nothing under way for so long is nothing at all, once schedules were looked at meanwhile: longer
than any hand-over between queues takes."""
_LOOKS = 2
"""The first look that ends may have begun before, and be about to start what it found due."""


class FastClock:
    """The present, and as much more as was jumped over."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.url = ""
        """The database's, as its administrator."""

    def __call__(self) -> datetime:
        return utc_now() + self.ahead

    def jump(self, to: datetime) -> None:
        """Let it be then, if it is not later already; what lapsed meanwhile is known no more.

        The database first: whoever runs schedules begins as soon as this clock says so, and a sweep
        whose database is still hours behind has everything come due at other times than it did.
        """
        ahead = self.ahead + max(timedelta(), to - self())
        with psycopg.connect(self.url, autocommit=True) as administrator:
            administrator.execute("update fast_clock set ahead = %s", (ahead,))
        for fn in FUNCTIONS:
            if "database" in fn.needs:
                service = importlib.import_module(f"functions.{fn.name}.handler").service
                for name in _LAPSES:
                    service.__dict__.pop(name, None)
        self.ahead = ahead


class CountingProxy:
    """TCP to the database, and when anybody connected or said anything, by the clock."""

    def __init__(self, port: int, clock: FastClock) -> None:
        self.touches: list[datetime] = []
        self._clock, self._target = clock, port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
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
                    self._carry(key.fileobj, *key.data)

    def _connect(self) -> None:
        caller, _ = self._listening.accept()
        self.touches.append(self._clock())
        server = socket.create_connection(("127.0.0.1", self._target))
        for one, other, counts in ((caller, server, True), (server, caller, False)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ, (other, counts))

    def _carry(self, one: Any, other: socket.socket, counts: bool) -> None:
        try:
            said = one.recv(65536)
            if said:
                other.sendall(said)
        except OSError:
            said = b""
        if not said:
            for end in (one, other):
                self._selector.unregister(end)
                end.close()
        elif counts and said[:1] != b"X":  # a driver that hangs up says so: nobody is woken
            self.touches.append(self._clock())


class Looks:
    """How many looks at the schedules have ended. One takes a schedule away before it starts what
    that names, and several may be due at once: in between nothing else shows that there is more."""

    def __init__(self) -> None:
        self.ended = 0

    def count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        look = Ticker.look

        def counted(ticker: Ticker) -> None:
            look(ticker)
            self.ended += 1

        monkeypatch.setattr(Ticker, "look", counted)


class Stage:
    """A service that runs, its clock, its proxy, and the looks at its schedules."""

    def __init__(self, here: Running, clock: FastClock, proxy: CountingProxy, looks: Looks) -> None:
        self.here, self.clock, self.proxy, self._looks = here, clock, proxy, looks
        self._states = stepfunctions_parser_backends[ACCOUNT_ID][REGION]
        self._sqs, self._scheduler = client("sqs"), client("scheduler")

    @property
    def machine(self) -> str:
        """The state machine's ARN."""
        return os.environ["STRANDLINE_STATE_MACHINE"]

    def rows(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """What lies in the database, beside the proxy."""
        with psycopg.connect(self.clock.url, autocommit=True) as administrator:
            cursor = administrator.execute(statement.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def pass_until(self, moment: datetime) -> None:
        """Let time pass, and everything happen that happens meanwhile."""
        self.settle()
        while (coming := self._next()) <= moment:
            started = len(self._executions())
            self.clock.jump(coming)
            _wait(lambda begun=started: len(self._executions()) > begun)
            self.settle()
        self.clock.jump(moment)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is under way."""
        still_since, looks, started = time.monotonic(), self._looks.ended, -1

        def is_still() -> bool:
            nonlocal still_since, looks, started
            begun = len(self._executions())
            if self._is_busy() or begun != started:
                still_since, looks, started = time.monotonic(), self._looks.ended, begun
            rested = time.monotonic() > still_since + _STILL_SECONDS
            return rested and self._looks.ended >= looks + _LOOKS

        _wait(is_still)

    def connected(self) -> int:
        """How many sessions of the service the database has."""
        asked = "select count(*)::int from pg_stat_activity where usename = 'strandline_app'"
        return self.rows(asked)[0][0]

    def _executions(self) -> list[Any]:
        return [one for machine in self._states.state_machines for one in machine.executions]

    def _is_busy(self) -> bool:
        if any(one.status == "RUNNING" for one in self._executions()):
            return True
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        for url in (os.environ["STRANDLINE_QUEUE_URL"], os.environ["STRANDLINE_RUNS_URL"]):
            asked = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
            if any(int(number) for number in asked["Attributes"].values()):
                return True
        return False

    def _next(self) -> datetime:
        now = self.clock()
        listed = self._scheduler.list_schedules(GroupName=GROUP, MaxResults=100)["Schedules"]
        return min(
            next_time(self._scheduler.get_schedule(GroupName=GROUP, Name=one["Name"]), now)
            for one in listed
        )


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + _SETTLE_SECONDS
    while not done():
        assert time.monotonic() < until, "something does not come to its end"
        time.sleep(0.02)


@contextmanager
def staged(place: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> Generator[Stage]:
    """A stage on this directory, as `make run` starts it, with spacings as they are deployed."""
    clock, proxies = FastClock(), list[CountingProxy]()
    migrate, configure = runtime._migrate, runtime._configure  # pyright: ignore[reportPrivateUsage]

    def quicken(postgres: EmbeddedPostgres, known: dict[str, str]) -> None:
        with psycopg.connect(postgres.dsn("template1"), autocommit=True) as administrator:
            administrator.execute(_QUICKEN)
        migrate(postgres, known)
        clock.url = postgres.dsn(DATABASE)
        with psycopg.connect(clock.url, autocommit=True) as administrator:
            for name, value in settings.items():
                administrator.execute(f"alter role strandline_app set {name} = '{value}'".encode())
        proxies.append(CountingProxy(postgres.port, clock))

    def through_proxy(url: str, *given: Any) -> dict[str, str]:
        port = url.rpartition(":")[2].partition("/")[0]
        return configure(url.replace(f":{port}/", f":{proxies[0].port}/"), *given)

    words, looks = WordEmbedder(), Looks()
    looks.count(monkeypatch)

    def make_embedder(*_: object) -> WordEmbedder:
        return words

    monkeypatch.setenv("STRANDLINE_SWEEP_SECONDS", "300")
    monkeypatch.setattr(runtime, "_migrate", quicken)
    monkeypatch.setattr(runtime, "_configure", through_proxy)
    monkeypatch.setattr("strandline.resources.make_embedder", make_embedder)
    with running(place, 0, clock) as here, closing(proxies[0]) as proxy:
        yield Stage(here, clock, proxy, looks)


def morning_after(moment: datetime) -> datetime:
    """The next daily sweep."""
    today = moment.astimezone(UTC).replace(hour=3, minute=30, second=0, microsecond=0)
    return today if today > moment else today + timedelta(days=1)
