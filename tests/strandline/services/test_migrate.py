"""The migration runner: as an owner without superuser rights, once, in order, all or nothing."""

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from strandline.errors import Misconfigured
from strandline.local.postgres import EmbeddedPostgres
from strandline.services.migrate import Migration, migrate, migrations, prepare_roles
from tests.support import PASSWORDS, Base, fresh_name

ONE = Migration(1, "0001_make_one.sql", "create table one (a int); insert into one values (1);")
TWO = Migration(2, "0002_make_two.sql", "create table two (a int);")


@pytest.fixture
def empty(server: EmbeddedPostgres) -> Iterator[Base]:
    """A database with roles and extensions, and no table."""
    name = fresh_name()
    with psycopg.connect(server.dsn(), autocommit=True) as administrator:
        administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(server.dsn(name), autocommit=True) as administrator:
        prepare_roles(administrator, PASSWORDS)
    yield Base(server, name)
    server.drop_database(name)


def run(base: Base, wanted: list[Migration] | None = None) -> list[str]:
    with psycopg.connect(base.owner_url, autocommit=True) as owner:
        return migrate(owner, wanted)


def tables(base: Base) -> set[str]:
    return {
        name for (name,) in base.rows("select tablename from pg_tables where schemaname = 'public'")
    }


def test_every_migration_runs_as_a_role_without_superuser_rights(empty: Base) -> None:
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        rights = owner.execute(
            "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb from pg_roles"
            " where rolname = current_user"
        ).fetchone()
        assert rights == (False, False, False, False)
        assert migrate(owner) == [file.name for file in migrations()]
    assert {"events", "scopes", "api_keys", "schema_migrations"} <= tables(empty)


def test_a_second_run_applies_nothing(empty: Base) -> None:
    assert run(empty)
    before = empty.rows("select * from schema_migrations order by number")
    assert run(empty) == []
    assert empty.rows("select * from schema_migrations order by number") == before


def test_what_was_applied_is_recorded_with_its_checksum(empty: Base) -> None:
    run(empty)
    recorded = empty.rows("select number, name, checksum from schema_migrations order by number")
    assert recorded == [(file.number, file.name, file.checksum) for file in migrations()]
    assert all(len(checksum) == 64 for _, _, checksum in recorded)


def test_files_are_numbered_from_one_without_a_gap() -> None:
    assert [file.number for file in migrations()] == list(range(1, len(migrations()) + 1))


def test_only_what_is_missing_is_applied(empty: Base) -> None:
    assert run(empty, [ONE]) == [ONE.name]
    assert run(empty, [ONE, TWO]) == [TWO.name]
    assert empty.rows("select count(*) from one") == [(1,)]


def test_an_altered_file_that_was_applied_is_refused_before_anything_runs(empty: Base) -> None:
    run(empty, [ONE])
    altered = ONE._replace(text=ONE.text + " ")
    with pytest.raises(Misconfigured, match=ONE.name):
        run(empty, [altered, TWO])
    assert "two" not in tables(empty)


def test_a_database_newer_than_the_release_is_refused(empty: Base) -> None:
    run(empty, [ONE, TWO])
    with pytest.raises(Misconfigured, match=TWO.name):
        run(empty, [ONE])


def test_a_failing_file_leaves_neither_its_tables_nor_its_record(empty: Base) -> None:
    broken = Migration(2, "0002_break.sql", "create table half (a int); select 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(empty, [ONE, broken, TWO._replace(number=3)])
    assert "one" in tables(empty)
    assert {"half", "two"} & tables(empty) == set()
    assert empty.rows("select number from schema_migrations") == [(1,)]
    assert run(empty, [ONE, TWO]) == [TWO.name]


def test_a_file_and_its_record_are_one_transaction(empty: Base) -> None:
    """What fails here is the record: the file has put one in its place."""
    text = "create table half (a int); insert into schema_migrations values (2, 'mine', 'mine');"
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(empty, [ONE, Migration(2, "0002_take_the_place.sql", text)])
    assert "half" not in tables(empty)
    assert empty.rows("select number from schema_migrations") == [(1,)]


def test_a_failed_run_lets_go_of_its_lock(empty: Base) -> None:
    broken = Migration(1, "0001_break.sql", "select 1 / 0;")
    with psycopg.connect(empty.owner_url, autocommit=True) as owner:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(owner, [broken])
        locks = empty.rows(
            "select count(*) from pg_locks where locktype = 'advisory'"
            " and database = (select oid from pg_database where datname = current_database())"
        )
        assert locks == [(0,)]


def test_runs_at_the_same_time_all_succeed_and_apply_each_file_once(empty: Base) -> None:
    start, applied = threading.Barrier(4), list[list[str]]()

    def work() -> None:
        start.wait()
        applied.append(run(empty))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [file.name for file in migrations()]
    assert sorted(applied) == [[], [], [], names]
    assert empty.rows("select count(*) from schema_migrations") == [(len(names),)]


def test_roles_are_prepared_again_without_harm(empty: Base) -> None:
    with psycopg.connect(empty.admin_url, autocommit=True) as administrator:
        prepare_roles(administrator, PASSWORDS)
    assert run(empty, [ONE]) == [ONE.name]


def test_what_was_stored_before_bytes_were_counted_is_counted(empty: Base) -> None:
    """0008 counts tenant by tenant, as the owner: a payload once, for who brought it first."""
    run(empty, migrations()[:7])
    event = """
        insert into events (tenant_id, event_id, scope_id, seq, participants, channel, role, type,
            origin, writer, content, blob_cid, blob_size, recorded_at, cid)
        values (%s, gen_random_uuid(), %s, %s, '{user:alice}', 'http', 'user', 'message', 'user',
            '*', %s, %s, %s, now() + %s * interval '1 second', 'cid')
    """
    scope = "00000000-0000-8000-8000-000000000001"
    for tenant in ("acme", "beta"):
        empty.rows("insert into tenants (tenant_id) values (%s)", tenant)
        empty.rows(
            "insert into scopes (tenant_id, scope_id, participants, last_seq)"
            " values (%s, %s, '{user:alice}', 3)",
            tenant,
            scope,
        )
        empty.rows(event, tenant, scope, 1, "x" * 1000, None, None, 1)
        empty.rows(event, tenant, scope, 2, None, "blob", 70_000, 2)
        empty.rows(event, tenant, scope, 3, None, "blob", 70_000, 3)
    run(empty)
    stored = empty.rows("select tenant_id, stored_bytes from scopes order by 1")
    assert stored == [("acme", 71_006), ("beta", 71_006)]
