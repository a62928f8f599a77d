"""Promise: limits are exact within one slice for each instance, however many instances and tenants
spend at once; and a flood of refused requests asks no database."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from strandline.auth import store_tenants_and_keys
from strandline.config import ServiceSettings
from strandline.config_quotas import Quota
from strandline.db.database import Caller, Database
from strandline.errors import QuotaExceeded, TooLarge
from strandline.tenants import store_quotas
from strandline.tenants.quotas import QuotaManager
from tests.prove.noisy_tenant import count_connections
from tests.support import KEY_SECRET, Gateway, ScratchDatabase

TENANTS = ("acme", "globex", "initech")
INSTANCES, THREADS = 4, 2
RATE, BURST_SECONDS = 6000, 2.0
PER_SECOND, AT_ONCE, SLICE = 100, 200, 100
WAITED = 2 * SLICE
"""Who is refused waits for a whole slice; and a second's worth for a machine that is busy."""
LEVEL = 50_000_000
LEVEL_SLICE = LEVEL // 1000
MOST = 400_000
"""What is spent of a level at once."""
LEFT_OVER = INSTANCES * LEVEL_SLICE + MOST
"""Of a level that is filled to the brim: less than was asked for, and than the instances hold."""
BRIM = 300
"""Who is refused so often has filled a level, or as much of it as it ever will."""
type Stop = Callable[[Counter[str]], bool]
"""Whether to stop, by how often each tenant was refused."""


def instances(base: ScratchDatabase, count: int = INSTANCES) -> list[QuotaManager]:
    """As many Lambda instances: each with connections and slices of its own."""
    settings = ServiceSettings(
        database_url=base.url,
        bucket="",
        key_secret=KEY_SECRET,
        tenant_requests_per_minute=RATE,
        tenant_appends_per_minute=RATE,
        tenant_stored_bytes=LEVEL,
        tenant_burst_seconds=BURST_SECONDS,
    )
    return [QuotaManager(Database(base.url), settings) for _ in range(count)]


@pytest.fixture
def tenants(scratch_db: ScratchDatabase) -> None:
    with closing(Database(scratch_db.url)) as database:
        for tenant in TENANTS:
            access = database.connect_as(Caller.background(tenant))
            with access.transaction():
                store_tenants_and_keys.insert_tenant(access)


def flood(
    results: Sequence[QuotaManager], quota: Quota, most: int, stop: Stop
) -> tuple[Counter[str], float, float]:
    """Every instance spends for every tenant from several threads, as fast as it can, 1 to `most`
    units at a time; gives what each tenant was granted, and the shortest and longest time that
    this can have taken."""
    counter, refusals = Counter[str](), Counter[str]()
    adding, together = (
        threading.Lock(),
        threading.Barrier(len(results) * len(TENANTS) * THREADS + 1),
    )

    def spend(instance: QuotaManager, tenant: str, seed: int) -> None:
        chance, own = random.Random(seed), 0
        together.wait()
        while not stop(refusals):
            units = chance.randint(1, most)
            try:
                instance.spend(tenant, quota, units)
                own += units
            except QuotaExceeded:
                refusals[tenant] += 1
                time.sleep(0.002)
        with adding:
            counter[tenant] += own

    with ThreadPoolExecutor(len(results) * len(TENANTS) * THREADS) as pool:
        waiting = [
            pool.submit(spend, instance, tenant, hash((n, tenant, t)))
            for n, instance in enumerate(results)
            for tenant in TENANTS
            for t in range(THREADS)
        ]
        began = time.monotonic()
        together.wait()
        inner = time.monotonic()
        for future in waiting:
            future.result()
        end = time.monotonic()
    for instance in results:
        instance._database.close()  # pyright: ignore[reportPrivateUsage]
    return counter, end - inner, end - began


def for_seconds(seconds: float) -> Stop:
    end = time.monotonic() + seconds
    return lambda _: time.monotonic() > end


def to_the_brim(seconds: float) -> Stop:
    """Until no tenant gets any more, after so many seconds at the latest."""
    is_over = for_seconds(seconds)
    return lambda refusal: is_over(refusal) or all(refusal[t] >= BRIM for t in TENANTS)


def test_quota_rate_is_exact_within_slices(
    scratch_db: ScratchDatabase, tenants: None, proof_size: Callable[[int], int]
) -> None:
    """Never more than the limit allows by then, whatever the instances' luck; and never less by
    more than what each may hold unspent, and what who was refused waits for."""
    assert measure_loss(scratch_db, "requests", 1, max(3, proof_size(30))) <= WAITED


@pytest.mark.proof
def test_quota_counts_batches_exactly(scratch_db: ScratchDatabase, tenants: None) -> None:
    assert measure_loss(scratch_db, "appends", 60, 5) <= WAITED


def measure_loss(base: ScratchDatabase, quota: Quota, most: int, seconds: float) -> float:
    """How many units at most were free and leased to nobody, though all instances asked all the
    time, for the tenant that fared worst. What holds whatever is lost is asserted."""
    grants, shortest, longest = flood(instances(base), quota, most, for_seconds(seconds))
    assert set(grants) == set(TENANTS)
    worst = 0.0
    for tenant in TENANTS:
        (row,) = base.rows(
            "select leased from quotas where tenant_id = %s and quota = %s", tenant, quota
        )[0]
        allowed = AT_ONCE + PER_SECOND * longest
        print(f"\n{tenant}: {grants[tenant]} of {row} leased, {allowed:.0f} allowed")
        assert grants[tenant] <= row <= allowed
        assert row - grants[tenant] <= INSTANCES * SLICE
        worst = max(worst, AT_ONCE + PER_SECOND * shortest - row)
    return worst


@pytest.mark.parametrize(
    ("quota", "most"), [("requests", 1), pytest.param("appends", 60, marks=pytest.mark.proof)]
)
def test_quota_test_detects_rate_without_refill(
    scratch_db: ScratchDatabase, tenants: None, quota: Quota, most: int
) -> None:
    """The proofs above can fail: the burst is given, and no unit after it."""
    plant(scratch_db, "v_now := clock_timestamp();", "v_now := v_row.recent_since;")
    assert measure_loss(scratch_db, quota, most, 3) > WAITED


def plant(base: ScratchDatabase, right: str, wrong: str) -> None:
    """A fault in `lease_quota`."""
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        row = owner.execute("select pg_get_functiondef('lease_quota'::regproc)").fetchone()
        assert row is not None
        assert row[0].count(right) == 1
        owner.execute(row[0].replace(right, wrong))


def overshoot(base: ScratchDatabase) -> dict[str, int]:
    """By how much a level was passed when all instances fill it to the brim; negative where less
    was spent."""
    grants, *_ = flood(instances(base), "stored_bytes", MOST, to_the_brim(30))
    return {tenant: grants[tenant] - LEVEL for tenant in TENANTS}


def test_quota_level_is_never_passed_and_is_filled(
    scratch_db: ScratchDatabase, tenants: None
) -> None:
    """Refused while something was free, it was less than the slices that others held, or than
    was asked for."""
    past = overshoot(scratch_db)
    print(f"\nspent, less the limit of {LEVEL:,}: {past}")
    assert all(-LEFT_OVER <= over <= 0 for over in past.values())


@pytest.mark.proof
def test_quota_test_detects_missing_lock(scratch_db: ScratchDatabase, tenants: None) -> None:
    """The proof above can fail: check first and act later, and instances lease the same units."""
    plant(scratch_db, "for no key update;", "; perform pg_sleep(0.005);")
    assert max(overshoot(scratch_db).values()) > 0


def test_quota_leases_are_few(
    scratch_db: ScratchDatabase, tenants: None, lease_log: None, proof_size: Callable[[int], int]
) -> None:
    """Within its limit a tenant writes a row for one request in a hundred; at it, for no more than
    one in ten, and one a second for each instance that was refused."""
    (instance,) = instances(scratch_db, 1)
    database = instance._database  # pyright: ignore[reportPrivateUsage]
    with closing(database):
        for _ in range(SLICE // 4):
            instance.spend("acme", "requests", 1)
        assert leases_of(scratch_db) == 1
    grants, _, longest = flood(
        instances(scratch_db), "requests", 1, for_seconds(max(1.5, proof_size(30) / 10))
    )
    for tenant in TENANTS:
        most = grants[tenant] / (SLICE / 10) + INSTANCES * (longest + 1)
        print(f"\n{tenant}: {leases_of(scratch_db, tenant)} leases for {grants[tenant]} requests")
        assert leases_of(scratch_db, tenant) <= most + 1


def leases_of(base: ScratchDatabase, tenant: str = "acme") -> int:
    """How often its row of requests was written."""
    (count,) = base.rows("select count(*) from lease_log where tenant_id = %s", tenant)[0]
    return count


@pytest.fixture
def lease_log(scratch_db: ScratchDatabase) -> None:
    """Each lease leaves a line, for counting."""
    scratch_db.rows("create table lease_log (tenant_id text)")
    scratch_db.rows("grant insert on lease_log to public")
    scratch_db.rows(
        "create function log_lease() returns trigger language plpgsql as $$ begin"
        " insert into lease_log values (new.tenant_id); return null; end $$"
    )
    scratch_db.rows(
        "create trigger log_lease after update on quotas for each row"
        " when (new.quota = 'requests') execute function log_lease()"
    )


def test_quota_refusals_need_no_database(
    gateway: Gateway, proof_size: Callable[[int], int]
) -> None:
    """Once refused, a thousand requests ask for no connection at all."""
    key = gateway.key()
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_quotas.set_quota_limits(access, {"requests_per_minute": 0})
    connections = count_connections()
    assert gateway.call("GET", "/memories/list", key=key).status == 429
    assert connections, "the first one has to ask: or nothing is counted here"
    connections.clear()
    began, flooded = time.monotonic(), proof_size(10_000)
    for _ in range(flooded):
        reply = gateway.call("GET", "/memories/list", key=key)
        assert (reply.status, reply.error["details"]["quota"]) == (429, "requests")
    each = (time.monotonic() - began) / flooded * 1e6
    print(
        f"\n{flooded} refused requests, {connections.total()} round trips,"
        f" {each:.0f} microseconds each"
    )
    assert not connections


def test_quota_refusal_of_many_units_allows_few(scratch_db: ScratchDatabase, tenants: None) -> None:
    """And what no waiting brings is said as such, also when it is remembered."""
    (instance,) = instances(scratch_db, 1)
    with closing(instance._database):  # pyright: ignore[reportPrivateUsage]
        instance.spend("acme", "appends", AT_ONCE - 50)
        with pytest.raises(QuotaExceeded, match="appends"):
            instance.spend("acme", "appends", AT_ONCE)
        instance.spend("acme", "appends", 40)
        for _ in range(2):
            with pytest.raises(TooLarge, match="send less at once"):
                instance.spend("acme", "appends", AT_ONCE + 1)
        instance.refund("acme", "appends", 40)
        instance.spend("acme", "appends", 40)
        instance.spend("globex", "appends", AT_ONCE)


def stored_past(base: ScratchDatabase) -> int:
    """By how much a limit was passed by what really lies in the log, while it is counted over and
    over under the writers: each commits a while after it spent, as an append does."""
    (scope,) = base.rows(
        "insert into scopes (tenant_id, scope_id, participants)"
        " values ('acme', gen_random_uuid(), '{user:a}') returning scope_id"
    )[0]
    store = "update scopes set stored_bytes = stored_bytes + %(bytes)s where scope_id = %(scope)s"
    stop, caller = threading.Event(), Caller.background("acme")

    def write(instance: QuotaManager, seed: int) -> None:
        chance = random.Random(seed)
        with closing(instance._database) as database:  # pyright: ignore[reportPrivateUsage]
            while True:
                units = chance.randint(1, MOST)
                try:
                    instance.spend("acme", "stored_bytes", units)
                except QuotaExceeded:
                    return
                time.sleep(chance.random() / 50)
                access = database.connect_as(caller)
                with access.transaction():
                    access.execute(store, {"bytes": units, "scope": scope})

    def count() -> None:
        with closing(Database(base.url)) as database:
            while not stop.is_set():
                access = database.connect_as(caller)
                with access.transaction():
                    store_quotas.recount_stored_usage(access)

    with ThreadPoolExecutor(INSTANCES + 1) as pool:
        counting = pool.submit(count)
        writing = [pool.submit(write, instance, n) for n, instance in enumerate(instances(base))]
        for future in writing:
            future.result()
        stop.set()
        counting.result()
    (row,) = base.rows("select stored_bytes from scopes where tenant_id = 'acme'")[0]
    return row - LEVEL


def test_quota_counting_under_writers_keeps_level(
    scratch_db: ScratchDatabase, tenants: None
) -> None:
    """What is leased and not committed yet is no room for others, and what is committed is counted
    once; when all is committed or lapsed, the level is the truth to the byte."""
    past = stored_past(scratch_db)
    print(f"\nstored, less the limit of {LEVEL:,}: {past:,}")
    assert -LEFT_OVER <= past <= 0
    scratch_db.rows("update quotas set recent_since = recent_since - interval '6 minutes'")
    with closing(Database(scratch_db.url)) as database:
        access = database.connect_as(Caller.background("acme"))
        with access.transaction():
            store_quotas.recount_stored_usage(access)
    assert scratch_db.rows("select level - %s from quotas", LEVEL) == [(past,)]


def test_quota_test_detects_uncounted_pending_leases(
    scratch_db: ScratchDatabase, tenants: None
) -> None:
    """The proof above can fail: forget what is on its way, and it is given away twice."""
    with psycopg.connect(scratch_db.owner_url, autocommit=True) as owner:
        owner.execute(
            "create or replace function in_flight_units(p_row quotas, p_now timestamptz)"
            " returns bigint language sql immutable as 'select 0::bigint'"
        )
    assert stored_past(scratch_db) > 0


def test_quota_test_detects_double_counted_commits(
    scratch_db: ScratchDatabase, tenants: None
) -> None:
    """The proof above can fail on its other side: what was leased lately and is stored by now is
    taken for held as well."""
    with psycopg.connect(scratch_db.owner_url, autocommit=True) as owner:
        owner.execute(
            "create function count_twice() returns trigger language plpgsql as $$ begin"
            " new.level = new.measured + in_flight_units(new, now()); return new; end $$"
        )
        owner.execute(
            "create trigger count_twice before update of measured on quotas"
            " for each row execute function count_twice()"
        )
    past = stored_past(scratch_db)
    print(f"\ncounted twice: stored, less the limit of {LEVEL:,}: {past:,}")
    assert past < -LEFT_OVER
