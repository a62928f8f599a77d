"""The ports of the service on one machine."""

import os
import socket

from strandline.errors import Misconfigured

HOST = "127.0.0.1"


def read_env_port(variable: str, default: int) -> int:
    """A port from the environment. Raises Misconfigured for text that is not one."""
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or int(text) > 65535:
        raise Misconfigured(
            f"{variable} must be a port from 0 (any free one) to 65535, not {text!r}."
        )
    return int(text)


def open_listening_socket(port: int) -> socket.socket:
    """Listen on a port of this machine. Raises Misconfigured if it is in use."""
    # Named TCP, or asyncio leaves Nagle's algorithm on: it holds an answer's body back until its
    # headers are acknowledged, 40 ms at each request of a connection that is kept.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)  # now, or two services could both bind the port
    except OSError as error:
        listener.close()
        raise Misconfigured(
            f"Port {port} is in use: stop the program that listens there, or set STRANDLINE_PORT."
        ) from error
    return listener
