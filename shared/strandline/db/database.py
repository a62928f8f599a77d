"""The one way to the database: a connection a thread, a transaction that says who asks."""

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, LiteralString, NamedTuple, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from strandline.aws.sigv4 import Signer
from strandline.db.pipeline import Statement, parse_rows, run_pipeline
from strandline.errors import Misconfigured, OutcomeUnknown, Unavailable
from strandline.sealing import Sealer

type Connection = psycopg.Connection[Any]
type AuthMode = Literal["password", "iam"]
"""How a role proves who it is: by the password in its URL, or by a token that AWS checks."""

NOBODY = "*"
"""The writer for all unbound credentials of a tenant: no participant is spelled so."""

_CONNECT_TIMEOUT_SECONDS = 20
"""Aurora at rest needs up to 15 s to wake; a request has 25."""

_ROLE_TIMEOUT_MS = 20_000
"""The role's own statement_timeout, see roles.sql: it binds a call that says none itself."""

_LIVENESS_TTL_SECONDS = 1.0
"""A connection used this recently is not asked whether it is alive."""


@dataclass(frozen=True)
class Caller:
    """On whose behalf a transaction runs."""

    tenant: str
    viewer: tuple[str, ...]
    """The sorted participants Q. Empty sees every scope: for admins and background work alone."""
    writer: str = NOBODY
    """The bound user, or NOBODY for an unbound credential."""

    @classmethod
    def background(cls, tenant: str) -> "Caller":
        """A job of ours in one tenant."""
        return cls(tenant, ())


class SnapshotRead[Row](NamedTuple):
    """A read's rows, and the database snapshot and the clock that they show."""

    rows: Sequence[Row]
    pg_snapshot: str
    now: datetime


@dataclass(frozen=True)
class _ReadContext:
    set_config: str
    pg_snapshot: str
    now: datetime


class TenantDb:
    """The database as one asker sees it: every statement on memory goes through here.

    It may be held over a pause in which the server ends the session, as a call to a model is:
    every statement and every transaction takes the connection that lives then, and a transaction
    keeps its own to its end. Raises Unavailable when the database is away or too slow, Unsure when
    it went away while a transaction was under way.
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
        """Of the words that say where a list goes on and what an answer shows."""
        self._get_connection = get_connection
        self._transaction_connection: Connection | None = None
        """The connection of the transaction that is under way."""
        self._deadline = deadline

    def fetch[Row](
        self, row_type: type[Row], statement: LiteralString, params: Mapping[str, object]
    ) -> Sequence[Row]:
        """A statement's rows. Outside of `transaction` it is one of its own.

        Settings and statement then go over in one round trip: what comes before a Sync is one
        implicit transaction, committed by the Sync and undone by any error. (An explicit block
        costs two more trips.)
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

    def call_function(self, statement: LiteralString, *params: str) -> list[list[bytes | None]]:
        """The rows of one function call that says by itself who asks: its first three parameters
        ($1, $2, $3) are tenant, viewer and writer, `params` follow. Values as Postgres spells them.

        Spares an append a statement for the settings, and the driver's adaptation of what goes and
        comes. Where less time is left than the
        role's own time-out gives, the settings go first all the same.
        """
        connection = self._transaction_connection or self._get_connection()
        context = self._context_params()
        *caller_values, milliseconds = context.values()
        values = [value.encode() for value in (*caller_values, *params)]
        with translate_errors(connection):
            if int(milliseconds) < _ROLE_TIMEOUT_MS:
                with connection.transaction():
                    connection.execute(_SET_CONTEXT, context)
                    return _exec_params(connection, statement.encode(), values)
            return _exec_params(connection, statement.encode(), values)

    def read_snapshot[Row](
        self, row_type: type[Row], statement: LiteralString, params: Mapping[str, object]
    ) -> SnapshotRead[Row]:
        """A read, and what it saw: one database snapshot, still one round trip."""
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
        (context,) = parse_rows(connection, _ReadContext, context_result)
        return SnapshotRead(
            parse_rows(connection, row_type, result), context.pg_snapshot, context.now
        )

    def execute(self, statement: LiteralString, params: Mapping[str, object]) -> int:
        """A statement without an answer, inside `transaction`; gives the rows it touched."""
        assert self._transaction_connection is not None
        return self._transaction_connection.execute(statement, params).rowcount

    def execute_all(
        self, statements: Sequence[LiteralString], params: Mapping[str, object]
    ) -> None:
        """Statements without an answer and with the same parameters, in order and in one round
        trip, inside `transaction`."""
        assert self._transaction_connection is not None
        batch: list[Statement] = [(statement, params) for statement in statements]
        run_pipeline(self._transaction_connection, *batch)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Several statements, all or none."""
        outer = self._transaction_connection
        connection = outer or self._get_connection()
        with translate_errors(connection), connection.transaction():
            self._transaction_connection = connection
            try:
                connection.execute(_SET_CONTEXT, self._context_params())
                yield
            finally:
                self._transaction_connection = outer

    def _context_params(self) -> dict[str, str]:
        """In the order of their names in _SETTINGS."""
        seconds_left = 25.0 if self._deadline is None else self._deadline - time.monotonic()
        names = (json.dumps(name, ensure_ascii=False) for name in self.caller.viewer)
        return {
            "tenant": self.caller.tenant,
            "viewer": f"{{{','.join(names)}}}",
            "writer": self.caller.writer,
            "milliseconds": str(max(50, int(seconds_left * 1000))),
        }


def _exec_params(
    connection: Connection, statement: bytes, values: Sequence[bytes]
) -> list[list[bytes | None]]:
    """By libpq itself. Raises as the driver does."""
    result = connection.pgconn.exec_params(statement, values)
    if result.status != ExecStatus.TUPLES_OK:
        if connection.closed:
            raise psycopg.OperationalError("the connection was lost")
        raise errors.error_from_result(result)
    columns = range(result.nfields)
    return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]


class Database:
    """Connections of one process to one database, opened on first use and kept, one a thread.

    A Lambda serves one request at a time, so there is no pool to size. Raises Unavailable when the
    database cannot be reached, Misconfigured when the role could look past row-level security.
    """

    def __init__(
        self, url: str, auth: AuthMode = "password", sealing_secret: str | None = None
    ) -> None:
        """Without `sealing_secret` no other process reads the cursors of what is read here."""
        self._url = url
        self._sealer = Sealer(sealing_secret)
        self._auth: AuthMode = auth
        self._local = threading.local()
        self._connections: list[tuple[threading.Thread, Connection]] = []
        self._lock = threading.Lock()

    def connect_as(self, caller: Caller, deadline: float | None = None) -> TenantDb:
        """The database on behalf of `caller`, reached by now. `deadline` is in time.monotonic()
        seconds."""
        get_connection = functools.partial(self.connection, deadline)
        get_connection()
        return TenantDb(get_connection, caller, deadline, self._sealer)

    def connection(self, deadline: float | None = None) -> Connection:
        """This thread's connection, known to be alive a moment ago."""
        live = cast("_LiveConnection | None", getattr(self._local, "kept", None))
        if live is None or not live.is_usable():
            if live is not None:
                live.connection.close()
            live = self._local.kept = _LiveConnection(
                _connect_restricted(self._url, self._auth, deadline)
            )
            self._track(live.connection)
        live.used_at = time.monotonic()
        return live.connection

    def _track(self, connection: Connection) -> None:
        """Remember a connection, and close those of threads that have ended."""
        with self._lock:
            for thread, stale in self._connections:
                if not thread.is_alive():
                    stale.close()
            open_connections = [(thread, c) for thread, c in self._connections if not c.closed]
            self._connections = [*open_connections, (threading.current_thread(), connection)]

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is in the middle of a transaction: no time to call anybody."""
        live = cast("_LiveConnection | None", getattr(self._local, "kept", None))
        return live is not None and (
            live.connection.info.transaction_status == TransactionStatus.INTRANS
        )

    def close(self) -> None:
        """Close every thread's connection: when the process, or a test, is done."""
        for _, connection in self._connections:
            connection.close()


@dataclass
class _LiveConnection:
    connection: Connection
    used_at: float = 0.0

    def is_usable(self) -> bool:
        """Not in the middle of a killed request, and, after a pause, still answering: a frozen
        Lambda thaws with a connection that may have died meanwhile."""
        pgconn = self.connection.pgconn  # asked at every request: without the driver's layers
        if pgconn.status != ConnStatus.OK or pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        if time.monotonic() - self.used_at < _LIVENESS_TTL_SECONDS:
            return True
        try:
            self.connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True


def connect(
    url: str, auth: AuthMode = "password", seconds: float = _CONNECT_TIMEOUT_SECONDS
) -> Connection:
    """A connection of whatever role `url` names, without regard to what it may. With `iam` its
    password is a token made now, from the process's AWS credentials. Raises Unavailable."""
    token = _iam_token(url) if auth == "iam" else None
    try:
        return psycopg.connect(
            url,
            password=token,
            autocommit=True,
            prepare_threshold=None,  # a proxy pins a connection that prepares; plans stay custom
            connect_timeout=max(2, min(_CONNECT_TIMEOUT_SECONDS, int(seconds))),
            # A peer that vanished is noticed within seconds, idle or with data under way, not after
            # the kernel's two hours.
            tcp_user_timeout=5000,
            keepalives=1,
            keepalives_idle=1,
            keepalives_interval=1,
            keepalives_count=5,
        )
    except psycopg.OperationalError as error:
        raise Unavailable("The database cannot be reached, or is waking up. Try again.") from error


def _iam_token(url: str) -> str:
    """Holds for 15 minutes, for the login alone: so each connection has its own."""
    conninfo = conninfo_to_dict(url)
    host, port = str(conninfo.get("host", "")), int(conninfo.get("port") or 5432)
    signer = Signer.from_env(os.environ)
    return signer.sign_database_token(host, port, str(conninfo.get("user", "")), datetime.now(UTC))


def _connect_restricted(url: str, auth: AuthMode, deadline: float | None) -> Connection:
    """The service's own, whose role can do no more than it must."""
    seconds_left = _CONNECT_TIMEOUT_SECONDS if deadline is None else deadline - time.monotonic()
    connection = connect(url, auth, seconds_left)
    try:
        row = connection.execute(_ROLE_IS_PRIVILEGED).fetchone()
    except psycopg.OperationalError as error:
        connection.close()
        raise Unavailable("The database cannot be reached, or is waking up. Try again.") from error
    if row is None or row[0]:
        connection.close()
        raise Misconfigured(
            "The service refuses to run as a superuser, as a role that bypasses row-level security "
            "as the owner of its tables, or as a member of a role that can: connect as "
            "strandline_app (STRANDLINE_DATABASE_URL)."
        )
    return connection


_ERASED_SQLSTATE = "ST410"
"""What the guards of the log answer to whoever cites an event that erasure has marked."""

_ROLE_IS_PRIVILEGED = """
select r.rolsuper or r.rolbypassrls
    or exists (select from pg_class c where c.relowner = r.oid and c.relname = 'events')
    or exists (
        select from pg_roles other
        where other.rolname in ('strandline_owner', 'strandline_keys', 'strandline_search',
                'strandline_planner', 'strandline_guard', 'strandline_append')
            and pg_has_role(r.oid, other.oid, 'member'))
from pg_roles r where r.rolname = current_user
"""

_SET_CONTEXT = (
    "select set_config('strandline.tenant', %(tenant)s, true),"
    " set_config('strandline.viewer', %(viewer)s::text, true),"
    " set_config('strandline.writer', %(writer)s, true),"
    " set_config('statement_timeout', %(milliseconds)s, true)"
)
_SET_CONTEXT_RETURNING = _SET_CONTEXT + ", pg_current_snapshot()::text as pg_snapshot, now() as now"


@contextmanager
def translate_errors(connection: Connection | None = None) -> Generator[None]:
    """The driver's words for 'away' into ours. Everything else is a fault of ours and passes.
    `connection` is given up where it leads to a server that only reads: another was made writer."""
    try:
        yield
    except (
        errors.QueryCanceled,
        errors.LockNotAvailable,
        errors.IdleInTransactionSessionTimeout,  # an InternalError to the driver; nothing committed
        errors.TransactionTimeout,
    ) as error:
        raise Unavailable("The database did not answer in time. Try again.") from error
    except (errors.SerializationFailure, errors.DeadlockDetected) as error:
        raise Unavailable("The database was too busy with the same rows. Try again.") from error
    except errors.ReadOnlySqlTransaction as error:
        if connection is not None:
            connection.close()
        raise Unavailable("The database is changing its writer. Try again.") from error
    except psycopg.OperationalError as error:
        sqlstate = error.sqlstate or "08000"  # without a state the connection itself broke
        if sqlstate.startswith(("08", "57P")):
            raise OutcomeUnknown from error
        if sqlstate.startswith("53"):
            raise Unavailable("The database is short of resources. Try again.") from error
        raise
    except psycopg.DatabaseError as error:
        if error.sqlstate != _ERASED_SQLSTATE:
            raise
        raise Unavailable("An event next to this one was just erased. Try again.") from error
