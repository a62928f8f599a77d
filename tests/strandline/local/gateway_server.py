"""A local API Gateway on a real socket, and requests to it."""

import http.client
import json
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import uvicorn

from strandline.local.http_server import GatewayApp


@contextmanager
def serving_app(app: GatewayApp) -> Generator[int]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(10)


class Answer:
    """One answer, read whole."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


def call(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
