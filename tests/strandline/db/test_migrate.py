"""The migration runner: as an owner without superuser rights, once, in order, all or nothing."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from strandline.db import migrate as db_migrate
from strandline.db.migrate import (
    Migration,
    list_migrations,
    list_newer_applied_migrations,
    list_pending_migrations,
    migrate,
    prepare_roles,
)
from strandline.db.schema_files import list_function_files
from strandline.errors import Misconfigured
from tests.support import PASSWORDS, ScratchDatabase

ONE = Migration(1, "0001_make_one.sql", "create table one (a int); insert into one values (1);")
TWO = Migration(2, "0002_make_two.sql", "create table two (a int);")
FILES = [file.name for file in (*list_migrations(), *list_function_files())]
"""What an empty database gets, in this order."""


def run(base: ScratchDatabase, expectations: list[Migration] | None = None) -> list[str]:
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        return migrate(owner, expectations)


def tables(base: ScratchDatabase) -> set[str]:
    return {
        name for (name,) in base.rows("select tablename from pg_tables where schemaname = 'public'")
    }


def test_migrate_runs_without_superuser_rights(empty: ScratchDatabase) -> None:
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        rights = owner.execute(
            "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb from pg_roles"
            " where rolname = current_user"
        ).fetchone()
        assert rights == (False, False, False, False)
        assert migrate(owner) == FILES
    assert {"events", "scopes", "api_keys", "schema_migrations"} <= tables(empty)


def test_migrate_second_run_applies_nothing(empty: ScratchDatabase) -> None:
    assert run(empty)
    before = empty.rows("select * from schema_migrations order by number")
    assert run(empty) == []
    assert empty.rows("select * from schema_migrations order by number") == before


def test_migrate_records_applied_files_with_checksum(empty: ScratchDatabase) -> None:
    run(empty)
    result_rows = empty.rows("select number, name, checksum from schema_migrations order by number")
    assert result_rows == [(file.number, file.name, file.checksum) for file in list_migrations()]
    assert all(len(checksum) == 64 for _, _, checksum in result_rows)


def test_migrate_applies_only_missing_files(empty: ScratchDatabase) -> None:
    assert run(empty, [ONE]) == [ONE.name]
    assert run(empty, [ONE, TWO]) == [TWO.name]
    assert empty.rows("select count(*) from one") == [(1,)]


def test_migrate_refuses_altered_applied_file(
    empty: ScratchDatabase,
) -> None:
    run(empty, [ONE])
    altered = ONE._replace(text=ONE.text + " ")
    with pytest.raises(Misconfigured, match=ONE.name):
        run(empty, [altered, TWO])
    assert "two" not in tables(empty)


def test_migrate_refuses_database_newer_than_release(empty: ScratchDatabase) -> None:
    run(empty, [ONE, TWO])
    with pytest.raises(Misconfigured, match=TWO.name):
        run(empty, [ONE])


OTHER = Migration(1, "0001_create_log.sql", "create table log (a int);")
"""The first migration of another history, by its name."""


def test_migrate_refuses_database_of_other_history(
    empty: ScratchDatabase,
) -> None:
    last = list_migrations()[-1].number
    rest = [Migration(n, f"{n:04}_grow.sql", "select 1") for n in range(2, last + 3)]
    run(empty, [OTHER, *rest])
    there = tables(empty)
    with pytest.raises(Misconfigured, match=r"before .* history.*0001_create_log.*empty database"):
        run(empty)
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        for look in (
            list_pending_migrations,
            list_newer_applied_migrations,
        ):  # it has higher numbers, but it is not newer
            with pytest.raises(Misconfigured, match="delete the data directory"):
                look(owner)
    assert tables(empty) == there == {"log", "schema_migrations", "schema_functions"}


def test_migrate_failing_file_leaves_nothing(empty: ScratchDatabase) -> None:
    migration = Migration(2, "0002_break.sql", "create table half (a int); select 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(empty, [ONE, migration, TWO._replace(number=3)])
    assert "one" in tables(empty)
    assert {"half", "two"} & tables(empty) == set()
    assert empty.rows("select number from schema_migrations") == [(1,)]
    assert run(empty, [ONE, TWO]) == [TWO.name]


def test_migrate_file_and_record_are_one_transaction(empty: ScratchDatabase) -> None:
    """What fails here is the record: the file has put one in its place."""
    text = "create table half (a int); insert into schema_migrations values (2, 'mine', 'mine');"
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(empty, [ONE, Migration(2, "0002_take_the_place.sql", text)])
    assert "half" not in tables(empty)
    assert empty.rows("select number from schema_migrations") == [(1,)]


def test_migrate_failed_run_releases_lock(empty: ScratchDatabase) -> None:
    migration = Migration(1, "0001_break.sql", "select 1 / 0;")
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(owner, [migration])
        locks = empty.rows(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and database = (select oid from pg_database where datname = current_database())"
        )
        assert locks == [(0,)]


def test_migrate_concurrent_runs_apply_each_file_once(empty: ScratchDatabase) -> None:
    start, applied = threading.Barrier(4), list[list[str]]()

    def work() -> None:
        start.wait()
        applied.append(run(empty))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for one in applied for name in one) == sorted(FILES)
    counts = "select (select count(*) from schema_migrations), count(*) from schema_functions"
    assert empty.rows(counts) == [(len(list_migrations()), len(list_function_files()))]


ALTER = TWO._replace(text="alter table one add column b int")


@pytest.fixture
def locked(
    empty: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> Iterator[psycopg.Connection[Any]]:
    """The connection that holds what VACUUM holds on the table that ALTER changes."""
    monkeypatch.setattr(db_migrate, "_LOCK_TIMEOUT", "20ms")
    monkeypatch.setattr(db_migrate, "_LOCK_PAUSES", (0.01,))
    run(empty, [ONE])
    with psycopg.connect(empty.admin_url) as vacuum:
        vacuum.execute("lock table one in share update exclusive mode")
        yield vacuum


def test_migrate_retries_file_until_table_is_free(
    empty: ScratchDatabase, locked: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    results = list[list[str]]()
    thread = threading.Thread(target=lambda: results.append(run(empty, [ONE, ALTER])))
    thread.start()
    while len(caplog.records) < 2:
        assert thread.is_alive()
        time.sleep(0.01)
    locked.rollback()
    thread.join()
    assert results == [[ALTER.name]]
    assert vars(caplog.records[0])["files"] == [ALTER.name]
    assert empty.rows("select b from one") == [(None,)]


def test_migrate_gives_table_up_at_deadline(
    empty: ScratchDatabase, locked: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        with pytest.raises(psycopg.errors.LockNotAvailable) as error:
            migrate(owner, [ONE, ALTER], deadline=time.monotonic() + 0.1)
        assert error.value.__notes__ == [ALTER.name]
        locked.rollback()
        assert migrate(owner, [ONE, ALTER], deadline=0) == [ALTER.name]


def test_migrate_prepares_roles_again(empty: ScratchDatabase) -> None:
    with psycopg.connect(empty.admin_url, autocommit=True) as administrator:
        prepare_roles(administrator, PASSWORDS)
    assert run(empty, [ONE]) == [ONE.name]


BATCH = 20
LONG = Migration(
    2,
    "0002_double.sql",
    """-- long: ten batches in each tenant
update planted p set doubled = p.n * 2, touched = p.touched + 1
where (p.tenant_id, p.n) in (select o.tenant_id, o.n from planted o
    where o.doubled is null and o.tenant_id = current_tenant() order by o.n limit 20)
""",
)
OLD_ROWS = """
create table planted (tenant_id text not null references tenants, n int not null, doubled int,
    touched int not null default 0, primary key (tenant_id, n));
create policy own_tenant on planted to strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table planted enable row level security;
alter table planted force row level security;
"""


@pytest.fixture
def rows(scratch_db: ScratchDatabase) -> list[Migration]:
    """This release with a long migration over 10 batches in each of two tenants, and one behind it.
    Gives its files."""
    number = list_migrations()[-1].number
    files = [
        *list_migrations(),
        ONE._replace(number=number + 1, text=OLD_ROWS),
        LONG._replace(number=number + 2),
        TWO._replace(number=number + 3),
    ]
    assert run(scratch_db, files[:-2]) == [ONE.name]
    for tenant in ("acme", "beta"):
        scratch_db.rows("insert into tenants (tenant_id) values (%s)", tenant)
        scratch_db.rows(
            "insert into planted (tenant_id, n) select %s, generate_series(1, %s)",
            tenant,
            10 * BATCH,
        )
    return files


def count_duplicates(base: ScratchDatabase) -> int:
    wrong = base.rows("select count(*) from planted where doubled <> 2 * n or touched > 1")
    assert wrong == [(0,)]
    return base.rows("select count(*) from planted where doubled is not null")[0][0]


def batches(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[psycopg.Connection[Any], int], None]
) -> None:
    """Let `then` happen in the midst of each batch, told its number."""
    batch, count = db_migrate._run_migration_batch, itertools.count(1)  # pyright: ignore[reportPrivateUsage]

    def counting(owner: psycopg.Connection[Any], file: Migration, tenant: str) -> int:
        with owner.transaction():
            touched = batch(owner, file, tenant)
            then(owner, next(count))
        return touched

    monkeypatch.setattr(db_migrate, "_run_migration_batch", counting)


def test_migrate_long_migration_covers_every_tenant(
    scratch_db: ScratchDatabase, rows: list[Migration]
) -> None:
    assert run(scratch_db, rows) == [LONG.name, TWO.name]
    assert count_duplicates(scratch_db) == 20 * BATCH
    assert run(scratch_db, rows) == []


def test_migrate_long_migration_stops_at_deadline(
    scratch_db: ScratchDatabase, rows: list[Migration], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = time.monotonic() + 1000

    def at_its_end(owner: psycopg.Connection[Any], number: int) -> None:
        del owner
        if number == 5:
            monkeypatch.setattr(db_migrate.time, "monotonic", lambda: over + 1)

    with monkeypatch.context() as clock:
        batches(clock, at_its_end)
        with psycopg.connect(scratch_db.owner_url, autocommit=True) as owner:
            assert migrate(owner, rows, deadline=over) == []
            assert [file.name for file in list_pending_migrations(owner, rows)] == [
                LONG.name,
                TWO.name,
            ]
        clock.undo()
    assert count_duplicates(scratch_db) == 5 * BATCH
    assert "two" not in tables(scratch_db)
    assert run(scratch_db, rows) == [LONG.name, TWO.name]
    assert count_duplicates(scratch_db) == 20 * BATCH


def test_migrate_long_migration_stops_without_lock(
    scratch_db: ScratchDatabase, rows: list[Migration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is continued later, as one that did not end in time."""
    monkeypatch.setattr(db_migrate, "_LOCK_TIMEOUT", "20ms")
    with (
        psycopg.connect(scratch_db.owner_url, autocommit=True) as owner,
        psycopg.connect(scratch_db.admin_url) as other,
    ):
        other.execute("select from planted for update")
        assert migrate(owner, rows, deadline=time.monotonic() + 0.5) == []
        other.rollback()
        assert migrate(owner, rows) == [LONG.name, TWO.name]


def test_migrate_long_migration_resumes_after_kill(
    scratch_db: ScratchDatabase, rows: list[Migration], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(owner: psycopg.Connection[Any], number: int) -> None:
        if number == 14:
            assert scratch_db.rows("select pg_terminate_backend(%s, 5000)", owner.info.backend_pid)

    with monkeypatch.context() as deadly:
        batches(deadly, kill)
        with pytest.raises(psycopg.OperationalError):
            run(scratch_db, rows)
    assert (
        count_duplicates(scratch_db) == 12 * BATCH
    )  # acme's ten and the look that found none left; beta's two
    assert run(scratch_db, rows) == [LONG.name, TWO.name]
    assert count_duplicates(scratch_db) == 20 * BATCH


def test_migrate_long_migration_is_shared_by_two_runs(
    scratch_db: ScratchDatabase, rows: list[Migration]
) -> None:
    start, applied = threading.Barrier(2), list[str]()

    def work() -> None:
        start.wait()
        applied.extend(run(scratch_db, rows))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(applied) == {LONG.name, TWO.name}
    assert applied.count(TWO.name) == 1
    assert count_duplicates(scratch_db) == 20 * BATCH
    number = "select count(*) from schema_migrations where name = %s"
    assert scratch_db.rows(number, LONG.name) == scratch_db.rows(number, TWO.name) == [(1,)]


def test_migrate_long_migration_includes_new_tenant(
    scratch_db: ScratchDatabase, rows: list[Migration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code of the release before serves meanwhile; the tenant's name comes before all others."""

    def enter(owner: psycopg.Connection[Any], number: int) -> None:
        del owner
        if number == 15:
            scratch_db.rows("insert into tenants (tenant_id) values ('aardvark')")
            scratch_db.rows("insert into planted (tenant_id, n) values ('aardvark', 1)")

    batches(monkeypatch, enter)
    assert run(scratch_db, rows) == [LONG.name, TWO.name]
    assert count_duplicates(scratch_db) == 20 * BATCH + 1


def test_migrate_waits_no_longer_than_one_batch(
    scratch_db: ScratchDatabase, rows: list[Migration]
) -> None:
    """While one run is at a long file another applies what is short and before it."""
    with psycopg.connect(scratch_db.owner_url, autocommit=True) as slow, slow.transaction():
        db_migrate._run_migration_batch(slow, rows[-2], "acme")  # pyright: ignore[reportPrivateUsage]
        results = list[list[str]]()
        other = threading.Thread(target=lambda: results.append(run(scratch_db, rows)))
        other.start()
        other.join(0.3)
        assert other.is_alive()
    other.join()
    assert results == [[LONG.name, TWO.name]]
    assert count_duplicates(scratch_db) == 20 * BATCH


@pytest.mark.parametrize(
    "text",
    [
        "update planted set doubled = 0; select 1",
        "do $$ begin update planted set doubled = 0; end $$",
    ],
    ids=["two statements", "no number of rows"],
)
def test_migrate_long_migration_must_return_row_count(
    scratch_db: ScratchDatabase, rows: list[Migration], text: str
) -> None:
    rows[-2] = rows[-2]._replace(text=f"-- long: planted\n{text}")
    with pytest.raises(Misconfigured, match=LONG.name):
        run(scratch_db, rows)
    assert count_duplicates(scratch_db) == 0


def test_migrate_refuses_owner_who_sees_no_tenant(
    scratch_db: ScratchDatabase, rows: list[Migration]
) -> None:
    (policy,) = scratch_db.rows(
        "select policyname from pg_policies where tablename = 'tenants'"
        " and 'strandline_owner' = any (roles)"
    )
    scratch_db.rows(f'drop policy "{policy[0]}" on tenants')
    with pytest.raises(Misconfigured, match=LONG.name):
        run(scratch_db, rows)
    assert "two" not in tables(scratch_db)
