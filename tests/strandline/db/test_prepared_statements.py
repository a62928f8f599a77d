"""Statements that a connection prepares: one plan for all callers, a way back from each error."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
import pytest

from strandline.db import connection as db_connection
from strandline.db.database import Caller, Database, TenantDb
from strandline.db.pipeline import call_by_libpq, run_pipeline
from strandline.db.prepared_statements import _PROXY_HOST  # pyright: ignore[reportPrivateUsage]
from strandline.errors import Unavailable
from tests.connections import connect_anew
from tests.support import ScratchDatabase

pytestmark = pytest.mark.own_sessions
ALICE = Caller("acme", ("user:alice",), "user:alice")
BOB = Caller("globex", ("user:bob",))
OLDEST: LiteralString = (
    "select name || prepare_time as statement from pg_prepared_statements"
    " where name like 'strandline%%' and statement like '%%12 /%%' order by prepare_time limit 1"
)
SHOWN = "select * from shown"
NAMES: LiteralString = "select statement from pg_prepared_statements where name like 'strandline%%'"


@dataclass(frozen=True)
class Who:
    tenant: str
    viewer: list[str]


@dataclass(frozen=True)
class Quotient:
    quotient: int


@dataclass(frozen=True)
class Prepared:
    statement: str


@pytest.fixture
def database(scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The application's way in, by connections that no test has used."""
    monkeypatch.setattr(db_connection, "connect", connect_anew)
    database = Database(scratch_db.url)
    yield database
    database.close()


def list_prepared(access: TenantDb) -> Sequence[str]:
    """What the session of this connection has prepared, without the settings of each statement."""
    rows = access.fetch(Prepared, NAMES, {})
    return [row.statement for row in rows if "set_config" not in row.statement]


def divide(access: TenantDb, divisor: int) -> int:
    """A statement that fails for 0."""
    return access.fetch(Quotient, "select 12 / %(n)s::int as quotient", {"n": divisor})[0].quotient


def test_prepared_statement_serves_every_caller(database: Database) -> None:
    """A plan that was made for one tenant shows nothing of it to another."""
    statement = "select current_tenant() as tenant, current_viewer() as viewer"
    for _ in range(10):
        for caller in (ALICE, BOB):
            (who,) = database.connect_as(caller).fetch(Who, statement, {})
            assert who == Who(caller.tenant, list(caller.viewer))
    assert list_prepared(database.connect_as(ALICE)) == [statement]


def test_statement_is_prepared_when_it_is_sent_again(database: Database) -> None:
    """What is sent once or twice costs no memory of the server; a value of another type is planned
    apart."""
    access = database.connect_as(ALICE)
    for _ in range(2):
        divide(access, 3)
    assert list_prepared(access) == []
    assert [divide(access, 3), divide(access, 4), divide(access, 300)] == [4, 3, 0]
    assert list_prepared(access) == ["select 12 / $1::int as quotient"]


def test_error_before_a_preparation_leaves_the_connection_usable(database: Database) -> None:
    """The server passes over what follows an error, preparations included."""
    access = database.connect_as(ALICE)
    for n in (3, 3, 0, 0, 3, 3):
        if n:
            assert divide(access, n) == 4
        else:
            with pytest.raises(psycopg.errors.DivisionByZero):
                divide(access, n)
    assert len(list_prepared(access)) == 1


def test_preparation_after_an_error_is_not_known(database: Database) -> None:
    """A pipeline that fails before it prepares: the name does not exist, and is not used."""
    access = database.connect_as(ALICE)
    with access.transaction():
        for n in (3, 3):
            access.execute_all(["select %(n)s::int", "select 12 / %(n)s::int"], {"n": n})
    with pytest.raises(psycopg.errors.DivisionByZero), access.transaction():
        access.execute_all(["select 1 / %(n)s::int", "select 12 / %(n)s::int"], {"n": 0})
    with access.transaction():
        access.execute_all(["select 12 / %(n)s::int", "select 12 / %(n)s::int"], {"n": 3})
    assert divide(access, 3) == 4


@pytest.fixture
def shown(database: Database, scratch_db: ScratchDatabase) -> TenantDb:
    """A view that was read until it was prepared, and has more columns since."""
    scratch_db.rows("create view shown as select 12 as quotient")
    scratch_db.rows("grant select on shown to strandline_app")
    access = database.connect_as(ALICE)
    for _ in range(4):
        assert access.fetch(Quotient, SHOWN, {}) == [Quotient(12)]
        access.read_snapshot(Quotient, SHOWN, {})
    scratch_db.rows("create or replace view shown as select 12 as quotient, 'new' as more")
    return access


def test_prepared_statement_survives_migration_in_read(shown: TenantDb) -> None:
    """After a migration that adds a column to a view, what was prepared of it is planned again."""
    assert shown.fetch(Quotient, SHOWN, {}) == [Quotient(12)]
    assert list(shown.read_snapshot(Quotient, SHOWN, {}).rows) == [Quotient(12)]


def test_prepared_statement_survives_migration_in_snapshot(shown: TenantDb) -> None:
    """A snapshot of one statement is read again, too."""
    assert list(shown.read_snapshot(Quotient, SHOWN, {}).rows) == [Quotient(12)]


def test_prepared_statement_migrated_in_transaction_is_retryable(
    shown: TenantDb,
) -> None:
    """What was written before in the same transaction is lost: the caller tries again."""
    with pytest.raises(Unavailable, match="migrated just now"), shown.transaction():
        shown.fetch(Quotient, SHOWN, {})
    with shown.transaction():
        assert shown.fetch(Quotient, SHOWN, {}) == [Quotient(12)]


def test_prepared_statements_do_not_hide_an_unsupported_feature(database: Database) -> None:
    """What no second attempt mends is not taken for a migration."""
    access = database.connect_as(ALICE)
    for _ in range(4):
        divide(access, 3)
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        access.fetch(Quotient, "select count(*) as quotient from pg_class for update", {})


def test_changed_table_of_a_prepared_statement_is_planned_again(
    database: Database, scratch_db: ScratchDatabase
) -> None:
    """Columns that are named stay as they are."""
    scratch_db.rows("create table numbers as select 12 as quotient")
    scratch_db.rows("grant select on numbers to strandline_app")
    access = database.connect_as(ALICE)
    for n in range(8):
        if n == 5:
            scratch_db.rows("alter table numbers add column more text")
        assert access.fetch(Quotient, "select quotient from numbers", {}) == [Quotient(12)]


def test_number_of_prepared_statements_is_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds memory of the server."""
    monkeypatch.setattr("strandline.db.prepared_statements._MAX_STATEMENTS", 2)
    access = database.connect_as(ALICE)
    for divisor in ("1", "2", "3", "4"):
        for _ in range(5):
            access.fetch(Quotient, f"select 12 / {divisor} as quotient", {})  # pyright: ignore[reportArgumentType]
    assert len(list_prepared(access)) == 1  # beside that of the settings


def test_prepared_statement_outlives_rollback(database: Database) -> None:
    """The driver deallocates everything after an error, if it prepares anything itself."""
    access = database.connect_as(ALICE)
    for _ in range(6):
        with access.transaction():
            divide(access, 3)
            access.execute("select 1 / %(n)s::int", {"n": 1})
    (name,) = access.fetch(Prepared, OLDEST, {})
    for _ in range(6):
        with pytest.raises(psycopg.errors.DivisionByZero), access.transaction():
            access.execute("select 1 / %(n)s::int", {"n": 0})
        with pytest.raises(psycopg.errors.DivisionByZero), access.snapshot_transaction():
            divide(access, 0)
    assert access.fetch(Prepared, OLDEST, {}) == [name]


def test_prepared_statement_that_is_gone_is_sent_again(database: Database) -> None:
    """Whatever ended it: a person at the database, a pooler between."""
    access = database.connect_as(ALICE)
    for _ in range(4):
        divide(access, 3)
    database.connection().execute("deallocate all")
    assert divide(access, 3) == 4
    for _ in range(4):
        divide(access, 3)
    database.connection().execute("deallocate all")
    with pytest.raises(Unavailable), access.transaction():
        divide(access, 3)
    assert divide(access, 3) == 4


def call_numbers(access: TenantDb) -> list[list[bytes | None]]:
    """A function that sets its caller by itself, as an append does."""
    return access.call_function("select * from numbers_of($1, $2, $3, $4)", "4")


@pytest.fixture
def called(database: Database, scratch_db: ScratchDatabase) -> TenantDb:
    """A function that was called until its call was prepared."""
    scratch_db.rows(
        "create function numbers_of(t text, v text, w text, n text, out quotient int)"
        " returns setof int language sql as 'select 12 / n::int'"
    )
    scratch_db.rows(
        "create function refuse(t text, v text, w text) returns int language plpgsql as"
        " $$ begin raise feature_not_supported; end $$"
    )
    access = database.connect_as(ALICE)
    for _ in range(4):
        assert call_numbers(access) == [[b"3"]]
    return access


def test_prepared_call_of_function_is_planned_once(called: TenantDb) -> None:
    """An append is parsed and planned once a session, too."""
    assert list_prepared(called) == ["select * from numbers_of($1, $2, $3, $4)"]


def test_prepared_call_of_function_survives_error_and_loss(
    called: TenantDb, database: Database
) -> None:
    """A call that fails leaves the next one as it was; one that is gone is sent again, but in a
    transaction, where what came before would be lost."""
    with pytest.raises(psycopg.errors.DivisionByZero):
        called.call_function("select * from numbers_of($1, $2, $3, $4)", "0")
    assert call_numbers(called) == [[b"3"]]
    database.connection().execute("deallocate all")
    assert call_numbers(called) == [[b"3"]]
    for _ in range(4):
        call_numbers(called)
    database.connection().execute("deallocate all")
    with pytest.raises(Unavailable), called.transaction():
        call_numbers(called)
    assert call_numbers(called) == [[b"3"]]


def test_prepared_call_that_is_gone_fails_none_with_little_time(
    called: TenantDb, database: Database
) -> None:
    """With less time than the role's own limit the call has a transaction, which could not be
    sent again."""
    database.connection().execute("deallocate all")
    hurried = database.connect_as(ALICE, time.monotonic() + 10)
    assert call_numbers(hurried) == [[b"3"]]
    with pytest.raises(psycopg.errors.FeatureNotSupported):  # its own, not a migration's
        hurried.call_function("select refuse($1, $2, $3)")


def test_prepared_call_of_function_survives_migration(
    called: TenantDb, scratch_db: ScratchDatabase
) -> None:
    """A function that gives a column more is another one to the server."""
    scratch_db.rows("drop function numbers_of")
    scratch_db.rows(
        "create function numbers_of(t text, v text, w text, n text, out quotient int, out more int)"
        " returns setof record language sql as 'select 12 / n::int, 1'"
    )
    assert call_numbers(called) == [[b"3", b"1"]]


@pytest.mark.parametrize(("name", "count"), [(b".proxy-", 2), (b"127.0.", 0)])
def test_prepared_statements_are_none_behind_proxy(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch, name: bytes, count: int
) -> None:
    """RDS Proxy would give the connection a session of its own for good."""
    monkeypatch.setattr("strandline.db.prepared_statements._PROXY_HOST", name)
    with psycopg.connect(scratch_db.url, autocommit=True, prepare_threshold=None) as connection:
        for _ in range(9):
            run_pipeline(connection, ("select 1", {}))
            call_by_libpq(connection, b"select 1 + $1::int", [b"2"], is_prepared=True)
        assert len(connection.execute(NAMES.replace("%%", "%")).fetchall()) == count


def test_prepared_statements_know_proxy_by_host() -> None:
    """As AWS names one."""
    assert _PROXY_HOST in b"strandline.proxy-c9x2abc.eu-central-1.rds.amazonaws.com"
    assert _PROXY_HOST not in b"strandline.cluster-c9x2abc.eu-central-1.rds.amazonaws.com"


def test_prepared_plan_of_policies_function_has_search_path(scratch_db: ScratchDatabase) -> None:
    """Statements of callers and functions with paths of their own call it in turns: without one it
    would be planned again each time."""
    called: dict[str, str] = dict(
        scratch_db.rows(
            r"""
            select p.proname::text, array_to_string(p.proconfig, ' ') from pg_proc p
            join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
            where exists (
                select from pg_policy o
                where pg_get_expr(o.polqual, o.polrelid) ~ ('\m' || p.proname || '\('))
            """
        )
    )
    assert called.keys() >= {"is_erasing", "is_scope_marked", "is_event_marked", "is_turn_marked"}
    for name, settings in called.items():
        assert "search_path=" in settings, name
