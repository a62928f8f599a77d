"""An ASGI application that acts as API Gateway: HTTP in, proxy events to Lambda handlers."""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Semaphore
from typing import Any

from strandline.http import gateway_generated_responses
from strandline.http.gateway_generated_responses import GatewayResponse
from strandline.local.lambda_context import Event, Handler, LambdaContext, derive_function_name
from strandline.local.proxy_event import (
    GatewayError,
    HttpRequest,
    HttpResponse,
    InvalidResponse,
    PathMatch,
    PathRouter,
    make_proxy_event,
    parse_handler_response,
)
from strandline.local.tls import PEER, make_client_cert_of_event
from strandline.tenants import waits


class HandlerThreads(ThreadPoolExecutor):
    """Threads for `workers` handlers at work, and for `waiting` more that sleep. More threads than
    that cannot be asleep: the limits of waits see to it."""

    def __init__(self, workers: int, waiting: int) -> None:
        super().__init__(workers + waiting, thread_name_prefix="lambda")
        self._places = Semaphore(workers)

    def run_handler_in_free_place(self, handler: Handler, event: Event, context: Any) -> Any:
        """Call a handler in this thread, once a place is free. Raises what the handler raises."""
        with self._places:
            waits.leave_worker.set(self._free_place_while_waiting)
            return handler(event, context)

    @contextmanager
    def _free_place_while_waiting(self) -> Generator[None]:
        self._places.release()
        try:
            yield
        finally:
            self._places.acquire()


logger = logging.getLogger(__name__)

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]

INTEGRATION_SECONDS = 29.0  # the longest that API Gateway waits for a function
REQUEST_BYTES = 10 * 1024 * 1024  # API Gateway's limit, which cannot be raised there either
# A client that is still sending does not read the answer, and closing the connection can lose it:
# before a 413, so many bytes are read and discarded, for so many seconds.
MAX_DRAIN_BYTES = 64 * 1024 * 1024
DRAIN_SECONDS = 10.0
BODILESS = (204, 304)


class TooLarge(Exception):
    """The request's body is over API Gateway's limit."""


class InvalidContentLength(Exception):
    """The request's Content-Length is no number."""


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""


class GatewayApp:
    """Serves `{"METHOD /path": handler}` as a REST API does; an ASGI application for uvicorn.

    Handlers run in `workers` threads, and those that wait in `waiting` more. `seconds` is how long
    a request may take before the gateway answers 504. Its own answers are those of the deployed
    gateway, with one exception: for a method that a path lacks this one answers 405 with `Allow`,
    while API Gateway answers 404 as for an unknown path. `origins` are those whose pages may read
    these answers. With `hosts` a request to another name is a 421: a page whose name leads here may
    not call.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        workers: int = 8,
        waiting: int = 0,
        seconds: float = INTEGRATION_SECONDS,
        origins: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
    ) -> None:
        self._cors_headers = gateway_generated_responses.make_gateway_cors_headers(origins)
        self._routes = PathRouter(routes)
        self._threads = HandlerThreads(workers, waiting)
        self._seconds = seconds
        self._hosts = hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._answer_lifespan_messages(receive, send)
        elif scope["type"] == "http":
            try:
                response = await self._serve_http_request(scope, receive)
            except GatewayError as error:
                response = error.to_response(self._cors_headers)
            except ClientDisconnected:
                return  # the client has gone: nobody reads an answer
            await _send_response(response, scope["method"], send)
        else:
            raise ValueError(f"API Gateway's REST API does not support {scope['type']}")

    async def _answer_lifespan_messages(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self._threads.shutdown(wait=False, cancel_futures=True)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _serve_http_request(self, scope: Message, receive: Receive) -> HttpResponse:
        request_id = str(uuid.uuid4())
        if self._hosts is not None and not _are_hosts_allowed(self._hosts, scope["headers"]):
            raise GatewayError(gateway_generated_responses.FOREIGN_HOST, request_id)
        path = scope["raw_path"].decode("latin-1")
        match = self._routes.find(path)
        if match is None:
            raise GatewayError(gateway_generated_responses.NO_ROUTE, request_id)
        handler = match.resource.handler(scope["method"])
        if handler is None:
            message = f"{scope['method']} is not a method of {match.resource.path}."
            response = GatewayResponse("method_not_allowed", message, 405)
            raise GatewayError(
                response, request_id, allow=", ".join(sorted(match.resource.methods))
            )
        try:
            body = await _read_body(scope, receive)
        except TooLarge:
            raise GatewayError(
                gateway_generated_responses.TOO_LARGE, request_id, connection="close"
            ) from None
        except InvalidContentLength:
            raise GatewayError(
                replace(gateway_generated_responses.MALFORMED_REQUEST, status=400), request_id
            ) from None
        return await self._invoke_handler(
            handler, _make_http_request(scope, body, request_id), match
        )

    async def _invoke_handler(
        self, handler: Handler, request: HttpRequest, match: PathMatch
    ) -> HttpResponse:
        event, seconds, request_id = (
            make_proxy_event(request, match),
            self._seconds,
            request.request_id,
        )
        context = LambdaContext(derive_function_name(handler), seconds, request_id)
        loop, threads = asyncio.get_running_loop(), self._threads
        future = loop.run_in_executor(
            threads, threads.run_handler_in_free_place, handler, event, context
        )
        done, _ = await asyncio.wait({future}, timeout=seconds)
        if not done:
            logger.error("%s: no answer in %s s, request %s", request.path, seconds, request_id)
            raise GatewayError(gateway_generated_responses.TIMEOUT, request_id)
        try:
            return parse_handler_response(future.result(), request_id)
        except InvalidResponse as error:
            logger.error("%s: %s, request %s", request.path, error, request_id)
            raise GatewayError(
                replace(gateway_generated_responses.FUNCTION_FAILED, status=error.status),
                request_id,
            ) from None
        except Exception as error:
            # Any exception of a handler is its own failure; the gateway continues. The message
            # stays out of the log: it may quote memory.
            kind = type(error).__name__
            logger.error("%s failed: %s, request %s", request.path, kind, request_id)
            raise GatewayError(
                replace(gateway_generated_responses.FUNCTION_FAILED, status=502), request_id
            ) from None


def _are_hosts_allowed(hosts: Sequence[str], headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether each name that the request says it calls is one of `hosts`, where `*.` stands for one
    label. HTTP/1.0 needs to name none."""
    names = [value.decode("latin-1") for name, value in headers if name == b"host"]
    return all(_is_allowed_host(hosts, _strip_port_from_host(name)) for name in names)


def _strip_port_from_host(name: str) -> str:
    if name.startswith("["):
        return name.partition("]")[0].removeprefix("[")
    return name.partition(":")[0].removesuffix(".").lower()


def _is_allowed_host(hosts: Sequence[str], name: str) -> bool:
    return name in hosts or f"*.{name.partition('.')[2]}" in hosts


def _parse_content_length(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """What the request says about its body's length, 0 without a word. uvicorn refuses what is no
    number by itself; other servers may not. Raises InvalidContentLength."""
    value = next((value for name, value in headers if name == b"content-length"), b"0")
    if not value.isdigit():
        raise InvalidContentLength
    return int(value)


async def _read_body(scope: Message, receive: Receive) -> bytes:
    """The whole body, at most REQUEST_BYTES of it in memory. Raises TooLarge,
    InvalidContentLength or ClientDisconnected."""
    content_length = _parse_content_length(scope["headers"])
    body, size, more = bytearray(), 0, True
    deadline = time.monotonic() + DRAIN_SECONDS
    while more:
        if max(content_length, size) > REQUEST_BYTES:
            body.clear()
            if max(content_length, size) > MAX_DRAIN_BYTES or time.monotonic() > deadline:
                break
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = message.get("body", b"")
        size, more = size + len(chunk), message.get("more_body", False)
        body += chunk
    if max(content_length, size) > REQUEST_BYTES:
        raise TooLarge
    return bytes(body)


def _make_http_request(scope: Message, body: bytes, request_id: str) -> HttpRequest:
    peer: bytes | None = scope.get("state", {}).get(PEER)
    return HttpRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]],
        body=body,
        client=(scope.get("client") or ("127.0.0.1", 0))[0],
        port=(scope.get("server") or ("127.0.0.1", 80))[1] or 80,
        protocol=f"HTTP/{scope['http_version']}",
        request_id=request_id,
        scheme=scope["scheme"],
        certificate=make_client_cert_of_event(peer) if peer else None,
    )


async def _send_response(response: HttpResponse, method: str, send: Send) -> None:
    """Send the answer. HEAD gets the length without a body; 204 and 304 get neither."""
    headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in response.headers]
    if response.status not in BODILESS:
        headers.append((b"content-length", str(len(response.body)).encode()))
    start = {"type": "http.response.start", "status": response.status, "headers": headers}
    body = b"" if method == "HEAD" or response.status in BODILESS else response.body
    await send(start)
    await send({"type": "http.response.body", "body": body})
