"""API keys: operators make, list, rotate and revoke them, over HTTP and at the console."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from strandline.admin.schemas import KeyOut, KeyPage, NewKeyOut
from strandline.admin.tenants import require_tenant_name
from strandline.auth import store_tenants_and_keys
from strandline.auth.api_keys import TokenParts, generate_token
from strandline.auth.principals import RIGHTS
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.participants import normalize_participant
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

MAX_EXPIRY_DAYS = 3650
"""The latest expiry of a key, in days from now."""
_CONSOLE_CONTEXT = AuditContext("console key")


class NewKey(NamedTuple):
    """A new key. `token` is shown once and never stored."""

    key: store_tenants_and_keys.ApiKey
    token: str

    @property
    def key_id(self) -> str:
        """The key's public id."""
        return self.key.key_id


class KeyRotation(NamedTuple):
    """A key's successor, and the key itself, which expires at the end of the overlap."""

    successor: NewKey
    predecessor: store_tenants_and_keys.ApiKey


def make_key(
    access: TenantDb,
    deployment_secret: str | None,
    audit_context: AuditContext = _CONSOLE_CONTEXT,
    *,
    user: str | None = None,
    rights: Sequence[str] = ("read", "write"),
    label: str = "",
    expires_at: datetime | None = None,
) -> NewKey:
    """Make a key of the tenant of `access`, bound to `user` if given. At the console the tenant is
    created if it is new; over HTTP that is a separate step.

    Raises Invalid for an unknown right, a user that is not `user:NAME`, an expiry in the past or
    too far ahead, or a tenant name that is not lower-case letters, digits and hyphens;
    StateConflict without `deployment_secret`, where API keys are not enabled.
    """
    require_tenant_name(access.caller.tenant)
    require_known_rights(rights)
    user = parse_bound_user(user)
    require_valid_expiry(expires_at, datetime.now(UTC))
    with access.transaction():
        if audit_context.tenant is None:
            store_tenants_and_keys.insert_tenant(access)
        new_key = _generate_and_insert_key(
            access, deployment_secret, user, rights, label, expires_at
        )
        store_audit.add_audit_entry(
            access, audit_context, {"key_id": new_key.key_id}, _make_audit_details(new_key.key)
        )
    return new_key


def store_key_with_token(
    access: TenantDb,
    key_token: TokenParts,
    audit_context: AuditContext,
    *,
    rights: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> bool:
    """Store a key whose token already exists, in the tenant of `access`, and the tenant if it is
    new. Returns False if the key was already stored: then it stays as it is, revoked or not."""
    with access.transaction():
        store_tenants_and_keys.insert_tenant(access)
        if store_tenants_and_keys.get_key(access, key_token.key_id) is not None:
            return False
        new_key = _insert_key(access, key_token, None, rights, label, expires_at)
        store_audit.add_audit_entry(
            access, audit_context, {"key_id": new_key.key_id}, _make_audit_details(new_key.key)
        )
    return True


def rotate_key(
    access: TenantDb,
    deployment_secret: str | None,
    audit_context: AuditContext,
    key_id: str,
    *,
    overlap: timedelta,
    expires_at: datetime | None = None,
) -> KeyRotation:
    """Make a key's successor, with the same user, rights and label. The key itself expires after
    `overlap`, or at its own expiry if that is earlier. Without `expires_at` the successor has the
    lifetime that the key was made with.

    Raises NotFound; Invalid for an invalid expiry; StateConflict for a key that has ended or
    already has a successor: of two concurrent calls only one succeeds.
    """
    now = datetime.now(UTC)
    require_valid_expiry(expires_at, now)
    with access.transaction():
        predecessor = store_tenants_and_keys.lock_key(access, key_id)
        if predecessor is None:
            raise NotFound
        _require_rotatable(predecessor, now)
        if expires_at is None and predecessor.expires_at is not None:
            expires_at = now + (predecessor.expires_at - predecessor.created_at)
        successor = _generate_and_insert_key(
            access,
            deployment_secret,
            predecessor.user_name,
            predecessor.scopes,
            predecessor.label,
            expires_at,
        )
        ending_key = store_tenants_and_keys.set_key_successor(
            access, key_id, successor.key_id, now + overlap
        )
        audit_target = {"key_id": key_id, "rotated_to": successor.key_id}
        store_audit.add_audit_entry(
            access,
            audit_context,
            audit_target,
            {**_make_audit_details(successor.key), "old_expires_at": _format_expiry(ending_key)},
        )
    return KeyRotation(successor, ending_key)


def revoke_key(
    access: TenantDb, audit_context: AuditContext, key_id: str
) -> store_tenants_and_keys.ApiKey:
    """Revoke a key of the tenant of `access` for good: it is refused within 60 seconds. Idempotent.
    Raises NotFound."""
    with access.transaction():
        key = store_tenants_and_keys.revoke_key(access, key_id)
        if key is None:
            raise NotFound
        store_audit.add_audit_entry(access, audit_context, {"key_id": key_id})
    return key


def get_key(access: TenantDb, key_id: str) -> KeyOut:
    """A key of the tenant of `access`. Raises NotFound."""
    key = store_tenants_and_keys.get_key(access, key_id)
    if key is None:
        raise NotFound
    return to_key_out(key)


def list_keys(access: TenantDb, limit: int, cursor: str | None) -> KeyPage:
    """List the keys of the tenant of `access`, newest first. Raises Malformed for an invalid
    cursor."""
    cursors = Cursors(access.sealer, access.caller.tenant, "keys")
    rows = store_tenants_and_keys.list_newest_keys(access, cursors.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.pg_snapshot, last.created_at, UUID(last.key_id))
    return KeyPage(
        keys=[to_key_out(row) for row in rows], next_cursor=after and cursors.encode(after)
    )


def to_key_out(key: store_tenants_and_keys.ApiKey) -> KeyOut:
    """Convert a key for a response, without secrets."""
    return KeyOut.model_validate(_to_key_fields(key))


def to_new_key_out(new_key: NewKey) -> NewKeyOut:
    """Convert a new key for a response, with its token."""
    return NewKeyOut.model_validate({**_to_key_fields(new_key.key), "token": new_key.token})


def _to_key_fields(key: store_tenants_and_keys.ApiKey) -> dict[str, object]:
    return {**vars(key), "user": key.user_name, "rights": key.scopes}


def _make_audit_details(key: store_tenants_and_keys.ApiKey) -> dict[str, object]:
    """The details of the audit entry of a new key: rights, user, expiry. The label is left out: it
    is free text."""
    return {"rights": key.scopes, "user": key.user_name, "expires_at": _format_expiry(key)}


def _format_expiry(key: store_tenants_and_keys.ApiKey) -> str | None:
    """A key's expiry in ISO 8601 (UTC), as the audit trail stores it."""
    return key.expires_at and key.expires_at.astimezone(UTC).isoformat()


def _generate_and_insert_key(
    access: TenantDb,
    deployment_secret: str | None,
    user: str | None,
    rights: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> NewKey:
    if deployment_secret is None:
        raise StateConflict(
            "API keys are not enabled in this deployment: set STRANDLINE_KEY_SECRET, or "
            "authenticate by JWT (STRANDLINE_JWT_…) or client certificate"
        )
    return _insert_key(access, generate_token(deployment_secret), user, rights, label, expires_at)


def _insert_key(
    access: TenantDb,
    key_token: TokenParts,
    user: str | None,
    rights: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> NewKey:
    key = store_tenants_and_keys.insert_key(
        access,
        key_id=key_token.key_id,
        secret_hash=key_token.secret_hash,
        user=user,
        scopes=[right for right in RIGHTS if right in rights],
        label=label,
        expires_at=expires_at,
    )
    return NewKey(key, key_token.token)


def require_known_rights(rights: Sequence[str]) -> None:
    """Raise Invalid unless these are one or more rights that a credential can have."""
    if not rights or not set(rights) <= set(RIGHTS):
        raise Invalid(f"rights: must be one or more of {', '.join(RIGHTS)}", field="rights")


def parse_bound_user(user: str | None) -> str | None:
    """The participant that a credential is bound to, normalised; None if unbound. Raises Invalid
    for anything but a user."""
    user = user if user is None else normalize_participant(user, "user")
    if user is not None and not user.startswith("user:"):
        raise Invalid("user: must be `user:NAME`", field="user")
    return user


def require_valid_expiry(expires_at: datetime | None, now: datetime) -> None:
    """Raise Invalid for an expiry that is past or too far ahead."""
    max_lifetime = timedelta(days=MAX_EXPIRY_DAYS)
    if expires_at is not None and not now < expires_at <= now + max_lifetime:
        raise Invalid(
            f"expires_at: must be in the future, at most {MAX_EXPIRY_DAYS} days ahead; leave it "
            "out if it should not expire",
            field="expires_at",
        )


def _require_rotatable(key: store_tenants_and_keys.ApiKey, now: datetime) -> None:
    if key.rotated_to is not None:
        raise StateConflict(
            "key_id: this key already has a successor, `rotated_to`: rotate that one",
            field="key_id",
            rotated_to=key.rotated_to,
        )
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise StateConflict("key_id: this key has ended: make a new key", field="key_id")
