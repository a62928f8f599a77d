"""Promise: while a migration waits for a table, no request waits longer than three seconds."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from strandline.db import migrate as db_migrate
from strandline.db.migrate import Migration, list_migrations, migrate
from tests.support import Gateway, Reply, ScratchDatabase, user_message

HELD, BOUND = 4.0, 3.0
"""Seconds for which the table is locked, and that a request may take."""
LAST = list_migrations()[-1].number
PLANTED = Migration(
    LAST + 1, f"{LAST + 1:04}_add_planted.sql", "alter table events add column planted text"
)


def apply(base: ScratchDatabase) -> list[str]:
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        return migrate(owner, [*list_migrations(), PLANTED])


def measure_slowest(call: Callable[[], Reply], end: float) -> float:
    """Seconds that the slowest of these requests took, one after the other until `end`."""
    slowest = 0.0
    while (start := time.monotonic()) < end:
        reply = call()
        assert reply.status in (200, 201), reply.text
        slowest = max(slowest, time.monotonic() - start)
    return slowest


def measure_beside_migration(gateway: Gateway, base: ScratchDatabase) -> float:
    """Seconds that the slowest request took while a migration waited for the lock that VACUUM
    takes; it is applied in the end."""
    key = gateway.key(user="user:alice")

    def append() -> Reply:
        return gateway.call("POST", "/api/v1/events", user_message("The tide is in."), key=key)

    def recall() -> Reply:
        return gateway.call("POST", "/api/v1/recall", {"query": "the tide"}, key=key)

    calls = (append, recall)
    for call in calls:  # what is done once
        call()
    with ThreadPoolExecutor(3) as pool, psycopg.connect(base.admin_url) as vacuum:
        vacuum.execute("lock table events in share update exclusive mode")
        migration = pool.submit(apply, base)
        end = time.monotonic() + HELD
        requests = [pool.submit(measure_slowest, call, end) for call in calls]
        time.sleep(HELD)
        assert not migration.done()
        vacuum.rollback()
        assert migration.result(60) == [PLANTED.name]
        slowest = max(request.result(60) for request in requests)
    print(f"\nthe slowest request beside a migration that waits: {slowest:.2f} s")
    return slowest


def test_migration_that_waits_for_lock_stops_no_request(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    slowest = measure_beside_migration(gateway, scratch_db)
    assert 1.0 < slowest < BOUND, "no request queued, or one did for too long"


@pytest.mark.proof
def test_migration_without_lock_timeout_stops_requests(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault."""
    monkeypatch.setattr(db_migrate, "_LOCK_TIMEOUT", "1min")
    assert measure_beside_migration(gateway, scratch_db) > BOUND
