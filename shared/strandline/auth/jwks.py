"""The keys that may sign a JWT: the deployment's secret, or the issuer's public keys."""

import json
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from strandline.clock import read_uptime
from strandline.errors import Misconfigured, Unavailable
from strandline.observability import logger

_REFRESH_SECONDS = 300.0
"""Seconds between refreshes: a key that the issuer withdrew is refused after at most so long."""
_MAX_STALE_SECONDS = 3600.0
"""Seconds that keys stay in use while their issuer cannot be reached."""
_FETCH_INTERVAL_SECONDS, _FETCH_RETRY_SECONDS = 60.0, 5.0
"""The least seconds between two fetches, whatever tokens arrive: with keys, and while there are
none."""
_FETCH_TIMEOUT_SECONDS = 3.0
_MAX_BYTES = 256 * 1024
_MAX_KEYS = 100
_ALGORITHMS_BY_KEY_TYPE: Mapping[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""Which algorithms a key of this type and curve can verify. No symmetric ones: a public document
must not hold a secret."""


class VerificationKey(NamedTuple):
    """A key, and the algorithms that it may verify."""

    material: Any
    algorithms: list[str]


def make_hmac_key(secret: str, algorithms: Sequence[str]) -> VerificationKey:
    """The one key of HMAC signatures. Raises Misconfigured for a secret that is a public key."""
    from jwt import InvalidKeyError, get_algorithm_by_name

    try:
        get_algorithm_by_name(algorithms[0]).prepare_key(secret)
    except InvalidKeyError:
        raise Misconfigured(
            "STRANDLINE_JWT_SECRET: is a public key or a certificate, not a secret: set it "
            "as a JWK Set, in STRANDLINE_JWT_JWKS"
        ) from None
    return VerificationKey(secret, list(algorithms))


class JwkSet:
    """An issuer's public keys: configured, or fetched at most once a minute and cached. Safe for
    threads."""

    def __init__(
        self,
        source: str,
        algorithms: Sequence[str],
        fetch: Callable[[str], bytes] | None = None,
        clock: Callable[[], float] = read_uptime,
    ) -> None:
        is_inline = source.lstrip().startswith("{")
        self._algorithms = frozenset(algorithms)
        self._url = "" if is_inline else source
        self._fetch, self._clock = fetch or fetch_https_document, clock
        self._keys = self._parse_key_set(source.encode()) if is_inline else []
        self._last_success = self._last_fetch = float("-inf")
        self._lock = threading.Lock()
        if is_inline and not self._keys:
            raise Misconfigured(
                "STRANDLINE_JWT_JWKS: holds no public key for what STRANDLINE_JWT_ALGORITHMS names"
            )

    def find_key(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """The key whose `kid` the header names; without a `kid` the only key. Of several keys with
        one `kid`, the one that can verify the header's `alg`. None if there is no such key. Raises
        Unavailable while there are no keys."""
        if not self._url:
            return self._select_key(header)
        age = self._clock() - self._last_success
        key = self._select_key(header) if age < _MAX_STALE_SECONDS else None
        if key is not None and age < _REFRESH_SECONDS:
            return key
        # With a key in use nobody waits while another caller asks a slow issuer.
        if not self._lock.acquire(blocking=key is None):
            return key
        try:
            return self._refresh_and_find_key(header)
        finally:
            self._lock.release()

    def _refresh_and_find_key(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """`find_key` with the issuer's keys as they are now, as far as it may be asked. Under the
        lock."""
        if self._clock() - self._last_success >= _REFRESH_SECONDS:
            self._refresh_keys()
        key = self._select_key(header)
        if key is None:
            self._refresh_keys()
            key = self._select_key(header)
        if self._clock() - self._last_success >= _MAX_STALE_SECONDS:
            raise Unavailable("The keys of the JWT's issuer cannot be fetched. Try again.")
        return key

    def _select_key(self, header: Mapping[str, Any]) -> VerificationKey | None:
        kid = header.get("kid")
        candidates = [key for name, key in self._keys if kid is None or name == kid]
        if not candidates or (kid is None and len(candidates) > 1):
            return None
        return next(
            (key for key in candidates if header.get("alg") in key.algorithms), candidates[0]
        )

    def _refresh_keys(self) -> None:
        """Fetch the keys, unless that was tried just now. If the fetch fails, the old keys stay."""
        now = self._clock()
        if now - self._last_fetch < (
            _FETCH_INTERVAL_SECONDS if self._keys else _FETCH_RETRY_SECONDS
        ):
            return
        self._last_fetch = now
        try:
            self._keys, self._last_success = self._parse_key_set(self._fetch(self._url)), now
        except (OSError, ValueError) as error:
            logger.warning("the JWT keys cannot be fetched", extra={"error": type(error).__name__})

    def _parse_key_set(self, document: bytes) -> list[tuple[object, VerificationKey]]:
        """The usable keys of a JWK set, with their `kid`. Raises ValueError for anything but a
        set."""
        try:
            entries: list[dict[str, Any]] = json.loads(document)["keys"][:_MAX_KEYS]
            keys = [(entry.get("kid"), self._parse_key(entry)) for entry in entries]
        except (KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError("no JWK Set") from None
        return [(kid, key) for kid, key in keys if key is not None]

    def _parse_key(self, entry: dict[str, Any]) -> VerificationKey | None:
        """One key of a set; None unless it is one that verifies signatures."""
        from jwt import PyJWK, PyJWTError

        key_type = (str(entry.get("kty")), cast("str | None", entry.get("crv")))
        try:
            algorithms = _ALGORITHMS_BY_KEY_TYPE.get(key_type, ())
            usable = [n for n in algorithms if n in self._algorithms and entry.get("alg", n) == n]
            is_verification_key = "d" not in entry and entry.get("use", "sig") == "sig"
            if (
                not usable
                or not is_verification_key
                or "verify" not in entry.get("key_ops", ["verify"])
            ):
                return None
            return VerificationKey(PyJWK(entry, usable[0]).key, usable)
        except (PyJWTError, TypeError, ValueError):
            return None  # of a type, or in an encoding, that is not supported


def fetch_https_document(url: str) -> bytes:
    """The document at an https URL. Follows no redirect, uses no proxy, reads 256 KiB at most, and
    limits the seconds to connect and to answer. Raises OSError."""
    import http.client

    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=_FETCH_TIMEOUT_SECONDS
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.connect()
        with _limit_socket_time(connection.sock, _FETCH_TIMEOUT_SECONDS):
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            body = b""
            while chunk := response.read1(65_536):
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise OSError("too large")
    except http.client.HTTPException as error:
        raise OSError("no HTTP") from error
    finally:
        connection.close()
    if response.status != 200:
        raise OSError(f"status {response.status}")
    return body


@contextmanager
def _limit_socket_time(sock: socket.socket, seconds: float) -> Generator[None]:
    """End a connection after `seconds`, even if it keeps delivering a little at a time: a socket's
    own timeout applies to each read. Raises OSError when the time is over."""
    timed_out = threading.Event()

    def shut_down() -> None:
        timed_out.set()
        with suppress(OSError):  # it may be closing just now
            # TLS's own shutdown would wait for the reader
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut_down)
    timer.start()
    try:
        yield
    except Exception:
        if not timed_out.is_set():
            raise
    finally:
        timer.cancel()
    if timed_out.is_set():
        raise OSError("too slow")
