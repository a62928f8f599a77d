"""Connections to Postgres: how they are opened and checked, what the driver's errors mean, and how
tenants are listed before one is known."""

import functools
import os
import re
import socket
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, LiteralString

import psycopg
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, Format, TransactionStatus
from psycopg.rows import class_row
from psycopg.types import TypeInfo
from psycopg.types.array import ListBinaryDumper

from strandline.aws.sigv4 import Signer
from strandline.clock import read_uptime
from strandline.db.packed_vectors import PackedVector, PackedVectors
from strandline.errors import LoginRefused, Misconfigured, OutcomeUnknown, Unavailable

type Connection = psycopg.Connection[Any]
type AuthMode = Literal["password", "iam"]
"""How a role authenticates: by the password in its URL, or by an IAM token."""
_CONNECT_TIMEOUT_SECONDS = 20
"""A request has 25 s."""
_WAKING_SECONDS = 15.0
"""A paused Aurora needs so long to resume. One that does not answer for longer is away."""
_AWAY_SECONDS = 5.0
"""While the database is away, how long a process waits for it, and how long it does not try."""
_UNACKNOWLEDGED_MS = 5000
"""How long a connected peer may leave what was sent without acknowledgement, in ms."""
_TOKEN_SECONDS = 600
"""How long an IAM token serves new connections; it is valid for 15 minutes."""
_LOGIN_REFUSED = re.compile("(password|PAM|IAM) authentication failed")
"""As Postgres, Aurora and RDS Proxy say it."""
_LIVENESS_TTL_SECONDS = 1.0
"""A connection used within this time is not checked for being alive."""
_IDLE_SESSION_SECONDS = 60.0
"""The server has ended a session that was idle for so long (`roles.sql`)."""


def connect(
    url: str, auth: AuthMode = "password", seconds: float = _CONNECT_TIMEOUT_SECONDS
) -> Connection:
    """Open a connection for the role that `url` names, without checking its privileges. With `iam`,
    the password is a token, made from the process's AWS credentials. Waits 2 to 20 seconds, by
    `seconds`. Raises Unavailable, or LoginRefused, which is one."""
    token = _iam_token(url) if auth == "iam" else None
    try:
        connection = psycopg.connect(
            url,
            password=token,
            autocommit=True,
            prepare_threshold=None,  # the driver deallocates all at an error, ours included
            connect_timeout=max(2, min(_CONNECT_TIMEOUT_SECONDS, int(seconds))),
            # Detect a vanished peer within seconds, not after the kernel's two hours. This is for
            # an idle connection; `_limit_unacknowledged` is for one with data in flight.
            keepalives=1,
            keepalives_idle=1,
            keepalives_interval=1,
            keepalives_count=5,
        )
    except psycopg.OperationalError as error:
        _sign_token.cache_clear()  # if the token was refused, the next attempt makes another
        # The driver tells of a connection that failed in words alone, without an SQLSTATE. Aurora
        # refuses other logins while it resumes, with "no pg_hba.conf entry": that one passes.
        if _LOGIN_REFUSED.search(str(error)):
            raise LoginRefused from error
        raise Unavailable("The database is unreachable or still starting. Try again.") from error
    _limit_unacknowledged(connection)
    return connection


def _limit_unacknowledged(connection: Connection) -> None:
    """End the connection when its peer acknowledges nothing for _UNACKNOWLEDGED_MS. libpq's own
    tcp_user_timeout is set before it connects, and would bound that too: a database that wakes up
    and accepts nobody yet would be given up after five seconds instead of twenty."""
    if sys.platform != "linux":
        return
    peer = socket.socket(fileno=connection.fileno())
    try:
        if peer.family != socket.AF_UNIX:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    finally:
        peer.detach()


def _iam_token(url: str) -> str:
    """A token for the login, the same for all connections of up to ten minutes. RDS verifies a
    token that it knows without asking IAM, whose rate of new ones is limited."""
    period = int(datetime.now(UTC).timestamp() // _TOKEN_SECONDS)
    return _sign_token(url, Signer.from_env(os.environ), period)


@functools.lru_cache(maxsize=4)
def _sign_token(url: str, signer: Signer, period: int) -> str:
    """A token that is made now, for use in this period of _TOKEN_SECONDS since 1970. Not in the
    monotonic clock's: that may stand still while Lambda has frozen the process."""
    del period
    conninfo = conninfo_to_dict(url)
    host, port = str(conninfo.get("host", "")), int(conninfo.get("port") or 5432)
    return signer.sign_database_token(host, port, str(conninfo.get("user", "")), datetime.now(UTC))


class RestrictedConnector:
    """Opens the connections of one process as the service's own role. While the database is away, a
    process waits for it half of the time at most: otherwise a request would hold each instance of a
    function, and Lambda would refuse all others. Thread-safe."""

    def __init__(self, url: str, auth: AuthMode) -> None:
        self._url = url
        self._auth: AuthMode = auth
        self._away_until: float | None = None
        """The uptime from which the database may be tried again; None: it is not known to be
        away."""

    def connect(self, deadline: float | None) -> Connection:
        """Open a connection. Raises Unavailable, at once where the database was away just now, or
        Misconfigured."""
        began_at, away_until = time.monotonic(), self._away_until
        if away_until is not None:
            if read_uptime() < away_until:
                raise Unavailable("The database was unreachable just now. Try again.")
            limit = began_at + _AWAY_SECONDS
            deadline = limit if deadline is None else min(deadline, limit)
        try:
            connection = _connect_and_check_role(self._url, self._auth, deadline)
        except Unavailable:
            seconds = time.monotonic() - began_at
            if away_until is not None or seconds > _WAKING_SECONDS:
                self._away_until = read_uptime() + min(seconds, _AWAY_SECONDS)
            raise
        self._away_until = None
        return connection


def _connect_and_check_role(url: str, auth: AuthMode, deadline: float | None) -> Connection:
    """Open the service's own connection and check that its role has no more privileges than it
    needs."""
    seconds_left = _CONNECT_TIMEOUT_SECONDS if deadline is None else deadline - time.monotonic()
    connection = connect(url, auth, seconds_left)
    try:
        row = connection.execute(_READ_ROLE_AND_VECTOR_TYPES).fetchone()
    except psycopg.OperationalError as error:
        connection.close()
        raise Unavailable("The database is unreachable or still starting. Try again.") from error
    if row is None or row[0]:
        connection.close()
        raise Misconfigured(
            "The service refuses to run as a superuser, as a role that bypasses row-level "
            "security, as the owner of its tables, or as a member of a role that can: connect as "
            "strandline_app (STRANDLINE_DATABASE_URL)."
        )
    _, vector_oid, array_oid = row
    if vector_oid is not None:  # else there is no schema yet
        _register_packed_vectors(connection, vector_oid, array_oid)
    return connection


def _register_packed_vectors(connection: Connection, vector_oid: int, array_oid: int) -> None:
    """Let statements take packed vectors and lists of them. The numbers of their types are a
    database's own."""

    class PackedVectorDumper(Dumper):
        format = Format.BINARY
        oid = vector_oid

        def dump(self, obj: PackedVector) -> PackedVector:
            return obj

    TypeInfo("halfvec", vector_oid, array_oid).register(connection)
    connection.adapters.register_dumper(PackedVector, PackedVectorDumper)
    connection.adapters.register_dumper(PackedVectors, ListBinaryDumper)


_ERASED_SQLSTATE = "ST410"
"""The SQLSTATE of the log's triggers for a citation of an event that is marked for erasure."""
_READ_ROLE_AND_VECTOR_TYPES = """
select r.rolsuper or r.rolbypassrls
    or exists (select from pg_class c where c.relowner = r.oid and c.relname = 'events')
    or exists (
        select from pg_roles other
        where other.rolname in ('strandline_owner', 'strandline_keys', 'strandline_search',
                'strandline_planner', 'strandline_guard', 'strandline_append', 'strandline_eraser')
            and pg_has_role(r.oid, other.oid, 'member')) as is_privileged,
    to_regtype('halfvec')::oid as vector_oid, to_regtype('halfvec[]')::oid as array_oid
from pg_roles r where r.rolname = current_user
"""


@dataclass
class CachedConnection:
    """A connection that is kept between requests, and at which uptime it was last used."""

    connection: Connection
    used_at: float = 0.0

    def is_usable(self) -> bool:
        """Whether the connection is idle and, after a pause, still responds. It may be in the
        middle of a killed request, or have died while the Lambda was frozen."""
        pgconn = self.connection.pgconn  # checked at every request, so directly in libpq
        if pgconn.status != ConnStatus.OK or pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        idle_seconds = read_uptime() - self.used_at
        if idle_seconds < _LIVENESS_TTL_SECONDS:
            return True
        if idle_seconds > _IDLE_SESSION_SECONDS:
            return False  # to ask costs seconds where the network has forgotten the connection
        try:
            self.connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def translate_errors(connection: Connection | None = None) -> Generator[None]:
    """Translate the driver's errors into Unavailable and OutcomeUnknown. Errors in our own code or
    SQL pass unchanged. `connection` is closed if it leads to a read-only server: the writer has
    changed."""
    try:
        yield
    except (
        errors.QueryCanceled,
        errors.LockNotAvailable,
        errors.IdleInTransactionSessionTimeout,  # the driver's InternalError; not committed
        errors.TransactionTimeout,
    ) as error:
        raise Unavailable("The database did not answer in time. Try again.") from error
    except (errors.SerializationFailure, errors.DeadlockDetected) as error:
        raise Unavailable("Another transaction changed the same rows. Try again.") from error
    except errors.ReadOnlySqlTransaction as error:
        if connection is not None:
            connection.close()
        raise Unavailable("The database is failing over to another writer. Try again.") from error
    except psycopg.OperationalError as error:
        sqlstate = error.sqlstate or "08000"  # no state: the connection broke
        if sqlstate.startswith(("08", "57P")):
            raise OutcomeUnknown from error
        if sqlstate.startswith("53"):
            raise Unavailable("The database is short of resources. Try again.") from error
        raise
    except psycopg.DatabaseError as error:
        if error.sqlstate != _ERASED_SQLSTATE:
            raise
        raise Unavailable("An event that this request cites was just erased. Try again.") from error


def error_of_state(sqlstate: str, connection: Connection | None = None) -> Exception:
    """The error that a statement which failed with this SQLSTATE would have raised: for what a
    function caught and reports. It has no text."""
    error: Exception = _driver_error(sqlstate)
    try:
        with translate_errors(connection):
            raise error
    except Exception as translation:
        error = translation
    return error


def _driver_error(sqlstate: str) -> psycopg.Error:
    try:
        return errors.lookup(sqlstate)()
    except KeyError:  # a state of our own triggers
        error = psycopg.DatabaseError()
        error.sqlstate = sqlstate
        return error


@dataclass(frozen=True)
class _TenantIdRow:
    tenant_id: str


def fetch_tenant_ids(
    connection: Connection, statement: LiteralString, params: Sequence[object]
) -> list[str]:
    """The ids of the tenants that a statement returns. It runs before any tenant is known."""
    with translate_errors(), connection.cursor(row_factory=class_row(_TenantIdRow)) as cursor:
        return [row.tenant_id for row in cursor.execute(statement, params).fetchall()]
