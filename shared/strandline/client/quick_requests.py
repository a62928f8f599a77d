"""One POST of JSON with little to import, for programs that start for a single question, as a hook
of a coding agent does: the client's imports take longer than the question.

It shares address, credential and errors with the client, and repeats nothing. Where a proxy or a
password in the address is needed, `needs_full_client` says so.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

from strandline.client.errors import ConnectionFailedError, UnexpectedAnswerError, make_error
from strandline.client.service_addresses import ServiceAddress

_PIECE = 65_536
_MAX_BYTES = 8 * 1024 * 1024
"""The service's own answers are smaller."""


def needs_full_client(address: ServiceAddress) -> bool:
    """Whether only the client can reach the service: by a password, or by a proxy, unless NO_PROXY
    names the host, a domain of it or `*`. What else NO_PROXY can say the client understands."""
    has_proxy = any(map(_read_variable, (f"{address.scheme}_proxy", "all_proxy")))
    return address.has_user or (has_proxy and not _is_host_excepted(address.host))


def _read_variable(name: str) -> str:
    """A variable of the environment that programs write in small letters or in capitals."""
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _is_host_excepted(host: str) -> bool:
    names = [name.strip().lower() for name in _read_variable("no_proxy").split(",")]
    suffix = f".{host.lower()}"
    return "*" in names or any(
        suffix.endswith(f".{name.lstrip('.')}") for name in names if name.strip(".")
    )


class _Deadline:
    """How long a request may take in all, from now on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def limit(self, connection: socket.socket, most: float = 60.0) -> None:
        """Let the next step of a connection take what remains. Raises TimeoutError."""
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        connection.settimeout(min(remaining, most))


def post_quickly(
    address: ServiceAddress,
    key: str | None,
    path: str,
    body: Mapping[str, Any],
    *,
    connect_seconds: float,
    seconds: float,
) -> dict[str, Any]:
    """The answer to one request, which takes at most `seconds`, and of these `connect_seconds` to
    find the service. Raises ServiceError. The system's search for a host's name has a time limit of
    its own."""
    deadline = _Deadline(seconds)
    try:
        with socket.create_connection((_encode_host(address), address.port), connect_seconds) as (
            plain
        ):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            deadline.limit(plain)
            with _wrap_for_tls(plain, address) as connection:
                deadline.limit(connection)
                connection.sendall(_format_request(address, key, path, body))
                status, content = _read_response(connection, deadline)
    except (OSError, ValueError) as error:
        raise ConnectionFailedError(
            f"{address.host} cannot be reached ({type(error).__name__}: {error}).", retryable=True
        ) from error
    return _parse_object(status, content)


def _encode_host(address: ServiceAddress) -> Any:
    """The host as bytes, where it can be: Python imports tables of Unicode to look a text up, which
    takes longer than the connection."""
    return address.host.encode() if address.host.isascii() else address.host


def _wrap_for_tls(plain: socket.socket, address: ServiceAddress) -> socket.socket:
    if address.scheme == "http":
        return plain
    import ssl

    if sys.platform == "darwin":  # the system's certificates, as the client has them
        import truststore

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=address.host)


def _format_request(
    address: ServiceAddress, key: str | None, path: str, body: Mapping[str, Any]
) -> bytes:
    content = json.dumps(body).encode()
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"POST {address.path}{path} HTTP/1.1",
        f"Host: {host}:{address.port}",
        "User-Agent: strandline-client",
        "Accept: application/json",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Connection: close",
        *([f"X-API-Key: {key}"] if key else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + content


def _read_response(connection: socket.socket, deadline: _Deadline) -> tuple[int, bytes]:
    """Status and body. The connection ends with the answer. Raises ValueError for what is no
    answer of HTTP, and where it is longer than the service's answers are."""
    data = bytearray()
    while piece := connection.recv(_PIECE):
        data += piece
        if len(data) > _MAX_BYTES:
            raise ValueError("the answer is too long")
        if _has_whole_body(data):
            break
        deadline.limit(connection)
    head, separator, content = bytes(data).partition(b"\r\n\r\n")
    status_line, _, fields = head.partition(b"\r\n")
    version, _, status = status_line.partition(b" ")
    if not separator or not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
        raise ValueError("the answer is not HTTP")
    length = _find_header(fields, b"content-length")
    if _find_header(fields, b"transfer-encoding"):
        content = _join_chunks(content)
    elif length is not None and len(content) < int(length):
        raise ValueError("the answer ends too soon")
    return int(status[:3]), content


def _find_header(fields: bytes, name: bytes) -> bytes | None:
    for line in fields.split(b"\r\n"):
        title, _, value = line.partition(b":")
        if title.strip().lower() == name:
            return value.strip()
    return None


def _has_whole_body(data: bytearray) -> bool:
    """Whether all bytes that the answer announces are there; a proxy may keep the connection."""
    end = data.find(b"\r\n\r\n")
    length = _find_header(bytes(data[:end]), b"content-length") if end >= 0 else None
    return length is not None and length.isdigit() and len(data) - end - 4 >= int(length)


def _join_chunks(content: bytes) -> bytes:
    """The body of an answer that is sent in chunks. Raises ValueError where one is missing."""
    pieces: list[bytes] = []
    while True:
        line, separator, content = content.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not separator or len(content) < size:
            raise ValueError("the answer ends too soon")
        if size == 0:
            return b"".join(pieces)
        pieces.append(content[:size])
        content = content[size + 2 :]


def _parse_object(status: int, content: bytes) -> dict[str, Any]:
    try:
        answer: object = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    body = cast("dict[str, Any]", answer) if isinstance(answer, dict) else None
    if status == 200 and body is not None:
        return body
    if 200 <= status < 400:
        raise UnexpectedAnswerError("The answer cannot be read.", status=status)
    refusal: object = body.get("error") if body else None
    raise make_error(
        status, cast("dict[str, Any]", refusal) if isinstance(refusal, dict) else None, None
    )
