"""Sends requests over HTTP: credentials, time-outs, retries, and error answers as exceptions."""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from strandline.client.answer_bodies import BodyCollector
from strandline.client.connection_settings import Settings, leaves_service
from strandline.client.errors import (
    ConnectionFailedError,
    ServiceError,
    UnexpectedAnswerError,
    make_error,
)
from strandline.client.request_building import Call, RequestBodyStream, VerbGroup
from strandline.client.retries import Retry, choose_final_error, read_retry_after

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    import httpx2

T = TypeVar("T")
C = TypeVar("C")

_CONNECT_SECONDS = 5.0
_REASON_CHARS = 300
_ORIGIN = re.compile(r"https?://[\w.:\[\]-]+", re.ASCII)


def is_wanted_status(call: Call[Any], status: int) -> bool:
    """Whether an answer with this status is what the call asks for, if it has no refusal."""
    return 200 <= status < 300 or status in call.also


def make_body_collector(settings: Settings, call: Call[Any], status: int) -> BodyCollector:
    """Where an answer's bytes go. A file may take longer than `timeout`, a piece may not."""
    place = call.path.partition("?")[0] if leaves_service(call) else settings.shown_url
    if call.download is None or not is_wanted_status(call, status):
        return BodyCollector(place, settings.timeout)
    return BodyCollector(place, None, file=call.download.path, max_bytes=call.download.max_bytes)


def parse_response(call: Call[T], response: httpx2.Response, content: bytes) -> T:
    """The answer. Raises ServiceError."""
    status = response.status_code
    if 200 <= status < 300 or (status in call.also and _parse_refusal(content) is None):
        if call.see_headers is not None:
            call.see_headers(response.headers)
        try:
            return call.parse(content)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswerError(
                f"The answer to {call.method} {call.path} cannot be read.", status=status
            ) from error
    if 300 <= status < 400 and _parse_refusal(content) is None:
        raise _make_redirect_error(status, response.headers.get("Location", ""))
    raise make_error(status, _parse_refusal(content), read_retry_after(response.headers))


def _make_redirect_error(status: int, location: str) -> ServiceError:
    """A redirect is not followed: the credential would go to another place."""
    try:
        parts = urlsplit(location)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        origin = ""
    place = f"to {origin}" if _ORIGIN.fullmatch(origin) else "elsewhere"
    advice = "It is not followed: give that address, if it is the service's."
    return UnexpectedAnswerError(f"The answer, {status}, leads {place}. {advice}", status=status)


def _parse_refusal(content: bytes) -> Mapping[str, Any] | None:
    """The member `error` of an error answer, if it has the service's shape. An error of JSON-RPC,
    whose code is a number, has it in `data`, unless it is one of the protocol itself."""
    try:
        body: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    error = cast("dict[str, object]", body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return None
    refusal = cast("dict[str, Any]", error)
    if not isinstance(refusal.get("code"), int):
        return refusal
    data: object = refusal.get("data")
    is_refusal = isinstance(data, dict) and "request_id" in data
    return cast("dict[str, Any]", data) if is_refusal else None


def convert_exchange_error(settings: Settings, call: Call[Any], error: Exception) -> Exception:
    """The exception for a failed exchange: an error of the client's own, but for a fault of the
    caller's, as a key that no header can carry."""
    import httpx2

    if isinstance(error, httpx2.TransportError):
        return _convert_transport_error(settings, error)
    if isinstance(error, httpx2.DecodingError):
        return UnexpectedAnswerError(f"The answer to {call.method} {call.path} cannot be decoded.")
    if leaves_service(call) or isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        place = "the address that the service named" if leaves_service(call) else settings.shown_url
        return ConnectionFailedError(f"{place} cannot be used ({error}).", details={"sent": False})
    return error


def _convert_transport_error(settings: Settings, error: httpx2.TransportError) -> ServiceError:
    import httpx2

    unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
    text = str(error)[:_REASON_CHARS]
    has_no_tls = "WRONG_VERSION_NUMBER" in text  # OpenSSL's word for an answer that is no TLS
    unusable = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)
    is_lasting = has_no_tls or _is_certificate_refusal(error) or isinstance(error, unusable)
    is_late = isinstance(error, httpx2.TimeoutException)
    if text.startswith("Illegal header"):
        text = "a header cannot be sent"  # the text shows its value
    hint = ": what answers there has no TLS, use http:// if that is meant" if has_no_tls else ""
    reason = "did not answer in time" if is_late else f"cannot be reached ({text}){hint}"
    return ConnectionFailedError(
        f"{settings.shown_url} {reason}.",
        details={"sent": not isinstance(error, unsent), "reason": type(error).__name__},
        retryable=not is_lasting,
    )


def _is_certificate_refusal(error: BaseException | None) -> bool:
    """Whether a certificate was refused, which another attempt does not change."""
    for _ in range(10):
        if error is None or isinstance(error, ssl.SSLCertVerificationError):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, ssl.SSLCertVerificationError)


def _make_http_client(make: Callable[[], C]) -> C:
    """An HTTP client, which reads the environment. Raises ConnectionFailedError."""
    import httpx2

    try:
        return make()
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        raise ConnectionFailedError(
            "The environment names a proxy or certificates that cannot be used: check HTTP_PROXY, "
            f"HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR ({error}).",
            details={"sent": False},
        ) from error


def _make_http_timeout(settings: Settings) -> httpx2.Timeout:
    import httpx2

    return httpx2.Timeout(settings.timeout, connect=min(_CONNECT_SECONDS, settings.timeout))


class SyncConnection:
    """Connections of a synchronous client. Safe for threads, and for processes that fork."""

    def __init__(self, settings: Settings, http: httpx2.Client | None = None) -> None:
        self.settings = settings
        self._http, self._is_own = http, http is None
        self._lock, self._process = threading.Lock(), os.getpid()

    def perform(self, call: Call[T], retry: Retry | None = None) -> T:
        """Send a request, again where that may help: as `retry` says, else as the settings do.
        Raises ServiceError."""
        retry = retry or self.settings.retry
        start, attempt = time.monotonic(), 0
        first_error: ServiceError | None = None
        while True:
            try:
                return self._send_once(call)
            except ServiceError as error:
                first_error = first_error or error
                elapsed = time.monotonic() - start
                pause = retry.choose_pause_seconds(call, error, attempt, elapsed)
                if pause is None:
                    raise choose_final_error(first_error, error)  # noqa: B904 - mostly the same one
            time.sleep(pause)
            attempt += 1

    def _send_once(self, call: Call[T]) -> T:
        import httpx2

        body = call.body
        try:
            with (
                self._get_http_client().stream(
                    call.method,
                    self.settings.make_call_url(call),
                    params=list(call.query) or None,
                    content=body if isinstance(body, bytes | None) else body.iterate_pieces(),
                    headers=self.settings.make_call_headers(call),
                    timeout=_make_http_timeout(self.settings),
                    follow_redirects=False,  # the key would go with it
                ) as response,
                make_body_collector(self.settings, call, response.status_code) as answer,
            ):
                for piece in response.iter_bytes():
                    answer.append_piece(piece)
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise convert_exchange_error(self.settings, call, error) from error
        return parse_response(call, response, answer.content)

    def _get_http_client(self) -> httpx2.Client:
        if self._is_own and self._process != os.getpid():
            # on its parent's connection a process could read the answers of others
            self._lock, self._http, self._process = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._http is None:
                import httpx2

                self._http = _make_http_client(httpx2.Client)
            return self._http

    def close(self) -> None:
        """Close the connections, if they are this object's own."""
        if self._http is not None and self._is_own and self._process == os.getpid():
            self._http.close()


class AsyncConnection:
    """Connections of an asynchronous client. Each event loop that uses it has connections of its
    own, because those of another one, or of one that ended, cannot be used."""

    def __init__(self, settings: Settings, http: httpx2.AsyncClient | None = None) -> None:
        self.settings, self._http = settings, http
        self._by_loop: dict[AbstractEventLoop, httpx2.AsyncClient] = {}
        self._lock = threading.Lock()

    async def perform(self, call: Call[T], retry: Retry | None = None) -> T:
        """Send a request, again where that may help: as `retry` says, else as the settings do.
        Raises ServiceError."""
        import asyncio

        retry = retry or self.settings.retry
        start, attempt = time.monotonic(), 0
        first_error: ServiceError | None = None
        while True:
            try:
                return await self._send_once(call)
            except ServiceError as error:
                first_error = first_error or error
                elapsed = time.monotonic() - start
                pause = retry.choose_pause_seconds(call, error, attempt, elapsed)
                if pause is None:
                    raise choose_final_error(first_error, error)  # noqa: B904 - mostly the same one
            await asyncio.sleep(pause)
            attempt += 1

    async def _send_once(self, call: Call[T]) -> T:
        import httpx2

        body = call.body
        try:
            async with self._get_http_client().stream(
                call.method,
                self.settings.make_call_url(call),
                params=list(call.query) or None,
                content=body if isinstance(body, bytes | None) else _read_stream_in_thread(body),
                headers=self.settings.make_call_headers(call),
                timeout=_make_http_timeout(self.settings),
                follow_redirects=False,  # the key would go with it
            ) as response:
                with make_body_collector(self.settings, call, response.status_code) as answer:
                    async for piece in response.aiter_bytes():
                        await _append_piece_without_blocking(answer, piece)
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise convert_exchange_error(self.settings, call, error) from error
        return parse_response(call, response, answer.content)

    def _get_http_client(self) -> httpx2.AsyncClient:
        if self._http is not None:
            return self._http
        import asyncio

        import httpx2

        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._by_loop:
                self._by_loop = self._list_open() | {loop: _make_http_client(httpx2.AsyncClient)}
            return self._by_loop[loop]

    def _list_open(self) -> dict[AbstractEventLoop, httpx2.AsyncClient]:
        """Those of loops that did not end: weak references would keep what refers to its loop."""
        return {loop: http for loop, http in self._by_loop.items() if not loop.is_closed()}

    async def close(self) -> None:
        """Close the connections of this event loop, and let go of those of loops that ended."""
        import asyncio

        with self._lock:
            self._by_loop = self._list_open()
            http = self._by_loop.pop(asyncio.get_running_loop(), None)
        if http is not None:
            await http.aclose()


async def _append_piece_without_blocking(answer: BodyCollector, piece: bytes) -> None:
    """Take a piece; the event loop does not wait for the disk."""
    import asyncio

    if answer.writes_to_file:
        await asyncio.to_thread(answer.append_piece, piece)
    else:
        answer.append_piece(piece)


async def _read_stream_in_thread(stream: RequestBodyStream) -> AsyncIterator[bytes]:
    """The bytes of a stream; the event loop does not wait for the disk."""
    import asyncio

    pieces = stream.iterate_pieces()
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


# Callers ------------------------------------------------------------------------------------------


class SyncCaller(VerbGroup):
    """Something whose verbs return answers."""

    def __init__(self, connection: SyncConnection, bound: Mapping[str, str] | None = None) -> None:
        super().__init__(bound)
        self.connection = connection

    def perform(self, call: Call[T]) -> T:
        """Send one request, again where that may help. Raises ServiceError."""
        return self.connection.perform(call)


class AsyncCaller(VerbGroup):
    """Something whose verbs return awaitables."""

    def __init__(self, connection: AsyncConnection, bound: Mapping[str, str] | None = None) -> None:
        super().__init__(bound)
        self.connection = connection

    async def perform(self, call: Call[T]) -> T:
        """Send one request, again where that may help. Raises ServiceError."""
        return await self.connection.perform(call)
