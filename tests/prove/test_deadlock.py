"""Promise: batches whose keys, scopes and sessions cross never deadlock."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest

from strandline.aws.blobs import BlobStore
from strandline.db.database import Database
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws
from strandline.log import store as log_store
from strandline.participants import derive_scope_id
from tests.prove.append_history import (
    BACKGROUND,
    TENANT,
    AppendOp,
    Client,
    Findings,
    History,
    add_tenant,
    build_events,
    check_log,
    stored_in,
)
from tests.support import ScratchDatabase

CROSSINGS, SAMPLE = 200, 60
SCOPES = [
    ("agent:helper", "user:alice"),
    ("agent:helper", "user:bob"),
    ("user:alice", "user:bob"),
    ("agent:helper", "user:alice", "user:bob"),
    ("user:alice",),
    ("agent:other", "user:alice", "user:carol"),
]


def crossing(rnd: int, side: int) -> list[AppendOp]:
    """Half of a crossing, in turn of new sessions, of keys and of scopes alone: who waits at the
    first never meets at the next. Every other round, in new scopes."""
    kind, new = rnd % 3, (f"user:{rnd}",) if rnd % 2 else ()
    ops = [AppendOp(f"{rnd} of {side} {n}", who + new) for n, who in enumerate(SCOPES)]
    for n, who in enumerate(SCOPES if kind < 2 else []):
        session = f"{rnd} session {n}" if kind == 0 else None
        ops.append(AppendOp(f"{rnd} shared {n}", who + new, f"{rnd} {n}", session))
    return ops[::-1] if side else ops


def test_deadlock_never_occurs_between_crossing_batches(
    scratch_db: ScratchDatabase, aws: LocalAws, request: pytest.FixtureRequest
) -> None:
    """200 rounds of two batches with the same keys, scopes and sessions in opposite order."""
    crossings = CROSSINGS if request.config.getoption("--full") else SAMPLE
    history, blobs, started = History(), BlobStore(aws.bucket), time.monotonic()
    gate = threading.Barrier(2, timeout=30)

    def side(number: int) -> None:
        with closing(Database(scratch_db.url)) as database:
            client = Client(scratch_db.url, blobs, history)
            add_tenant(database)
            with closing(client.database):
                for rnd in range(crossings):
                    gate.wait()
                    client.append(crossing(rnd, number))

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(side, number) for number in range(2)]:
            future.result()
    log = stored_in(scratch_db)
    print(f"\n{crossings} crossings, {len(log)} events in {time.monotonic() - started:.1f} s")
    assert check_log(history, log) == Findings()
    assert len(log) == len(history.invocations)


def test_deadlock_is_avoided_by_one_lock_order(scratch_db: ScratchDatabase, aws: LocalAws) -> None:
    """Two batches with the same scopes in opposite order are held up halfway, at one scope that
    somebody else has locked; when it is free, neither holds what the other needs."""
    history = History()
    clients = [Client(scratch_db.url, BlobStore(aws.bucket), history) for _ in range(2)]
    batches = [[AppendOp(f"{side} {n}", who) for n, who in enumerate(SCOPES)] for side in range(3)]
    middle = derive_scope_id(TENANT, list(SCOPES[2]))
    with ExitStack() as stack:
        for client in clients:
            stack.enter_context(closing(client.database))
        add_tenant(clients[0].database)
        clients[0].append(batches[2])
        pool = stack.enter_context(ThreadPoolExecutor(2))
        holder = stack.enter_context(closing(psycopg.connect(scratch_db.admin_url)))
        holder.execute("select from scopes where scope_id = %s for update", (middle,))
        sides = [
            pool.submit(clients[0].append, batches[0]),
            pool.submit(clients[1].append, batches[1][::-1]),
        ]
        deadline = time.monotonic() + 10
        while (
            len(scratch_db.rows("select from pg_stat_activity where wait_event_type = 'Lock'")) < 2
        ):
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.01)
        holder.rollback()
        for side in sides:
            side.result(20)
    assert check_log(history, stored_in(scratch_db)) == Findings()


def test_deadlock_test_detects_unsorted_order(scratch_db: ScratchDatabase) -> None:
    """The planted fault: each side takes one key, then the other's. It must be seen to deadlock,
    and to reach a caller as Unavailable, or the crossings above prove nothing."""
    gate = threading.Barrier(2, timeout=30)
    ops = [AppendOp("one", SCOPES[0], "one"), AppendOp("two", SCOPES[1], "two")]

    def side(order: Sequence[AppendOp]) -> bool:
        with closing(Database(scratch_db.url)) as database:
            add_tenant(database)
            access = database.connect_as(BACKGROUND)
            try:
                with access.transaction():
                    log_store.append_events(access, build_events(order[:1]), atomic=False)
                    gate.wait()
                    log_store.append_events(access, build_events(order[1:]), atomic=False)
            except Unavailable as error:
                return isinstance(error.__cause__, psycopg.errors.DeadlockDetected)
            return False

    with ThreadPoolExecutor(2) as pool:
        deadlocks = list(pool.map(side, [ops, ops[::-1]]))
    assert sum(deadlocks) == 1
    assert [event.content for event in stored_in(scratch_db)] != []
