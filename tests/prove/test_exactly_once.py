"""Promise: for every pinned reader each event of a scope is either under one leaf of its snapshot
or in its fresh tail, while 8 writers append, the worker folds and builders publish."""

import importlib
import itertools
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.db.database import Caller, Database, TenantDb
from strandline.local.aws import LocalAws
from strandline.local.lambda_context import LambdaContext
from strandline.participants import derive_scope_id
from strandline.topics import store_tail
from strandline.topics.store_tail import EventPositionInScope
from tests.prove.append_history import (
    BACKGROUND,
    TENANT,
    AppendOp,
    Client,
    Findings,
    History,
    add_tenant,
    check_log,
    make_rng,
    stored_in,
)
from tests.strandline.chains.fold_fixtures import TOPICS, set_tuning
from tests.strandline.topics import exactly_once
from tests.strandline.topics.exactly_once import ListTail, Pin, ScopeReading
from tests.support import Gateway, ScratchDatabase

WRITERS, BUILDERS, EVENTS = 8, 2, 25_000
SEEDS = (0, pytest.param(1, marks=pytest.mark.proof), pytest.param(2, marks=pytest.mark.proof))
UNFOLDED = 12
"""The writers wait while more than one in so many of all events is not folded, so that they write
while builders run."""
STRETCH = 600
"""After so many events of all writers every lane has another topic."""
TOPIC_COUNT = 40
SCOPES = [
    ("agent:helper", "user:alice"),
    ("agent:helper", "user:bob"),
    ("user:alice", "user:bob"),
    ("agent:helper", "user:alice", "user:bob"),
    ("user:alice",),
    ("agent:other", "user:alice", "user:carol"),
]
SCOPE_IDS = {derive_scope_id(TENANT, list(members)): members for members in SCOPES}
VIEWS: Sequence[tuple[str, ...]] = ((), ("user:alice",), ("user:bob",), ("user:alice", "user:bob"))
"""On whose behalf readers ask; the first sees every scope."""
WORDS = " ".join(TOPICS).split()
type Scopes = Sequence[tuple[UUID, int, int]]


# writers -----------------------------------------------------------------------------------------


@dataclass
class Script:
    """What the writers say: in each lane of a scope one topic for a while, then another."""

    seed: int
    max_unfolded: int
    """With more events that are not folded the writers wait."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def make_ops(self, dice: random.Random) -> list[AppendOp]:
        """One transaction's appends, over scopes in any order."""
        return [self._make_op(dice) for _ in range(dice.choice((1, 2, 8, 16)))]

    def _make_op(self, dice: random.Random) -> AppendOp:
        n, scope, lane = next(self.numbers), dice.randrange(len(SCOPES)), dice.randrange(3)
        stretch = random.Random(f"{self.seed} {scope} {lane} {n // STRETCH}")
        words = random.Random(stretch.randrange(TOPIC_COUNT)).sample(WORDS, 4)
        content = f"{' '.join(words * 2)} {n}"
        session = f"{scope} {lane}" if lane else None
        return AppendOp(content, SCOPES[scope], f"key {n}" if n % 2 else None, session)


def write(client: Client, writer: int, script: Script, target: int) -> None:
    """Append until `target` events were created; a tenth as many are rolled back, some commit
    late."""
    dice, access = (
        make_rng("exactly once", script.seed, writer),
        client.database.connect_as(BACKGROUND),
    )
    for turn in itertools.count():
        if client.created >= target:
            return
        while count_unfolded(access) > script.max_unfolded:
            time.sleep(dice.uniform(0.05, 0.15))
        ops = script.make_ops(dice)
        pause = dice.uniform(0.02, 0.1) if writer < 2 and turn % 12 == 5 else 0.0
        if client.rolled_back < client.created / 10:
            client.append_and_roll_back(ops, pause)
        elif pause:
            client.append_late(ops, pause, delay=2 * pause)
        else:
            client.append(ops)


@dataclass(frozen=True)
class _Count:
    n: int


def count_unfolded(access: TenantDb) -> int:
    """The events that are not folded yet."""
    statement = "select coalesce(sum(last_seq - folded_seq), 0)::int as n from scopes"
    return access.fetch(_Count, statement, {})[0].n


# readers -----------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Pins the active snapshot again and again, and looks several times for each event of the
    scopes in view, each time in other database snapshots: only the pin holds it together."""

    database: Database
    history: History
    list_tail: ListTail | None = None
    """A fault that is planted; None: the real one."""
    marks_last: bool = False
    """A fault that is planted: the marks are read after the rows, once there are others."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when no writer is at work any longer."""
    looks: int = 1
    """How often it looks at what it pinned."""
    views: Sequence[tuple[str, ...]] = VIEWS[:1]
    faults: Counter[str] = field(default_factory=Counter[str])
    """How often an event was found, where that is not once."""
    checks: int = 0
    versions: set[int] = field(default_factory=set[int])
    mixed: int = 0
    """How often a scope had events in both places."""
    past_cutoff: int = 0
    """How often a leaf held events past the cutoff."""
    _dice: random.Random = field(default_factory=lambda: random.Random(1))
    _acked: defaultdict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set[UUID]))
    _known: int = 0

    def check(self) -> None:
        """Pin, and look."""
        self._learn_acknowledged()
        viewer = self._dice.choice(self.views)
        access = self.database.connect_as(Caller(TENANT, viewer))
        pin = exactly_once.pin_active(access)
        for number in range(self.looks):
            if number:
                time.sleep(self._dice.uniform(0, 0.05))
            readings = exactly_once.read_scopes(access, pin, list_tail=self.list_tail)
            marks = self._read_later_marks(access, pin) if self.marks_last else pin.marks
            self._count_faults(readings, marks, viewer)
            self._notice(pin, readings)

    def _read_later_marks(self, access: TenantDb, pin: Pin) -> Mapping[UUID, int]:
        """The marks after the next append: it comes for as long as somebody writes."""
        while (marks := exactly_once.pin_active(access).marks) == pin.marks:
            if self.stop.wait(0.02):
                break
        return marks

    def _learn_acknowledged(self) -> None:
        """What was acknowledged by now: anyone who pins later sees it."""
        acked = self.history.acks[self._known :]
        self._known += len(acked)
        for ack in acked:
            self._acked[ack.receipt.scope_id].add(ack.receipt.event_id)

    def _count_faults(
        self,
        readings: Mapping[UUID, ScopeReading],
        marks: Mapping[UUID, int],
        viewer: Collection[str],
    ) -> None:
        in_view = {scope for scope, members in SCOPE_IDS.items() if {*viewer} <= {*members}}
        assert marks.keys() <= in_view
        for scope_id in in_view:
            reading = readings.get(scope_id)
            events = reading.events if reading else ()
            ids, seqs = Counter(e.event_id for e in events), Counter(e.seq for e in events)
            mark = marks.get(scope_id, 0)
            self.faults["0 times"] += len({*range(1, mark + 1)} - seqs.keys())
            self.faults["0 times, acknowledged"] += len(self._acked[scope_id] - ids.keys())
            self.faults["twice or more"] += sum(count > 1 for count in ids.values())
            self.faults["two of one seq"] += sum(count > 1 for count in seqs.values())
            self.faults["past the mark"] += sum(seq > mark for seq in seqs)

    def _notice(self, pin: Pin, readings: Mapping[UUID, ScopeReading]) -> None:
        self.checks += 1
        self.versions.add(pin.version)
        for scope_id, cutoff, _ in pin.scopes:
            leaves = readings[scope_id].leaves
            self.mixed += bool(leaves and readings[scope_id].tail)
            self.past_cutoff += bool(leaves and leaves[-1].seq > cutoff)


def list_past_cutoff(
    access: TenantDb, version: int, scopes: Scopes, limit: int
) -> Sequence[EventPositionInScope]:
    """The planted fault: the tail is what lies past the cutoff, also if a leaf holds it."""
    del version
    return store_tail.list_fresh_tail(access, 0, scopes, limit)


def list_by_id(
    access: TenantDb, version: int, scopes: Scopes, limit: int
) -> Sequence[EventPositionInScope]:
    """The planted fault: the tail is what has a greater id than the event at the cutoff."""
    del version
    (scope,) = scopes
    return access.fetch(
        EventPositionInScope,
        """
        select event_id, scope_id, seq from events
        where scope_id = %(scope_id)s and seq <= %(mark)s and event_id > coalesce((
            select event_id from events where scope_id = %(scope_id)s and seq = %(cutoff)s),
            '00000000-0000-0000-0000-000000000000')
        limit %(limit)s
        """,
        {"scope_id": scope[0], "cutoff": scope[1], "mark": scope[2], "limit": limit},
    )


# builders and the worker -------------------------------------------------------------------------


def fold() -> None:
    """One message for all scopes, as SQS gives it to the worker."""
    body = json.dumps({"tenant": TENANT, "scopes": [str(scope_id) for scope_id in SCOPE_IDS]})
    handler: Any = importlib.import_module("functions.worker.handler").lambda_handler
    handler({"Records": [{"messageId": "m", "body": body}]}, LambdaContext("worker", 120))


def repeat(action: Callable[[], object], stop: threading.Event, pause: float, rest: float) -> None:
    """Do it until told to stop, and once more then: no writer is at work any longer. After each
    time wait for `pause` seconds, or for `rest` times as long as it took."""
    seconds = 0.0
    while not stop.wait(max(pause, rest * seconds)):
        started = time.monotonic()
        action()
        seconds = time.monotonic() - started
    action()


def run(
    gateway: Gateway,
    clients: Sequence[Client],
    readers: Sequence[Reader],
    seed: int,
    target: int,
    stop: threading.Event,
) -> None:
    """All writers at once, while the worker folds, builders race and readers read, the first of
    them most. Sets `stop` when the writers have ended."""
    script = Script(seed, target * len(clients) // UNFOLDED)
    actions: list[tuple[Callable[[], object], float, float]] = [
        (fold, 0.02, 0.0),
        *[(lambda: gateway.run_job("builder", TENANT), 0.5, 2.0)] * BUILDERS,
        *[(reader.check, 0.2, 12.0 if number else 3.0) for number, reader in enumerate(readers)],
    ]
    with ThreadPoolExecutor(len(clients) + len(actions)) as pool:
        others = [pool.submit(repeat, action, stop, *waits) for action, *waits in actions]
        writers = [pool.submit(write, c, n, script, target) for n, c in enumerate(clients)]
        try:
            for writer in writers:
                writer.result()
        finally:
            stop.set()
        for other in others:
            other.result()


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_once_each_event_is_in_leaf_or_tail(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    proof_size: Callable[[int], int],
    seed: int,
) -> None:
    """25,000 events a seed; readers with a planted fault read along and must find some wrong. The
    last events have ids from before the first, as of a writer that was long in committing."""
    size, history, started = proof_size(EVENTS), History(), time.monotonic()
    stop, late = threading.Event(), [AppendOp(f"late {n}", who) for n, who in enumerate(SCOPES)]
    with ExitStack() as stack:
        clients = [Client(scratch_db.url, BlobStore(aws.bucket), history) for _ in range(WRITERS)]
        database = Database(scratch_db.url)
        for one in (database, *(client.database for client in clients)):
            stack.enter_context(closing(one))
        add_tenant(database)
        set_tuning(scratch_db)
        right = Reader(database, history, looks=3, views=VIEWS)
        wrong = {
            "by cutoff alone": Reader(database, history, list_past_cutoff),
            "by id": Reader(database, history, list_by_id),
            "marks last": Reader(database, history, marks_last=True, stop=stop),
        }
        late_events = clients[0].prepare(late)
        run(plenty, clients, [right, *wrong.values()], seed, -(-size // WRITERS), stop)
        seconds, missed = time.monotonic() - started, wrong["by id"].faults["0 times, acknowledged"]
        clients[0].append_prepared(late, late_events)
        for reader in (right, wrong["by id"]):
            reader.check()
        log, counts = stored_in(scratch_db), count_index(scratch_db)
        plenty.run_job("builder", TENANT)
        right.check()
    print(
        f"\n{len(log)} events by {WRITERS} writers in {seconds:.1f} s, {len(history.rolled_back)}"
        f" rolled back; {counts[0]} snapshots published with {counts[1]} events under leaves;"
        f" {right.checks} looks at {len(right.versions)} versions; wrong readers: "
        + "; ".join(f"{name} {+reader.faults}" for name, reader in wrong.items())
    )
    assert len(log) >= size
    assert check_log(history, log) == Findings()
    assert {event.event_id for event in log} == {ack.receipt.event_id for ack in history.acks}
    assert +right.faults == Counter()
    assert len(history.rolled_back) > size / 20
    assert min(len(right.versions), right.mixed, right.past_cutoff) > 2
    assert wrong["by cutoff alone"].faults["twice or more"]
    assert wrong["by id"].faults["0 times, acknowledged"]
    assert missed or size < EVENTS, "also while the writers write; a sample may be too short"
    assert wrong["marks last"].faults["0 times"]


def count_index(base: ScratchDatabase) -> tuple[int, int]:
    """How many snapshots there are, and how many events the last one holds."""
    ((snapshots, events),) = base.rows(
        "select count(*)::int, (select sum(event_count)::int from snapshot_scopes"
        " where to_version is null) from snapshots"
    )
    return snapshots, events
