"""Requests of AWS clients, answered in the thread that asks: a socket and a thread of the server
for each cost a tenth of the tests' processor time. Everything else is as through the socket: the
client signs, and the same application checks, routes and answers."""

import io
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPMessage
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from botocore import awsrequest, httpsession
from urllib3 import HTTPResponse
from werkzeug.datastructures import Headers
from werkzeug.serving import BaseWSGIServer
from werkzeug.test import run_wsgi_app

from strandline.local.aws import LocalAws, QuietHandler

AWS_REQUEST: Any = awsrequest
SESSION: Any = httpsession.URLLib3Session  # pyright: ignore[reportUnknownMemberType]
WITHOUT_BODY = (204, 304)


@contextmanager
def answer_directly(running: LocalAws) -> Generator[None]:
    """Answer the requests of this process to a running AWS without its socket. Bodies that are read
    piece by piece go through it."""
    server: BaseWSGIServer = vars(running)["_server"]
    send, start = SESSION.send, f"{running.endpoint}/"

    def answer(self: object, request: Any) -> Any:
        is_whole = request.body is None or isinstance(request.body, bytes | bytearray | str)
        if is_whole and request.url.startswith(start):
            return _answer(server, request)
        return send(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SESSION, "send", answer)
        yield


class _Handler(QuietHandler):
    """The server's handler of a request that came through no socket."""

    def __init__(self, server: BaseWSGIServer, method: str, target: str, body: bytes) -> None:
        self.server, self.command, self.path = server, method, target
        self.rfile = io.BufferedReader(io.BytesIO(body))
        self.client_address, self.request_version = ("127.0.0.1", 0), "HTTP/1.1"
        self.headers, self.connection = HTTPMessage(), cast("Any", None)


def _answer(server: BaseWSGIServer, request: Any) -> Any:
    url = urlsplit(str(request.url))
    body = request.body or b""
    handler = _Handler(
        server,
        request.method,
        f"{url.path}?{url.query}" if url.query else url.path,
        body.encode() if isinstance(body, str) else bytes(body),
    )
    headers = {"Host": url.netloc, "Accept-Encoding": "identity", **request.headers}
    for name, value in headers.items():
        handler.headers[name] = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    try:
        parts, line, answer_headers = run_wsgi_app(server.app, handler.make_environ(), True)
        status, content = int(line.split()[0]), b"".join(parts)
    except Exception:  # the server answers so, too
        status, content, answer_headers = 500, b"", Headers()
    if request.method == "HEAD" or status in WITHOUT_BODY:
        content = b""
    raw = HTTPResponse(
        io.BytesIO(content),
        dict(answer_headers.items()),
        status,
        preload_content=False,
        enforce_content_length=False,
    )
    response = AWS_REQUEST.AWSResponse(request.url, status, raw.headers, raw)
    if not request.stream_output:
        _ = response.content  # read now, as through the socket
    return response
