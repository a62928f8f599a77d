"""Databases for tests: copies of a migrated template, emptied and lent again.

A copy costs about 200 ms with its removal and the first look at its catalogue; to empty one costs
a tenth of that. A database whose catalogue a test changed is removed, and so is one that became
large: its dead rows would slow down the tests to come.
"""

from contextlib import suppress

import psycopg
from psycopg import sql

from strandline.local.postgres import EmbeddedPostgres
from tests.support import TEMPLATE, ScratchDatabase, unique_name

MAX_BYTES = 64 * 1024 * 1024
"""A migrated database without rows has 12 MB."""
_CATALOGUE = """
    select md5(string_agg(part, ' ' order by part)) from (
        select concat('class ', oid, ' ', xmin) from pg_class where oid >= 16384
        union all select concat('function ', oid, ' ', xmin) from pg_proc where oid >= 16384
        union all select concat('policy ', oid, ' ', xmin) from pg_policy
        union all select concat('trigger ', oid, ' ', xmin) from pg_trigger
        union all select concat('constraint ', oid, ' ', xmin) from pg_constraint
        union all select concat('index ', indexrelid, ' ', xmin) from pg_index
            where indexrelid >= 16384
        union all select concat('default ', oid, ' ', xmin) from pg_attrdef
        union all select concat('column ', attrelid, ' ', max(xmin::text::bigint))
            from pg_attribute where attrelid >= 16384 group by attrelid
        union all select concat('schema ', oid, ' ', xmin) from pg_namespace
        union all select concat('setting ', setdatabase, ' ', setrole, ' ', xmin)
            from pg_db_role_setting
        union all select concat('applied ', count(*)) from schema_migrations
    ) parts (part)
"""
"""Changes with every row of the catalogue that a statement writes."""
_OTHERS = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""


class DatabasePool:
    """The databases of one server, lent to one test at a time."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._idle: list[str] = []
        self._catalogues: dict[str, str] = {}

    def lend(self, *, fresh: bool = False) -> ScratchDatabase:
        """An empty database with every migration; a `fresh` one has never had a row, so that
        neither statistics nor dead rows of other tests change its plans."""
        name = self._idle.pop() if self._idle and not fresh else self._clone()
        return ScratchDatabase(self._server, name)

    def take_back(self, database: ScratchDatabase) -> None:
        """End the test's connections, and keep its database for the next test if that is as it
        was."""
        if self._empty(database):
            self._idle.append(database.name)
        else:
            self._server.drop_database(database.name)
            self._catalogues.pop(database.name)

    def _clone(self) -> str:
        name = unique_name()
        self._server.clone_database(TEMPLATE, name)
        with psycopg.connect(self._server.dsn(name), autocommit=True) as connection:
            self._catalogues[name] = _read_catalogue(connection)
        return name

    def _empty(self, database: ScratchDatabase) -> bool:
        with (
            suppress(psycopg.Error),  # a test may have left anything: then it is removed
            psycopg.connect(database.admin_url, autocommit=True) as connection,
        ):
            connection.execute(_OTHERS)
            if _read_catalogue(connection) != self._catalogues[database.name]:
                return False
            _delete_rows(connection)
            size = connection.execute("select pg_database_size(current_database())").fetchone()
            return size is not None and size[0] < MAX_BYTES
        return False


def _read_catalogue(connection: psycopg.Connection) -> str:
    row = connection.execute(_CATALOGUE).fetchone()
    assert row is not None
    return row[0]


def _delete_rows(connection: psycopg.Connection) -> None:
    """Delete all rows, past triggers and foreign keys."""
    tables = [
        sql.Identifier(name)
        for (name,) in connection.execute(
            "select tablename from pg_tables"
            " where schemaname = 'public' and tablename <> 'schema_migrations'"
        )
    ]
    probe = sql.SQL(" union all ").join(
        sql.SQL("select {} where exists (select from {})").format(
            sql.Literal(table.as_string().strip('"')), table
        )
        for table in tables
    )
    filled = [sql.Identifier(name) for (name,) in connection.execute(probe)]
    with connection.transaction(), connection.pipeline():
        connection.execute("set local session_replication_role = replica")
        for table in filled:
            connection.execute(sql.SQL("delete from {}").format(table))
