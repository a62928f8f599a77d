"""A client and what surrounds it: credentials and addresses as people paste them, the environment's
proxies and certificates, processes that fork, answers that lead elsewhere."""

import asyncio
import copy
import json
import os
import pickle
import signal
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from strandline import AsyncStrandline, ServiceError, Strandline
from strandline.client import errors
from strandline.client.outbox import NotStoredError, UnstoredEvent
from strandline.client.request_building import Call
from strandline.client.retries import Retry
from tests.strandline.client.hostile_server import HostileServer, serve_hostile, whole
from tests.strandline.client.scripted_transport import QUICK, RECEIPT, URL, Script

NONE = Retry(seconds=0)
SECRET = "strandline_SECRET"


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with serve_hostile() as server:
        server.play = whole(b'{"status": "ok"}')
        yield server


def _tell(error: BaseException) -> str:
    """All that a log may show of an error."""
    shown, causes = "".join(traceback.format_exception(error)), list[str]()
    cause: BaseException | None = error
    while cause is not None and len(causes) < 10:
        causes.append(repr(cause))
        cause = cause.__cause__ or cause.__context__
    assert len(causes) < 10, "an error that is its own cause"
    return shown + "".join(causes)


# Credentials and addresses ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["key", "token"])
@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {} ", "\ufeff{}"])
def test_client_strips_blanks_around_credential(name: str, around: str) -> None:
    service = Script(httpx2.Response(200, json={"status": "ok"}))
    http = httpx2.Client(transport=httpx2.MockTransport(service))
    credential: Any = {name: around.format(SECRET)}
    Strandline(URL, http=http, **credential).ping()
    headers = service.requests[0].headers
    assert headers["X-API-Key" if name == "key" else "Authorization"].endswith(SECRET)


@pytest.mark.parametrize("name", ["key", "token"])
@pytest.mark.parametrize("sign", ["\n", "\x00", "é", "中", "\ud800"])
def test_client_refuses_unsendable_credential_unshown(name: str, sign: str) -> None:
    credential: Any = {name: f"{SECRET}{sign}x"}
    for kind in (Strandline, AsyncStrandline):
        with pytest.raises(ValueError, match=rf"^{name}: ") as caught:
            kind(URL, **credential)
        assert SECRET not in _tell(caught.value)


def test_client_hides_credential_in_settings_repr() -> None:
    settings = Strandline("http://ann:PASSWORD@memory.example", SECRET).connection.settings
    assert SECRET not in repr(settings)
    assert "PASSWORD" not in repr(settings)


@pytest.mark.parametrize("value", ["a\nb", "é", "\ud800"])
def test_client_unsendable_header_is_invalid_field(server: HostileServer, value: str) -> None:
    client = Strandline(server.url, SECRET, retry=NONE)
    with client, pytest.raises(errors.InvalidFieldError, match=r"^Idempotency-Key: ") as caught:
        client.add("x", user="ann", idempotency_key=value)
    assert SECRET not in _tell(caught.value)
    assert server.requests == 0


@pytest.mark.parametrize(
    "url", ["http://h/?a=SECRET", "http://h/#SECRET", "http://h:x", "http://[::1", "http://:80"]
)
def test_client_refuses_invalid_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as caught:
        Strandline(url, "k")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("around", ["  {}", "{}\n", "{}/", "{}/api/v1/"])
def test_client_accepts_pasted_address(server: HostileServer, around: str) -> None:
    for url in (server.url, server.url.replace("http:", "HTTP:")):
        with Strandline(around.format(url), "k", retry=NONE) as client:
            assert client.ping().status == "ok"


def test_client_hides_password_of_address() -> None:
    client = Strandline("http://ann:PASSWORD@127.0.0.1:1", "k", retry=NONE)
    place = r"http://127\.0\.0\.1:1 "
    with client, pytest.raises(errors.ConnectionFailedError, match=place) as caught:
        client.ping()
    assert "PASSWORD" not in _tell(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12, "5", None])
def test_client_refuses_invalid_timeout(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout: "):
        Strandline(URL, "k", timeout=seconds)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTP_PROXY", "ftp://proxy.example"),
        ("HTTP_PROXY", "http://proxy.example:port"),
        ("SSL_CERT_FILE", "/nonexistent/ca.pem"),
        ("SSL_CERT_FILE", __file__),
    ],
)
def test_client_reports_unusable_environment(
    monkeypatch: pytest.MonkeyPatch, server: HostileServer, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(errors.ConnectionFailedError, match=r"HTTP_PROXY.*SSL_CERT_FILE") as caught:
        Strandline(server.url, "k", retry=QUICK).ping()
    assert not caught.value.retryable

    async def ping() -> None:
        async with AsyncStrandline(server.url, "k", retry=QUICK) as client:
            await client.ping()

    with pytest.raises(errors.ConnectionFailedError, match="SSL_CERT_FILE"):
        asyncio.run(ping())


# Answers that lead elsewhere ----------------------------------------------------------------------


def test_client_redirect_error_names_target(server: HostileServer) -> None:
    place = "https://u:PASSWORD@memory.example/health?token=SECRET"
    server.play = whole(b"", 308, Location=place)
    with (
        Strandline(server.url, "k", retry=NONE) as client,
        pytest.raises(errors.UnexpectedAnswerError, match=r"https://memory\.example") as caught,
    ):
        client.ping()
    assert "SECRET" not in str(caught.value)
    assert "PASSWORD" not in str(caught.value)
    server.play = whole(b"", 302, Location="\x1b[2Jhttp://[")
    with pytest.raises(errors.UnexpectedAnswerError, match="elsewhere"):
        Strandline(server.url, "k", retry=NONE).ping()


def test_client_redirect_is_not_followed_with_callers_http() -> None:
    """Whatever connections a caller brings: no other host gets the key."""
    hosts: list[str] = []

    def lead_elsewhere(request: httpx2.Request) -> httpx2.Response:
        hosts.append(request.url.host)
        place = "https://elsewhere.example/api/v1/health"
        return httpx2.Response(307, headers={"Location": place})

    async def ping() -> None:
        transport = httpx2.MockTransport(lead_elsewhere)
        async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as http:
            await AsyncStrandline(URL, "k", http=http, retry=NONE).ping()

    http = httpx2.Client(transport=httpx2.MockTransport(lead_elsewhere), follow_redirects=True)
    with pytest.raises(errors.UnexpectedAnswerError, match=r"elsewhere\.example"):
        Strandline(URL, "k", http=http, retry=NONE).ping()
    with pytest.raises(errors.UnexpectedAnswerError, match=r"elsewhere\.example"):
        asyncio.run(ping())
    assert len(hosts) == 2
    assert "elsewhere.example" not in hosts


def test_client_does_not_retry_refused_certificate() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        del request
        raise httpx2.ConnectError("untrusted") from ssl.SSLCertVerificationError("self-signed")

    http = httpx2.Client(transport=httpx2.MockTransport(refuse))
    with pytest.raises(errors.ConnectionFailedError, match="untrusted") as caught:
        Strandline(URL, "k", http=http).ping()
    assert not caught.value.retryable


def test_client_does_not_retry_tls_where_there_is_none(server: HostileServer) -> None:
    server.play = whole(b"", 400)
    url = server.url.replace("http://", "https://")
    with pytest.raises(errors.ConnectionFailedError, match="has no TLS, use http://") as caught:
        Strandline(url, "k").ping()
    assert not caught.value.retryable
    assert caught.value.details["sent"] is False


def _at(seconds: int) -> str:
    return format_datetime(datetime.now(timezone.utc) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        *[("7", 7, 7), ("1.5", 1.5, 1.5), ("x", None, None)],
        pytest.param(3600, 3000, 3600, id="in an hour"),
        pytest.param(-3600, 0, 0, id="an hour ago"),
        *[(text, None, None) for text in ("-1", "nan", "inf", "2, 3", "", "1e9")],
    ],
)
def test_client_reads_retry_after_seconds_and_date(
    header: str | int, least: float | None, most: float | None
) -> None:
    """A number of the table is a date, so many seconds from when the test runs."""
    text = _at(header) if isinstance(header, int) else header
    answer = httpx2.Response(503, headers=[(b"Retry-After", text.encode())])
    http = httpx2.Client(transport=httpx2.MockTransport(Script(answer)))
    with pytest.raises(errors.UnavailableError) as caught:
        Strandline(URL, "k", http=http, retry=NONE).ping()
    seconds = caught.value.retry_after
    assert seconds is least or (seconds is not None and least is not None and most is not None)
    if seconds is not None and least is not None and most is not None:
        assert least <= seconds <= most


def test_client_retries_no_unsafe_request_on_proxy_503() -> None:
    """A proxy answers 503 as well where the connection behind it broke after the request."""
    own = {"code": "unavailable", "message": "m", "request_id": "r", "retryable": True}
    for body, attempts in ((b"<html>", 1), (json.dumps({"error": own}).encode(), 2)):
        service = Script(httpx2.Response(503, content=body), httpx2.Response(400, content=b"{}"))
        http = httpx2.Client(transport=httpx2.MockTransport(service))
        with pytest.raises(ServiceError):
            Strandline(URL, "k", http=http, retry=QUICK).admin.start_job("builder")
        assert len(service.requests) == attempts


def test_client_maps_unknown_error_code_by_status() -> None:
    for status, kind in ((500, errors.InternalError), (418, errors.ServiceError)):
        assert type(errors.make_error(status, {"code": "new", "message": "m"}, None)) is kind


def test_client_bounds_error_message() -> None:
    error = errors.make_error(400, {"code": "invalid_field", "message": "x" * 5_000_000}, None)
    assert len(str(error)) < 20_000


def test_client_errors_survive_pickling() -> None:
    failure = UnstoredEvent({"source_event_key": "k"}, errors.GoneError("m", status=410))
    error = NotStoredError([failure])
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert str(again) == str(error)
        assert again.failures[0].error.status == 410


# Processes ----------------------------------------------------------------------------------------


class _Echo(BaseHTTPRequestHandler):
    """Answers with what was asked, and keeps the connection; batches are stored."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        answer: Any = {"path": self.path}
        if body:
            events = json.loads(body)["events"]
            self.server.events += [(e["source_event_key"], e["content"]) for e in events]
            answer = {"stored": 0, "failed": 0}
            answer["results"] = [{"status": 201, "event": RECEIPT} for _ in events]
        data = json.dumps(answer).encode()
        self.server.connections.add(self.client_address)
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST


@pytest.fixture
def echo() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    server.daemon_threads = True
    server.events, server.connections = [], set()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def _in_child(work: Callable[[], str]) -> str:
    """What a forked process says; it ends after ten seconds at the latest."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os.write(writer, work().encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
class TestFork:
    def test_client_opens_own_connections_after_fork(self, echo: Any) -> None:
        client = Strandline(f"http://127.0.0.1:{echo.server_port}", "k", retry=NONE)

        def ask(who: str) -> str:
            return client.perform(Call("GET", f"/{who}", lambda data: json.loads(data)["path"]))

        assert ask("parent") == "/parent"
        assert _in_child(lambda: ask("child")) == "/child"
        assert ask("parent-again") == "/parent-again"
        assert len(echo.connections) == 2
        client.close()

    def test_client_writer_continues_after_fork(self, echo: Any) -> None:
        """Each process stores what it added, under keys of its own."""
        client = Strandline(f"http://127.0.0.1:{echo.server_port}", "k", retry=NONE)
        writer = client.writer(linger=0.2)
        writer.add("before", user="ann")

        def add() -> str:
            writer.add("child", user="ann")
            writer.close()
            return f"stored {writer.stored}, pending {writer.pending}"

        assert _in_child(add) == "stored 1, pending 0"
        assert _in_child(lambda: str(writer.close())) == "None"
        writer.add("parent", user="ann")
        writer.close()
        client.close()
        keys = [key for key, _ in echo.events]
        assert sorted(content for _, content in echo.events) == ["before", "child", "parent"]
        assert len(set(keys)) == 3


def test_client_writer_close_can_be_repeated() -> None:
    """The events in flight are settled, no matter who stopped waiting for them."""

    async def later(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.2)
        results = [{"status": 201, "event": RECEIPT} for _ in json.loads(request.content)["events"]]
        return httpx2.Response(200, json={"stored": 1, "failed": 0, "results": results})

    async def write() -> tuple[int, int]:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(later))
        writer = AsyncStrandline(URL, "k", http=http, retry=QUICK).writer(linger=0.001)
        await writer.add("x", user="ann")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(writer.close(), 0.05)
        await asyncio.wait_for(writer.close(), 5)
        return writer.stored, writer.pending

    assert asyncio.run(write()) == (1, 0)
