"""The way to the database: who asks is true for one transaction, and what breaks has a name."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql

from strandline.db.database import Caller, Database, TenantDb
from strandline.errors import Misconfigured, OutcomeUnknown, Unavailable
from strandline.llm import store_calls
from tests.support import APP, ScratchDatabase


@dataclass(frozen=True)
class Who:
    tenant: str | None
    viewer: list[str] | None
    writer: str | None


@dataclass(frozen=True)
class Number:
    n: int


@dataclass(frozen=True)
class Place:
    a: int
    b: str
    c: bool = False


pytestmark = pytest.mark.own_sessions
WHO = "select current_tenant() as tenant, current_viewer() as viewer, current_writer() as writer"
ALICE = Caller("acme", ("user:alice",), "user:alice")
BOB = Caller("globex", ("agent:helper", "user:bob"))
NOT_ANYBODY = Who(None, None, None)


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    """The application's way in."""
    database = Database(scratch_db.url)
    yield database
    database.close()


def who_is(access: TenantDb) -> Who:
    """Whom the database takes this caller for."""
    return access.fetch(Who, WHO, {})[0]


def who_is_left(database: Database) -> Who:
    """Whom the bare connection stands for, outside of any transaction of ours."""
    row = database.connection().execute(WHO).fetchone()
    assert row is not None
    return Who(*row)


def backend(database: Database) -> int:
    """The process that serves this thread's connection."""
    return database.connection().info.backend_pid


def end(base: ScratchDatabase, pid: int) -> None:
    """Kill a backend, and wait until it is gone."""
    assert base.rows("select pg_terminate_backend(%s, 5000)", pid) == [(True,)]


def test_database_settings_end_with_transaction(database: Database) -> None:
    access = database.connect_as(ALICE)
    assert who_is(access) == Who("acme", ["user:alice"], "user:alice")
    assert who_is_left(database) == NOT_ANYBODY
    with access.transaction():
        assert who_is(access) == Who("acme", ["user:alice"], "user:alice")
    assert who_is_left(database) == NOT_ANYBODY
    with pytest.raises(RuntimeError), access.transaction():
        raise RuntimeError
    assert who_is_left(database) == NOT_ANYBODY
    timeout = database.connection().execute("show statement_timeout").fetchone()
    assert timeout == ("20s",)  # the role's own


def fail_half_way(access: TenantDb, expected: Who, *, ours: bool) -> None:
    """A transaction that ends badly: in our code, or in the database."""
    with access.transaction():
        assert who_is(access) == expected
        if ours:
            raise RuntimeError
        access.fetch(Number, "select 1 / 0 as n", {})


def test_database_connection_keeps_callers_apart(database: Database) -> None:
    alice, bob = database.connect_as(ALICE), database.connect_as(BOB)
    pids = {backend(database)}
    for turn in range(200):
        caller = ALICE if turn % 2 else BOB
        access = alice if turn % 2 else bob
        expected = Who(caller.tenant, list(caller.viewer), caller.writer)
        if turn % 3 == 0:
            with pytest.raises((RuntimeError, psycopg.errors.DivisionByZero)):
                fail_half_way(access, expected, ours=turn % 2 == 1)
        elif turn % 3 == 1:
            with pytest.raises(psycopg.errors.DivisionByZero):
                access.fetch(Number, "select 1 / (n - 1) as n from (select 1 as n) x", {})
        assert who_is(access) == expected
        assert who_is_left(database) == NOT_ANYBODY
        pids.add(backend(database))
    assert len(pids) == 1, "it was one connection all the time"


@pytest.mark.parametrize(
    "name",
    [
        'user:"quoted"',
        "user:o'brien",
        "user:back\\slash",
        "user:trailing\\",
        "user:a,b",
        "user:{braces}",
        "user:null",
        "NULL",
        "user:アリス 🌊",
        "user:  two spaces",
        "user:%s %(x)s",
        "user:$1; drop table events",
        "user:\u200bzero\u2028width",
    ],
)
def test_database_participant_name_arrives_unchanged(database: Database, name: str) -> None:
    caller = Caller("acme", tuple(sorted([name, "agent:x"])), name)
    assert who_is(database.connect_as(caller)) == Who("acme", list(caller.viewer), name)


def test_database_empty_viewer_is_empty_set(database: Database) -> None:
    assert who_is(database.connect_as(Caller.background("acme"))) == Who("acme", [], "*")


def test_database_replaces_backend_that_died_while_idle(
    database: Database, scratch_db: ScratchDatabase
) -> None:
    assert who_is(database.connect_as(ALICE)).tenant == "acme"
    end(scratch_db, backend(database))
    time.sleep(1.1)  # beyond the moment in which a connection is trusted
    assert who_is(database.connect_as(ALICE)).tenant == "acme"


def test_database_backend_just_died_is_outcome_unknown(
    database: Database, scratch_db: ScratchDatabase
) -> None:
    access = database.connect_as(ALICE)
    end(scratch_db, backend(database))
    with pytest.raises(OutcomeUnknown) as error:
        who_is(access)
    assert error.value.retryable
    assert who_is(database.connect_as(ALICE)).tenant == "acme"


def test_database_backend_dying_in_transaction_is_unknown(
    database: Database, scratch_db: ScratchDatabase
) -> None:
    access, pid = database.connect_as(ALICE), backend(database)

    def be_killed() -> None:
        with access.transaction():
            who_is(access)
            end(scratch_db, pid)
            who_is(access)

    with pytest.raises(OutcomeUnknown):
        be_killed()
    assert who_is(database.connect_as(ALICE)).tenant == "acme"


def test_database_idle_transaction_is_unavailable(database: Database) -> None:
    """The database ends it, so that a frozen Lambda holds no lock."""
    access = database.connect_as(ALICE)

    def sleep_in_a_transaction() -> None:
        with access.transaction():
            setting = "select set_config('idle_in_transaction_session_timeout', '50ms', true)"
            access.execute(setting, {})
            time.sleep(0.3)
            who_is(access)

    with pytest.raises(Unavailable):
        sleep_in_a_transaction()
    assert who_is(database.connect_as(ALICE)).tenant == "acme"


def test_database_statement_past_deadline_is_unavailable(database: Database) -> None:
    started = time.monotonic()
    late = database.connect_as(ALICE, deadline=started + 0.2)
    with pytest.raises(Unavailable) as error:
        late.fetch(Number, "select 1 as n from pg_sleep(5)", {})
    assert not isinstance(error.value, OutcomeUnknown)
    assert time.monotonic() - started < 2
    with pytest.raises(Unavailable), late.transaction():
        late.fetch(Number, "select 1 as n from pg_sleep(5)", {})
    assert who_is(database.connect_as(ALICE)).tenant == "acme"


def test_database_lock_timeout_is_unavailable(
    database: Database, scratch_db: ScratchDatabase
) -> None:
    access = database.connect_as(ALICE)
    with psycopg.connect(scratch_db.url) as other:
        other.execute("select pg_advisory_xact_lock(7)")

        def wait_for_it() -> None:
            with access.transaction():
                access.execute("select set_config('lock_timeout', '20ms', true)", {})
                access.execute("select pg_advisory_xact_lock(7)", {})

        with pytest.raises(Unavailable) as error:
            wait_for_it()
        assert not isinstance(error.value, OutcomeUnknown)
    assert who_is(access).tenant == "acme"


def test_database_unreachable_is_unavailable() -> None:
    nowhere = Database("postgresql://strandline_app@127.0.0.1:1/none")
    with pytest.raises(Unavailable) as away:
        nowhere.connect_as(ALICE)
    assert away.value.retryable
    assert not isinstance(away.value, OutcomeUnknown)


def test_database_refuses_role_that_bypasses_row_security(scratch_db: ScratchDatabase) -> None:
    for url in (scratch_db.admin_url, scratch_db.owner_url):
        with pytest.raises(Misconfigured):
            Database(url).connect_as(ALICE)


def test_database_refuses_member_of_role_that_sees_all(scratch_db: ScratchDatabase) -> None:
    scratch_db.rows(
        "create role sly login password 'sly' in role strandline_app, strandline_search"
    )
    try:
        with pytest.raises(Misconfigured):
            Database(scratch_db.server.dsn(scratch_db.name, "sly", "sly")).connection()
    finally:
        scratch_db.rows("drop role sly")


def test_database_leaves_read_only_server_for_writer(scratch_db: ScratchDatabase) -> None:
    with closing(Database(scratch_db.url)) as database:
        connection = database.connection()
        connection.execute("set default_transaction_read_only = on")
        with pytest.raises(Unavailable), database.connect_as(Caller("acme", ())).transaction():
            connection.execute("insert into tenants values ('acme')")
        assert connection.closed
        assert not database.connection().closed


def test_database_thread_that_ended_leaves_no_connection(
    database: Database, scratch_db: ScratchDatabase
) -> None:
    """A state machine's every run has threads of its own."""
    for _ in range(6):
        thread = threading.Thread(target=database.connection)
        thread.start()
        thread.join()
    database.connection()
    count = "select count(*) from pg_stat_activity where usename = 'strandline_app'"
    deadline = time.monotonic() + 10
    while scratch_db.rows(f"{count} and datname = current_database()") != [(1,)]:
        assert time.monotonic() < deadline, "connections of dead threads stay"
        time.sleep(0.05)


def test_database_parameters_arrive_unchanged(database: Database) -> None:
    """Names twice and in any order, a percent sign, nothing, a list, many rows at once."""
    statement = (
        "select %(b)s || '%%' || %(a)s || %(b)s as a, %(none)s::int as b, %(list)s::text[] as c"
        " from generate_series(1, %(many)s)"
    )
    large = "ü" * 3_000_000  # more than both ends' buffers hold
    params = {"a": "%(b)s", "b": large, "none": None, "list": ["x", None], "many": 2}
    access = database.connect_as(ALICE)
    expected = [Arrival(f"{large}%%(b)s{large}", None, ["x", None])] * 2
    assert access.fetch(Arrival, statement, params) == expected
    assert access.read_snapshot(Arrival, statement, params).rows == expected
    with access.transaction():
        assert access.fetch(Arrival, statement, params) == expected


@dataclass(frozen=True)
class Arrival:
    a: str
    b: None
    c: list[str | None]


def in_a_transaction(access: TenantDb) -> None:
    with access.transaction():
        who_is(access)
        access.execute("select 1", {})


def fail(ask: Callable[..., object]) -> None:
    with suppress(psycopg.errors.DivisionByZero):
        ask(Number, "select 1 / 0 as n", {})


def fail_in_a_transaction(access: TenantDb) -> None:
    with suppress(psycopg.errors.DivisionByZero), access.transaction():
        access.fetch(Number, "select 1 / 0 as n", {})


CALL = "select $1::text, $2::text, $3::text"
LONG = 25.0
"""Seconds to a deadline: more than the role's own time-out."""
WAYS: dict[str, Callable[[TenantDb], object]] = {
    "fetch": who_is,
    "look": lambda access: access.read_snapshot(Who, WHO, {}),
    "call": lambda access: access.call_function(CALL),
    "transaction": in_a_transaction,
    "fetch that fails": lambda access: fail(access.fetch),
    "look that fails": lambda access: fail(access.read_snapshot),
    "transaction that fails": fail_in_a_transaction,
    "lease_model": lambda access: store_calls.lease_calls_and_read_limits(
        access, "m", "s", max_calls=1, limit=9, failures=9, may_probe=True, probe_seconds=1
    ),
}
"""Each way to the database that there is."""


def alive(base: ScratchDatabase) -> set[int]:
    """The service's sessions, by their processes."""
    query = "select pid from pg_stat_activity where usename = %s and datname = %s"
    return {pid for (pid,) in base.rows(query, APP, base.name)}


def set_idle_seconds(base: ScratchDatabase, seconds: int) -> None:
    """After how long the server ends the service's idle sessions in this database."""
    statement = sql.SQL("alter role {} in database {} set idle_session_timeout = {}").format(
        sql.Identifier(APP), sql.Identifier(base.name), sql.Literal(f"{seconds}s")
    )
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute(statement)


def test_database_row_takes_columns_by_name(database: Database) -> None:
    """In any order, beside others, a default for the last; the wrong ones are refused."""
    access = database.connect_as(ALICE)
    assert access.fetch(Place, "select 'x' as b, 1 as a", {}) == [Place(1, "x")]
    every = "select true as c, 'x' as b, 3 as later, 1 as a"
    assert access.fetch(Place, every, {}) == [Place(1, "x", True)]
    assert access.fetch(dict, "select 2 as b, 1 as a", {}) == [{"a": 1, "b": 2}]
    with pytest.raises(TypeError, match="Place: no column b"):
        access.fetch(Place, "select 1 as a, true as c", {})
    with pytest.raises(TypeError, match="'b'"):
        access.fetch(Place, "select 1 as a", {})


def test_database_server_ends_idle_session_after_any_call(
    scratch_db: ScratchDatabase,
) -> None:
    """Otherwise the database would never pause. The planted fault, what the driver's own pipeline
    says after its Sync, keeps a session."""
    set_idle_seconds(scratch_db, 1)
    scratch_db.rows("insert into tenants values ('acme')")
    pids: dict[str, int] = {}
    with ExitStack() as stack:
        helper = stack.enter_context(ThreadPoolExecutor(1))
        connections = {
            way: stack.enter_context(closing(Database(scratch_db.url)))
            for way in ("flushed", *WAYS, "in a thread", "call with little time")
        }

        def go(way: str, ask: Callable[[TenantDb], object], seconds: float = LONG) -> None:
            database = connections[way]
            ask(database.connect_as(ALICE, time.monotonic() + seconds))
            connection = database.connection()
            pids[way] = connection.info.backend_pid
            if way == "flushed":
                connection.pgconn.send_flush_request()
                connection.pgconn.flush()

        go("flushed", who_is)
        for way, ask in WAYS.items():
            go(way, ask)
        helper.submit(go, "in a thread", WAYS["lease_model"]).result()
        go("call with little time", WAYS["call"], 5)
        assert set(pids) == set(connections)
        until = time.monotonic() + 10
        while waiting := {way for way, pid in pids.items() if pid in alive(scratch_db)} - {
            "flushed"
        }:
            assert time.monotonic() < until, f"sessions that nobody ends: {waiting}"
            time.sleep(0.05)
        assert alive(scratch_db) == {pids["flushed"]}


@pytest.fixture
def wary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are never trusted: as after a pause."""
    monkeypatch.setattr("strandline.db.connection._LIVENESS_TTL_SECONDS", 0.0)


@pytest.mark.parametrize("way", [name for name in WAYS if "fails" not in name])
@pytest.mark.usefixtures("wary")
def test_database_access_outlives_its_session(
    database: Database, scratch_db: ScratchDatabase, way: str
) -> None:
    """As while a model is asked. Who asks stays the same."""
    scratch_db.rows("insert into tenants values ('globex')")
    access = database.connect_as(BOB)
    expected = Who("globex", ["agent:helper", "user:bob"], "*")
    assert who_is(access) == expected
    end(scratch_db, backend(database))
    WAYS[way](access)
    assert who_is(access) == expected
    assert who_is_left(database) == NOT_ANYBODY


@pytest.mark.usefixtures("wary")
def test_database_call_inside_transaction_is_part_of_it(database: Database) -> None:
    """An append that is rolled back with what stands around it: on a connection of its own it
    would stay."""
    access = database.connect_as(ALICE)
    with access.transaction():
        (pid,) = access.fetch(Number, "select pg_backend_pid() as n", {})
        ((call,),) = access.call_function(
            "select pg_backend_pid() from (values ($1, $2, $3)) as asked"
        )
        assert call == str(pid.n).encode()
        assert database.in_transaction


def test_database_transaction_keeps_its_connection(database: Database) -> None:
    access = database.connect_as(ALICE)
    with access.transaction():
        pid = access.fetch(Number, "select pg_backend_pid() as n", {})
        assert database.in_transaction
        with pytest.raises(RuntimeError), access.transaction():
            raise RuntimeError
        assert who_is(access) == Who("acme", ["user:alice"], "user:alice")
        assert access.fetch(Number, "select pg_backend_pid() as n", {}) == pid
    assert not database.in_transaction
    assert access.fetch(Number, "select pg_backend_pid() as n", {}) == pid
