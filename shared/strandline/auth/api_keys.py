"""API keys: how a token is built and checked, and which principal a key authenticates."""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from strandline.auth import store_tenants_and_keys
from strandline.auth.credentials import KEY_PREFIX, AuthRequest
from strandline.auth.principals import Principal
from strandline.auth.ttl_cache import TtlCache
from strandline.db.database import Database
from strandline.errors import Unauthorized

_ID_BYTES, _SECRET_BYTES, _MAC_BYTES = 16, 32, 16


class TokenParts(NamedTuple):
    """The parts of a token. `token` is shown to its holder once; only `secret_hash` is stored."""

    key_id: str
    secret_hash: bytes
    token: str


class _KeyParts(NamedTuple):
    key_id: str
    secret_hash: bytes


def _compute_token_mac(deployment_secret: str, body: bytes) -> bytes:
    return hmac.digest(deployment_secret.encode(), b"strandline api key" + body, "sha256")[
        :_MAC_BYTES
    ]


def generate_token(deployment_secret: str) -> TokenParts:
    """A new random token: key id and secret, followed by a MAC under the deployment's secret."""
    key_id, secret = secrets.token_bytes(_ID_BYTES), secrets.token_bytes(_SECRET_BYTES)
    body = key_id + secret
    token = KEY_PREFIX + _encode_base64url(body + _compute_token_mac(deployment_secret, body))
    return TokenParts(key_id.hex(), hashlib.sha256(secret).digest(), token)


def verify_token(deployment_secret: str, token: str) -> TokenParts:
    """The parts of a token that this deployment issued. Raises Unauthorized for any other token."""
    parts = _parse_and_verify_token(deployment_secret, token)
    return TokenParts(parts.key_id, parts.secret_hash, token)


def _encode_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _parse_and_verify_token(deployment_secret: str, token: str) -> _KeyParts:
    """Check a token's format and MAC. A forged token is refused here, without a database
    connection. Raises Unauthorized."""
    try:
        if not token.startswith(KEY_PREFIX):
            raise ValueError
        text = token.removeprefix(KEY_PREFIX)
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        body, mac = raw[: _ID_BYTES + _SECRET_BYTES], raw[_ID_BYTES + _SECRET_BYTES :]
        if len(raw) != _ID_BYTES + _SECRET_BYTES + _MAC_BYTES or _encode_base64url(raw) != text:
            raise ValueError  # one value has several base64 spellings; accept only ours
        if not hmac.compare_digest(mac, _compute_token_mac(deployment_secret, body)):
            raise ValueError
    except (ValueError, binascii.Error):
        raise Unauthorized("The API key is not one of this deployment.") from None
    return _KeyParts(body[:_ID_BYTES].hex(), hashlib.sha256(body[_ID_BYTES:]).digest())


@dataclass(frozen=True)
class _CachedKey:
    """The result of a key lookup."""

    principal: Principal | None
    """None: no such key, or it was revoked. Revocation is final."""
    expires_at: datetime | None


class ApiKeyAuth:
    """Authentication by API key. Lookups are cached under a hash of the token."""

    credential_hint = "an API key (X-API-Key, or Authorization: Bearer)"
    challenge = "Bearer"

    def __init__(self, database: Database, deployment_secret: str) -> None:
        self._database = database
        self._secret = deployment_secret
        self._cache = TtlCache[_CachedKey]()

    def find_credential(self, request: AuthRequest) -> str | None:
        """The value of X-API-Key, or a Bearer token that starts with the key prefix."""
        token = request.headers.get("x-api-key")
        if token:
            return token.strip()
        bearer = request.bearer_token
        return bearer if bearer.startswith(KEY_PREFIX) else None

    def verify_offline(self, credential: str) -> None:
        """Raise Unauthorized for a token that this deployment did not issue."""
        _parse_and_verify_token(self._secret, credential)

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """The key's principal. Raises Unauthorized, or Unavailable when the key is not cached and
        the database cannot be reached. `deadline` is in time.monotonic() seconds."""
        digest = hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()
        entry = self._cache.get(digest)
        if entry is None:
            fresh = self._look_up_key(_parse_and_verify_token(self._secret, credential), deadline)
            entry = self._cache.put(digest, fresh)
        if entry.principal is None:
            raise Unauthorized("The API key was revoked, or its tenant is gone.")
        if entry.expires_at is not None and entry.expires_at <= datetime.now(UTC):
            raise Unauthorized("The API key has expired.")
        return entry.principal

    def forget(self, key_id: str) -> None:
        """Drop this key from the cache, so that its next use reads the database."""
        self._cache.remove_where(
            lambda entry: entry.principal is not None and entry.principal.key_id == key_id
        )

    def _look_up_key(self, parts: _KeyParts, deadline: float | None) -> _CachedKey:
        row = store_tenants_and_keys.find_key_principal(
            self._database.connection(deadline), parts.key_id, parts.secret_hash
        )
        if row is None:
            return _CachedKey(None, None)
        principal = Principal(
            row.tenant_id,
            row.user_name,
            frozenset(row.scopes),
            parts.key_id,
            row.agents_share,
            row.reading_space,
        )
        return _CachedKey(principal, row.expires_at)
