"""Promise: an acknowledged append survives the database's death.

SIGKILL of every process of the server, under load. That is a crash, not a loss of power: what the
operating system was handed survives it.
"""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from strandline.aws.blobs import BlobStore
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.prove.append_history import (
    AppendOp,
    Client,
    Findings,
    History,
    check_log,
    make_rng,
    stored_in,
)
from tests.support import TEMPLATE, ScratchDatabase

WRITERS, KILLS = 4, 20
LOSSY_KILLS = 4
SCOPES = [("user:alice", "user:bob"), ("user:alice",), ("agent:helper", "user:alice")]
LOSSY = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
"""An acknowledgement before the write: what a crash within ten seconds takes with it."""


class Load:
    """Four writers that append, and go on whatever becomes of the database, until told to stop."""

    def __init__(self, url: str, aws: LocalAws, history: History) -> None:
        self._clients = [Client(url, BlobStore(aws.bucket), history) for _ in range(WRITERS)]
        self._history = history
        self._stop = threading.Event()
        self.round = 0

    @contextmanager
    def running(self) -> Generator[None]:
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
        target, deadline = len(self._history.acks) + events, time.monotonic() + 60
        while len(self._history.acks) < target:
            assert time.monotonic() < deadline, "the writers do not get anywhere"
            time.sleep(0.005)

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.database.close()

    def _write(self, number: int, client: Client) -> None:
        chance = make_rng("crash", self.round, number)
        again: list[AppendOp] = []
        for turn in range(1_000_000):
            if self._stop.is_set():
                return
            name = f"{self.round} {number} {turn}"
            ops = again or _ops(name, chance.randrange(12))
            try:
                client.append(ops)
                again = []
            except Unavailable:  # Unsure is one
                if not again:
                    self._history.unknown.extend(ops)
                    # Most clients that have a key send it again until they know.
                    again = ops if ops[0].key is not None and chance.random() < 0.7 else []
                time.sleep(0.02)


def _ops(name: str, kind: int) -> list[AppendOp]:
    """Keyed and un-keyed events, and a batch of both: as often as not in a scope of several."""
    if kind == 0:
        return [AppendOp(f"{name} {n}", who, f"key of {name} {n}") for n, who in enumerate(SCOPES)]
    return [AppendOp(name, SCOPES[kind % 3], f"key of {name}" if kind % 2 else None)]


def crash(server: EmbeddedPostgres, load: Load, kills: int) -> float:
    """Kill and restart the server under load; gives the longest time it took to serve again."""
    longest, chance = 0.0, make_rng("kills", load.round)
    with load.running():
        for _ in range(kills):
            load.await_more(100)
            time.sleep(chance.uniform(0, 0.3))
            server.kill()
            end = time.monotonic()
            server.start()
            load.await_more(1)
            longest = max(longest, time.monotonic() - end)
    return longest


def report_line(history: History, findings: Findings, kills: int, since: float) -> str:
    return (
        f"{kills} kills in {time.monotonic() - since:.1f} s: {len(history.acks)} acknowledged,"
        f" {len(history.unknown)} unknown outcomes, {len(findings.lost)} lost"
    )


def test_crash_of_database_loses_no_acknowledged_event(
    start_durable_server: Callable[..., EmbeddedPostgres],
    aws: LocalAws,
    proof_size: Callable[[int], int],
) -> None:
    """20 kills under 4 writers: all that was acknowledged is there with its content, no key twice,
    no gap in seq, and an unknown outcome at most once."""
    kills, history, started = proof_size(KILLS), History(), time.monotonic()
    server = start_durable_server()
    base = ScratchDatabase(server, TEMPLATE)
    with closing(Load(base.url, aws, history)) as load:
        longest = crash(server, load, kills)
    log = stored_in(base)
    findings = check_log(history, log)
    outcomes = {op.content for op in history.unknown}
    unanswered = outcomes - {ack.op.content for ack in history.acks}
    surplus = sum(event.content in unanswered for event in log)
    print(
        f"\n{report_line(history, findings, kills, started)}; of {len(unanswered)} never answered"
        f" {surplus} were stored; {sum(ack.is_replay for ack in history.acks)} replays;"
        f" serving again after at most {longest:.1f} s"
    )
    assert findings == Findings()
    assert len(history.unknown) >= kills
    assert len(log) == len({ack.receipt.event_id for ack in history.acks}) + surplus


@pytest.mark.proof
def test_crash_test_detects_early_acknowledgement(
    start_durable_server: Callable[..., EmbeddedPostgres], aws: LocalAws
) -> None:
    """The planted fault: the same test without synchronous_commit must lose an acknowledged event,
    or the test above proves nothing."""
    history, started = History(), time.monotonic()
    findings, kills = Findings(), 0
    server = start_durable_server(**LOSSY)
    base = ScratchDatabase(server, TEMPLATE)
    with closing(Load(base.url, aws, history)) as load:
        while kills < LOSSY_KILLS and not findings.lost:
            crash(server, load, 1)
            kills += 1
            findings = check_log(history, stored_in(base))
    print(f"\nwithout synchronous_commit: {report_line(history, findings, kills, started)}")
    assert findings.lost
