"""Promise: a scope's seq is gapless and in commit order, so that who follows it misses nothing, and
a key is one event; with 8 writers, rollbacks, late commits, raced keys and crossing batches."""

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.db.database import Caller, Database, TenantDb
from strandline.errors import NotFound
from strandline.local.aws import LocalAws
from strandline.log import store as log_store
from strandline.log.read import read_feed
from strandline.participants import derive_scope_id
from tests.prove.append_history import (
    BACKGROUND,
    TENANT,
    AppendOp,
    Client,
    Findings,
    History,
    StoredEvent,
    add_tenant,
    build_events,
    check_log,
    make_rng,
    stored_in,
)
from tests.support import APP, ScratchDatabase

WRITERS, EVENTS = 8, 25_000
SCOPES = [
    ("agent:helper", "user:alice"),
    ("agent:helper", "user:bob"),
    ("user:alice", "user:bob"),
    ("agent:helper", "user:alice", "user:bob"),
    ("user:alice",),
    ("agent:other", "user:alice", "user:carol"),
]


class SeqReader:
    """Follows every scope by seq, as somebody who took part in it."""

    def __init__(self, database: Database) -> None:
        self.seen: defaultdict[UUID, list[UUID]] = defaultdict(list)
        self._database = database
        self._at: defaultdict[UUID, int] = defaultdict(int)

    def poll(self) -> None:
        """Read what is new."""
        for who in SCOPES:
            access = self._database.connect_as(Caller(TENANT, who))
            scope = derive_scope_id(TENANT, list(who))
            while self._page(access, scope):
                pass

    def _page(self, access: TenantDb, scope: UUID) -> bool:
        try:
            page = read_feed(access, scope, self._at[scope], 500)
        except NotFound:
            return False
        self.seen[scope] += [event.event_id for event in page.events]
        self._at[scope] = page.next_after_seq
        return bool(page.events)


@dataclass(frozen=True)
class Id:
    event_id: UUID


class IdReader:
    """The planted fault: remembers the greatest id it saw, and asks for what is greater."""

    def __init__(self, database: Database) -> None:
        self.seen: set[UUID] = set()
        self._access = database.connect_as(BACKGROUND)
        self._at = UUID(int=0)

    def poll(self) -> None:
        """Read what is new, it believes."""
        rows = self._access.fetch(
            Id,
            "select event_id from events where event_id > %(at)s order by event_id",
            {"at": self._at},
        )
        self.seen.update(row.event_id for row in rows)
        self._at = rows[-1].event_id if rows else self._at


class Script:
    """What the writers do next: some of it the same as what another does at this moment."""

    def __init__(self) -> None:
        self._tickets = itertools.count()
        self._own = itertools.count()

    def next(self, writer: int, chance: random.Random) -> list[AppendOp]:
        """One transaction's appends."""
        kind = chance.random()
        if kind < 0.25:
            return [self._alone(chance, is_keyed=False)]
        if kind < 0.4:
            return [self._alone(chance, is_keyed=True)]
        if kind < 0.6:
            return self._raced(1)
        ops = self._raced(4) if chance.random() < 0.5 else []
        ops += [self._alone(chance, is_keyed=chance.random() < 0.5) for _ in range(4)]
        ops.sort(key=lambda op: op.participants, reverse=writer % 2 == 0)  # scopes and keys cross
        return ops

    def _alone(self, chance: random.Random, *, is_keyed: bool) -> AppendOp:
        n = next(self._own)
        return _op(f"own {n}", chance.randrange(len(SCOPES)), is_keyed, n % 50)

    def _raced(self, size: int) -> list[AppendOp]:
        """The same for three callers in a row, no matter who they are."""
        n = next(self._tickets) // 3
        return [
            _op(f"raced {n} {i} of {size}", (n + i) % len(SCOPES), True, n) for i in range(size)
        ]


def _op(name: str, scope: int, is_keyed: bool, turn: int) -> AppendOp:
    session = f"{scope} {turn // 20}" if turn % 3 == 0 else None
    return AppendOp(name, SCOPES[scope], f"key of {name}" if is_keyed else None, session)


def write(client: Client, writer: int, script: Script, target: int) -> int:
    """Append until `target` events were created; gives the number of transactions."""
    chance = make_rng("order", writer)
    for turn in range(20 * target):
        if client.created >= target:
            return turn
        ops = script.next(writer, chance)
        pause = chance.uniform(0.02, 0.2) if writer < 2 and turn % 12 == 5 else 0.0
        if client.rolled_back < client.created / 10:
            client.append_and_roll_back(ops, pause)
        elif pause:
            client.append_late(ops, pause)
        else:
            client.append(ops)
    raise AssertionError("the script does not get anywhere")


def follow(poll: Callable[[], None], stop: threading.Event, pause: float) -> None:
    """Poll until told to stop, and once more then: nothing is under way any longer."""
    while not stop.wait(pause):
        poll()
    poll()


def run(clients: Sequence[Client], target: int, polls: Mapping[Callable[[], None], float]) -> int:
    """All writers while all readers poll at their intervals; gives the number of transactions."""
    script, stop = Script(), threading.Event()
    with ThreadPoolExecutor(len(clients) + len(polls)) as pool:
        readers = [pool.submit(follow, poll, stop, pause) for poll, pause in polls.items()]
        writers = [pool.submit(write, c, n, script, target) for n, c in enumerate(clients)]
        try:
            turns = sum(writer.result() for writer in writers)
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    return turns


def test_order_of_events_loses_and_doubles_nothing(
    scratch_db: ScratchDatabase, aws: LocalAws, proof_size: Callable[[int], int]
) -> None:
    """25,000 events by 8 writers: who follows by seq sees each once and in order; who follows by id
    loses some, or this test would prove nothing."""
    size, history, blobs, started = (
        proof_size(EVENTS),
        History(),
        BlobStore(aws.bucket),
        time.monotonic(),
    )
    with ExitStack() as stack:
        clients = [Client(scratch_db.url, blobs, history) for _ in range(WRITERS)]
        databases = [Database(scratch_db.url) for _ in range(2)]
        for database in [*databases, *(client.database for client in clients)]:
            stack.enter_context(closing(database))
        add_tenant(databases[0])
        right, wrong = SeqReader(databases[0]), IdReader(databases[1])
        turns = run(clients, -(-size // WRITERS), {right.poll: 0.05, wrong.poll: 0.01})
    log = stored_in(scratch_db)
    missing = len(log) - len(wrong.seen)
    replays = sum(ack.is_replay for ack in history.acks)
    print(
        f"\n{len(log)} events by {WRITERS} writers in {time.monotonic() - started:.1f} s:"
        f" {turns} transactions, {len(history.rolled_back)} appends rolled back, {replays} replays;"
        f" the reader by id lost {missing} ({missing / len(log):.1%})"
    )
    assert len(log) >= size
    assert check_log(history, log) == Findings()
    assert {event.event_id for event in log} == {ack.receipt.event_id for ack in history.acks}
    assert receipts_by_key_differ(history) == []
    assert right.seen == by_scope(log)
    assert len(history.rolled_back) > size / 20
    assert replays > size / 20
    assert missing > 0


def receipts_by_key_differ(history: History) -> list[str]:
    """Keys whose replays were not answered as their first call was."""
    receipts = defaultdict[str, set[str]](set)
    for ack in history.acks:
        if ack.op.key is not None:
            receipts[ack.op.key].add(ack.receipt.model_dump_json())
    return [key for key, receipt in receipts.items() if len(receipt) > 1]


def by_scope(log: Sequence[StoredEvent]) -> dict[UUID, list[UUID]]:
    """Event ids by seq, of each scope."""
    scopes = defaultdict[UUID, list[UUID]](list)
    for event in log:
        scopes[event.scope_id].append(event.event_id)
    return scopes


def test_order_by_seq_misses_no_late_commit(
    scratch_db: ScratchDatabase,
) -> None:
    """The one defect to design out first, step by step."""
    late, early = (AppendOp("late", SCOPES[0]), AppendOp("early", SCOPES[1]))
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(closing(Database(scratch_db.url))) for _ in range(3)
        )
        add_tenant(first)
        right, wrong = SeqReader(third), IdReader(third)
        access = first.connect_as(BACKGROUND)
        with access.transaction():
            (result,) = log_store.append_events(access, build_events([late]), atomic=False)
            (outcome,) = log_store.append_events(
                second.connect_as(BACKGROUND), build_events([early]), atomic=False
            )
            wrong.poll()
            right.poll()
        wrong.poll()
        right.poll()
    assert result.event_id is not None
    assert outcome.event_id is not None
    assert result.event_id < outcome.event_id
    assert wrong.seen == {outcome.event_id}
    assert right.seen == {result.scope_id: [result.event_id], outcome.scope_id: [outcome.event_id]}


def test_order_of_seq_is_commit_order(
    scratch_db: ScratchDatabase,
) -> None:
    """Commit order is seq order: a second append to the scope waits for the first one's end."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(Database(scratch_db.url))) for _ in range(2))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        add_tenant(first)
        access = first.connect_as(BACKGROUND)

        def follow_up() -> int | None:
            (said_so,) = log_store.append_events(
                second.connect_as(BACKGROUND),
                build_events([AppendOp("second", SCOPES[0])]),
                atomic=False,
            )
            return said_so.seq

        with access.transaction():
            log_store.append_events(
                access, build_events([AppendOp("first", SCOPES[0])]), atomic=False
            )
            waiting = pool.submit(follow_up)
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
        assert waiting.result(5) == 2
    assert [(e.seq, e.content) for e in stored_in(scratch_db)] == [(1, "first"), (2, "second")]


@pytest.mark.own_database
def test_order_append_reads_no_more_of_large_log(
    scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    """The writers above finish in time only if an append does not look through the whole tenant."""
    client, appends = Client(scratch_db.url, BlobStore(aws.bucket), History()), 20
    with closing(client.database):
        add_tenant(client.database)
        for start in range(0, 2000, 200):
            client.append([_op(f"{start + n}", n % 6, True, n) for n in range(200)])
    before = rows_read(scratch_db)
    client = Client(scratch_db.url, BlobStore(aws.bucket), History())
    with closing(client.database):
        for n in range(appends):
            client.append([_op(f"more {n}", n % 6, True, n)])
    each = (rows_read(scratch_db) - before) / appends
    print(f"\nan append to a log of 2,000 reads {each:.0f} rows of it")
    assert each < 100


def rows_read(base: ScratchDatabase) -> int:
    """Rows of the log read so far, which Postgres counts by the end of each session."""
    sessions = "select from pg_stat_activity where datname = %s and usename = %s"
    deadline = time.monotonic() + 30
    while base.rows(sessions, base.name, APP):
        assert time.monotonic() < deadline, "a session goes on"
        time.sleep(0.05)
    ((count,),) = base.rows(
        "select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relname = 'events'"
    )
    return count
