"""Connections to Postgres: how they are opened and checked, and what the driver's errors mean."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from strandline.aws.sigv4 import Signer
from strandline.errors import Misconfigured, OutcomeUnknown, Unavailable

type Connection = psycopg.Connection[Any]
type AuthMode = Literal["password", "iam"]
"""How a role authenticates: by the password in its URL, or by an IAM token."""
_CONNECT_TIMEOUT_SECONDS = 20
"""A paused Aurora needs up to 15 s to resume; a request has 25 s."""


def connect(
    url: str, auth: AuthMode = "password", seconds: float = _CONNECT_TIMEOUT_SECONDS
) -> Connection:
    """Open a connection for the role that `url` names, without checking its privileges. With `iam`,
    the password is a new token, made from the process's AWS credentials. Waits 2 to 20 seconds, by
    `seconds`. Raises Unavailable."""
    token = _iam_token(url) if auth == "iam" else None
    try:
        return psycopg.connect(
            url,
            password=token,
            autocommit=True,
            prepare_threshold=None,  # a proxy pins connections that prepare; plans stay custom
            connect_timeout=max(2, min(_CONNECT_TIMEOUT_SECONDS, int(seconds))),
            # Detect a vanished peer within seconds, idle or with data in flight, not after the
            # kernel's two hours.
            tcp_user_timeout=5000,
            keepalives=1,
            keepalives_idle=1,
            keepalives_interval=1,
            keepalives_count=5,
        )
    except psycopg.OperationalError as error:
        raise Unavailable("The database is unreachable or still starting. Try again.") from error


def _iam_token(url: str) -> str:
    """A token for the login, valid for 15 minutes: each connection needs its own."""
    conninfo = conninfo_to_dict(url)
    host, port = str(conninfo.get("host", "")), int(conninfo.get("port") or 5432)
    signer = Signer.from_env(os.environ)
    return signer.sign_database_token(host, port, str(conninfo.get("user", "")), datetime.now(UTC))


def connect_restricted(url: str, auth: AuthMode, deadline: float | None) -> Connection:
    """Open the service's own connection and check that its role has no more privileges than it
    needs."""
    seconds_left = _CONNECT_TIMEOUT_SECONDS if deadline is None else deadline - time.monotonic()
    connection = connect(url, auth, seconds_left)
    try:
        row = connection.execute(_ROLE_IS_PRIVILEGED).fetchone()
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
    return connection


_ERASED_SQLSTATE = "ST410"
"""The SQLSTATE of the log's triggers for a citation of an event that is marked for erasure."""
_ROLE_IS_PRIVILEGED = """
select r.rolsuper or r.rolbypassrls
    or exists (select from pg_class c where c.relowner = r.oid and c.relname = 'events')
    or exists (
        select from pg_roles other
        where other.rolname in ('strandline_owner', 'strandline_keys', 'strandline_search',
                'strandline_planner', 'strandline_guard', 'strandline_append', 'strandline_eraser')
            and pg_has_role(r.oid, other.oid, 'member'))
from pg_roles r where r.rolname = current_user
"""


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
