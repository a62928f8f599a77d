"""The vacuum of what erasures cleared: when it runs, and what a receipt may say of it."""

import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from strandline.db.database import TenantDb
from strandline.db.migrate import WAITING_LOCK, Migration, list_migrations, migrate
from strandline.erasure import eraser as eraser_job
from strandline.erasure import store_vacuum
from strandline.errors import Unavailable
from strandline.jobs import runner
from tests.strandline.erasure.erasure_calls import ERASURES, erase, state_of
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase, Tell


def test_erasure_vacuum_runs_once_no_transaction_sees_it(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
) -> None:
    first, second = (erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"]) for _ in "ab")
    scratch_db.rows("update erasures set cleared_xid = '999999999'")  # as if it still ran
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, first)["state"] == "hidden"
    scratch_db.rows("update erasures set cleared_xid = '3'")
    for name in ("ingest", "query", "eraser"):  # else what they did is counted after the vacuum
        usage = importlib.import_module(f"functions.{name}.handler").resources.database
        usage.connection().execute("select pg_stat_force_next_flush()")
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, first)["receipt"]["vacuumed_at"] is not None
    assert state_of(gateway, eraser, second)["state"] == "complete"
    dead = scratch_db.rows(
        "select relname from pg_stat_user_tables where relname = any (%s)"
        " and (last_vacuum is null or n_dead_tup > 0)",
        list(store_vacuum.TABLES),
    )
    assert dead == []


@pytest.mark.parametrize(
    ("run_seconds", "failed", "pause"),
    [(0.1, 0, 60), (30, 0, 600), (9000, 0, 3600), (0.1, 1, 3600)],
)
def test_erasure_vacuum_pauses_by_how_long_one_takes(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    run_seconds: float,
    failed: int,
    pause: int,
) -> None:
    """And for an hour where one failed: what held it back may end until the next one."""
    monkeypatch.setattr(eraser_job, "_VACUUM_SPACING", timedelta(hours=1))
    began_at = datetime.now(UTC)

    def end_vacuum(at: datetime) -> None:
        last = store_vacuum.LatestVacuumRun(at, is_running=False, seconds=run_seconds)

        def read(_: TenantDb) -> store_vacuum.LatestVacuumRun:
            return last

        monkeypatch.setattr(store_vacuum, "read_latest_vacuum_run", read)

    end_vacuum(began_at)
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    scratch_db.rows("update erasures set vacuums = %s", failed)
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasure)["state"] == "hidden"
    ((due_at,),) = scratch_db.rows("select due_at from erasures")
    assert due_at == began_at + timedelta(seconds=pause)
    end_vacuum(began_at - timedelta(seconds=pause + 1))
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasure)["receipt"]["vacuumed_at"] is not None


def statistics(base: ScratchDatabase) -> list[str]:
    """The columns of which the planner's statistics hold a canary."""
    rows = base.rows(
        "select tablename || '.' || attname from pg_stats s"
        " where strpos(lower(s::text), 'zyxcanar') > 0"
    )
    return [name for (name,) in rows]


@pytest.mark.parametrize("others", [0, 5])
def test_erasure_vacuum_clears_planner_statistics(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str, others: int
) -> None:
    """Also where no row is left, which ANALYZE passes over."""
    for n in range(others):
        tell(eraser, f"The harbour opens at {n}.", session_id=f"s{n}")
    ids = [
        tell(eraser, "It is zyxcanary.", session_id=f"zyxcanary {n % 2}", source_event_key=f"{n}")
        for n in range(6)
    ]
    fold_all(gateway, scratch_db)
    scratch_db.rows("analyze")
    assert {"events.content", "event_search.words", "sessions.session_id"} <= set(
        statistics(scratch_db)
    )
    body = {"event_ids": [one["event_id"] for one in ids]}
    erasure = gateway.call("POST", ERASURES, body, key=eraser).body
    for _ in range(2):
        gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasure)["receipt"]["vacuumed_at"] is not None
    assert statistics(scratch_db) == []


def test_erasure_vacuum_waits_for_older_snapshot(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    event_id = tell(eraser, "Forget me.")["event_id"]
    with psycopg.connect(scratch_db.admin_url) as other:
        other.execute("set transaction isolation level repeatable read read only")
        other.execute("select from events")
        erasure = erase(gateway, eraser, event_id)
        assert gateway.run_job("eraser", "acme")["vacuums_failed"] == 1
        assert other.execute("select content from events").fetchall() == [("Forget me.",)]
        assert state_of(gateway, eraser, erasure)["state"] == "hidden"
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasure)["receipt"]["vacuumed_at"] is not None


def test_erasure_vacuum_notices_skipped_table(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    scratch_db.rows("revoke maintain on decisions from strandline_app")
    assert gateway.run_job("eraser", "acme")["vacuums_failed"] == 1
    assert state_of(gateway, eraser, erasure)["state"] == "hidden"


GERMAN = (
    "Vacuum von »t.public.events« beendet: Index-Scans: 0\n"
    "Cutoff für entfernbar: 4711, war 2 XIDs alt als die Operation endete\n"
)


def test_erasure_vacuum_notices_non_english_messages(
    gateway: Gateway, tell: Tell, eraser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    log_lines: list[Any] = []

    def keep(message: str, **fields: Any) -> None:
        log_lines.append((message, fields["extra"]["reason"]))

    def vacuum(*_: object) -> store_vacuum.VacuumResult:
        return store_vacuum.parse_vacuum_cutoff([GERMAN])

    monkeypatch.setattr(eraser_job.logger, "warning", keep)
    monkeypatch.setattr(store_vacuum, "vacuum_tables_with_memory", vacuum)
    assert gateway.run_job("eraser", "acme")["vacuums_failed"] == 1
    assert log_lines == [("tables not vacuumed", "lc_messages_not_english")]
    assert state_of(gateway, eraser, erasure)["state"] == "hidden"
    assert store_vacuum.parse_vacuum_cutoff([]).reason == "tables_passed_over"


def test_erasure_vacuum_of_lost_worker_ends_and_counts(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease is renewed after each table."""
    erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    uploads: list[str] = []

    def taken_over(*table: Any) -> str:
        uploads.append(str(table))
        scratch_db.rows("update jobs set state = 'failed' where kind = 'eraser'")
        return "select 1"

    monkeypatch.setattr(runner, "_RENEW_SECONDS", 0.0)
    monkeypatch.setattr(store_vacuum, "_VACUUM", SimpleNamespace(format=taken_over))
    gateway.run_job("eraser", "acme")
    assert len(uploads) == 1
    assert scratch_db.rows("select vacuums, vacuumed_at from erasures") == [(1, None)]


def test_erasure_vacuum_failure_is_in_receipt(
    gateway: Gateway, tell: Tell, eraser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])

    def refuse(*_: object) -> None:
        raise Unavailable("locked")

    monkeypatch.setattr(store_vacuum, "vacuum_tables_with_memory", refuse)
    for _ in range(4):
        assert gateway.run_job("eraser", "acme")["vacuums_failed"] == 1
        assert state_of(gateway, eraser, erasure)["state"] == "hidden"
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasure)["receipt"]["vacuumed_at"] is None


def test_erasure_vacuum_waits_for_migration(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """And no attempt is counted."""
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    with psycopg.connect(scratch_db.owner_url) as migration:
        migration.execute("select pg_advisory_xact_lock_shared(%s)", (WAITING_LOCK,))
        assert "vacuums_failed" not in gateway.run_job("eraser", "acme")
        assert scratch_db.rows("select vacuums from erasures") == [(0,)]
    gateway.run_job("eraser", "acme")
    assert state_of(gateway, eraser, erasure)["receipt"]["vacuumed_at"] is not None


def test_erasure_vacuum_yields_to_migration(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that would take half a minute ends when a migration waits for its table."""
    erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    slow = (
        "do $$ begin lock table events in share update exclusive mode; perform pg_sleep(30); end $$"
    )

    def take_long(table: object) -> str:
        del table
        return slow

    monkeypatch.setattr(store_vacuum, "_VACUUM", SimpleNamespace(format=take_long))
    number = list_migrations()[-1].number + 1
    planted = Migration(
        number, f"{number:04}_add_planted.sql", "alter table events add planted int"
    )
    holders = (
        "select from pg_locks"
        " where mode = 'ShareUpdateExclusiveLock' and relation = 'events'::regclass"
    )
    with ThreadPoolExecutor(1) as pool, psycopg.connect(scratch_db.owner_url) as owner:
        owner.autocommit = True
        job = pool.submit(gateway.run_job, "eraser", "acme")
        while not scratch_db.rows(holders):
            assert not job.done()
            time.sleep(0.01)
        start = time.monotonic()
        assert migrate(owner, [*list_migrations(), planted]) == [planted.name]
        assert time.monotonic() - start < 2
        assert job.result(10)["vacuums_failed"] == 1
