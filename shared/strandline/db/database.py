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
from strandline.db.pipeline import Asked, exchange, rows_of
from strandline.errors import Misconfigured, Unavailable, Unsure
from strandline.sealing import Sealer

type Connection = psycopg.Connection[Any]
type Auth = Literal["password", "iam"]
"""How a role proves who it is: by the password in its URL, or by a token that AWS checks."""

NOBODY = "*"
"""The writer for all unbound credentials of a tenant: no participant is spelled so."""

_CONNECT_SECONDS = 20
"""Aurora at rest needs up to 15 s to wake; a request has 25."""

_ROLE_MILLISECONDS = 20_000
"""The role's own statement_timeout, see roles.sql: it binds a call that says none itself."""

_TRUSTED_SECONDS = 1.0
"""A connection used this recently is not asked whether it is alive."""


@dataclass(frozen=True)
class Asker:
    """On whose behalf a transaction runs."""

    tenant: str
    viewer: tuple[str, ...]
    """The sorted participants Q. Empty sees every scope: for admins and background work alone."""
    writer: str = NOBODY
    """The bound user, or NOBODY for an unbound credential."""

    @classmethod
    def background(cls, tenant: str) -> "Asker":
        """A job of ours in one tenant."""
        return cls(tenant, ())


class Look[Row](NamedTuple):
    """A read's rows, and the database snapshot and the clock that they show."""

    rows: Sequence[Row]
    mark: str
    now: datetime


@dataclass(frozen=True)
class _Seen:
    set_config: str
    mark: str
    now: datetime


class Access:
    """The database as one asker sees it: every statement on memory goes through here.

    It may be held over a pause in which the server ends the session, as a call to a model is:
    every statement and every transaction takes the connection that lives then, and a transaction
    keeps its own to its end. Raises Unavailable when the database is away or too slow, Unsure when
    it went away while a transaction was under way.
    """

    def __init__(
        self,
        living: Callable[[], Connection],
        asker: Asker,
        deadline: float | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self.asker = asker
        self.sealer = sealer or Sealer(None)
        """Of the words that say where a list goes on and what an answer shows."""
        self._living = living
        self._in: Connection | None = None
        """The connection of the transaction that is under way."""
        self._deadline = deadline

    def fetch[Row](
        self, row: type[Row], statement: LiteralString, params: Mapping[str, object]
    ) -> Sequence[Row]:
        """A statement's rows. Outside of `transaction` it is one of its own.

        Settings and statement then go over in one round trip: what comes before a Sync is one
        implicit transaction, committed by the Sync and undone by any error. (An explicit block
        costs two more trips.)
        """
        if self._in is not None:
            (answer,) = exchange(self._in, (statement, params))
            return rows_of(self._in, row, answer)
        connection = self._living()
        with translated(connection):
            _, answer = exchange(connection, (_SETTINGS, self._settings()), (statement, params))
        return rows_of(connection, row, answer)

    def call(self, statement: LiteralString, *params: str) -> list[list[bytes | None]]:
        """The rows of one function call that says by itself who asks: its first three parameters
        ($1, $2, $3) are tenant, viewer and writer, `params` follow. Values as Postgres spells them.

        Spares an append a statement for the settings, and the driver's adaptation of what goes and
        comes. Where less time is left than the
        role's own time-out gives, the settings go first all the same.
        """
        connection = self._in or self._living()
        settings = self._settings()
        *asked, milliseconds = settings.values()
        values = [value.encode() for value in (*asked, *params)]
        with translated(connection):
            if int(milliseconds) < _ROLE_MILLISECONDS:
                with connection.transaction():
                    connection.execute(_SETTINGS, settings)
                    return _rows(connection, statement.encode(), values)
            return _rows(connection, statement.encode(), values)

    def look[Row](
        self, row: type[Row], statement: LiteralString, params: Mapping[str, object]
    ) -> Look[Row]:
        """A read, and what it saw: one database snapshot, still one round trip."""
        connection = self._living()
        with translated(connection):
            try:
                _, settings, answer, _ = exchange(
                    connection,
                    ("begin isolation level repeatable read read only", {}),
                    (_SETTINGS_SEEN, self._settings()),
                    (statement, params),
                    ("commit", {}),
                )
            except psycopg.Error:
                if not connection.closed:
                    connection.rollback()
                raise
        (seen,) = rows_of(connection, _Seen, settings)
        return Look(rows_of(connection, row, answer), seen.mark, seen.now)

    def execute(self, statement: LiteralString, params: Mapping[str, object]) -> int:
        """A statement without an answer, inside `transaction`; gives the rows it touched."""
        assert self._in is not None
        return self._in.execute(statement, params).rowcount

    def execute_all(
        self, statements: Sequence[LiteralString], params: Mapping[str, object]
    ) -> None:
        """Statements without an answer and with the same parameters, in order and in one round
        trip, inside `transaction`."""
        assert self._in is not None
        asked: list[Asked] = [(statement, params) for statement in statements]
        exchange(self._in, *asked)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Several statements, all or none."""
        outer = self._in
        connection = outer or self._living()
        with translated(connection), connection.transaction():
            self._in = connection
            try:
                connection.execute(_SETTINGS, self._settings())
                yield
            finally:
                self._in = outer

    def _settings(self) -> dict[str, str]:
        """In the order of their names in _SETTINGS."""
        left = 25.0 if self._deadline is None else self._deadline - time.monotonic()
        names = (json.dumps(name, ensure_ascii=False) for name in self.asker.viewer)
        return {
            "tenant": self.asker.tenant,
            "viewer": f"{{{','.join(names)}}}",
            "writer": self.asker.writer,
            "milliseconds": str(max(50, int(left * 1000))),
        }


def _rows(
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
        self, url: str, auth: Auth = "password", sealing_secret: str | None = None
    ) -> None:
        """Without `sealing_secret` no other process reads the cursors of what is read here."""
        self._url = url
        self._sealer = Sealer(sealing_secret)
        self._auth: Auth = auth
        self._local = threading.local()
        self._opened: list[tuple[threading.Thread, Connection]] = []
        self._opening = threading.Lock()

    def access(self, asker: Asker, deadline: float | None = None) -> Access:
        """The database on behalf of `asker`, reached by now. `deadline` is in time.monotonic()
        seconds."""
        living = functools.partial(self.connection, deadline)
        living()
        return Access(living, asker, deadline, self._sealer)

    def connection(self, deadline: float | None = None) -> Connection:
        """This thread's connection, known to be alive a moment ago."""
        kept = cast("_Kept | None", getattr(self._local, "kept", None))
        if kept is None or not kept.usable():
            if kept is not None:
                kept.connection.close()
            kept = self._local.kept = _Kept(_connect(self._url, self._auth, deadline))
            self._keep(kept.connection)
        kept.used_at = time.monotonic()
        return kept.connection

    def _keep(self, connection: Connection) -> None:
        """Remember a connection, and close those of threads that have ended."""
        with self._opening:
            for thread, left in self._opened:
                if not thread.is_alive():
                    left.close()
            lasting = [(thread, c) for thread, c in self._opened if not c.closed]
            self._opened = [*lasting, (threading.current_thread(), connection)]

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is in the middle of a transaction: no time to call anybody."""
        kept = cast("_Kept | None", getattr(self._local, "kept", None))
        return kept is not None and (
            kept.connection.info.transaction_status == TransactionStatus.INTRANS
        )

    def close(self) -> None:
        """Close every thread's connection: when the process, or a test, is done."""
        for _, connection in self._opened:
            connection.close()


@dataclass
class _Kept:
    connection: Connection
    used_at: float = 0.0

    def usable(self) -> bool:
        """Not in the middle of a killed request, and, after a pause, still answering: a frozen
        Lambda thaws with a connection that may have died meanwhile."""
        wire = self.connection.pgconn  # asked at every request: without the driver's layers
        if wire.status != ConnStatus.OK or wire.transaction_status != TransactionStatus.IDLE:
            return False
        if time.monotonic() - self.used_at < _TRUSTED_SECONDS:
            return True
        try:
            self.connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True


def connect(url: str, auth: Auth = "password", seconds: float = _CONNECT_SECONDS) -> Connection:
    """A connection of whatever role `url` names, without regard to what it may. With `iam` its
    password is a token made now, from the process's AWS credentials. Raises Unavailable."""
    token = _token(url) if auth == "iam" else None
    try:
        return psycopg.connect(
            url,
            password=token,
            autocommit=True,
            prepare_threshold=None,  # a proxy pins a connection that prepares; plans stay custom
            connect_timeout=max(2, min(_CONNECT_SECONDS, int(seconds))),
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


def _token(url: str) -> str:
    """Holds for 15 minutes, for the login alone: so each connection has its own."""
    known = conninfo_to_dict(url)
    host, port = str(known.get("host", "")), int(known.get("port") or 5432)
    signer = Signer.from_env(os.environ)
    return signer.database_token(host, port, str(known.get("user", "")), datetime.now(UTC))


def _connect(url: str, auth: Auth, deadline: float | None) -> Connection:
    """The service's own, whose role can do no more than it must."""
    left = _CONNECT_SECONDS if deadline is None else deadline - time.monotonic()
    connection = connect(url, auth, left)
    try:
        row = connection.execute(_IS_POWERFUL).fetchone()
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


_ERASED = "ST410"
"""What the guards of the log answer to whoever cites an event that erasure has marked."""

_IS_POWERFUL = """
select r.rolsuper or r.rolbypassrls
    or exists (select from pg_class c where c.relowner = r.oid and c.relname = 'events')
    or exists (
        select from pg_roles other
        where other.rolname in ('strandline_owner', 'strandline_keys', 'strandline_search',
                'strandline_planner', 'strandline_guard', 'strandline_append')
            and pg_has_role(r.oid, other.oid, 'member'))
from pg_roles r where r.rolname = current_user
"""

_SETTINGS = (
    "select set_config('strandline.tenant', %(tenant)s, true),"
    " set_config('strandline.viewer', %(viewer)s::text, true),"
    " set_config('strandline.writer', %(writer)s, true),"
    " set_config('statement_timeout', %(milliseconds)s, true)"
)
_SETTINGS_SEEN = _SETTINGS + ", pg_current_snapshot()::text as mark, now() as now"


@contextmanager
def translated(connection: Connection | None = None) -> Generator[None]:
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
        state = error.sqlstate or "08000"  # without a state the connection itself broke
        if state.startswith(("08", "57P")):
            raise Unsure from error
        if state.startswith("53"):
            raise Unavailable("The database is short of resources. Try again.") from error
        raise
    except psycopg.DatabaseError as error:
        if error.sqlstate != _ERASED:
            raise
        raise Unavailable("An event next to this one was just erased. Try again.") from error
