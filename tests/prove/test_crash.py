"""Promise: an acknowledged append survives the database's death, and the service its absence.

SIGKILL of every process of the server, under load. That is a crash, not a loss of power: what the
operating system was handed survives it.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from strandline.blobs import Blobs
from strandline.db import Database
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from strandline.models.embedding import Embedder
from tests.prove.history import Client, Findings, History, Op, add_tenant, judge, seeded, stored_in
from tests.support import KEY_SECRET, TEMPLATE, Base, Gateway, Reply, make_template, said, wire_handlers

WRITERS, KILLS = 4, 20
LOSSY_KILLS = 4
SCOPES = [("user:alice", "user:bob"), ("user:alice",), ("agent:helper", "user:alice")]
EVENTS = "/api/v1/events"
LOSSY = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
"""An acknowledgement before the write: what a crash within ten seconds takes with it."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the server's account reaches; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="strandline-crash-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@contextmanager
def server_in(place: Path, settings: Mapping[str, str]) -> Iterator[EmbeddedPostgres]:
    """A durable server of the test's own, whose schema and tenant no crash can take."""
    with EmbeddedPostgres(place / "server", durable=True, settings=settings) as server:
        make_template(server)
        with closing(Database(Base(server, TEMPLATE).url)) as database:
            add_tenant(database)
        with psycopg.connect(server.dsn(), autocommit=True) as administrator:
            administrator.execute("checkpoint")
        yield server


class Load:
    """Four writers that append, and go on whatever becomes of the database, until told to stop."""

    def __init__(self, url: str, aws: LocalAws, history: History) -> None:
        self._clients = [Client(url, Blobs(aws.bucket), history) for _ in range(WRITERS)]
        self._history = history
        self._stop = threading.Event()
        self.round = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Load while the block runs."""
        self.round += 1
        self._stop.clear()
        with ThreadPoolExecutor(WRITERS) as pool:
            writers = [pool.submit(self._write, n, c) for n, c in enumerate(self._clients)]
            try:
                yield
            finally:
                self._stop.set()
            for writer in writers:
                writer.result()

    def await_more(self, events: int) -> None:
        """Return once that many more were acknowledged."""
        wanted, deadline = len(self._history.acked) + events, time.monotonic() + 60
        while len(self._history.acked) < wanted:
            assert time.monotonic() < deadline, "the writers do not get anywhere"
            time.sleep(0.005)

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.database.close()

    def _write(self, number: int, client: Client) -> None:
        chance = seeded("crash", self.round, number)
        again: list[Op] = []
        for turn in range(1_000_000):
            if self._stop.is_set():
                return
            name = f"{self.round} {number} {turn}"
            ops = again or _ops(name, chance.randrange(12))
            again = []
            try:
                client.append(ops)
            except Unavailable:  # Unsure is one
                self._history.unknown.extend(ops)
                if ops[0].key is not None and chance.random() < 0.7:
                    again = ops  # a client that sends its key again
                time.sleep(0.02)


def _ops(name: str, kind: int) -> list[Op]:
    """Keyed and un-keyed events, and a batch of both: as often as not in a scope of several."""
    if kind == 0:
        return [Op(f"{name} {n}", who, f"key of {name} {n}") for n, who in enumerate(SCOPES)]
    return [Op(name, SCOPES[kind % 3], f"key of {name}" if kind % 2 else None)]


def crash(server: EmbeddedPostgres, load: Load, kills: int) -> float:
    """Kill and restart the server under load; gives the longest time it took to serve again."""
    longest, chance = 0.0, seeded("kills", load.round)
    with load.running():
        for _ in range(kills):
            load.await_more(40)
            time.sleep(chance.uniform(0, 0.3))
            server.kill()
            killed = time.monotonic()
            server.start()
            load.await_more(1)
            longest = max(longest, time.monotonic() - killed)
    return longest


def told(history: History, findings: Findings, kills: int, since: float) -> str:
    return (
        f"{kills} kills in {time.monotonic() - since:.1f} s: {len(history.acked)} acknowledged,"
        f" {len(history.unknown)} unknown outcomes, {len(findings.lost)} lost"
    )


def test_no_acknowledged_event_is_lost_by_a_killed_database(
    place: Path, aws: LocalAws, tenth: Callable[[int], int]
) -> None:
    """20 kills under 4 writers: all that was acknowledged is there with its content, no key twice,
    no gap in seq, and an unknown outcome at most once."""
    kills, history, started = tenth(KILLS), History(), time.monotonic()
    with server_in(place, {}) as server:
        base = Base(server, TEMPLATE)
        with closing(Load(base.url, aws, history)) as load:
            longest = crash(server, load, kills)
        log = stored_in(base)
    findings = judge(history, log)
    outcomes = {op.content for op in history.unknown}
    unanswered = outcomes - {ack.op.content for ack in history.acked}
    kept = sum(event.content in unanswered for event in log)
    print(
        f"\n{told(history, findings, kills, started)}; of {len(unanswered)} never answered {kept}"
        f" were stored; {sum(ack.replayed for ack in history.acked)} replays;"
        f" serving again after at most {longest:.1f} s"
    )
    assert findings == Findings()
    assert len(history.unknown) >= kills
    assert len(log) == len({ack.receipt.event_id for ack in history.acked}) + kept


def test_an_acknowledgement_before_the_write_would_be_lost(place: Path, aws: LocalAws) -> None:
    """The planted fault: the same test without synchronous_commit must lose an acknowledged event,
    or the test above proves nothing."""
    history, started = History(), time.monotonic()
    findings, kills = Findings(), 0
    with server_in(place, LOSSY) as server:
        base = Base(server, TEMPLATE)
        with closing(Load(base.url, aws, history)) as load:
            while kills < LOSSY_KILLS and not findings.lost:
                crash(server, load, 1)
                kills += 1
                findings = judge(history, stored_in(base))
    print(f"\nwithout synchronous_commit: {told(history, findings, kills, started)}")
    assert findings.lost


def is_away(reply: Reply) -> bool:
    """Says that it is worth to try again, and when."""
    assert reply.status == 503, reply.text
    assert reply.headers["Retry-After"].isdecimal()
    assert reply.error["retryable"] is True
    assert reply.error["code"] in ("unavailable", "outcome_unknown")
    return reply.error["code"] == "unavailable"


@pytest.fixture
def frail(
    place: Path, aws: LocalAws, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[EmbeddedPostgres, Gateway]]:
    """A gateway as the fixture of this name, on a server that may be killed."""
    with server_in(place, {}) as server:
        url = Base(server, TEMPLATE).url
        environment = {
            "STRANDLINE_DATABASE_URL": url,
            "STRANDLINE_BUCKET": aws.bucket,
            "STRANDLINE_QUEUE_URL": aws.queue_url,
            "STRANDLINE_KEY_SECRET": KEY_SECRET,
        }
        services = wire_handlers(environment, monkeypatch, embedder)
        gateway = Gateway(url)
        yield server, gateway
        for database in [gateway.database, *(service.database for service in services)]:
            database.close()


@pytest.mark.parametrize("pause", [0.0, 1.2], ids=["in use", "at rest"])
def test_a_database_that_is_away_is_a_503_and_comes_back_by_itself(
    frail: tuple[EmbeddedPostgres, Gateway], pause: float
) -> None:
    """Every route says 503 with Retry-After while the database is away, for a connection that was
    just used and for one that rested; and the same process serves again when it is back."""
    server, gateway = frail
    known, never_seen = gateway.key(user="user:alice"), gateway.key(user="user:alice")
    body, key = said("The buoy is out.", "user:alice"), {"Idempotency-Key": "k"}
    first = gateway.call("POST", EVENTS, body, key=known, headers={"Idempotency-Key": "first"})
    gateway.call("GET", EVENTS, key=known)
    server.kill()
    time.sleep(pause)
    is_away(gateway.call("POST", EVENTS, body, key=known, headers=key))  # perhaps the break itself
    for token in (known, never_seen):
        assert is_away(gateway.call("POST", EVENTS, body, key=token, headers=key))
        is_away(gateway.call("GET", EVENTS, key=token))
        assert is_away(gateway.call("GET", EVENTS, key=token))
        assert is_away(gateway.call("POST", "/api/v1/recall", {"query": "buoy"}, key=token))
    server.start()
    back = time.monotonic()
    again = gateway.call("POST", EVENTS, body, key=known, headers=key)
    assert (again.status, again.body["seq"]) == (201, first.body["seq"] + 1)
    assert gateway.call("POST", EVENTS, body, key=never_seen, headers=key).text == again.text
    page = gateway.call("GET", EVENTS, key=known)
    assert page.status == 200
    assert len(page.body["events"]) == 2
    assert gateway.call("POST", "/api/v1/recall", {"query": "buoy"}, key=known).status == 200
    print(f"\nserving again {time.monotonic() - back:.2f} s after the database")
    assert time.monotonic() - back < 5


def test_a_database_that_dies_during_a_request_leaves_the_outcome_unknown(
    frail: tuple[EmbeddedPostgres, Gateway],
) -> None:
    """Killed while the append waits for a lock: 503, and the retry with the same key stores once."""
    server, gateway = frail
    token, headers = gateway.key(user="user:alice"), {"Idempotency-Key": "k"}
    body = said("The buoy is out.", "user:alice")
    assert gateway.call("POST", EVENTS, said("First.", "user:alice"), key=token).status == 201
    base = Base(server, TEMPLATE)
    with psycopg.connect(base.admin_url) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("select from scopes for update")
        waiting = pool.submit(gateway.call, "POST", EVENTS, body, key=token, headers=headers)
        _await_lock_wait(base)
        server.kill()
        reply = waiting.result(20)
    is_away(reply)
    assert reply.error["code"] == "outcome_unknown"
    server.start()
    again = gateway.call("POST", EVENTS, body, key=token, headers=headers)
    assert again.status == 201
    assert [event.content for event in stored_in(base)] == ["First.", "The buoy is out."]


def _await_lock_wait(base: Base) -> None:
    deadline = time.monotonic() + 10
    while not base.rows("select from pg_stat_activity where wait_event_type = 'Lock'"):
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)
