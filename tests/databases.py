"""Databases for tests: copies of a migrated template, emptied and lent again.

A copy costs about 200 ms with its removal and the first look at its catalogue; to empty one costs
a twentieth of that. A database whose catalogue a test changed is removed, and so is one that became
large: its dead rows would slow down the tests to come.
"""

from collections.abc import Iterable
from contextlib import suppress

import psycopg
from psycopg import sql

from strandline.db.connection import Connection
from strandline.local.postgres import EmbeddedPostgres
from tests.connections import SESSIONS
from tests.support import TEMPLATE, ScratchDatabase, unique_name

MAX_BYTES = 48 * 1024 * 1024
"""Of the tables that hold rows, with their indexes."""
BOOKKEEPING = ("schema_migrations", "schema_functions")
"""Tables of the schema itself, whose rows every database has."""
_CATALOGUES = (
    *("pg_class", "pg_attribute", "pg_attrdef", "pg_index", "pg_constraint", "pg_trigger"),
    *("pg_policy", "pg_proc", "pg_type", "pg_rewrite", "pg_extension", "pg_default_acl"),
)
# How many rows, and the newest transaction that wrote one: the next one less the youngest's age. To
# compare ages costs a third of what it costs to compare numbers. Rows that are frozen have none.
_NEWEST = sql.SQL("count(*), age('3'::xid) - min(nullif(age({}xmin), 2147483647))")
_CHANGES = sql.SQL(" union all ").join(
    [
        *(
            sql.SQL("select {} from {}").format(_NEWEST.format(sql.SQL("")), sql.Identifier(name))
            for name in _CATALOGUES
        ),
        sql.SQL(
            "select {} from pg_namespace"
            " where not starts_with(nspname, 'pg_')"  # a session's first temporary table makes one
        ).format(_NEWEST.format(sql.SQL(""))),
        sql.SQL(
            "select {} from pg_db_role_setting s"
            " left join pg_database d on d.oid = s.setdatabase"
            " where d.datname is null or d.datname = current_database()"
        ).format(_NEWEST.format(sql.SQL("s."))),
        *(
            sql.SQL("select {} from {}").format(_NEWEST.format(sql.SQL("")), sql.Identifier(name))
            for name in BOOKKEEPING
        ),
    ]
)
"""Changes with every row of the catalogue that a statement writes: a row that is added or changed
bears the newest transaction, and one that is removed is missing."""
_END_OTHERS = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and pid <> all (%s)
"""
_TABLES = """
    select tablename from pg_tables where schemaname = 'public' and tablename <> all (%s)
"""


class DatabasePool:
    """The databases of one server, lent to one test at a time."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._idle: list[str] = []
        self._keepers: dict[str, _Keeper] = {}

    def lend(self, *, fresh: bool = False, new_sessions: bool = False) -> ScratchDatabase:
        """An empty database with every migration; a `fresh` one has never had a row, so that
        neither statistics nor dead rows of other tests change its plans. Its sessions are of other
        tests before, but of a fresh one and with `new_sessions`."""
        name = self._idle.pop() if self._idle and not fresh else self._clone()
        database = ScratchDatabase(self._server, name)
        if fresh or new_sessions:
            SESSIONS.close(database.url, database.admin_url)
            self._keepers[name].rest()
        else:
            SESSIONS.open(database.url, database.admin_url)
        return database

    def take_back(self, database: ScratchDatabase) -> None:
        """End the test's connections, and keep its database for the next test if that is as it
        was."""
        keeper = self._keepers[database.name]
        spare = SESSIONS.list_pids(database.url, database.admin_url)
        if keeper.empty(spare):
            self._idle.append(database.name)
        else:
            SESSIONS.close(database.url, database.admin_url)
            keeper.rest()
            self._server.drop_database(database.name)
            del self._keepers[database.name]

    def close(self) -> None:
        """End all sessions."""
        for name, keeper in self._keepers.items():
            database = ScratchDatabase(self._server, name)
            SESSIONS.close(database.url, database.admin_url)
            keeper.rest()

    def _clone(self) -> str:
        name = unique_name()
        self._server.clone_database(TEMPLATE, name)
        self._keepers[name] = _Keeper(self._server.dsn(name))
        return name


class _Keeper:
    """Knows a database's catalogue, and empties its tables. It has one connection, whose plans it
    keeps, and composes its statements once: to compose one costs as much as to run it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        connection = self._connect()
        self._look = _CHANGES.as_bytes(connection)
        self._changes = connection.execute(self._look, prepare=True).fetchall()
        names = [name for (name,) in connection.execute(_TABLES, [list(BOOKKEEPING)])]
        text = sql.SQL(" union all ").join(
            sql.SQL(
                "select {}, pg_total_relation_size({}::regclass) where exists (select from {})"
            ).format(sql.Literal(name), sql.Literal(name), sql.Identifier(name))
            for name in names
        )
        self._filled = text.as_bytes(connection)
        delete = sql.SQL("delete from {}")
        self._delete = {
            name: delete.format(sql.Identifier(name)).as_bytes(connection) for name in names
        }

    def rest(self) -> None:
        """Close the connection, until it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def empty(self, spare: list[int]) -> bool:
        """End all sessions but the `spare` ones and delete all rows. False: the database is not
        as it was, or large."""
        with suppress(psycopg.Error):  # a test may have left anything
            connection = self._connect()
            with connection.pipeline():
                connection.execute(_END_OTHERS, [spare])
                changes = connection.execute(self._look, prepare=True)
                rows = connection.execute(self._filled, prepare=True)
            if changes.fetchall() != self._changes:
                return False
            sizes = dict(rows.fetchall())
            self._delete_rows(connection, sizes)
            return sum(sizes.values()) < MAX_BYTES
        return False

    def _delete_rows(self, connection: Connection, tables: Iterable[str]) -> None:
        """Delete all rows of these tables."""
        with connection.pipeline():
            for table in tables:
                connection.execute(self._delete[table], prepare=True)

    def _connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            # Its few statements are planned once, not at each of the first five times. It deletes
            # past triggers and foreign keys, and for good: a change of that parameter drops every
            # plan of the session, and to plan them again would cost 10 ms a test.
            options = "-c plan_cache_mode=force_generic_plan -c session_replication_role=replica"
            self._connection = psycopg.connect(self._url, autocommit=True, options=options)
            self._connection.prepared_max = None  # a statement for each table
        return self._connection
