"""A small server that stands in for a provider of embeddings, whose answers a test decides."""

import json
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest


class ModelServer(ThreadingHTTPServer):
    """Answers any POST; a test may change how, and let go what it holds back."""

    def __init__(self, answer: Callable[[dict[str, Any]], object]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = False  # closing it waits for its threads: nothing outlives a test
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.origin}/v1"
        self.paths: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[dict[str, Any]], object] = answer
        self.status = 200
        self.answer_headers: dict[str, str] = {"Location": "/v1/elsewhere"}
        self.hold: Callable[[Handler], None] = lambda _: None
        self.let_go = threading.Event()
        self.faults: list[BaseException | None] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep what went wrong, for the test to see."""
        self.faults.append(sys.exception())


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        """Record it, and answer."""
        provider = cast("ModelServer", self.server)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        provider.paths.append(self.path)
        provider.requests.append(request)
        provider.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = provider.answer(request)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        with suppress(ConnectionError):  # clients that have waited long enough hang up
            provider.hold(self)
            self.send_response(provider.status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in provider.answer_headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serve_model(
    answer: Callable[[dict[str, Any]], object], monkeypatch: pytest.MonkeyPatch
) -> Generator[ModelServer]:
    """Run one; what it failed at fails the test."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ModelServer(answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.let_go.set()
        server.shutdown()
        thread.join()
    assert server.faults == []


def stay_silent(handler: Handler) -> None:
    """Answer nothing until the test lets go."""
    cast("ModelServer", handler.server).let_go.wait(30)
