"""API keys: made, listed, rotated and revoked, by operators over HTTP and at the console."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from strandline.admin.schemas_keys import KeyOut, KeyPage, NewKeyOut
from strandline.admin.tenants import require_name
from strandline.auth import store_keys
from strandline.auth.api_keys import NewToken, new_token
from strandline.auth.principals import RIGHTS
from strandline.cursors import Cursors, Position
from strandline.db.database import Access
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.participants import normalize
from strandline.tenants import store_audit
from strandline.tenants.store_audit import Act

MOST_DAYS = 3650
"""How far ahead a key may expire."""
_CONSOLE = Act("console key")


class NewKey(NamedTuple):
    """A key that was just made. `token` is shown once and stored nowhere."""

    key: store_keys.Key
    token: str

    @property
    def key_id(self) -> str:
        """Its public id."""
        return self.key.key_id


class Rotated(NamedTuple):
    """A key's successor, and the key itself, which ends when the overlap does."""

    made: NewKey
    old: store_keys.Key


def make_key(
    access: Access,
    deployment_secret: str | None,
    act: Act = _CONSOLE,
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
    require_name(access.asker.tenant)
    require_rights(rights)
    user = bound_user(user)
    require_ahead(expires_at, datetime.now(UTC))
    with access.transaction():
        if act.tenant is None:
            store_keys.add_tenant(access)
        made = _add(access, deployment_secret, user, rights, label, expires_at)
        store_audit.add(access, act, {"key_id": made.key_id}, _told(made.key))
    return made


def keep_key(access: Access, new: NewToken, act: Act, *, rights: Sequence[str], label: str) -> bool:
    """Store a key of the asker's tenant whose token somebody holds already, and its tenant if that
    is new. Says whether it was not there yet: one that is, revoked or not, stays as it is."""
    with access.transaction():
        store_keys.add_tenant(access)
        if store_keys.get(access, new.key_id) is not None:
            return False
        made = _store(access, new, None, rights, label, None)
        store_audit.add(access, act, {"key_id": made.key_id}, _told(made.key))
    return True


def rotate_key(
    access: Access,
    deployment_secret: str | None,
    act: Act,
    key_id: str,
    *,
    overlap: timedelta,
    expires_at: datetime | None = None,
) -> Rotated:
    """Make a key's successor, of the same user, rights and label, and let the key itself end after
    `overlap`, or when it would have anyway. Without `expires_at` the successor holds as long as the
    key was made for.

    Raises NotFound, Invalid for an unusable expiry, and StateConflict for a key that has ended or
    has a successor already: of two callers at once one rotates.
    """
    now = datetime.now(UTC)
    require_ahead(expires_at, now)
    with access.transaction():
        old = store_keys.hold(access, key_id)
        if old is None:
            raise NotFound
        _require_rotatable(old, now)
        if expires_at is None and old.expires_at is not None:
            expires_at = now + (old.expires_at - old.created_at)
        made = _add(access, deployment_secret, old.user_name, old.scopes, old.label, expires_at)
        ended = store_keys.succeed(access, key_id, made.key_id, now + overlap)
        about = {"key_id": key_id, "rotated_to": made.key_id}
        store_audit.add(access, act, about, {**_told(made.key), "old_expires_at": _moment(ended)})
    return Rotated(made, ended)


def revoke_key(access: Access, act: Act, key_id: str) -> store_keys.Key:
    """Revoke a key of the asker's tenant for good: it is refused within 60 seconds. Again changes
    nothing. Raises NotFound."""
    with access.transaction():
        revoked = store_keys.revoke(access, key_id)
        if revoked is None:
            raise NotFound
        store_audit.add(access, act, {"key_id": key_id})
    return revoked


def get_key(access: Access, key_id: str) -> KeyOut:
    """A key of the asker's tenant. Raises NotFound."""
    key = store_keys.get(access, key_id)
    if key is None:
        raise NotFound
    return shown(key)


def list_keys(access: Access, limit: int, cursor: str | None) -> KeyPage:
    """The keys of the asker's tenant, newest first."""
    of = Cursors(access.sealer, access.asker.tenant, "keys")
    rows = store_keys.newest(access, of.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.mark, last.created_at, UUID(last.key_id))
    return KeyPage(keys=[shown(row) for row in rows], next_cursor=after and of.encode(after))


def shown(key: store_keys.Key) -> KeyOut:
    """A key as operators see it."""
    return KeyOut.model_validate(_fields(key))


def shown_once(made: NewKey) -> NewKeyOut:
    """A new key and its token."""
    return NewKeyOut.model_validate({**_fields(made.key), "token": made.token})


def _fields(key: store_keys.Key) -> dict[str, object]:
    return {**vars(key), "user": key.user_name, "rights": key.scopes}


def _told(key: store_keys.Key) -> dict[str, object]:
    """What the trail says of a key that was made: what it may, as whom, until when. Not what it is
    called: a label is somebody's words."""
    return {"rights": key.scopes, "user": key.user_name, "expires_at": _moment(key)}


def _moment(key: store_keys.Key) -> str | None:
    """When a key expires, as the trail spells it."""
    return key.expires_at and key.expires_at.astimezone(UTC).isoformat()


def _add(
    access: Access,
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
    return _store(access, new_token(deployment_secret), user, rights, label, expires_at)


def _store(
    access: Access,
    new: NewToken,
    user: str | None,
    rights: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> NewKey:
    key = store_keys.add(
        access,
        key_id=new.key_id,
        secret_hash=new.secret_hash,
        user=user,
        scopes=[right for right in RIGHTS if right in rights],
        label=label,
        expires_at=expires_at,
    )
    return NewKey(key, new.token)


def require_rights(rights: Sequence[str]) -> None:
    """Raises Invalid unless these are rights that a credential can have."""
    if not rights or not set(rights) <= set(RIGHTS):
        raise Invalid(f"rights: one or more of {', '.join(RIGHTS)}", field="rights")


def bound_user(user: str | None) -> str | None:
    """Whom a credential is bound to, as a participant. Raises Invalid for what is no user."""
    user = user if user is None else normalize(user, "user")
    if user is not None and not user.startswith("user:"):
        raise Invalid("user: is `user:NAME`", field="user")
    return user


def require_ahead(expires_at: datetime | None, now: datetime) -> None:
    """Raises Invalid for an end that is past, or too far ahead."""
    most = timedelta(days=MOST_DAYS)
    if expires_at is not None and not now < expires_at <= now + most:
        raise Invalid(
            f"expires_at: lies ahead, and at most {MOST_DAYS} days; leave it out for what does not "
            "expire",
            field="expires_at",
        )


def _require_rotatable(key: store_keys.Key, now: datetime) -> None:
    if key.rotated_to is not None:
        raise StateConflict(
            "key_id: this key has a successor, `rotated_to`: rotate that one",
            field="key_id",
            rotated_to=key.rotated_to,
        )
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise StateConflict("key_id: this key has ended: make a new one", field="key_id")
