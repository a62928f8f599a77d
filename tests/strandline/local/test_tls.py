"""HTTPS on one machine: real handshakes, and the peer's certificate in the event as API Gateway
tells it."""

import http.client
import json
import shutil
import ssl
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn

from events.demo import tour
from strandline.admin import certificates
from strandline.commands.main import main
from strandline.db.database import Caller, Database
from strandline.errors import Misconfigured
from strandline.local.http_server import GatewayApp
from strandline.local.lambda_context import Event, LambdaContext
from strandline.local.run import format_greeting
from strandline.local.runtime import make_connection_file_path, run_local_service
from strandline.local.tls import (
    PeerCertificateProtocol,
    TlsFiles,
    load_or_issue_tls_files,
    register_local_client_certificate,
)
from tests.support import user_message

pytestmark = pytest.mark.integration

NAMES = ("TLS", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "CLIENT_CERTIFICATES", "DATA_DIR")
STARTED = ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET")


def echo(event: Event, context: LambdaContext) -> Event:
    del context
    return {"statusCode": 200, "body": json.dumps(event)}


@contextmanager
def serving(tls_files: TlsFiles) -> Generator[int]:
    """An echo behind TLS; gives its port."""
    app = GatewayApp({"ANY /echo": echo})
    config = uvicorn.Config(
        app,
        port=0,
        http=PeerCertificateProtocol,
        log_level="critical",
        **tls_files.uvicorn_options(),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until = time.monotonic() + 10
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def ask(
    port: int,
    context: ssl.SSLContext,
    method: str = "GET",
    path: str = "/echo",
    body: object = None,
    headers: dict[str, str] | None = None,
    host: str = "127.0.0.1",
) -> tuple[int, Any]:
    """One request on a connection of its own."""
    connection = http.client.HTTPSConnection(host, port, timeout=30, context=context)
    with closing(connection):
        data = None if body is None else json.dumps(body)
        header_fields = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, data, header_fields)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def stranger(trusting: Path | None, name: str = "local client") -> ssl.SSLContext:
    """Who trusts the server, and shows a certificate of an authority of its own."""
    context = ssl.create_default_context(cafile=trusting)
    trustme.CA(organization_name="Strandline on this machine").issue_cert(
        "client@localhost", common_name=name
    ).configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
    return context


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *STARTED):
        monkeypatch.setenv(f"STRANDLINE_{name}", "")  # whatever a start sets is taken back


@pytest.fixture
def tls_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsFiles:
    monkeypatch.setenv("STRANDLINE_TLS", "1")
    tls_files = load_or_issue_tls_files(tmp_path)
    assert tls_files is not None
    return tls_files


def test_tls_event_has_client_certificate(tls_files: TlsFiles) -> None:
    with serving(tls_files) as port:
        status, event = ask(port, tls_files.client_context())
        assert status == 200
        text = event["requestContext"]["identity"]["clientCert"]
        assert event["headers"]["X-Forwarded-Proto"] == "https"
        _, plain = ask(
            port, ssl.create_default_context(cafile=tls_files.authority), host="localhost"
        )
        assert plain["requestContext"]["identity"]["clientCert"] is None
    assert list(text) == ["clientCertPem", "subjectDN", "issuerDN", "serialNumber", "validity"]
    assert tls_files.client is not None
    assert text["clientCertPem"] == tls_files.client.read_text()
    assert text["subjectDN"].startswith("CN=local client,")
    assert "O=Strandline on this machine" in text["issuerDN"]
    assert all(len(pair) == 2 and int(pair, 16) >= 0 for pair in text["serialNumber"].split(":"))
    ends = ssl.cert_time_to_seconds(text["validity"]["notAfter"])
    assert ssl.cert_time_to_seconds(text["validity"]["notBefore"]) < time.time() < ends


def test_tls_refuses_certificate_of_other_authority(tls_files: TlsFiles) -> None:
    with serving(tls_files) as port:
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            ask(port, stranger(tls_files.authority))
        with pytest.raises(ssl.SSLCertVerificationError):  # nor is the server anybody else
            ask(port, ssl.create_default_context())
        assert ask(port, tls_files.client_context())[0] == 200


def test_tls_test_detects_unverified_client(
    tls_files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the handshake verifies no one, and so the event tells of no one."""
    real = TlsFiles.uvicorn_options
    lax = {"ssl_cert_reqs": ssl.CERT_NONE}
    monkeypatch.setattr(TlsFiles, "uvicorn_options", lambda secured: real(secured) | lax)  # pyright: ignore
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_tls_refuses_certificate_of_other_authority(tls_files)


def test_tls_files_are_kept_and_private(tls_files: TlsFiles, tmp_path: Path) -> None:
    assert load_or_issue_tls_files(tmp_path) == tls_files
    for key in (tls_files.key, tls_files.client_key):
        assert key is not None
        assert key.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tls_files.key.parent.iterdir()) == [
        "authority.pem",
        "client.key",
        "client.pem",
        "server.key",
        "server.pem",
    ], "the authority's own key is nowhere"


def test_tls_serves_configured_certificate(
    tls_files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-09; without a client authority nobody is asked for a certificate."""
    monkeypatch.setenv("STRANDLINE_TLS", "")
    assert load_or_issue_tls_files(tmp_path) is None
    for name, path in (("CERT", tls_files.certificate), ("KEY", tls_files.key)):
        monkeypatch.setenv(f"STRANDLINE_TLS_{name}", str(path))
    own = load_or_issue_tls_files(tmp_path)
    assert own is not None
    assert own == TlsFiles(tls_files.certificate, tls_files.key)
    with serving(own) as port:
        _, event = ask(port, tls_files.client_context())
        assert event["requestContext"]["identity"]["clientCert"] is None
    assert tls_files.authority is not None
    monkeypatch.setenv("STRANDLINE_TLS_CLIENT_CA", str(tls_files.authority))
    assert load_or_issue_tls_files(tmp_path) == TlsFiles(
        tls_files.certificate, tls_files.key, tls_files.authority
    )
    for name in ("STRANDLINE_TLS_KEY", "STRANDLINE_TLS_CERT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "")
            with pytest.raises(Misconfigured, match="STRANDLINE_TLS_CERT and STRANDLINE_TLS_KEY"):
                load_or_issue_tls_files(tmp_path)
            patch.setenv(name, "/nowhere/at/all")
            with pytest.raises(Misconfigured, match="/nowhere/at/all"):
                load_or_issue_tls_files(tmp_path)


@pytest.fixture
def place() -> Iterator[Path]:
    """A data directory that the database's account can enter."""
    parent = Path(tempfile.mkdtemp(prefix="strandline-tls-"))
    parent.chmod(0o711)
    yield parent / "data"
    shutil.rmtree(parent)


@pytest.mark.proof
def test_tls_secures_whole_service(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make run TLS=1` starts it: by key, by certificate, by neither, by a stranger's; and with
    a subject that is entered and revoked at the console."""
    monkeypatch.setenv("STRANDLINE_TLS", "1")
    monkeypatch.setenv("STRANDLINE_DATA_DIR", str(place))
    with run_local_service(place, 0) as service:
        assert service.tls is not None
        assert service.tls.authority is not None
        assert service.url.startswith("https://127.0.0.1:")
        port = int(service.url.rpartition(":")[2])
        ours, nobody = (
            service.tls.client_context(),
            ssl.create_default_context(cafile=service.tls.authority),
        )
        event, path = user_message("By certificate."), "/api/v1/events"
        assert ask(port, ours, "POST", path, event)[0] == 201
        assert ask(port, nobody, "POST", path, event)[0] == 401
        assert ask(port, nobody, "POST", path, event, {"X-API-Key": service.key})[0] == 201
        spoof = {"X-Client-Cert": (service.tls.client or place).read_text().replace("\n", "%0A")}
        assert ask(port, nobody, "POST", path, event, spoof)[0] == 401
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            ask(port, stranger(service.tls.authority), "POST", path, event)
        greeting = format_greeting(service, 1.0)
        assert f"--cacert {service.tls.authority} --cert {service.tls.client} --key" in greeting
        assert tour.main() == 0
        assert f"curl -s --cacert {service.tls.authority} $API/recall" in capsys.readouterr().out
        monkeypatch.delenv("STRANDLINE_DATABASE_URL")  # as in another terminal
        _at_the_console(service.tls, capsys)
        environment = json.loads(make_connection_file_path(place).read_text())["environment"]
        with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:
            access = database.connect_as(Caller("local", ()))
            register_local_client_certificate(
                access, service.tls
            )  # as the next start does: nothing new
            assert len(certificates.list_client_certificates(access, 10, None).certificates) == 1


def _at_the_console(tls_files: TlsFiles, capsys: pytest.CaptureFixture[str]) -> None:
    """The verbs for certificates."""

    def run(*words: str) -> tuple[int, str]:
        status = main(["operate", "certificates", *words])
        output = capsys.readouterr()
        return status, output.out + output.err

    acme = ("--tenant", "acme")
    status, receipt = run("create", *acme, "--subject", "CN=x,O=Acme", "--user", "user:x")
    assert status == 0
    document = json.loads(receipt)
    assert (document["subject"], document["user"], document["rights"]) == (
        "CN=x,O=Acme",
        "user:x",
        ["read", "write"],
    )
    status, receipt = run("list", *acme)
    assert [json.loads(line) for line in receipt.splitlines()] == [document]
    assert run("create", *acme, "--pem", str(tls_files.client))[0] == 1, "is tenant local's"
    assert run("revoke", *acme, document["certificate_id"])[0] == 0
    assert run("create", *acme, "--subject", "CN=x,O=Acme", "--days", "1")[0] == 0
    for wrong in (
        ["create", *acme, "--subject", "x"],
        ["create", *acme, "--pem", str(tls_files.key)],
        ["create", *acme, "--pem", "/nowhere"],
        ["create", *acme, "--subject", "CN=y", "--right", "all"],
        ["create", *acme, "--subject", "CN=y", "--days", "0"],
        ["revoke", "--tenant", "other", document["certificate_id"]],
    ):
        status, receipt = run(*wrong)
        assert (status, receipt.startswith("strandline: ")) == (1, True), wrong
