"""Steps of a deployment before traffic moves: roles, schema, and the operator's first key.

Each step finds out what is left to do, so that a run may be repeated, interrupted or doubled.
"""

import itertools
import json
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple, cast
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from strandline.admin.first_key import ensure_first_key
from strandline.auth.authenticator import Authenticator
from strandline.aws import client_factory, secrets
from strandline.config import PREFIX, ServiceSettings
from strandline.db.connection import AuthMode, Connection, connect
from strandline.db.database import Database
from strandline.db.migrate import (
    list_newer_applied_migrations,
    list_pending_migrations,
    migrate,
    prepare_roles,
)
from strandline.embeddings.factory import require_valid_embedding_settings
from strandline.embeddings.reachable import require_valid_previous
from strandline.errors import (
    LoginRefused,
    MigrationFailed,
    Misconfigured,
    Unavailable,
)
from strandline.llm.factory import require_provider_settings
from strandline.observability import logger, make_trace_header

_RETRY_PAUSES = (1.0, 5.0, 10.0, 20.0)
"""Pauses between attempts to connect, in seconds: a paused Aurora needs a while to resume. The last
one is repeated until the deadline."""


class ReleaseProgress(NamedTuple):
    """The result of a run. The state machine reads it like a job's plan, with no shards."""

    applied: list[str]
    """Names of the files that were applied: migrations, and functions of rooms."""
    left: list[str]
    """Names of migrations still pending: a long one and those after it. A run that continues them
    was requested."""
    key: str = ""
    shards: int = 0


def prepare_release(env: Mapping[str, str], deadline: float) -> ReleaseProgress:
    """Bring the database that `env` names to this release, and make or renew the operator's first
    key. Starts nothing after `deadline`, in time.monotonic() seconds.

    Raises Misconfigured, Unavailable or MigrationFailed: then traffic must not move.
    """
    auth = cast("AuthMode", env.get(PREFIX + "DATABASE_AUTH") or "password")
    if env.get(secrets.SECRETS_VARIABLE):
        _require_valid_settings(env)
    with _redact_database_errors():
        if administrator_url := env.get(PREFIX + "ADMINISTRATOR_DATABASE_URL"):
            _prepare_roles(
                administrator_url, env.get(PREFIX + "ADMINISTRATOR_SECRET", ""), deadline
            )
        with closing(
            _connect_with_retries(_require_setting(env, "OWNER_DATABASE_URL"), auth, deadline)
        ) as owner:
            # A killed function leaves its session open: these end it, and its locks, soon after.
            owner.execute("set idle_session_timeout = '60s'")
            owner.execute("set idle_in_transaction_session_timeout = '60s'")
            applied_names, pending_names = _migrate_schema(owner, deadline)
            if secret := env.get(PREFIX + "FIRST_KEY_SECRET"):
                ensure_first_key(owner, secret, _require_setting(env, "KEY_SECRET"))
    if pending_names:
        _request_migration_run(env)
    logger.info("release finished", extra={"applied": applied_names, "pending": pending_names})
    return ReleaseProgress(applied_names, pending_names)


def _require_valid_settings(env: Mapping[str, str]) -> None:
    """Raise Misconfigured for settings with which the other functions would not start, or would
    lack an authentication method that is configured. They read the same secret; the stack sets
    their other settings."""
    placeholders = {PREFIX + name: "theirs" for name in ("DATABASE_URL", "BUCKET")}
    settings = ServiceSettings.from_env(placeholders | dict(env))
    require_provider_settings(settings)
    require_valid_embedding_settings(settings)
    require_valid_previous(settings)
    if settings.jwt_issuer and not settings.jwt_enabled:
        raise Misconfigured(
            f"{PREFIX}JWT_ISSUER is set, but no key to verify JWTs: put jwt_secret or jwt_jwks "
            "into the secret and deploy again, or remove jwt_issuer."
        )
    Authenticator(Database(settings.database_url), settings)


def _migrate_schema(owner: Connection, deadline: float) -> tuple[list[str], list[str]]:
    """Migrate, and return the names of applied and of pending migrations. Does nothing where the
    database is of a later release: then this one is a rollback, and later migrations only added to
    the schema. Newer functions alone are left by `migrate` itself."""
    if newer_migrations := list_newer_applied_migrations(owner):
        logger.warning(
            "the schema is newer than this release", extra={"migrations": newer_migrations}
        )
        return [], []
    names = migrate(owner, deadline=deadline)
    return names, [file.name for file in list_pending_migrations(owner)]


def _prepare_roles(url: str, secret: str, deadline: float) -> None:
    """Create roles and extensions as the administrator, whose user name and password are in
    `secret`."""
    if secret:
        credentials = json.loads(secrets.read_secret(secret) or "{}")
        if not {"username", "password"} <= credentials.keys():
            raise Misconfigured(f"{PREFIX}ADMINISTRATOR_SECRET: needs username and password.")
        url = make_conninfo(url, user=credentials["username"], password=credentials["password"])
    with closing(_connect_with_retries(url, "password", deadline)) as administrator:
        prepare_roles(administrator, {})


def _connect_with_retries(url: str, auth: AuthMode, deadline: float) -> Connection:
    """Connect to a database that may be resuming from a pause: after each of _RETRY_PAUSES, then
    until `deadline`, but for a login that is refused. Raises Unavailable."""
    for attempt in itertools.count():
        try:
            return connect(url, auth)
        except Unavailable as error:
            if attempt >= len(_RETRY_PAUSES):
                is_late = not _RETRY_PAUSES or time.monotonic() + _RETRY_PAUSES[-1] > deadline
                if is_late or isinstance(error, LoginRefused):
                    raise
            time.sleep(_RETRY_PAUSES[min(attempt, len(_RETRY_PAUSES) - 1)])
    raise AssertionError("counting ends with an answer")


def _request_migration_run(env: Mapping[str, str]) -> None:
    """Request another run of this function by the state machine: a long migration is not done."""
    sqs = client_factory.make_retrying_client("sqs")
    body = json.dumps({"job": "migrate", "run": str(uuid4()), "trace": make_trace_header()})
    try:
        sqs.send_message(QueueUrl=_require_setting(env, "JOB_QUEUE_URL"), MessageBody=body)
    except client_factory.all_error_classes() as error:
        raise Unavailable(
            "A migration is not done, and no further run could be requested: run this again."
        ) from error


def _require_setting(env: Mapping[str, str], name: str) -> str:
    value = env.get(PREFIX + name)
    if not value:
        raise Misconfigured(f"{PREFIX}{name} is not set.")
    return value


@contextmanager
def _redact_database_errors() -> Generator[None]:
    """Convert database errors to MigrationFailed without their messages: these may quote a row."""
    try:
        yield
    except psycopg.Error as error:
        diagnostics = error.diag
        object_names = (
            diagnostics.table_name,
            diagnostics.column_name,
            diagnostics.constraint_name,
        )
        where = ", ".join(
            [*getattr(error, "__notes__", []), *(name for name in object_names if name)]
        )
        position = (
            f" at character {diagnostics.statement_position}"
            if diagnostics.statement_position
            else ""
        )
        reason = f"{type(error).__name__} ({error.sqlstate}){position}"
        raise MigrationFailed(f"{where or 'The database'}: {reason}.") from None
