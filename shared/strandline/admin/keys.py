"""API keys: made, listed, rotated and revoked, by operators over HTTP and at the console."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from strandline.admin.schemas_keys import KeyOut, KeyPage, NewKeyOut
from strandline.admin.tenants import require_tenant_name
from strandline.auth import store_keys
from strandline.auth.api_keys import TokenParts, generate_token
from strandline.auth.principals import RIGHTS
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.participants import normalize
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

MAX_EXPIRY_DAYS = 3650
"""How far ahead a key may expire."""
_CONSOLE_CONTEXT = AuditContext("console key")


class NewKey(NamedTuple):
    """A key that was just made. `token` is shown once and stored nowhere."""

    key: store_keys.ApiKey
    token: str

    @property
    def key_id(self) -> str:
        """Its public id."""
        return self.key.key_id


class KeyRotation(NamedTuple):
    """A key's successor, and the key itself, which ends when the overlap does."""

    successor: NewKey
    predecessor: store_keys.ApiKey


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
    """Make a key of the asker's tenant, bound to `user` if given. At the console its tenant is made
    if it is new; for everybody else that is a step of its own.

    Raises Invalid for an unknown right, a user that is no `user:NAME`, an expiry that is past or
    too far ahead, or a tenant that is not lower-case letters, digits and hyphens; StateConflict
    without a secret, where API keys are no way in.
    """
    require_tenant_name(access.caller.tenant)
    require_rights(rights)
    user = normalize_user(user)
    require_valid_expiry(expires_at, datetime.now(UTC))
    with access.transaction():
        if audit_context.tenant is None:
            store_keys.add_tenant(access)
        new_key = _create_key(access, deployment_secret, user, rights, label, expires_at)
        store_audit.add_entry(
            access, audit_context, {"key_id": new_key.key_id}, _audit_values(new_key.key)
        )
    return new_key


def store_key(
    access: TenantDb,
    key_token: TokenParts,
    audit_context: AuditContext,
    *,
    rights: Sequence[str],
    label: str,
) -> bool:
    """Store a key of the asker's tenant whose token somebody holds already, and its tenant if that
    is new. Says whether it was not there yet: one that is, revoked or not, stays as it is."""
    with access.transaction():
        store_keys.add_tenant(access)
        if store_keys.get_key(access, key_token.key_id) is not None:
            return False
        new_key = _insert_key(access, key_token, None, rights, label, None)
        store_audit.add_entry(
            access, audit_context, {"key_id": new_key.key_id}, _audit_values(new_key.key)
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
    """Make a key's successor, of the same user, rights and label, and let the key itself end after
    `overlap`, or when it would have anyway. Without `expires_at` the successor holds as long as the
    key was made for.

    Raises NotFound, Invalid for an unusable expiry, and StateConflict for a key that has ended or
    has a successor already: of two callers at once one rotates.
    """
    now = datetime.now(UTC)
    require_valid_expiry(expires_at, now)
    with access.transaction():
        predecessor = store_keys.lock_key(access, key_id)
        if predecessor is None:
            raise NotFound
        _require_rotatable(predecessor, now)
        if expires_at is None and predecessor.expires_at is not None:
            expires_at = now + (predecessor.expires_at - predecessor.created_at)
        successor = _create_key(
            access,
            deployment_secret,
            predecessor.user_name,
            predecessor.scopes,
            predecessor.label,
            expires_at,
        )
        ending_key = store_keys.set_successor(access, key_id, successor.key_id, now + overlap)
        audit_target = {"key_id": key_id, "rotated_to": successor.key_id}
        store_audit.add_entry(
            access,
            audit_context,
            audit_target,
            {**_audit_values(successor.key), "old_expires_at": _format_expiry(ending_key)},
        )
    return KeyRotation(successor, ending_key)


def revoke_key(access: TenantDb, audit_context: AuditContext, key_id: str) -> store_keys.ApiKey:
    """Revoke a key of the asker's tenant for good: it is refused within 60 seconds. Again changes
    nothing. Raises NotFound."""
    with access.transaction():
        key = store_keys.revoke_key(access, key_id)
        if key is None:
            raise NotFound
        store_audit.add_entry(access, audit_context, {"key_id": key_id})
    return key


def get_key(access: TenantDb, key_id: str) -> KeyOut:
    """A key of the asker's tenant. Raises NotFound."""
    key = store_keys.get_key(access, key_id)
    if key is None:
        raise NotFound
    return to_key_out(key)


def list_keys(access: TenantDb, limit: int, cursor: str | None) -> KeyPage:
    """The keys of the asker's tenant, newest first."""
    cursors = Cursors(access.sealer, access.caller.tenant, "keys")
    rows = store_keys.list_newest(access, cursors.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.pg_snapshot, last.created_at, UUID(last.key_id))
    return KeyPage(
        keys=[to_key_out(row) for row in rows], next_cursor=after and cursors.encode(after)
    )


def to_key_out(key: store_keys.ApiKey) -> KeyOut:
    """A key as operators see it."""
    return KeyOut.model_validate(_key_fields(key))


def to_new_key_out(new_key: NewKey) -> NewKeyOut:
    """A new key and its token."""
    return NewKeyOut.model_validate({**_key_fields(new_key.key), "token": new_key.token})


def _key_fields(key: store_keys.ApiKey) -> dict[str, object]:
    return {**vars(key), "user": key.user_name, "rights": key.scopes}


def _audit_values(key: store_keys.ApiKey) -> dict[str, object]:
    """What the trail says of a key that was made: what it may, as whom, until when. Not what it is
    called: a label is somebody's words."""
    return {"rights": key.scopes, "user": key.user_name, "expires_at": _format_expiry(key)}


def _format_expiry(key: store_keys.ApiKey) -> str | None:
    """When a key expires, as the trail spells it."""
    return key.expires_at and key.expires_at.astimezone(UTC).isoformat()


def _create_key(
    access: TenantDb,
    deployment_secret: str | None,
    user: str | None,
    rights: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> NewKey:
    if deployment_secret is None:
        raise StateConflict(
            "API keys are no way into this deployment: set STRANDLINE_KEY_SECRET, or let in by "
            "STRANDLINE_JWT_… or client certificates"
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
    key = store_keys.add_key(
        access,
        key_id=key_token.key_id,
        secret_hash=key_token.secret_hash,
        user=user,
        scopes=[right for right in RIGHTS if right in rights],
        label=label,
        expires_at=expires_at,
    )
    return NewKey(key, key_token.token)


def require_rights(rights: Sequence[str]) -> None:
    """Raises Invalid unless these are rights that a credential can have."""
    if not rights or not set(rights) <= set(RIGHTS):
        raise Invalid(f"rights: one or more of {', '.join(RIGHTS)}", field="rights")


def normalize_user(user: str | None) -> str | None:
    """Whom a credential is bound to, as a participant. Raises Invalid for what is no user."""
    user = user if user is None else normalize(user, "user")
    if user is not None and not user.startswith("user:"):
        raise Invalid("user: is `user:NAME`", field="user")
    return user


def require_valid_expiry(expires_at: datetime | None, now: datetime) -> None:
    """Raises Invalid for an end that is past, or too far ahead."""
    max_lifetime = timedelta(days=MAX_EXPIRY_DAYS)
    if expires_at is not None and not now < expires_at <= now + max_lifetime:
        raise Invalid(
            f"expires_at: lies ahead, and at most {MAX_EXPIRY_DAYS} days; leave it out for what "
            "does not "
            "expire",
            field="expires_at",
        )


def _require_rotatable(key: store_keys.ApiKey, now: datetime) -> None:
    if key.rotated_to is not None:
        raise StateConflict(
            "key_id: this key has a successor, `rotated_to`: rotate that one",
            field="key_id",
            rotated_to=key.rotated_to,
        )
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise StateConflict("key_id: this key has ended: make a new one", field="key_id")
