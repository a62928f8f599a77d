"""API keys: what a token is made of, and the one function that says who a request comes from."""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from strandline.db import Database
from strandline.errors import Unauthorized
from strandline.principals import Principal
from strandline.store import keys

_PREFIX = "strandline_"
_ID, _SECRET, _MAC = 16, 32, 16
_CACHE_SECONDS = 50.0
"""A revoked key is refused everywhere a minute later at the latest, with time to spare."""
_CACHE_SIZE = 10_000


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
    token = _PREFIX + _word(body + _mac(deployment_secret, body))
    return NewToken(key_id.hex(), hashlib.sha256(secret).digest(), token)


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


@dataclass(frozen=True)
class _Known:
    """A key that was looked up, and until when that is believed, in time.monotonic() seconds."""

    principal: Principal | None
    """None: it was revoked, which is for good."""
    expires_at: datetime | None
    until: float


class Authenticator:
    """Verifies credentials; remembers a key for at most a minute, by a hash of its token. Shared by
    threads."""

    def __init__(self, database: Database, deployment_secret: str) -> None:
        self._database = database
        self._secret = deployment_secret
        self._known: dict[bytes, _Known] = {}
        self._lock = threading.Lock()

    def issued_by_us(self, headers: Mapping[str, str]) -> None:
        """Raises Unauthorized unless the request carries a key that this deployment made. Asks no
        database: for what must answer while there is none."""
        _parse(self._secret, _token(headers))

    def principal(self, headers: Mapping[str, str], deadline: float | None = None) -> Principal:
        """Who the request comes from. Raises Unauthorized, or Unavailable when the key is not known
        from before and the database is away."""
        token = _token(headers)
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is None or time.monotonic() >= known.until:
            known = self._look_up(digest, _parse(self._secret, token), deadline)
        if known.principal is None:
            raise Unauthorized("The API key was revoked, or its tenant is gone.")
        if known.expires_at is not None and known.expires_at <= datetime.now(UTC):
            raise Unauthorized("The API key has expired.")
        return known.principal

    def forget(self, key_id: str) -> None:
        """Look this key up again before it is next believed: it was just revoked or rotated. Other
        processes do within a minute."""
        with self._lock:
            gone = [
                digest
                for digest, known in self._known.items()
                if known.principal is not None and known.principal.key_id == key_id
            ]
            for digest in gone:
                del self._known[digest]

    def _look_up(self, digest: bytes, parsed: _Parsed, deadline: float | None) -> _Known:
        row = keys.find(self._database.connection(deadline), parsed.key_id, parsed.secret_hash)
        principal = row and Principal(
            row.tenant_id, row.user_name, frozenset(row.scopes), parsed.key_id
        )
        until = time.monotonic() + _CACHE_SECONDS
        known = _Known(principal, row.expires_at if row else None, until)
        with self._lock:
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[digest] = known
        return known
