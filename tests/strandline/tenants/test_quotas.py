"""One instance's slices, and the row that they are leased from, at their edges."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import get_args

import psycopg
import pytest
from annotated_types import Le

from strandline.auth import store_tenants_and_keys
from strandline.config import ServiceSettings
from strandline.config_quotas import QUOTAS, Quota
from strandline.db.database import Caller, Database
from strandline.errors import QuotaExceeded, Unavailable
from strandline.tenants import quotas, store_quotas
from strandline.tenants.quotas import QuotaManager
from strandline.tenants.store_quotas import NO_LIMITS
from tests.support import KEY_SECRET, ScratchDatabase

RATE, AT_ONCE = 6, 100
"""A unit in ten seconds: none comes while a test runs that a rest of it does not ask for."""
BURST_SECONDS = 1000.0


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    with closing(Database(scratch_db.url)) as database:
        access = database.connect_as(Caller.background("acme"))
        with access.transaction():
            store_tenants_and_keys.insert_tenant(access)
        yield database


@pytest.fixture
def instance(database: Database) -> QuotaManager:
    return another(database)


def another(database: Database) -> QuotaManager:
    settings = ServiceSettings(
        database_url="",
        bucket="",
        key_secret=KEY_SECRET,
        tenant_requests_per_minute=RATE,
        tenant_appends_per_minute=60_000,
        tenant_stored_bytes=100_000,
        tenant_burst_seconds=BURST_SECONDS,
    )
    return QuotaManager(database, settings)


def tokens_left(instance: QuotaManager) -> int:
    """How many requests are granted until one is refused, one by one."""
    for n in range(10 * AT_ONCE):
        try:
            instance.spend("acme", "requests", 1)
        except QuotaExceeded:
            return n
    raise AssertionError("no limit")


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """This process was frozen: its monotonic clock stood still, the time of day went on. The
    database's clock is what it is."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


def set_back(base: ScratchDatabase, seconds: float) -> None:
    """As if all this had been so long ago for the database."""
    base.rows(
        "update quotas set theoretical_arrival_at = theoretical_arrival_at - make_interval(secs"
        " => %s)",
        seconds,
    )


def test_quota_refills_at_limit_rate(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    assert tokens_left(instance) == AT_ONCE
    set_back(scratch_db, 30)
    assert tokens_left(another(database)) == 3
    set_back(scratch_db, 10**6)
    assert tokens_left(another(database)) == AT_ONCE, "more than the burst was saved up"


def test_quota_retry_after_is_when_retry_succeeds(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    assert tokens_left(another(database)) == AT_ONCE
    with pytest.raises(QuotaExceeded) as error:
        another(database).spend("acme", "requests", 3)
    assert 25 <= error.value.retry_after <= 30
    set_back(scratch_db, error.value.retry_after)
    another(database).spend("acme", "requests", 3)


def test_quota_heals_after_clock_is_set_back(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    """The database moved to a machine whose clock is a year behind: nobody waits for a year."""
    instance.spend("acme", "requests", 1)
    set_back(scratch_db, -365 * 86400)
    with pytest.raises(QuotaExceeded) as error:
        another(database).spend("acme", "requests", 1)
    assert error.value.retry_after <= 10
    set_back(scratch_db, 10)
    another(database).spend("acme", "requests", 1)
    assert tokens_left(another(database)) == 0, "the burst was given again"
    set_back(scratch_db, BURST_SECONDS)
    assert tokens_left(another(database)) == AT_ONCE


def test_quota_counts_bytes_after_clock_is_set_back(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    """What was leased before is not held for the year that the clock was ahead."""
    instance.spend("acme", "stored_bytes", 1000)
    scratch_db.rows("update quotas set recent_since = recent_since + interval '1 year'")
    another(database).spend("acme", "stored_bytes", 1000)
    scratch_db.rows("update quotas set recent_since = recent_since - interval '1 hour'")
    access = database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_quotas.recount_stored_usage(access)
    assert scratch_db.rows("select level from quotas where quota = 'stored_bytes'") == [(0,)]


def test_quota_unspent_slice_lapses(
    scratch_db: ScratchDatabase,
    database: Database,
    instance: QuotaManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that a changed limit holds everywhere after a minute, and no frozen instance wakes with
    units of yesterday; nor does what is given back outlive its slice."""
    instance.spend("acme", "appends", 1)
    access = database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_quotas.set_quota_limits(access, {"appends_per_minute": 0})
    instance.spend("acme", "appends", 999)
    instance.refund("acme", "appends", 999)
    later(monkeypatch, 61)
    instance.refund("acme", "appends", 10)
    with pytest.raises(QuotaExceeded, match="appends: the tenant's quota is 0"):
        instance.spend("acme", "appends", 1)


def test_quota_refusal_is_forgotten_in_time(
    scratch_db: ScratchDatabase, instance: QuotaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tokens_left(instance) == AT_ONCE
    set_back(scratch_db, 1000)
    assert tokens_left(instance) == 0, "it asked again before its time"
    later(monkeypatch, 11)
    assert tokens_left(instance) == AT_ONCE


def test_quota_limits_are_set_and_read(database: Database) -> None:
    access = database.connect_as(Caller.background("acme"))
    assert store_quotas.read_quota_limits(access) == NO_LIMITS
    limits = {**NO_LIMITS, "requests_per_minute": 0, "stored_bytes": 2**40}
    with access.transaction():
        assert store_quotas.set_quota_limits(access, limits)
    assert store_quotas.read_quota_limits(access) == limits
    nobody = database.connect_as(Caller.background("nobody"))
    assert store_quotas.read_quota_limits(nobody) is None
    with nobody.transaction():
        assert not store_quotas.set_quota_limits(nobody, limits)


def test_quota_lease_waits_for_no_disk(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    """As the transaction itself ends: asked by a trigger at commit."""
    scratch_db.rows("create table commits (mode text)")
    scratch_db.rows("grant insert on commits to public")
    scratch_db.rows(
        "create function note_mode() returns trigger language plpgsql as $$ begin"
        " insert into commits values (current_setting('synchronous_commit')); return null; end $$"
    )
    scratch_db.rows(
        "create constraint trigger note_mode after update on quotas initially deferred"
        " for each row execute function note_mode()"
    )
    database.connection().execute("set synchronous_commit = on")  # a test's server is in a hurry
    instance.spend("acme", "requests", 1)
    assert scratch_db.rows("select * from commits") == [("off",)]
    assert database.connection().execute("show synchronous_commit").fetchone() == ("on",)


def test_quota_broken_lease_is_unavailable(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    """A lease that broke is Unavailable, not Unsure: the request had stored nothing."""
    pid = database.connection().info.backend_pid
    scratch_db.rows("select pg_terminate_backend(%s, 5000)", pid)
    with pytest.raises(Unavailable) as error:
        instance.spend("acme", "requests", 1)
    assert error.value.code == "unavailable"
    instance.spend("acme", "requests", 1)


def test_quota_lease_wait_ends_at_deadline(
    scratch_db: ScratchDatabase, instance: QuotaManager
) -> None:
    """One thread leases; the other gives up at its deadline, and both are served afterwards."""
    instance.spend("acme", "requests", 1)
    with psycopg.connect(scratch_db.admin_url) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("select from quotas for update")
        leasing = pool.submit(instance.spend, "acme", "requests", 1)
        while not scratch_db.rows("select from pg_stat_activity where wait_event_type = 'Lock'"):
            assert not leasing.done()
        with pytest.raises(Unavailable):
            instance.spend("acme", "requests", 1, time.monotonic() + 0.2)
        blocker.rollback()
        leasing.result(10)
    instance.spend("acme", "requests", 1)


def test_quota_lapsing_slice_refuses_nobody(
    instance: QuotaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its units were there when it was looked at: no refusal by earlier numbers."""
    instance.spend("acme", "appends", 1)
    real, looks = quotas.read_uptime, iter([0])
    monkeypatch.setattr(quotas, "read_uptime", lambda: real() + next(looks, 61))
    instance.spend("acme", "appends", 1)
    assert next(looks, None) is None, "the slice was looked at before its time"


def level(database: Database) -> int:
    """Of the stored bytes, after they were counted."""
    access = database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_quotas.recount_stored_usage(access)
    (use,) = store_quotas.read_quota_usage(access, {"stored_bytes": 0}, 0.0)
    return use.used


def store(base: ScratchDatabase, stored_count: int) -> None:
    """As many bytes lie in the log."""
    base.rows("delete from scopes")
    base.rows(
        "insert into scopes (tenant_id, scope_id, participants, stored_bytes)"
        " values ('acme', gen_random_uuid(), '{user:a}', %s)",
        stored_count,
    )


def minutes_pass(base: ScratchDatabase, minutes: int) -> None:
    """For leases and counts."""
    base.rows(
        "update quotas set recent_since = recent_since - make_interval(mins => %s),"
        " measured_at = measured_at - make_interval(mins => %s)",
        minutes,
        minutes,
    )


def test_quota_level_holds_uncommitted_leases(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    """A count, much stored, and long after that a lease nobody has seen the end of: it is no room
    for others, though more than that was committed since the count."""
    instance.spend("acme", "stored_bytes", 10_000)
    store(scratch_db, 10_000)
    assert level(database) == 10_000
    instance.spend("acme", "stored_bytes", 50_000)
    store(scratch_db, 60_000)
    minutes_pass(scratch_db, 7)
    another(database).spend("acme", "stored_bytes", 20_000)
    assert level(database) == 80_000
    minutes_pass(scratch_db, 7)
    assert level(database) == 60_000, "it lapsed"


def test_quota_level_frees_removed_bytes_after_minutes(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    """The level is too high by no more than was leased in the last minutes."""
    instance.spend("acme", "stored_bytes", 70_000)
    minutes_pass(scratch_db, 7)
    another(database).spend("acme", "stored_bytes", 10_000)
    store(scratch_db, 30_000)
    assert level(database) == 30_000 + 10_000
    minutes_pass(scratch_db, 7)
    assert level(database) == 30_000


def test_quota_level_without_count_holds_recent_leases(
    scratch_db: ScratchDatabase, database: Database, instance: QuotaManager
) -> None:
    store(scratch_db, 50_000)
    instance.spend("acme", "stored_bytes", 20_000)
    assert level(database) == 70_000
    assert level(database) == 70_000
    minutes_pass(scratch_db, 7)
    assert level(database) == 50_000


def test_quota_slice_is_shared_by_threads(
    scratch_db: ScratchDatabase, instance: QuotaManager
) -> None:
    """Eight threads at once: a hundred units are a hundred requests, no matter who gets them."""
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(tokens_left(instance))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == AT_ONCE
    assert scratch_db.rows("select leased from quotas") == [(AT_ONCE,)]


def test_quota_zero_units_cost_nothing(scratch_db: ScratchDatabase, instance: QuotaManager) -> None:
    instance.spend("acme", "requests", 0)
    instance.refund("acme", "requests", 5)
    assert scratch_db.rows("select from quotas") == []
    assert tokens_left(instance) == AT_ONCE, "what was never spent cannot be given back"


def test_quota_table_names_each_once_with_setting() -> None:
    assert [quota.name for quota in QUOTAS] == [*get_args(Quota.__value__)]
    assert {quota.setting for quota in QUOTAS} < ServiceSettings.model_fields.keys()
    for quota in QUOTAS:
        bounds = ServiceSettings.model_fields[quota.setting].metadata
        assert Le(quota.maximum) in bounds, "a default may be as high as a tenant's own limit"
