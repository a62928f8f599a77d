"""What a deployment does before traffic moves: roles, schema, and the operator's first key.

Each step finds by itself what is left of it, so that a run may be repeated, cut off or doubled.
"""

import json
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple, cast
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from strandline.admin.keys import store_key
from strandline.auth.api_keys import generate_token, verify_token
from strandline.auth.authenticator import Authenticator
from strandline.aws import clients as aws_clients
from strandline.aws import secrets
from strandline.config import PREFIX, ServiceSettings
from strandline.db.database import AuthMode, Caller, Connection, Database, TenantDb, connect
from strandline.db.migrate import list_newer, list_pending, migrate, prepare_roles
from strandline.embeddings.choice import require_valid_embedder
from strandline.errors import MigrationFailed, Misconfigured, Unauthorized, Unavailable
from strandline.llm.choice import require_complete_provider
from strandline.observability import logger, trace_header
from strandline.tenants.store_audit import AuditContext

OPERATOR_TENANT = "ops"
"""Whose key the first one is; it holds no memory."""
_KEY_LOCK = 7_265_310_482_119_848  # any constant: whoever holds it sees to the first key
_API_KEY_PREFIX = "strandline_"
_RETRY_PAUSES = (1.0, 5.0, 10.0, 20.0)
"""Between tries to connect, in seconds: a database at rest needs a while."""


class ReleaseResult(NamedTuple):
    """What a run did. It is a step of the state machine too, of one without shards."""

    applied: list[str]
    """Migrations, by name."""
    left: list[str]
    """Migrations that wait for a long one to end; a run that goes on with it is under way."""
    key: str = ""
    shards: int = 0


def release(env: Mapping[str, str], deadline: float) -> ReleaseResult:
    """Bring the database that `env` names to this release, and see that the operator has a key.
    Nothing is begun after `deadline`, in time.monotonic() seconds.

    Raises Misconfigured, Unavailable or MigrationFailed: then no traffic may move.
    """
    auth = cast("AuthMode", env.get(PREFIX + "DATABASE_AUTH") or "password")
    if env.get(secrets.SECRETS_VARIABLE):
        _require_valid_settings(env)
    with _redact_database_errors():
        if administrator_url := env.get(PREFIX + "ADMINISTRATOR_DATABASE_URL"):
            _prepare_roles(administrator_url, env.get(PREFIX + "ADMINISTRATOR_SECRET", ""))
        with closing(
            _connect_with_retries(_require_setting(env, "OWNER_DATABASE_URL"), auth)
        ) as owner:
            # A function that is killed leaves its session: seconds later it is gone, lock and all.
            owner.execute("set idle_session_timeout = '60s'")
            owner.execute("set idle_in_transaction_session_timeout = '60s'")
            applied, left = _migrate_schema(owner, deadline)
            if secret := env.get(PREFIX + "FIRST_KEY_SECRET"):
                _ensure_first_key(owner, secret, _require_setting(env, "KEY_SECRET"))
    if left:
        _request_next_run(env)
    logger.info("released", extra={"applied": applied, "left": left})
    return ReleaseResult(applied, left)


def _require_valid_settings(env: Mapping[str, str]) -> None:
    """Raise Misconfigured for settings with which the other functions would not start, or would
    leave out a way in that is meant. They read the same secret; what they alone are told is the
    stack's own to get right."""
    placeholders = {PREFIX + name: "theirs" for name in ("DATABASE_URL", "BUCKET")}
    settings = ServiceSettings.from_env(placeholders | dict(env))
    require_complete_provider(settings)
    require_valid_embedder(settings)
    if settings.jwt_issuer and not settings.jwt_enabled:
        raise Misconfigured(
            f"{PREFIX}JWT_ISSUER is set, and nothing that JWTs are signed by: put jwt_secret or "
            "jwt_jwks into the secret, then deploy again; or leave jwt_issuer out."
        )
    Authenticator(Database(settings.database_url), settings)


def _migrate_schema(owner: Connection, deadline: float) -> tuple[list[str], list[str]]:
    """What was applied, and what is left. Nothing of either where the database is of a later
    release: this one is on its way back, and what comes after it has only added to the schema."""
    if newer_migrations := list_newer(owner):
        logger.warning("the database is of a later release", extra={"migrations": newer_migrations})
        return [], []
    applied = migrate(owner, deadline=deadline)
    return applied, [file.name for file in list_pending(owner)]


def _prepare_roles(url: str, secret: str) -> None:
    """Roles and extensions, as the administrator, whose name and password lie in `secret`."""
    if secret:
        credentials = json.loads(secrets.read_secret(secret) or "{}")
        if not {"username", "password"} <= credentials.keys():
            raise Misconfigured(f"{PREFIX}ADMINISTRATOR_SECRET: no username and password in it.")
        url = make_conninfo(url, user=credentials["username"], password=credentials["password"])
    with closing(_connect_with_retries(url, "password")) as administrator:
        prepare_roles(administrator, {})


def _connect_with_retries(url: str, auth: AuthMode) -> Connection:
    """A connection to a database that may be waking up. Raises Unavailable."""
    for pause in _RETRY_PAUSES:
        try:
            return connect(url, auth)
        except Unavailable:
            time.sleep(pause)
    return connect(url, auth)


def _ensure_first_key(owner: Connection, secret: str, key_secret: str) -> None:
    """Where `secret` holds no key of ours, make one with the right `operator`.

    The token lies in the secret before the key is in the database: if that fails, or nobody hears
    whether it did, no key is without its holder, and the next run makes up for what is missing. A
    key that was revoked stays so.
    """
    owner.execute("select pg_advisory_lock(%s)", (_KEY_LOCK,))
    try:
        token = secrets.read_secret(secret) or ""
        if not token.startswith(_API_KEY_PREFIX):
            token = generate_token(key_secret).token
            secrets.write_secret(secret, token)
        try:
            key_token = verify_token(key_secret, token)
        except Unauthorized:
            logger.warning("the operator's first key is of another deployment secret")
            return
        access, audit_context = (
            TenantDb(lambda: owner, Caller(OPERATOR_TENANT, ())),
            AuditContext("deployment"),
        )
        if store_key(
            access, key_token, audit_context, rights=("operator",), label="the deployment's first"
        ):
            logger.info("first key made", extra={"key_id": key_token.key_id})
    finally:
        owner.execute("select pg_advisory_unlock(%s)", (_KEY_LOCK,))


def _request_next_run(env: Mapping[str, str]) -> None:
    """Have the state machine run this function once more: a long migration is not done."""
    sqs = aws_clients.retrying_client("sqs")
    body = json.dumps({"job": "migrate", "run": str(uuid4()), "trace": trace_header()})
    try:
        sqs.send_message(QueueUrl=_require_setting(env, "JOB_QUEUE_URL"), MessageBody=body)
    except aws_clients.all_errors() as error:
        raise Unavailable("A migration is not done, and nobody can be told: run this again.") from (
            error
        )


def _require_setting(env: Mapping[str, str], name: str) -> str:
    value = env.get(PREFIX + name)
    if not value:
        raise Misconfigured(f"{PREFIX}{name} is not set.")
    return value


@contextmanager
def _redact_database_errors() -> Generator[None]:
    """What the database refuses, without its words: they may quote a row."""
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
