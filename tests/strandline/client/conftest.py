"""A service behind a real HTTP server, and clients of it."""

import contextlib
import importlib
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

from strandline import Strandline
from strandline.function_specs import route_table
from strandline.local.http_server import GatewayApp
from tests.support import Gateway


@dataclass(frozen=True)
class HttpService:
    """Where the handlers of a gateway are served."""

    url: str
    gateway: Gateway

    def client(self, tenant: str = "acme", user: str | None = None, *rights: str) -> Strandline:
        """A client with a key of its own."""
        key = self.gateway.key(tenant, user, rights=rights or ("read", "write", "admin"))
        return Strandline(self.url, key)


@contextlib.contextmanager
def _no_signals() -> Generator[None]:
    yield


@contextlib.contextmanager
def serve_http(
    port: int = 0, wrap: Callable[[GatewayApp], Any] = lambda app: app
) -> Generator[str]:
    """Serve the real handlers; gives the address. `wrap` makes another application of theirs."""
    table = {
        route: importlib.import_module(f"functions.{name}.handler").lambda_handler
        for route, name in route_table().items()
    }
    config = uvicorn.Config(
        wrap(GatewayApp(table)), log_level="error", access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture
def service(gateway: Gateway) -> Iterator[HttpService]:
    """The whole service, over HTTP."""
    with serve_http() as url:
        yield HttpService(url, gateway)


@pytest.fixture
def client(service: HttpService) -> Iterator[Strandline]:
    """A client of tenant acme that is bound to nobody."""
    with service.client() as client:
        yield client
