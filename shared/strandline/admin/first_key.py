"""The operator's first key. Each deployment makes it if it is missing, and its successor before it
ends, so that a stage that is deployed now and then always has a valid one in its secret."""

from datetime import UTC, datetime, timedelta

from strandline.admin.keys import store_key_with_token
from strandline.auth.api_keys import generate_token, verify_token
from strandline.auth.store_tenants_and_keys import ApiKey, get_key
from strandline.aws import secrets
from strandline.db.connection import Connection
from strandline.db.database import Caller, TenantDb
from strandline.errors import Unauthorized
from strandline.observability import logger
from strandline.tenants.store_audit import AuditContext

OPERATOR_TENANT = "ops"
"""The tenant of the first key. It stores no memory."""
LIFETIME = timedelta(days=365)
"""From a key's creation to its expiry."""
RENEWAL = timedelta(days=90)
"""A key that ends within so long gets a successor. Until its end both are valid."""
_KEY_LOCK = 7_265_310_482_119_848  # any constant: its holder makes the first key
_API_KEY_PREFIX = "strandline_"


def ensure_first_key(owner: Connection, secret: str, key_secret: str) -> None:
    """Make a key with the right `operator`, unless `secret` already contains one that goes on.

    The token is written to the secret before the key is stored in the database. If that fails, or
    its result is lost, no key exists without its token, and the next run completes it. A revoked
    key stays revoked, and one without an expiry stays as it is.
    """
    owner.execute("select pg_advisory_lock(%s)", (_KEY_LOCK,))
    try:
        _ensure_first_key(owner, secret, key_secret, datetime.now(UTC))
    finally:
        owner.execute("select pg_advisory_unlock(%s)", (_KEY_LOCK,))


def _ensure_first_key(owner: Connection, secret: str, key_secret: str, now: datetime) -> None:
    access = TenantDb(lambda: owner, Caller(OPERATOR_TENANT, ()))
    token = secrets.read_secret(secret) or ""
    if token.startswith(_API_KEY_PREFIX):
        try:
            key_token = verify_token(key_secret, token)
        except Unauthorized:
            logger.warning("the operator's first key was created with another deployment secret")
            return
        stored_key = get_key(access, key_token.key_id)
        if stored_key is not None and not _is_ending(stored_key, now):
            return
        is_usable = stored_key is None  # a run before this one was interrupted
    else:
        is_usable = False
    if not is_usable:
        token = generate_token(key_secret).token
        secrets.write_secret(secret, token)
    key_token = verify_token(key_secret, token)
    if store_key_with_token(
        access,
        key_token,
        AuditContext("deployment"),
        rights=("operator",),
        label="the deployment's first",
        expires_at=now + LIFETIME,
    ):
        logger.info("first operator key created", extra={"key_id": key_token.key_id})


def _is_ending(key: ApiKey, now: datetime) -> bool:
    return key.revoked_at is None and key.expires_at is not None and key.expires_at < now + RENEWAL
