"""Promise: whatever happens to the database, a caller gets an answer or is told to try again.

Twenty restarts, by SIGKILL and gentle (a fast shutdown, which says so to every session) in turn,
under a load of every operation of every function. A write that was answered by a 503 may have
happened or not: what was acknowledged is there.
"""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from infra.functions import FUNCTIONS
from strandline import db
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from strandline.store import work
from strandline.wire import Receipt
from tests.prove.history import Acked, Findings, History, Op, judge, seeded, stored_in
from tests.strandline.services.stand_ins import WordEmbedder
from tests.support import KEY_SECRET, TEMPLATE, Base, Gateway, Reply, wire_handlers

RESTARTS, WRITERS, READERS = 20, 3, 2
EVENTS = "/api/v1/events"
BACK_SECONDS = 5.0
"""The longest from the database's return to the first success."""
LEASE_SECONDS = 3
"""Instead of two minutes, so that a lease can be seen to end."""
PATIENCE_SECONDS = 27.0
"""A request has 25, and an answer is not instant on a busy machine."""
TENANTS = "/api/v1/admin/tenants"
KEYS = f"{TENANTS}/{{tenant}}/keys"
KEY = f"{KEYS}/{{key_id}}"
READS = {"POST /api/v1/recall": {"query": "before"}, "POST /api/v1/events/query": {}}
"""Operations that read, and are no GET, with a body."""
ROUTES = {route for fn in FUNCTIONS for route in fn.routes}
WRITES = {route for route in ROUTES if not route.startswith("GET ")} - {*READS, f"POST {EVENTS}"}
SCOPES = [("user:alice", "user:bob"), ("user:alice",), ("agent:helper", "user:alice")]


@dataclass
class Load:
    """Writers, readers and the worker's sweep, which go on whatever becomes of the database."""

    gateway: Gateway
    key: str
    reads: list[tuple[str, str, object, int]]
    """Method, path, body, and the status while the database is up."""
    history: History = field(default_factory=History)
    wrong: list[str] = field(default_factory=list[str])
    """Answers that are neither a success nor a proper 503, and late ones."""
    away: Counter[str] = field(default_factory=Counter[str])
    """Proper 503s, by what was asked."""
    served: int = 0
    """Writes acknowledged: surely by the database."""
    done: list[tuple[str, tuple[object, ...]]] = field(default_factory=list[Any])
    """A statement that gives a row each for what else was acknowledged, with its parameters."""
    asked: Counter[str] = field(default_factory=Counter[str])
    """Operations that write, as often as they were acknowledged."""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Generator[None]:
        """Load while the block runs."""
        with ThreadPoolExecutor(WRITERS + READERS + 3) as pool:
            jobs = [pool.submit(self._write, n) for n in range(WRITERS)]
            jobs += [pool.submit(self._read, n) for n in range(READERS)]
            jobs += [pool.submit(job) for job in (self._sweep, self._write_more, self._operate)]
            try:
                yield
            finally:
                self._stop.set()
            for job in jobs:
                job.result()

    def await_more(self, appends: int) -> None:
        """Return once so many more were acknowledged, or something is wrong."""
        wanted, deadline = self.served + appends, time.monotonic() + 60
        while self.served < wanted and not self.wrong:
            assert time.monotonic() < deadline, "nobody gets anywhere"
            time.sleep(0.002)

    def _asked(self, method: str, path: str, body: object, expected: int, **more: Any) -> Reply:
        """One call, judged."""
        asked, started = f"{method} {path}", time.monotonic()
        reply = self.gateway.call(method, path, body, key=self.key, **more)
        if time.monotonic() - started > PATIENCE_SECONDS:
            self.wrong.append(f"{asked}: {time.monotonic() - started:.0f} s")
        if reply.status == expected:
            self.served += asked == f"POST {EVENTS}"
        elif reply.status == 503 and reply.headers.get("Retry-After", "").isdecimal():
            self.away[asked] += 1
            if "error" in reply.body and reply.error["retryable"] is not True:
                self.wrong.append(f"{asked}: a 503 that is not retryable")
        else:
            self.wrong.append(f"{asked}: {reply.status} {reply.text[:200]}")
        return reply

    def _write(self, number: int) -> None:
        chance, turn = seeded("restarts", number), 0
        again: Op | None = None
        while not self._stop.is_set():
            turn += 1
            name = f"{number} {turn}"
            keyed = f"key of {name}" if turn % 2 else None
            op = again or Op(name, SCOPES[chance.randrange(len(SCOPES))], keyed)
            body, key = op.request()
            self.history.invoked.add(op)
            headers = {} if key is None else {"Idempotency-Key": key}
            reply = self._asked("POST", EVENTS, body, 201, headers=headers)
            if reply.status == 201:
                receipt = Receipt.model_validate(reply.body)
                replayed = "Idempotent-Replayed" in reply.headers
                self.history.acked.append(Acked(op, receipt, replayed))
                again = None
            else:
                self.history.unknown.append(op)
                again = op if key is not None else None
                time.sleep(0.02)

    def _write_more(self) -> None:
        """Batches and uploads."""
        for turn in count():
            if self._stop.is_set():
                return
            ops = [Op(f"batch {turn} {n}", SCOPES[n], f"batch {turn}#{n}") for n in range(3)]
            self.history.invoked.update(ops)
            body = {"events": [op.request()[0] for op in ops], "atomic": True}
            headers = {"Idempotency-Key": f"batch {turn}"}
            reply = self._wrote("POST", f"{EVENTS}/batch", body, 200, headers=headers)
            if reply is None:
                self.history.unknown.extend(ops)
            else:
                receipts = [Receipt.model_validate(item["event"]) for item in reply["results"]]
                self.history.acked += [
                    Acked(*pair, False) for pair in zip(ops, receipts, strict=True)
                ]
            sha256 = hashlib.sha256(b"%d" % turn).hexdigest()
            begun = self._wrote("POST", "/api/v1/uploads", {"size": 9, "sha256": sha256}, 201)
            if begun is not None:
                self._stored("select from uploads where upload_id = %s", begun["upload_id"])

    def _operate(self) -> None:
        """An operator's work: tenants, limits and keys."""
        for turn in count():
            if self._stop.is_set():
                return
            name = f"made-{turn}"
            if self._wrote("POST", TENANTS, {"tenant_id": name}, 201) is None:
                continue
            self._stored("select from tenants where tenant_id = %s", name)
            limit = {"requests_per_minute": turn}
            if self._wrote("PATCH", f"{TENANTS}/{{tenant}}", limit, 200, tenant=name) is not None:
                self._stored(
                    "select from tenants where tenant_id = %s and requests_per_minute = %s",
                    *(name, turn),
                )
            made = self._wrote("POST", KEYS, {}, 201, tenant=name)
            if made is None:
                continue
            old = made["key_id"]
            self._stored("select from api_keys where key_id = %s", old)
            made = self._wrote("POST", f"{KEY}/rotate", {}, 201, tenant=name, key_id=old)
            if made is not None:
                self._stored(
                    "select from api_keys where key_id = %s and rotated_to = %s",
                    *(old, made["key"]["key_id"]),
                )
            if self._wrote("DELETE", KEY, None, 200, tenant=name, key_id=old) is not None:
                self._stored(
                    "select from api_keys where key_id = %s and revoked_at is not null", old
                )

    def _wrote(
        self,
        method: str,
        path: str,
        body: object,
        expected: int,
        headers: Mapping[str, str] | None = None,
        **ids: str,
    ) -> Any:
        """The answer to a write, or None where it is not known whether it happened."""
        reply = self._asked(method, path.format(**ids), body, expected, headers=headers)
        if reply.status != expected:
            time.sleep(0.02)
            return None
        self.asked[f"{method} {path}"] += 1
        return reply.body

    def _stored(self, statement: str, *params: object) -> None:
        self.done.append((statement, params))

    def _read(self, number: int) -> None:
        turn = number * 3
        while not self._stop.is_set():
            turn += 1
            method, path, body, expected = self.reads[turn % len(self.reads)]
            if self._asked(method, path, body, expected).status == 503:
                time.sleep(0.02)

    def _sweep(self) -> None:
        """A schedule goes on after a failed run; the run says what failed it."""
        while not self._stop.wait(0.05):
            try:
                self.gateway.tick()
            except Unavailable:
                self.away["sweep"] += 1
            except Exception as error:
                self.wrong.append(f"sweep: {error!r}")


def every_read(gateway: Gateway, key: str) -> list[tuple[str, str, object, int]]:
    """Every operation that reads, of whatever function, with its answer while all is well."""
    said = Op("There before.", ("user:alice",)).request()[0]
    first = gateway.call("POST", EVENTS, said, key=key).body
    known = {name: first[name] for name in ("event_id", "scope_id", "cid")}
    known |= {"tenant": "acme", "key_id": gateway.new_key().key.key_id, "file": "page.js"}
    found: list[tuple[str, str, object, int]] = []
    for route in sorted(ROUTES - WRITES - {f"POST {EVENTS}"}):
        method, path = route.format(**known).split()
        body = READS.get(route)
        found.append((method, path, body, gateway.call(method, path, body, key=key).status))
    return found


@pytest.fixture
def served(
    durable: Callable[..., EmbeddedPostgres], aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[EmbeddedPostgres, Load]]:
    """A load on a server that may be restarted, and that server."""
    server = durable()
    url = Base(server, TEMPLATE).url
    environment = {
        "STRANDLINE_DATABASE_URL": url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_QUEUE_URL": aws.queue_url,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
        "STRANDLINE_TENANT_REQUESTS_PER_MINUTE": "1000000000",
        "STRANDLINE_TENANT_APPENDS_PER_MINUTE": "1000000000",
    }
    monkeypatch.setattr(work, "LEASE_SECONDS", LEASE_SECONDS)
    services = wire_handlers(environment, monkeypatch, WordEmbedder())
    gateway = Gateway(url)
    key = gateway.key(rights=["read", "write", "admin", "operator"])
    reads = every_read(gateway, key)
    assert {status for *_, status in reads} <= {200, 307, 404}
    load = Load(gateway, key, reads)
    load.history.invoked.add(Op("There before.", ("user:alice",)))
    yield server, load
    for database in [gateway.database, *(service.database for service in services)]:
        database.close()


def restart(server: EmbeddedPostgres, load: Load, times: int) -> float:
    """Restart the server so often under load; gives the longest time from its return to the first
    success. Ends early where something is wrong."""
    longest, chance = 0.0, seeded("restart")
    with load.running():
        for turn in range(times):
            load.await_more(20)
            (server.stop if turn % 2 else server.kill)()
            time.sleep(chance.uniform(0, 1))
            server.start()
            back = time.monotonic()
            load.await_more(1)
            longest = max(longest, time.monotonic() - back)
            if load.wrong:
                break
        load.await_more(20)
    return longest


def test_every_call_during_restarts_succeeds_or_says_to_try_again(
    served: tuple[EmbeddedPostgres, Load],
    tenth: Callable[[int], int],
    request: pytest.FixtureRequest,
) -> None:
    """And what was acknowledged is there, and no work is stuck."""
    (server, load), times = served, tenth(RESTARTS)
    base, started = Base(server, TEMPLATE), time.monotonic()
    longest = restart(server, load, times)
    print(
        f"\n{times} restarts in {time.monotonic() - started:.1f} s: {load.served} appends,"
        f" {sum(load.asked.values())} other writes of {len(load.asked)} kinds,"
        f" {sum(load.away.values())} times 503 over {len(load.away)} operations,"
        f" {len(load.wrong)} wrong answers;"
        f" first success at most {longest:.2f} s after the database's return"
    )
    assert load.wrong == []
    assert len(load.away) > 3
    assert judge(load.history, stored_in(base)) == Findings()
    assert set(load.asked) == WRITES
    assert [done for done in load.done if base.rows(done[0], *done[1]) == []] == []
    if request.config.getoption("--full"):
        assert longest <= BACK_SECONDS
    assert_no_work_is_stuck(load.gateway, base)


def assert_no_work_is_stuck(gateway: Gateway, base: Base) -> None:
    """After twice the lease no work is held by anybody who died, and all of it is done."""
    until = time.monotonic() + 2 * LEASE_SECONDS
    while time.monotonic() < until:
        gateway.tick()
        time.sleep(0.1)
    assert base.rows("select scope_id, attempts, last_error from scope_work") == []
    missing = (
        "select count(*) from events e where not exists ("
        "select from event_vectors v where v.event_id = e.event_id)"
    )
    assert base.rows(missing) == [(0,)]


def test_an_error_that_nobody_translates_is_noticed(
    served: tuple[EmbeddedPostgres, Load], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the driver's words for 'away' reach the edge as they are."""

    @contextmanager
    def untranslated(connection: object = None) -> Generator[None]:
        yield

    monkeypatch.setattr(db, "translated", untranslated)
    server, load = served
    restart(server, load, 4)
    assert any(": 500 " in wrong for wrong in load.wrong), load.wrong
