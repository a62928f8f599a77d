"""How a connection is opened: how long it waits, and what bounds it once it is open."""

import socket
import threading
import time
from contextlib import ExitStack, closing

import pytest
from psycopg.conninfo import make_conninfo

from strandline.db.connection import connect
from strandline.errors import Unavailable
from tests.support import ScratchDatabase

pytestmark = pytest.mark.own_sessions
ASLEEP = 5.5
"""Seconds for which nobody is accepted: more than the five that bound an open connection."""


def full_listener(stack: ExitStack) -> socket.socket:
    """A listener whose accept queue is full: the kernel answers no further SYN."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    stack.enter_context(socket.create_connection(listener.getsockname()))
    return listener


def copy(source: socket.socket, target: socket.socket) -> None:
    """Bytes of one direction, until either end closes."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def accept_and_relay(listener: socket.socket, port: int, stack: ExitStack) -> None:
    """Empty the queue, and connect whoever comes next to this port."""
    listener.settimeout(2 * ASLEEP)  # a client that has given up comes no more
    stack.enter_context(listener.accept()[0])
    try:
        near = stack.enter_context(listener.accept()[0])
    except TimeoutError:
        return
    far = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()


def test_a_database_that_wakes_up_is_waited_for_longer_than_a_peer_that_vanished(
    scratch_db: ScratchDatabase,
) -> None:
    """Nobody here knows whether an Aurora that resumes accepts connections before it answers
    them. An attempt that nobody accepts waits its whole time; the bound of five seconds begins
    with the connection."""
    with ExitStack() as stack:
        listener = full_listener(stack)
        relay = threading.Timer(ASLEEP, accept_and_relay, (listener, scratch_db.server.port, stack))
        relay.start()
        stack.callback(relay.join)
        begin = time.monotonic()
        port = str(listener.getsockname()[1])
        url = make_conninfo(scratch_db.url, host="127.0.0.1", port=port)
        with closing(connect(url)) as connection:
            assert time.monotonic() - begin > ASLEEP
            assert connection.execute("select 1").fetchone() == (1,)


def test_an_open_connection_is_given_up_after_five_seconds_without_acknowledgement(
    scratch_db: ScratchDatabase,
) -> None:
    with closing(connect(scratch_db.url)) as connection:
        peer = socket.socket(fileno=connection.fileno())
        try:
            assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
        finally:
            peer.detach()


def test_an_attempt_ends_when_its_time_does() -> None:
    with ExitStack() as stack:
        port = full_listener(stack).getsockname()[1]
        begin = time.monotonic()
        with pytest.raises(Unavailable):
            connect(f"host=127.0.0.1 port={port} user=any dbname=any", seconds=2)
        assert 1.5 < time.monotonic() - begin < 4
