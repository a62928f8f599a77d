"""Requests of the `requests` library, answered by the handlers in this process: no socket between.

What lies between is the application that stands for API Gateway, so that its own refusals (a path
that is none, a method that a path lacks, a body over the limit) are answered as over HTTP.
"""

import asyncio
import importlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from typing import Any
from unittest.mock import patch

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

from strandline.function_specs import route_table
from strandline.local.http_server import GatewayApp, Message

URL = "http://in-process.test"
"""Where they are sent; the name resolves nowhere."""


class InProcessServer:
    """Answers prepared requests and counts them. Safe for threads."""

    def __init__(self) -> None:
        self.answered_count = 0
        """Requests that were answered."""
        self._app = GatewayApp(
            {
                route: importlib.import_module(f"functions.{name}.handler").lambda_handler
                for route, name in route_table().items()
            }
        )
        self._lock = threading.Lock()

    def answer(self, request: requests.PreparedRequest) -> HTTPResponse:
        """The application's answer, as it would come off the wire."""
        start, body = asyncio.run(self._exchange(request))
        with self._lock:
            self.answered_count += 1
        headers = HTTPHeaderDict()
        for name, value in start["headers"]:
            headers.add(name.decode("latin-1"), value.decode("latin-1"))
        return HTTPResponse(BytesIO(body), headers, start["status"], preload_content=False)

    async def _exchange(self, request: requests.PreparedRequest) -> tuple[Message, bytes]:
        answer = list[Message]()

        async def receive() -> Message:
            return {"type": "http.request", "body": _bytes(request.body), "more_body": False}

        async def send(message: Message) -> None:
            answer.append(message)

        await self._app(_scope(request), receive, send)
        start, *chunks = answer
        return start, b"".join(chunk["body"] for chunk in chunks)


def _scope(request: requests.PreparedRequest) -> dict[str, Any]:
    """What an ASGI server makes of the request."""
    path, _, query = request.path_url.partition("?")
    headers = [(b"host", URL.partition("//")[2].encode())]
    headers += [(_bytes(name).lower(), _bytes(value)) for name, value in request.headers.items()]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "raw_path": _bytes(path),
        "query_string": _bytes(query),
        "headers": headers,
        "client": ("127.0.0.1", 40_000),
        "server": ("127.0.0.1", 80),
    }


def _bytes(text: Any) -> bytes:
    """As it goes over the wire."""
    return text if isinstance(text, bytes) else str(text or "").encode()


@contextmanager
def serve_in_process(app: InProcessServer) -> Generator[InProcessServer]:
    """Whatever the library sends to URL meanwhile is answered by `app`; other addresses are an
    error: nothing leaves this process."""

    def send(
        adapter: HTTPAdapter, request: requests.PreparedRequest, *_: object, **__: object
    ) -> requests.Response:
        if not str(request.url).startswith(URL):
            raise requests.ConnectionError(f"{request.url} is not served in this process")
        return adapter.build_response(request, app.answer(request))

    with patch.object(HTTPAdapter, "send", send):
        yield app
