"""`strandline console`: opens the console in a browser, with the key that the commands use."""

from __future__ import annotations

import secrets
import threading
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import quote

import click

from strandline.commands.invocation import Invocation
from strandline.commands.output import print_text

_SECONDS = 30.0
"""How long the browser may take to fetch the address with the key."""
_POLL_SECONDS = 0.2


class AddressHandover:
    """Gives one address, once, to whom asks for a secret path on this machine. A browser is started
    with its address as an argument, which other accounts can read, and the address with the key is
    none of their business."""

    def __init__(self, address: str) -> None:
        self._path = f"/{secrets.token_urlsafe(24)}"
        self.is_done = threading.Event()
        self._server = HTTPServer(("127.0.0.1", 0), self._make_handler(address))
        self._server.timeout = _POLL_SECONDS

    @property
    def url(self) -> str:
        """Where the address can be fetched."""
        return f"http://127.0.0.1:{self._server.server_port}{self._path}"

    def serve_once(self) -> None:
        """Wait until the address was fetched, at most half a minute."""
        end = time.monotonic() + _SECONDS
        with self._server:
            while not self.is_done.is_set() and time.monotonic() < end:
                self._server.handle_request()

    def _make_handler(self, address: str) -> type[BaseHTTPRequestHandler]:
        secret_path, is_done = self._path.encode(), self.is_done

        class Handler(BaseHTTPRequestHandler):
            """Redirects the first request of the secret path. A fragment stays in the browser."""

            def do_GET(self) -> None:
                """Answer one request."""
                is_right = secrets.compare_digest(self.path.encode(), secret_path)
                gives = is_right and not is_done.is_set()
                self.send_response(302 if gives else 404)
                if gives:
                    self.send_header("Location", address)
                self.send_header("Cache-Control", "no-store")
                self.send_header("Content-Length", "0")
                self.end_headers()
                if gives:
                    is_done.set()

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: the path is a secret."""

        return Handler


@click.command("console")
@click.pass_obj
def open_console(command: Invocation) -> int:
    """Open the console in a browser, with the key that the commands use.

    The key goes from this program to the browser; the page shows which it is before it uses it.
    """
    endpoint = command.find_endpoint()
    page = f"{endpoint.url.rstrip('/')}/console"
    if endpoint.key is None:
        is_open = webbrowser.open(page)
    else:
        handover = AddressHandover(f"{page}#key={quote(endpoint.key, safe='')}")
        server = threading.Thread(target=handover.serve_once, daemon=True)
        server.start()
        is_open = webbrowser.open(handover.url)
        if is_open:  # the browser begins on its own time
            server.join()
            is_open = handover.is_done.is_set()
        handover.is_done.set()
        server.join()
    if is_open:
        print_text(f"The console is open at {page}")
        return 0
    print_text(f"No browser opened it. Open {page} and enter the key.", err=True)
    return 1


COMMANDS = (open_console,)
