"""HTTP to a model's endpoint, with one time limit for a whole exchange and a limit on the answer's
size."""

import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

# httpx2 is openai's own transport, and httpcore2 is the layer below it.
import httpcore2
import httpx2
import openai

_CHUNK_BYTES = 64 * 1024
"""Bytes of a request that are sent between two checks of the time limit."""


class UnusableAnswer(Exception):
    """An answer that is rejected. Its message continues a sentence that begins with "The
    answer"."""


class _ExchangeLimits(NamedTuple):
    deadline: float
    """In time.monotonic() seconds."""
    max_bytes: int


# A synchronous client waits in the calling thread, so a context variable reaches the transport.
_limits: ContextVar[_ExchangeLimits | None] = ContextVar("limits", default=None)


@contextmanager
def limit_exchange_time_and_size(seconds: float, max_bytes: int) -> Generator[None]:
    """Limit the exchange in this block, from connecting to the last byte of the body.

    `seconds` bounds all of it but the look-up of the host's name; `max_bytes` bounds the body, an
    error's too. When the time is over the client raises its own time-out errors. Raises
    UnusableAnswer for an answer that is longer or compressed.
    """
    token = _limits.set(_ExchangeLimits(time.monotonic() + seconds, max_bytes))
    try:
        yield
    finally:
        _limits.reset(token)


def make_limited_http_client() -> httpx2.Client:
    """A client that obeys `limit_exchange_time_and_size` and follows no redirect, which could carry
    the request to an address that the settings do not name."""
    client = openai.DefaultHttpxClient(
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_limit_response_size]},
    )
    # Neither the client nor its transport accepts a network backend, and with a custom transport
    # the environment's proxies would be lost.
    transports = (client._transport, *client._mounts.values())  # pyright: ignore[reportPrivateUsage]
    for transport in transports:
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool  # pyright: ignore[reportPrivateUsage]
            backend = pool._network_backend  # pyright: ignore[reportPrivateUsage]
            pool._network_backend = _TimedNetworkBackend(backend)  # pyright: ignore[reportPrivateUsage]
    return client


class _SizeLimitedBody(httpx2.SyncByteStream):
    """A response body, an error's too, that ends at the size limit."""

    def __init__(self, stream: httpx2.SyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > self._max_bytes:
                raise UnusableAnswer(f"is over {self._max_bytes} bytes.")
            yield piece

    def close(self) -> None:
        self._stream.close()


def _limit_response_size(response: httpx2.Response) -> None:
    """Check a response before its body is read. A body compressed without being asked for could
    expand to a thousand times its size."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise UnusableAnswer("is compressed, which was not requested.")
    assert isinstance(response.stream, httpx2.SyncByteStream), "the client is a synchronous one"
    if limits_in_force := _limits.get():
        response.stream = _SizeLimitedBody(response.stream, limits_in_force.max_bytes)


def _compute_wait_seconds_left(
    timeout: float | None, timeout_error: Callable[[str], Exception]
) -> float | None:
    """The seconds left for one wait. The transport limits each wait alone, and an answer that
    arrives byte by byte has many."""
    limits_in_force = _limits.get()
    if limits_in_force is None:
        return timeout
    seconds_left = limits_in_force.deadline - time.monotonic()
    if seconds_left <= 0:
        raise timeout_error("The time for the exchange is over.")
    return seconds_left if timeout is None else min(seconds_left, timeout)


class _TimedNetworkStream(httpcore2.NetworkStream):
    """A connection whose every wait is limited to what is left of the exchange's time."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(
            max_bytes, _compute_wait_seconds_left(timeout, httpcore2.ReadTimeout)
        )

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _CHUNK_BYTES):
            chunk = buffer[start : start + _CHUNK_BYTES]
            self._stream.write(chunk, _compute_wait_seconds_left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        seconds_left = _compute_wait_seconds_left(timeout, httpcore2.ConnectTimeout)
        return _TimedNetworkStream(
            self._stream.start_tls(ssl_context, server_hostname, seconds_left)
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _TimedNetworkBackend(httpcore2.NetworkBackend):
    """Connects within what is left of the exchange's time."""

    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        # One address at a time: by default the backend gives each address of a host the whole time.
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failure: Exception = httpcore2.ConnectError("The host has no address.")
        for address in dict.fromkeys(str(entry[4][0]) for entry in addresses):
            seconds_left = _compute_wait_seconds_left(timeout, httpcore2.ConnectTimeout)
            try:
                return _TimedNetworkStream(
                    self._backend.connect_tcp(
                        address, port, seconds_left, local_address, socket_options
                    )
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure
