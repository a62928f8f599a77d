"""Promise: a job that ends learns what is due next in any of 100,000 tenants from a few hundred
pages, in at most 2 ms, and learns no other moment than by looking at each tenant."""

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from tests.prove.former_functions import read_former
from tests.support import ScratchDatabase

TENANTS = 100_000
MOST_MS, MOST_PAGES = 2.0, 100
pytestmark = pytest.mark.own_database
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SWEEP = "select next_sweep('space', '{}', '5 minutes', %s)"
ARCHIVE = "select next_archive('1 day', '6 hours', '30 days', '1 hour', %s)"
TURN = "select next_turn('5 minutes', %s)"
ANALYSE = "select next_analysis('1 hour', %s)"
ERASE = "select next_erasure('1 minute', %s)"
FILL = (
    # Three quiet lanes in the scope of each tenant; work in every tenth, to be done later.
    "insert into tenants (tenant_id, swept_at, swept_space)"
    " select 't' || n, now(), 'space' from generate_series(1, %(n)s) n",
    "insert into scopes (tenant_id, scope_id, participants)"
    " select tenant_id, md5(tenant_id)::uuid, array['user:a'] from tenants",
    "insert into lanes (tenant_id, scope_id, session_id, participants, idle_at)"
    " select tenant_id, scope_id, 's' || k, participants,"
    " %(now)s::timestamptz + random() * interval '30 minutes'"
    " from scopes, generate_series(1, 3) k",
    "insert into scope_work (tenant_id, scope_id, participants, due_at)"
    " select tenant_id, scope_id, participants, %(now)s::timestamptz + random() * interval '1 hour'"
    " from scopes where random() < 0.1",
    "insert into quotas (tenant_id, quota, theoretical_arrival_at, level, leased, measured,"
    " measured_at, recent_since) select tenant_id, q, %(now)s::timestamptz - random() * interval"
    " '3 days', 2, 2, case when random() < 0.9 then 2 else 1 end, %(now)s, %(now)s"
    " from tenants, unnest(array['requests', 'appends', 'stored_bytes']) q",
    "insert into blob_scans (tenant_id, ended_at) select tenant_id, %(now)s::timestamptz"
    " - random() * interval '1 day' from tenants",
    # A tenth has a snapshot that another followed.
    "insert into snapshots (tenant_id, version, snapshot_id, base_version, published_at,"
    " scope_count, leaf_count, node_count, event_count, scopes_changed, configuration)"
    " select tenant_id, v, gen_random_uuid(), v - 1, %(now)s::timestamptz - random() * interval"
    " '60 days', 0, 0, 0, 0, 0, '{}' from tenants, generate_series(1, 2) v",
    "insert into active_snapshot (tenant_id, version) select tenant_id, 1 from tenants",
    "update active_snapshot set version = 2 where random() < 0.1",
    "delete from snapshots s using active_snapshot a where a.tenant_id = s.tenant_id"
    " and s.version > a.version",
    # A hundredth has an answer that is waited for.
    "insert into turns (tenant_id, turn_id, kind, participants, asked_by, request, due_at)"
    " select tenant_id, gen_random_uuid(), 'query', array['user:a'], '*', '{}',"
    " %(now)s::timestamptz + random() * interval '1 hour' from tenants where random() < 0.01",
    # In a tenth an erasure goes on, of which half is overdue.
    "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at, asked_by,"
    " hidden_at, due_at) select tenant_id, gen_random_uuid(), '{}', 'tenant', '{}', %(now)s, '{}',"
    " %(now)s, %(now)s::timestamptz + (random() - 0.5) * interval '1 hour' from tenants"
    " where random() < 0.1",
)


@pytest.fixture
def tenants(
    scratch_db: ScratchDatabase, proof_size: Callable[[int], int]
) -> Iterator[Connection[Any]]:
    """So many tenants at rest, as the database's superuser sees them."""
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as connection:
        for statement in FILL:
            connection.execute(statement.encode(), {"n": proof_size(TENANTS), "now": NOW})
        connection.execute("vacuum analyze")
        yield connection


def moment(connection: Connection[Any], statement: str, now: datetime) -> datetime | None:
    row = connection.execute(statement.encode(), (now,)).fetchone()
    assert row is not None
    return row[0]


def pages(connection: Connection[Any], statement: str) -> int:
    """Pages that a statement reads, with what its functions read."""
    connection.execute(statement.encode(), (NOW,))  # plans are made by reading the catalogue
    explain = f"explain (analyze, buffers, timing off, format json) {statement}"
    row = connection.execute(explain.encode(), (NOW,)).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def milliseconds(connection: Connection[Any], statement: str) -> float:
    """The median of 15 calls, after five."""
    costs: list[float] = []
    for _ in range(20):
        begin = time.perf_counter()
        connection.execute(statement.encode(), (NOW,))
        costs.append((time.perf_counter() - begin) * 1000)
    return median(costs[5:])


def test_due_time_is_found_by_index(
    scratch_db: ScratchDatabase, tenants: Connection[Any], proof_size: Callable[[int], int]
) -> None:
    """The pages at any size; the time at the promised one, which runs alone."""
    del tenants
    with psycopg.connect(scratch_db.url, autocommit=True) as app:
        for statement in (SWEEP, ARCHIVE, ANALYSE, TURN, ERASE):
            # First the time: after some calls the server takes a plan for any parameters.
            spend, read = milliseconds(app, statement), pages(app, statement)
            print(f"  {statement[:25]}: {read} pages, {spend:.2f} ms")
            assert read <= MOST_PAGES, statement
            assert spend <= MOST_MS or proof_size(TENANTS) < TENANTS, statement


def test_due_time_test_detects_scan_of_tenants(
    scratch_db: ScratchDatabase, tenants: Connection[Any]
) -> None:
    """Planted: an index is gone."""
    tenants.execute("drop index lanes_next")
    with psycopg.connect(scratch_db.url, autocommit=True) as app:
        assert pages(app, SWEEP) > MOST_PAGES or milliseconds(app, SWEEP) > MOST_MS


# the same moments as by a look at each tenant -----------------------------------------------------


def create_former(connection: Connection[Any], name: str) -> None:
    """Create the function as it was, a look at each tenant, under the name former_…"""
    connection.execute(f"create function former_{read_former(name)}".encode())


PARTS: tuple[tuple[str, ...], ...] = (
    ("update scope_work set due_at = %(t)s, attempts = %(k)s %% 22 where tenant_id = %(tenant)s",),
    ("update lanes set idle_at = %(t)s where tenant_id = %(tenant)s",),
    ("update scopes set last_seq = folded_seq + %(k)s %% 2 where tenant_id = %(tenant)s",),
    (
        "update quotas set theoretical_arrival_at = date_trunc('hour', %(t)s::timestamptz)"
        " + interval '59 minutes' where tenant_id = %(tenant)s and quota = 'appends'",
    ),
    (
        "update quotas set level = level + %(k)s %% 2, leased = leased + 1 where tenant_id ="
        " %(tenant)s and quota = 'stored_bytes'",
    ),
    (
        "update quotas set measured = level, measured_at = %(t)s where tenant_id = %(tenant)s"
        " and quota = 'stored_bytes'",
    ),
    (
        "update blob_scans set ended_at = %(t)s, position = left('x', %(k)s %% 2)"
        " where tenant_id = %(tenant)s",
    ),
    (
        "insert into uploads (tenant_id, upload_id, writer, cid, size, created_at, remove_at)"
        " values (%(tenant)s, gen_random_uuid(), '*', 'c', 1, '2020-01-01', %(t)s)",
    ),
    (
        "delete from blob_removals where tenant_id = %(tenant)s",
        "insert into blob_removals (tenant_id, cid, marked_at) values (%(tenant)s, 'c', %(t)s)",
    ),
    ("update blob_removals set removing_until = %(t)s where tenant_id = %(tenant)s",),
    (
        "insert into snapshots select tenant_id, version + 1, gen_random_uuid(), version, null,"
        " null, %(t)s, 0, 0, 0, 0, 0, '[]', '{}' from active_snapshot"
        " where tenant_id = %(tenant)s on conflict do nothing",
    ),
    (
        "update active_snapshot a set version = (select max(s.version) from snapshots s"
        " where s.tenant_id = a.tenant_id) where tenant_id = %(tenant)s",
    ),
    (
        "delete from snapshots s using active_snapshot a where a.tenant_id = s.tenant_id"
        " and s.version < a.version and s.tenant_id = %(tenant)s and %(k)s %% 3 = 0",
    ),
    (
        "delete from jobs where tenant_id = %(tenant)s and ref is not null",
        "insert into jobs (tenant_id, job_id, kind, state, ref, created_at)"
        " values (%(tenant)s, gen_random_uuid(), 'enrich', 'queued', 'chain', %(t)s)",
    ),
    (
        "delete from jobs where tenant_id = %(tenant)s and ref is null",
        "insert into jobs (tenant_id, job_id, kind, state, leased_until)"
        " values (%(tenant)s, gen_random_uuid(), 'builder', 'running', %(t)s)",
    ),
    ("delete from jobs where tenant_id = %(tenant)s",),
)
"""Changes of one tenant's rows, each in one or two statements."""


@pytest.mark.parametrize("count", [1, 4])
def test_due_times_match_scan_of_tenants(scratch_db: ScratchDatabase, count: int) -> None:
    """In worlds that change at random. Of what is overdue in several tenants, the look at each
    found the earliest of their next tries; now the next try of the latest that is overdue counts.
    Payloads ripen by the hour: here each appends at the end of one."""
    chance = random.Random(20)
    differences = 0
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as connection:
        create_former(connection, "next_sweep")
        create_former(connection, "next_archive")
        connection.execute("select setseed(0.2)")
        for statement in FILL:
            connection.execute(statement.encode(), {"n": count, "now": NOW})
        # In each tenant: of work that failed seldom and often, overdue at once, one moment counts.
        connection.execute(
            "insert into scope_work (tenant_id, scope_id, participants, due_at)"
            " select tenant_id, scope_id, participants, %s from scopes on conflict do nothing",
            (NOW,),
        )
        connection.execute(
            "update quotas set theoretical_arrival_at ="
            " date_trunc('hour', theoretical_arrival_at) + interval '59 minutes'"
        )
        for _ in range(400):
            at = NOW + timedelta(minutes=chance.randint(-3000, 3000))
            settings = {
                "t": at,
                "k": chance.randint(0, 50),
                "tenant": f"t{chance.randint(1, count)}",
            }
            for statement in chance.choice(PARTS):
                connection.execute(statement.encode(), settings)
            now = NOW + timedelta(minutes=chance.randint(-600, 600))
            for statement in (SWEEP, ARCHIVE):
                before = moment(connection, statement.replace("select ", "select former_"), now)
                after = moment(connection, statement, now)
                assert (before is None) == (after is None), (statement, now)
                if before and after and before != after:
                    differences += 1
                    assert now < before < after < now + timedelta(days=2), (statement, now)
        assert count > 1 or not differences
    print(f"  {differences} of 800 moments are later")


def test_due_time_is_set_again_by_append_after_scan(scratch_db: ScratchDatabase) -> None:
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as connection:
        connection.execute("insert into tenants (tenant_id) values ('acme')")
        connection.execute("insert into quotas (tenant_id, quota) values ('acme', 'appends')")
        due = "select due_since from tenant_due_times where kind = 'payloads'"
        late = "update quotas set theoretical_arrival_at = %s where quota = 'appends'"
        for hours in (0, 1, 5):
            at = NOW + timedelta(hours=hours, minutes=10)
            connection.execute(late, (at,))
            assert connection.execute(due).fetchone() == (NOW + timedelta(hours=hours + 1),)
            connection.execute(late, (at + timedelta(minutes=30),))
            assert connection.execute(due).fetchone() == (NOW + timedelta(hours=hours + 1),)
        connection.execute("delete from tenant_due_times")
        connection.execute(late, (NOW + timedelta(hours=9),))
        assert connection.execute(due).fetchone() == (NOW + timedelta(hours=10),)
