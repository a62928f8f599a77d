"""A server on loopback that answers as a broken or malicious one would."""

import contextlib
import functools
import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer: TypeAlias = tuple[int, dict[str, str], Iterator[bytes]]
_PIECE = b"x" * 65_536


class HostileServer(ThreadingHTTPServer):
    """Gives the answer of its `play` to everything, and counts the requests."""

    daemon_threads = True
    play: Callable[[], Answer]
    requests: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests += 1
        status, headers, pieces = self.server.play()
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client hung up, as it should
            self.send_response(status)
            for name, value in {
                "content-type": "application/json",
                "connection": "close",
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)

    do_GET = do_PUT = do_DELETE = do_POST


@contextlib.contextmanager
def serve_hostile() -> Generator[HostileServer]:
    """The server, until the block ends."""
    server = HostileServer(("127.0.0.1", 0), _Handler)
    server.requests = 0
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def whole(body: bytes, status: int = 200, **headers: str) -> Callable[[], Answer]:
    """One answer as it is."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: (status, {"content-length": str(len(body)), **named}, iter([body]))


def refusal(**error: Any) -> Callable[[], Answer]:
    """An error answer with these members."""
    return whole(json.dumps({"error": error}).encode(), error.pop("status", 400))


def endless() -> Answer:
    """A body that goes on for as long as somebody reads, at most 256 MiB."""
    return 200, {}, (_PIECE for _ in range(4096))


def drip() -> Answer:
    """A byte every twentieth of a second, for half a minute at most."""

    def pieces() -> Iterator[bytes]:
        for _ in range(600):
            yield b" "
            time.sleep(0.05)

    return 200, {"content-length": "600"}, pieces()


@functools.cache
def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1024 * 1024)
    return b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()


def bomb() -> Answer:
    """64 KiB that gzip makes 64 MiB of."""
    return 200, {"content-encoding": "gzip", "content-length": str(len(_bomb()))}, iter([_bomb()])


def broken_gzip() -> Answer:
    """Bytes that are not what the header says."""
    data = gzip.compress(b"{}")[:12] + b"broken"
    return 200, {"content-encoding": "gzip", "content-length": str(len(data))}, iter([data])
