"""API keys: how one is made, and the one function that says who a request comes from."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from strandline.db import Access, Database
from strandline.errors import Invalid, Unauthorized
from strandline.participants import normalize
from strandline.principals import RIGHTS, Principal
from strandline.store import keys

_PREFIX = "strandline_"
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ID, _SECRET, _MAC = 16, 32, 16
_CACHE_SECONDS = 60.0
"""A revoked key is refused everywhere after this long at the latest."""
_CACHE_SIZE = 10_000


class NewKey(NamedTuple):
    """A key that was just made. `token` is shown once and stored nowhere."""

    key_id: str
    token: str


class _Parsed(NamedTuple):
    key_id: str
    secret_hash: bytes


def _mac(deployment_secret: str, body: bytes) -> bytes:
    return hmac.digest(deployment_secret.encode(), b"strandline api key" + body, "sha256")[:_MAC]


def make_key(
    access: Access,
    deployment_secret: str,
    *,
    user: str | None = None,
    rights: Sequence[str] = ("read", "write"),
    label: str = "",
    expires_at: datetime | None = None,
) -> NewKey:
    """Make a key of the asker's tenant (which is made if it is new), bound to `user` if given.

    Raises Invalid for an unknown right, a user that is no `user:NAME`, or a tenant that is not
    lower-case letters, digits and hyphens.
    """
    if not _TENANT.fullmatch(access.asker.tenant):
        raise Invalid("tenant: 1 to 63 of a-z, 0-9 and -, not beginning with -", field="tenant")
    if not rights or not set(rights) <= set(RIGHTS):
        raise Invalid(f"scopes: one or more of {', '.join(RIGHTS)}", field="scopes")
    user = user and normalize(user, "user")
    if user is not None and not user.startswith("user:"):
        raise Invalid("user: is `user:NAME`", field="user")
    key_id, secret = secrets.token_bytes(_ID), secrets.token_bytes(_SECRET)
    body = key_id + secret
    with access.transaction():
        keys.add_tenant(access)
        keys.add(
            access,
            key_id=key_id.hex(),
            secret_hash=hashlib.sha256(secret).digest(),
            user=user,
            scopes=rights,
            label=label,
            expires_at=expires_at,
        )
    return NewKey(key_id.hex(), _PREFIX + _word(body + _mac(deployment_secret, body)))


def _word(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _parse(deployment_secret: str, token: str) -> _Parsed:
    """A token whose MAC holds: a made-up one is refused here, without any connection."""
    try:
        if not token.startswith(_PREFIX):
            raise ValueError
        word = token.removeprefix(_PREFIX)
        raw = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        body, mac = raw[: _ID + _SECRET], raw[_ID + _SECRET :]
        if len(raw) != _ID + _SECRET + _MAC or _word(raw) != word:
            raise ValueError  # base64 spells the same bytes in more ways than one
        if not hmac.compare_digest(mac, _mac(deployment_secret, body)):
            raise ValueError
    except (ValueError, binascii.Error):
        raise Unauthorized("The API key is not one of this deployment.") from None
    return _Parsed(body[:_ID].hex(), hashlib.sha256(body[_ID:]).digest())


def _token(headers: Mapping[str, str]) -> str:
    """A request's credential: X-API-Key, or Authorization: Bearer. `headers` by lower-case name."""
    token = headers.get("x-api-key")
    if token:
        return token.strip()
    kind, _, word = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and word.strip():
        return word.strip()
    raise Unauthorized


class Authenticator:
    """Verifies credentials; remembers a key for at most a minute. Shared by threads."""

    def __init__(self, database: Database, deployment_secret: str) -> None:
        self._database = database
        self._secret = deployment_secret
        self._known: dict[_Parsed, tuple[float, keys.KeyRow]] = {}
        self._lock = threading.Lock()

    def issued_by_us(self, headers: Mapping[str, str]) -> None:
        """Raises Unauthorized unless the request carries a key that this deployment made. Asks no
        database: for what must answer while there is none."""
        _parse(self._secret, _token(headers))

    def principal(self, headers: Mapping[str, str], deadline: float | None = None) -> Principal:
        """Who the request comes from. Raises Unauthorized, or Unavailable when the key is not known
        from before and the database is away."""
        parsed = _parse(self._secret, _token(headers))
        row = self._recall(parsed) or self._look_up(parsed, deadline)
        if row.expires_at is not None and row.expires_at <= datetime.now(UTC):
            raise Unauthorized("The API key has expired.")
        return Principal(row.tenant_id, row.user_name, frozenset(row.scopes), parsed.key_id)

    def _recall(self, parsed: _Parsed) -> keys.KeyRow | None:
        with self._lock:
            until, row = self._known.get(parsed, (0.0, None))
        return row if time.monotonic() < until else None

    def _look_up(self, parsed: _Parsed, deadline: float | None) -> keys.KeyRow:
        row = keys.find(self._database.connection(deadline), parsed.key_id, parsed.secret_hash)
        if row is None:
            raise Unauthorized("The API key was revoked, or its tenant is gone.")
        with self._lock:
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[parsed] = (time.monotonic() + _CACHE_SECONDS, row)
        return row
