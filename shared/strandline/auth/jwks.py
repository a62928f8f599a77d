"""The keys that may have signed a JWT: the deployment's secret, or the issuer's public keys."""

import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from strandline.errors import Misconfigured, Unavailable
from strandline.observability import logger

_FRESH_SECONDS = 300.0
"""An issuer that takes a key back is heard so soon,"""
_STALE_SECONDS = 3600.0
"""and one that cannot be reached is believed for so long."""
_ASK_SECONDS, _ASK_AGAIN_SECONDS = 60.0, 5.0
"""Between two fetches, whatever tokens come; and while there is no key at all."""
_FETCH_SECONDS = 3.0
_MOST_BYTES = 256 * 1024
_MOST_KEYS = 100
_BY_KIND: Mapping[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""What a key of a kind and curve can verify. No symmetric one: a public document holds none."""


class Key(NamedTuple):
    """A key, and what it may have signed by."""

    material: Any
    algorithms: list[str]


class Secret:
    """The one key of HMACs."""

    def __init__(self, secret: str, algorithms: Sequence[str]) -> None:
        from jwt import InvalidKeyError, get_algorithm_by_name

        self._key = Key(secret, list(algorithms))
        try:
            get_algorithm_by_name(algorithms[0]).prepare_key(secret)
        except InvalidKeyError:
            raise Misconfigured(
                "STRANDLINE_JWT_SECRET: is a public key or a certificate, and no secret: give it "
                "as a JWK Set, in STRANDLINE_JWT_JWKS"
            ) from None

    def find(self, header: Mapping[str, Any]) -> Key:
        """The key, whatever the header says."""
        del header
        return self._key


class JwkSet:
    """An issuer's public keys: given, or fetched, at most once a minute, and kept. Shared by
    threads."""

    def __init__(
        self,
        source: str,
        algorithms: Sequence[str],
        fetch: Callable[[str], bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        given = source.lstrip().startswith("{")
        self._algorithms = frozenset(algorithms)
        self._address = "" if given else source
        self._fetch, self._clock = fetch or fetched, clock
        self._keys = self._read(source.encode()) if given else []
        self._read_at = self._asked_at = float("-inf")
        self._lock = threading.Lock()
        if given and not self._keys:
            raise Misconfigured(
                "STRANDLINE_JWT_JWKS: holds no public key for what STRANDLINE_JWT_ALGORITHMS names"
            )

    def find(self, header: Mapping[str, Any]) -> Key | None:
        """The key that a header names by `kid`; without a name the only one. Of several of one
        name the one that may have signed by the header's `alg`. Raises Unavailable while there
        are no keys."""
        if not self._address:
            return self._named(header)
        with self._lock:
            if self._clock() - self._read_at >= _FRESH_SECONDS:
                self._ask()
            found = self._named(header)
            if found is None:
                self._ask()
                found = self._named(header)
            if self._clock() - self._read_at >= _STALE_SECONDS:
                raise Unavailable("The JWT's issuer cannot be asked for its keys. Try again.")
            return found

    def _named(self, header: Mapping[str, Any]) -> Key | None:
        kid = header.get("kid")
        fitting = [key for name, key in self._keys if kid is None or name == kid]
        if not fitting or (kid is None and len(fitting) > 1):
            return None
        return next((key for key in fitting if header.get("alg") in key.algorithms), fitting[0])

    def _ask(self) -> None:
        """Fetch the keys, if that was not done just now; those that were stay if it fails."""
        now = self._clock()
        if now - self._asked_at < (_ASK_SECONDS if self._keys else _ASK_AGAIN_SECONDS):
            return
        self._asked_at = now
        try:
            self._keys, self._read_at = self._read(self._fetch(self._address)), now
        except (OSError, ValueError) as error:
            logger.warning("the JWT keys cannot be fetched", extra={"error": type(error).__name__})

    def _read(self, document: bytes) -> list[tuple[object, Key]]:
        """The usable keys of a set, with their names. Raises ValueError for what is no set."""
        try:
            entries: list[dict[str, Any]] = json.loads(document)["keys"][:_MOST_KEYS]
            made = [(entry.get("kid"), self._made(entry)) for entry in entries]
        except (KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError("no JWK Set") from None
        return [(kid, key) for kid, key in made if key is not None]

    def _made(self, entry: dict[str, Any]) -> Key | None:
        """One key, where it is one to verify signatures with."""
        from jwt import PyJWK, PyJWTError

        kind = (str(entry.get("kty")), cast("str | None", entry.get("crv")))
        try:
            can = _BY_KIND.get(kind, ())
            may = [n for n in can if n in self._algorithms and entry.get("alg", n) == n]
            public = "d" not in entry and entry.get("use", "sig") == "sig"
            if not may or not public or "verify" not in entry.get("key_ops", ["verify"]):
                return None
            return Key(PyJWK(entry, may[0]).key, may)
        except (PyJWTError, TypeError, ValueError):
            return None  # of a kind, or in a spelling, that is not read here


def fetched(address: str) -> bytes:
    """The document at an https address: no redirect, no proxy, 256 KiB at most, and so many seconds
    to connect, and to answer. Raises OSError."""
    import http.client

    where = urlsplit(address)
    connection = http.client.HTTPSConnection(
        where.hostname or "", where.port, timeout=_FETCH_SECONDS
    )
    path = (where.path or "/") + (f"?{where.query}" if where.query else "")
    try:
        connection.connect()
        with _cut_off(connection.sock, _FETCH_SECONDS):
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = b""
            while part := answer.read1(65_536):
                body += part
                if len(body) > _MOST_BYTES:
                    raise OSError("too large")
    except http.client.HTTPException as error:
        raise OSError("no HTTP") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"status {answer.status}")
    return body


@contextmanager
def _cut_off(sock: socket.socket, seconds: float) -> Generator[None]:
    """Let a connection end after so long, however little comes of it at a time: a socket's own
    time is that of each read. Raises OSError where it was ended."""
    over = threading.Event()

    def cut() -> None:
        over.set()
        with suppress(OSError):  # it may be closed just now
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's would wait for the reader

    timer = threading.Timer(seconds, cut)
    timer.start()
    try:
        yield
    except Exception:
        if not over.is_set():
            raise
    finally:
        timer.cancel()
    if over.is_set():
        raise OSError("too slow")
