"""API keys: what a token is made of, and for whom it stands."""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from strandline.auth import store_keys
from strandline.auth.credentials import KEY_PREFIX, Sent
from strandline.auth.principals import Principal
from strandline.auth.ttl_cache import Believed
from strandline.db.database import Database
from strandline.errors import Unauthorized

_ID, _SECRET, _MAC = 16, 32, 16


class NewToken(NamedTuple):
    """What a key is made of. `token` is for its holder's eyes, once; the hash is what is stored."""

    key_id: str
    secret_hash: bytes
    token: str


class _Parsed(NamedTuple):
    key_id: str
    secret_hash: bytes


def _mac(deployment_secret: str, body: bytes) -> bytes:
    return hmac.digest(deployment_secret.encode(), b"strandline api key" + body, "sha256")[:_MAC]


def new_token(deployment_secret: str) -> NewToken:
    """A token that nobody has had before, under the deployment's secret."""
    key_id, secret = secrets.token_bytes(_ID), secrets.token_bytes(_SECRET)
    body = key_id + secret
    token = KEY_PREFIX + _word(body + _mac(deployment_secret, body))
    return NewToken(key_id.hex(), hashlib.sha256(secret).digest(), token)


def known_token(deployment_secret: str, token: str) -> NewToken:
    """What a token that this deployment made is made of. Raises Unauthorized for any other."""
    parsed = _parse(deployment_secret, token)
    return NewToken(parsed.key_id, parsed.secret_hash, token)


def _word(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _parse(deployment_secret: str, token: str) -> _Parsed:
    """A token whose MAC holds: a made-up one is refused here, without any connection."""
    try:
        if not token.startswith(KEY_PREFIX):
            raise ValueError
        word = token.removeprefix(KEY_PREFIX)
        raw = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        body, mac = raw[: _ID + _SECRET], raw[_ID + _SECRET :]
        if len(raw) != _ID + _SECRET + _MAC or _word(raw) != word:
            raise ValueError  # base64 spells the same bytes in more ways than one
        if not hmac.compare_digest(mac, _mac(deployment_secret, body)):
            raise ValueError
    except (ValueError, binascii.Error):
        raise Unauthorized("The API key is not one of this deployment.") from None
    return _Parsed(body[:_ID].hex(), hashlib.sha256(body[_ID:]).digest())


@dataclass(frozen=True)
class _Known:
    """A key that was looked up."""

    principal: Principal | None
    """None: it was revoked, which is for good."""
    expires_at: datetime | None


class ApiKeys:
    """API keys as a way in. Remembers a key by a hash of its token."""

    asks_for = "an API key (X-API-Key, or Authorization: Bearer)"
    challenge = "Bearer"

    def __init__(self, database: Database, deployment_secret: str) -> None:
        self._database = database
        self._secret = deployment_secret
        self._known = Believed[_Known]()

    def find(self, sent: Sent) -> str | None:
        """X-API-Key, or a Bearer's word that is a key by its form."""
        token = sent.headers.get("x-api-key")
        if token:
            return token.strip()
        word = sent.bearer
        return word if word.startswith(KEY_PREFIX) else None

    def check(self, credential: str) -> None:
        """Raises Unauthorized for what this deployment did not make."""
        _parse(self._secret, credential)

    def principal(self, credential: str, deadline: float | None) -> Principal:
        """Whom the key stands for. Raises Unauthorized, or Unavailable when the key is not known
        from before and the database is away."""
        digest = hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is None:
            found = self._look_up(_parse(self._secret, credential), deadline)
            known = self._known.keep(digest, found)
        if known.principal is None:
            raise Unauthorized("The API key was revoked, or its tenant is gone.")
        if known.expires_at is not None and known.expires_at <= datetime.now(UTC):
            raise Unauthorized("The API key has expired.")
        return known.principal

    def forget(self, key_id: str) -> None:
        """Look this key up again before it is next believed."""
        self._known.forget(
            lambda known: known.principal is not None and known.principal.key_id == key_id
        )

    def _look_up(self, parsed: _Parsed, deadline: float | None) -> _Known:
        row = store_keys.find(
            self._database.connection(deadline), parsed.key_id, parsed.secret_hash
        )
        if row is None:
            return _Known(None, None)
        principal = Principal(row.tenant_id, row.user_name, frozenset(row.scopes), parsed.key_id)
        return _Known(principal, row.expires_at)
