"""The service that `make demo` talks to, and the calls to it."""

import json
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from strandline.admin.keys import make_key
from strandline.auth.principals import Right
from strandline.db.database import Caller, Database
from strandline.local.run import directory, port
from strandline.local.runtime import connection_file, run_local_service
from strandline.local.tls import TlsFiles

TENANT = "demo"
_KEY_DAYS = 1


class DemoKeys(NamedTuple):
    """API keys of the demo's tenant."""

    memory: str
    """Reads and writes."""
    admin: str
    """Starts jobs."""


class Client:
    """HTTP calls to a running service."""

    def __init__(self, url: str, key: str, tls: TlsFiles | None = None) -> None:
        self._url, self._key = url, key
        self._context = tls and tls.client_context()

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer's body. Raises SystemExit with the service's own message if it refuses."""
        return self._call(path, json.dumps(body).encode())

    def get(self, path: str) -> dict[str, Any]:
        """The answer's body. Raises SystemExit as `post` does."""
        return self._call(path, None)

    def post_any(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """The answer's status and body, also of a refusal."""
        return self._send(path, json.dumps(body).encode())

    def _call(self, path: str, body: bytes | None) -> dict[str, Any]:
        status, answer = self._send(path, body)
        if status >= 400:
            raise SystemExit(f"\nstrandline: {path} answered {status}: {json.dumps(answer)}")
        return answer

    def _send(self, path: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, body, headers)  # noqa: S310 -- our own
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=30, context=self._context
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def _is_up(url: str, tls: TlsFiles | None) -> bool:
    context = tls and tls.client_context()
    try:
        urllib.request.urlopen(f"{url}/health", timeout=2, context=context).close()  # noqa: S310
        return True
    except (urllib.error.URLError, TimeoutError):
        return False


@contextmanager
def running_service() -> Generator[tuple[str, DemoKeys, TlsFiles | None]]:
    """The address of the running service, or of one that runs as long as the demo; keys of the
    demo's tenant; and the certificates."""
    file = connection_file(directory())
    local_config: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"url": ""}
    paths: dict[str, str] | None = local_config.get("tls")
    tls = TlsFiles(**{name: Path(path) for name, path in paths.items()}) if paths else None
    if local_config["url"] and _is_up(local_config["url"], tls):
        yield local_config["url"], _make_keys(local_config["environment"]), tls
        return
    print("No service runs on this data yet: starting one for as long as the demo takes.")
    with run_local_service(directory(), port()) as service:
        environment = json.loads(file.read_text())["environment"]
        yield service.url, _make_keys(environment), service.tls


def _make_keys(environment: Mapping[str, str]) -> DemoKeys:
    """New keys of the demo's tenant: one that reads and writes all of it, and one that starts
    jobs."""
    with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:

        def make(*rights: Right) -> str:
            return make_key(
                database.connect_as(Caller(TENANT, ())),
                environment["STRANDLINE_KEY_SECRET"],
                rights=rights,
                label="made by make demo",
                expires_at=datetime.now(UTC) + timedelta(days=_KEY_DAYS),
            ).token

        return DemoKeys(make("read", "write"), make("admin"))
