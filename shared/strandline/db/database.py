"""Access to the database: one connection per thread, and transactions that set tenant, viewer and
writer."""

import functools
import json
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import LiteralString, NamedTuple, cast

import psycopg
from psycopg.pq import TransactionStatus

from strandline.clock import read_uptime
from strandline.db.connection import (
    AuthMode,
    CachedConnection,
    Connection,
    RestrictedConnector,
    translate_errors,
)
from strandline.db.pipeline import (
    RowQuery,
    Statement,
    call_by_libpq,
    parse_rows,
    run_pipeline,
)
from strandline.errors import Unavailable
from strandline.sealing import Sealer

NOBODY = "*"
"""The writer of all unbound credentials of a tenant. No participant has this name."""


_ROLE_TIMEOUT_MS = 20_000
"""The role's own statement_timeout, in ms (see roles.sql). It applies to calls that set none
themselves."""


@dataclass(frozen=True)
class Caller:
    """On whose behalf a transaction runs: tenant, viewer and writer."""

    tenant: str
    viewer: tuple[str, ...]
    """The participants to read for, sorted. Empty means every scope: only for admins and background
    work."""
    writer: str = NOBODY
    """The bound user, or NOBODY for an unbound credential."""
    sees_erased: bool = False
    """Whether events that are being erased, and rows derived from them, are visible: only for code
    that erases or derives, never for readers."""

    @classmethod
    def background(cls, tenant: str) -> "Caller":
        """The caller of background work in one tenant: it sees every scope."""
        return cls(tenant, (), sees_erased=True)


class SnapshotRead[Row](NamedTuple):
    """The rows of a read, with the database snapshot and the time that they show."""

    rows: Sequence[Row]
    pg_snapshot: str
    now: datetime


@dataclass(frozen=True)
class _SnapshotInfo:
    set_config: str
    pg_snapshot: str
    now: datetime


class TenantDb:
    """The database as one caller sees it. Every statement on memory goes through this class.

    An instance may outlive a pause in which the server ends the session, such as a call to a model:
    each statement and transaction takes the connection that is alive then, and a transaction keeps
    its connection to its end. Methods raise Unavailable when the database is unreachable or too
    slow, OutcomeUnknown when the connection broke during a statement or transaction.
    """

    def __init__(
        self,
        get_connection: Callable[[], Connection],
        caller: Caller,
        deadline: float | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self.caller = caller
        self.sealer = sealer or Sealer(None)
        """Seals cursors and answer tokens."""
        self._get_connection = get_connection
        self._transaction_connection: Connection | None = None
        """The connection of the current transaction, if any."""
        self._deadline = deadline

    def seeing_erased(self) -> "TenantDb":
        """The database for the same caller, with events that are being erased visible: for the code
        that erases them."""
        caller = replace(self.caller, sees_erased=True)
        return TenantDb(self._get_connection, caller, self._deadline, self.sealer)

    def fetch[Row](
        self, row_type: type[Row], statement: LiteralString, params: Mapping[str, object]
    ) -> Sequence[Row]:
        """Run a statement and return its rows. Outside of `transaction` it is a transaction of its
        own.

        Settings and statement are then sent in one round trip: everything before a Sync is one
        implicit transaction, committed by the Sync and rolled back by any error. (An explicit block
        costs two more round trips.)
        """
        if self._transaction_connection is not None:
            (result,) = run_pipeline(self._transaction_connection, (statement, params))
            return parse_rows(self._transaction_connection, row_type, result)
        connection = self._get_connection()
        with translate_errors(connection):
            _, result = run_pipeline(
                connection, (_SET_CONTEXT, self._context_params()), (statement, params)
            )
        return parse_rows(connection, row_type, result)

    def fetch_pair[First, Second](
        self, first: RowQuery[First], second: RowQuery[Second]
    ) -> tuple[Sequence[First], Sequence[Second]]:
        """Run two statements in one round trip and return the rows of each; outside of
        `transaction` they are one transaction."""
        context: list[Statement] = [(_SET_CONTEXT, self._context_params())]
        connection = self._transaction_connection or self._get_connection()
        with translate_errors(connection):
            *_, first_result, second_result = run_pipeline(
                connection,
                *(context if self._transaction_connection is None else ()),
                (first.statement, first.params),
                (second.statement, second.params),
            )
        return (
            parse_rows(connection, first.row_type, first_result),
            parse_rows(connection, second.row_type, second_result),
        )

    def call_function(self, statement: LiteralString, *params: str) -> list[list[bytes | None]]:
        """Call one SQL function and return its rows, values in Postgres' text format.

        The function sets the caller itself: its first three parameters ($1, $2, $3) are tenant,
        viewer and writer; `params` follow. This saves an append the statement for the settings, and
        the driver's adaptation of parameters and results. If less time is left than the role's own
        timeout, the settings are sent first all the same, in a transaction that must not fail for a
        call prepared before a migration.
        """
        connection = self._transaction_connection or self._get_connection()
        context = self._context_params()
        caller_values = (context["tenant"], context["viewer"], context["writer"])
        values = [value.encode() for value in (*caller_values, *params)]
        with translate_errors(connection):
            if int(context["milliseconds"]) < _ROLE_TIMEOUT_MS:
                with connection.transaction():
                    connection.execute(_SET_CONTEXT, context)
                    result = call_by_libpq(
                        connection, statement.encode(), values, is_prepared=False
                    )
            else:
                result = call_by_libpq(connection, statement.encode(), values, is_prepared=True)
        columns = range(result.nfields)
        return [[result.get_value(n, column) for column in columns] for n in range(result.ntuples)]

    def read_snapshot[Row](
        self, row_type: type[Row], statement: LiteralString, params: Mapping[str, object]
    ) -> SnapshotRead[Row]:
        """Run a read in one database snapshot, in one round trip. Returns its rows with that
        snapshot; inside `snapshot_transaction`, of which it is a part, that of the transaction."""
        if self._transaction_connection is not None:
            connection = self._transaction_connection
            context_result, result = run_pipeline(
                connection,
                (_SET_CONTEXT_RETURNING, self._context_params()),
                (statement, params),
            )
            (context,) = parse_rows(connection, _SnapshotInfo, context_result)
            rows = parse_rows(connection, row_type, result)
            return SnapshotRead(rows, context.pg_snapshot, context.now)
        connection = self._get_connection()
        with translate_errors(connection):
            try:
                _, context_result, result, _ = run_pipeline(
                    connection,
                    ("begin isolation level repeatable read read only", {}),
                    (_SET_CONTEXT_RETURNING, self._context_params()),
                    (statement, params),
                    ("commit", {}),
                )
            except psycopg.Error:
                if not connection.closed:
                    connection.rollback()
                raise
        (context,) = parse_rows(connection, _SnapshotInfo, context_result)
        return SnapshotRead(
            parse_rows(connection, row_type, result), context.pg_snapshot, context.now
        )

    def execute(self, statement: LiteralString, params: Mapping[str, object]) -> int:
        """Run a statement that returns no rows, inside `transaction`. Returns the number of rows it
        changed."""
        assert self._transaction_connection is not None
        (result,) = run_pipeline(self._transaction_connection, (statement, params))
        return result.command_tuples or 0

    def execute_all(
        self, statements: Sequence[LiteralString], params: Mapping[str, object]
    ) -> None:
        """Run statements that return no rows, with the same parameters, in order and in one round
        trip, inside `transaction`."""
        assert self._transaction_connection is not None
        batch: list[Statement] = [(statement, params) for statement in statements]
        run_pipeline(self._transaction_connection, *batch)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Run several statements in one transaction. Nested, it is a savepoint."""
        outer = self._transaction_connection
        connection = outer or self._get_connection()
        with translate_errors(connection), connection.transaction():
            self._transaction_connection = connection
            try:
                run_pipeline(connection, (_SET_CONTEXT, self._context_params()))
                yield
            finally:
                self._transaction_connection = outer

    @contextmanager
    def snapshot_transaction(self) -> Generator[None]:
        """Run several reads in one database snapshot; not nested."""
        assert self._transaction_connection is None
        connection = self._get_connection()
        with translate_errors(connection):
            try:
                run_pipeline(
                    connection,
                    ("begin isolation level repeatable read read only", {}),
                    (_SET_CONTEXT, self._context_params()),
                )
                self._transaction_connection = connection
                yield
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise
            else:
                connection.commit()
            finally:
                self._transaction_connection = None

    def _context_params(self) -> dict[str, str]:
        """The parameters of _SET_CONTEXT."""
        seconds_left = 25.0 if self._deadline is None else self._deadline - time.monotonic()
        names = (json.dumps(name, ensure_ascii=False) for name in self.caller.viewer)
        return {
            "tenant": self.caller.tenant,
            "viewer": f"{{{','.join(names)}}}",
            "writer": self.caller.writer,
            "sees_erased": "on" if self.caller.sees_erased else "",
            "milliseconds": str(max(50, int(seconds_left * 1000))),
        }


class Database:
    """The connections of one process to one database, opened on first use and kept, one per thread.

    A Lambda function serves one request at a time, so there is no pool to size. Methods raise
    Unavailable when the database cannot be reached, Misconfigured when the role could bypass
    row-level security.
    """

    def __init__(
        self, url: str, auth: AuthMode = "password", sealing_secret: str | None = None
    ) -> None:
        """Without `sealing_secret`, other processes cannot read the cursors that this one
        issues."""
        self._connector = RestrictedConnector(url, auth)
        self._sealer = Sealer(sealing_secret)
        self._local = threading.local()
        self._connections: list[tuple[threading.Thread, Connection]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def connect_as(self, caller: Caller, deadline: float | None = None) -> TenantDb:
        """Connect, and return the database as `caller` sees it. `deadline` is in time.monotonic()
        seconds. Raises Unavailable or Misconfigured."""
        get_connection = functools.partial(self.connection, deadline)
        get_connection()
        return TenantDb(get_connection, caller, deadline, self._sealer)

    def connection(self, deadline: float | None = None) -> Connection:
        """This thread's connection, checked to be alive within the last second. Opened if
        necessary. Raises Unavailable or Misconfigured."""
        live = cast("CachedConnection | None", getattr(self._local, "live", None))
        if live is None or not live.is_usable():
            if live is not None:
                live.connection.close()
            live = self._local.live = CachedConnection(self._connector.connect(deadline))
            self._add_connection(live.connection)
        live.used_at = read_uptime()
        return live.connection

    def _add_connection(self, connection: Connection) -> None:
        """Record a connection, and close those of threads that have ended."""
        with self._lock:
            for thread, stale in self._connections:
                if not thread.is_alive():
                    stale.close()
            open_connections = [(thread, c) for thread, c in self._connections if not c.closed]
            self._connections = [*open_connections, (threading.current_thread(), connection)]
            if self._is_closed:
                connection.close()
                raise Unavailable("The service stops; try again.")

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is in a transaction, in which it must not call any other service."""
        live = cast("CachedConnection | None", getattr(self._local, "live", None))
        return live is not None and (
            live.connection.info.transaction_status == TransactionStatus.INTRANS
        )

    def close(self) -> None:
        """Close every thread's connection, at the end of the process or of a test. One that a
        thread opens at the same time is closed too."""
        with self._lock:
            self._is_closed = True
            for _, connection in self._connections:
                connection.close()


_SET_CONTEXT = (
    "select set_config('strandline.tenant', %(tenant)s, true),"
    " set_config('strandline.viewer', %(viewer)s::text, true),"
    " set_config('strandline.writer', %(writer)s, true),"
    " set_config('strandline.sees_erased', %(sees_erased)s, true),"
    " set_config('statement_timeout', %(milliseconds)s, true)"
)
_SET_CONTEXT_RETURNING = _SET_CONTEXT + ", pg_current_snapshot()::text as pg_snapshot, now() as now"
