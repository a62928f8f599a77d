"""The keys that may have signed a JWT: which are taken, how often an issuer is asked for them."""

import contextlib
import http.server
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme

from strandline.auth import jwks as auth_jwks
from strandline.auth.authenticator import Authenticator
from strandline.auth.jwks import JwkSet, fetch_https_document
from strandline.auth.jwt import JwtAuth
from strandline.config import ServiceSettings
from strandline.db.database import Database
from strandline.errors import Misconfigured, Unavailable
from tests.tokens import (
    AUDIENCE,
    ISSUER,
    SECRET,
    claims,
    ec_key,
    jwk,
    jwks,
    public_pem,
    rsa_by,
    rsa_key,
    signed,
    word,
)

NOWHERE = Database("postgresql://app:secret@127.0.0.1:1/nothing")


def settings(**options: object) -> ServiceSettings:
    base: dict[str, object] = {"database_url": "x", "bucket": "x", "cursor_secret": "c" * 32}
    fields = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    return ServiceSettings.model_validate(base | fields | options)


class Issuer:
    """Keys to be fetched, on a clock of its own; counts who asks."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.keys = [jwk(rsa_key("rsa"), kid="rsa")]
        self.away = False

    def fetch(self, address: str) -> bytes:
        assert address == "https://issuer.example/keys"
        self.asked += 1
        if self.away:
            raise OSError("away")
        return jwks(*self.keys).encode()

    def keys_of(self) -> JwkSet:
        address = "https://issuer.example/keys"
        return JwkSet(address, ("RS256",), self.fetch, lambda: self.now)


def test_jwks_withdrawn_key_is_refused_after_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Lambda has frozen for as long as keys are used asks again."""
    issuer, real = Issuer(), time.time
    keys = JwkSet("https://issuer.example/keys", ("RS256",), issuer.fetch)
    assert keys.find_key({"kid": "rsa"})
    issuer.keys = [jwk(rsa_key("rsa"), kid="another")]
    assert keys.find_key({"kid": "rsa"})
    monkeypatch.setattr(time, "time", lambda: real() + 301)
    assert keys.find_key({"kid": "rsa"}) is None


@pytest.mark.parametrize("seconds", [120.0, 400.0], ids=["unknown kid", "refresh"])
def test_jwks_known_key_does_not_wait_for_slow_issuer(seconds: float) -> None:
    """While another caller asks the issuer: for a key that nobody knows, or because it is time."""
    issuer, asked, answer = Issuer(), threading.Event(), threading.Event()
    keys = issuer.keys_of()
    assert keys.find_key({"kid": "rsa"})
    fetch = issuer.fetch

    def fetch_slowly(address: str) -> bytes:
        asked.set()
        assert answer.wait(10)
        return fetch(address)

    vars(keys)["_fetch"] = fetch_slowly
    issuer.now += seconds
    caller = threading.Thread(target=keys.find_key, args=({"kid": "made up"},))
    caller.start()
    assert asked.wait(10)
    start = time.monotonic()
    assert keys.find_key({"kid": "rsa"})
    waited = time.monotonic() - start
    answer.set()
    caller.join()
    assert waited < 5
    assert issuer.asked == 2


def test_jwks_unknown_kid_refetches_once_per_minute() -> None:
    issuer = Issuer()
    keys = issuer.keys_of()
    assert issuer.asked == 0, "nothing is fetched before it is needed"
    assert keys.find_key({"kid": "rsa"})
    for second in range(180):
        issuer.now = 1000.0 + second
        assert keys.find_key({"kid": f"made up {second}"}) is None
        assert keys.find_key({"kid": "rsa"})
    assert issuer.asked == 3
    issuer.keys.append(jwk(rsa_key("next"), kid="next"))
    assert keys.find_key({"kid": "next"}) is None
    issuer.now += 61
    assert keys.find_key({"kid": "next"}), "a new key is found a minute later at the latest"


def test_jwks_drops_withdrawn_key_after_five_minutes() -> None:
    issuer = Issuer()
    keys = issuer.keys_of()
    assert keys.find_key({"kid": "rsa"})
    issuer.keys = [jwk(rsa_key("next"), kid="next")]
    issuer.now += 299
    assert keys.find_key({"kid": "rsa"})
    issuer.now += 2
    assert keys.find_key({"kid": "rsa"}) is None


def test_jwks_keeps_keys_one_hour_without_issuer() -> None:
    issuer = Issuer()
    keys = issuer.keys_of()
    assert keys.find_key({"kid": "rsa"})
    issuer.away = True
    issuer.now += 3599
    assert keys.find_key({"kid": "rsa"})
    issuer.now += 2
    with pytest.raises(Unavailable):
        keys.find_key({"kid": "rsa"})
    issuer.away = False
    issuer.now += 61
    assert keys.find_key({"kid": "rsa"})


def test_jwks_without_keys_retries_every_five_seconds() -> None:
    issuer = Issuer()
    issuer.away = True
    keys = issuer.keys_of()
    for second in range(20):
        issuer.now = 1000.0 + second
        with pytest.raises(Unavailable):
            keys.find_key({"kid": "rsa"})
    assert issuer.asked == 4


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": word(SECRET.encode()), "kid": "rsa"},
        {"kty": "oct", "k": word(SECRET.encode()), "kid": "rsa", "alg": "RS256"},
        jwk(rsa_key("rsa"), kid="rsa", use="enc"),
        jwk(rsa_key("rsa"), kid="rsa", key_ops=["sign"]),
        jwk(rsa_key("rsa"), kid="rsa", key_ops=7),
        jwk(rsa_key("rsa"), kid="rsa", alg="RS384"),
        jwk(rsa_key("rsa"), kid="rsa", alg="HS256"),
        jwk(rsa_key("rsa"), kid="rsa", d="AQAB"),
        {"kty": "RSA", "n": "?", "e": "AQAB", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa"},
        {"kty": ["RSA"], "crv": ["x"], "kid": "rsa"},
        jwk(ec_key("P-521"), kid="rsa"),
    ],
    ids=range(12),  # the keys are new each time
)
def test_jwks_rejects_unsuitable_keys(entry: dict[str, object]) -> None:
    with pytest.raises(Misconfigured, match="STRANDLINE_JWT_JWKS"):
        JwkSet(jwks(entry), ("RS256",))
    issuer = Issuer()
    issuer.keys = [entry, jwk(rsa_key("other"), kid="other")]
    assert issuer.keys_of().find_key({"kid": "rsa"}) is None


@pytest.mark.parametrize("first", ["RS256", "PS256", "ES256"])
def test_jwks_same_kid_selects_key_by_algorithm(first: str) -> None:
    entries = {
        "RS256": jwk(rsa_key("rsa"), kid="k", alg="RS256"),
        "PS256": jwk(rsa_key("next"), kid="k", alg="PS256"),
        "ES256": jwk(ec_key("P-256"), kid="k"),
    }
    entries = {first: entries[first]} | entries
    jwk_set = JwkSet(jwks(*entries.values()), tuple(entries))
    for name in entries:
        match = jwk_set.find_key({"kid": "k", "alg": name})
        assert match is not None
        assert match.algorithms == [name]
    for other in ("HS256", "RS384", None, ["RS256"]):  # whichever it is, it has not
        match = jwk_set.find_key({"kid": "k", "alg": other})
        assert match is not None
        assert other not in match.algorithms


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [7]}', b"\xff"])
def test_jwks_invalid_document_keeps_previous_keys(document: bytes) -> None:
    issuer = Issuer()
    keys = issuer.keys_of()
    assert keys.find_key({"kid": "rsa"})

    def fail(address: str) -> bytes:
        del address
        return document

    keys._fetch = fail  # pyright: ignore[reportPrivateUsage]
    issuer.now += 301
    assert keys.find_key({"kid": "rsa"})


class Https:
    """An issuer's server, on a socket, under an authority of its own."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(place / "authority.pem")
        patch.setenv("SSL_CERT_FILE", str(place / "authority.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
        self.asked: list[str] = []
        self.answers: Mapping[str, tuple[int, dict[str, str], bytes]] = {}
        self.drips = 0
        """Lines before each answer, a hundredth of a second apart."""
        self._server = http.server.HTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                status, headers, body = issuer.answers[self.path]
                with contextlib.suppress(OSError):  # of what nobody wants to its end
                    for _ in range(issuer.drips):
                        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                        time.sleep(0.01)
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Https]:
    server = Https(tmp_path, monkeypatch)
    yield server
    server.close()


def test_jwks_fetches_keys_over_https(https: Https) -> None:
    document = jwks(jwk(rsa_key("rsa"), kid="rsa")).encode()
    https.answers = {"/keys?v=1": (200, {"Content-Length": str(len(document))}, document)}
    url = f"https://localhost:{https.port}/keys?v=1"
    checker = JwtAuth(NOWHERE, settings(jwt_jwks=url))
    for _ in range(3):
        assert (
            checker.verify_offline(
                signed({"alg": "RS256", "kid": "rsa"}, claims(), rsa_by("rsa"))
            ).tenant
            == "acme"
        )
    assert https.asked == ["/keys?v=1"]


def test_jwks_fetch_refuses_redirect_and_flood(https: Https) -> None:
    document = jwks(jwk(rsa_key("rsa"), kid="rsa")).encode()
    https.answers = {
        "/moved": (302, {"Location": "/keys"}, b""),
        "/keys": (200, {}, document),
        "/flood": (200, {}, b" " * 2**20 + document),
        "/fails": (500, {}, document),
    }
    for path in ("/moved", "/flood", "/fails"):
        with pytest.raises(OSError, match=r"status|too large"):
            fetch_https_document(f"https://localhost:{https.port}{path}")
    assert https.asked == ["/moved", "/flood", "/fails"]
    assert fetch_https_document(f"https://localhost:{https.port}/keys") == document


def test_jwks_fetch_gives_up_on_dripping_issuer(
    https: Https, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its headers too, where every read by itself is in time."""
    monkeypatch.setattr(auth_jwks, "_FETCH_TIMEOUT_SECONDS", 0.3)
    https.answers = {"/keys": (200, {"Content-Length": "0"}, b"")}
    assert fetch_https_document(f"https://localhost:{https.port}/keys") == b""
    https.drips = 200
    with pytest.raises(OSError, match="slow"):
        fetch_https_document(f"https://localhost:{https.port}/keys")


def test_jwks_fetch_verifies_issuer_certificate(https: Https) -> None:
    https.answers = {"/keys": (200, {}, b"")}
    with pytest.raises(OSError, match="certificate verify failed"):  # it is localhost's
        fetch_https_document(f"https://127.0.0.1:{https.port}/keys")
    assert https.asked == []


def test_jwks_public_key_is_refused_as_hmac_secret() -> None:
    with pytest.raises(Misconfigured, match="STRANDLINE_JWT_SECRET"):
        Authenticator(NOWHERE, settings(jwt_secret=public_pem("rsa").decode()))
