"""How a connection is opened: how long it waits, and what bounds it once it is open."""

import itertools
import socket
import struct
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from strandline.admin import prepare_release
from strandline.db import connection as db_connection
from strandline.db.connection import connect
from strandline.db.pipeline import call_by_libpq
from strandline.errors import LoginRefused, Unavailable
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
    """Empty the queue, and connect the one who comes next to this port."""
    listener.settimeout(2 * ASLEEP)  # a client that has given up comes no more
    stack.enter_context(listener.accept()[0])
    try:
        near = stack.enter_context(listener.accept()[0])
    except TimeoutError:
        return
    far = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()


def test_connection_waits_for_database_that_wakes_up(
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


def test_connection_drops_silent_peer_after_five_seconds(
    scratch_db: ScratchDatabase,
) -> None:
    with closing(connect(scratch_db.url)) as connection:
        peer = socket.socket(fileno=connection.fileno())
        try:
            assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
        finally:
            peer.detach()


def test_connection_attempt_ends_at_its_time_limit() -> None:
    with ExitStack() as stack:
        port = full_listener(stack).getsockname()[1]
        begin = time.monotonic()
        with pytest.raises(Unavailable):
            connect(f"host=127.0.0.1 port={port} user=any dbname=any", seconds=2)
        assert 1.5 < time.monotonic() - begin < 4


def refuse(near: socket.socket, words: str) -> None:
    """Answer a login as a server that lets nobody in."""
    while near.recv(8)[4:] == b"\x04\xd2\x16\x2f":  # a request for TLS
        near.sendall(b"N")
    near.recv(65536)
    near.sendall(make_message(b"E", "FATAL", "28000", words))
    near.close()


def make_message(kind: bytes, severity: str, sqlstate: str, words: str) -> bytes:
    """An error or a notice, as the server sends it."""
    fields = b"".join(
        kind + text.encode() + b"\0"
        for kind, text in ((b"S", severity), (b"V", severity), (b"C", sqlstate), (b"M", words))
    )
    return kind + struct.pack("!i", len(fields) + 5) + fields + b"\0"


@contextmanager
def resuming_server(words: str, refusals: int, port: int) -> Generator[str]:
    """A server that refuses the first logins in these words, then is the one at `port`."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            for n in itertools.count():
                try:
                    near = stack.enter_context(listener.accept()[0])
                except OSError:
                    return
                if n < refusals:
                    refuse(near, words)
                    continue
                far = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield str(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


NO_ENTRY = 'no pg_hba.conf entry for host "10.0.0.7", user "strandline_app", SSL encryption'


def test_connection_to_resuming_database_is_unavailable(scratch_db: ScratchDatabase) -> None:
    with resuming_server(NO_ENTRY, 2, scratch_db.server.port) as port:
        url = make_conninfo(scratch_db.url, host="127.0.0.1", port=port, sslmode="disable")
        for _ in range(2):
            with pytest.raises(Unavailable, match="still starting") as refusal:
                connect(url)
            assert (refusal.value.code, refusal.value.retryable) == ("unavailable", True)
        with closing(connect(url)) as connection:
            assert connection.execute("select 1").fetchone() == (1,)


def test_connection_refused_login_raises_login_refused(scratch_db: ScratchDatabase) -> None:
    for words in (
        'password authentication failed for user "a"',
        "PAM authentication failed",
        "The IAM authentication failed for the role a.",
    ):
        with resuming_server(words, 1, scratch_db.server.port) as port:
            url = make_conninfo(scratch_db.url, host="127.0.0.1", port=port, sslmode="disable")
            with pytest.raises(LoginRefused, match="password"):
                connect(url)


def test_connection_lost_while_sending_is_closed(scratch_db: ScratchDatabase) -> None:
    """The server says that another session crashed, and goes: libpq's error has no SQLSTATE, and
    libpq takes the connection for open."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ends: list[socket.socket] = []

        def serve() -> None:
            near = stack.enter_context(listener.accept()[0])
            far = stack.enter_context(
                socket.create_connection(("127.0.0.1", scratch_db.server.port))
            )
            ends.append(near)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        url = make_conninfo(scratch_db.url, host="127.0.0.1", port=port, sslmode="disable")
        connection = connect(url)
        ends[0].sendall(make_message(b"N", "WARNING", "57P02", "crash of another process"))
        ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends[0].shutdown(socket.SHUT_RDWR)
        ends[0].close()
        time.sleep(0.1)
        with pytest.raises(psycopg.OperationalError, match="lost"):
            call_by_libpq(connection, b"select $1::text", [b"x"], is_prepared=True)
        assert connection.closed


def test_connection_of_release_waits_until_deadline(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_release, "_RETRY_PAUSES", (0.01, 0.02))
    with resuming_server(NO_ENTRY, 8, scratch_db.server.port) as port:
        url = make_conninfo(scratch_db.owner_url, host="127.0.0.1", port=port, sslmode="disable")
        env = {"STRANDLINE_OWNER_DATABASE_URL": url}
        with pytest.raises(Unavailable):
            prepare_release.prepare_release(env, time.monotonic())
        assert prepare_release.prepare_release(env, time.monotonic() + 30).left == []
    refused = 'password authentication failed for user "strandline_owner"'
    with resuming_server(refused, 8, scratch_db.server.port) as port:
        url = make_conninfo(scratch_db.owner_url, host="127.0.0.1", port=port, sslmode="disable")
        with pytest.raises(LoginRefused):
            prepare_release.prepare_release(
                {"STRANDLINE_OWNER_DATABASE_URL": url}, time.monotonic() + 30
            )


def test_connection_to_absent_database_holds_half_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it took longer than one needs to wake up: the requests of a stage whose database is away
    would hold all instances of its functions."""
    now, frozen, waits, is_away = [1000.0], [0.0], list[float](), [True]

    def wait(url: str, auth: str, deadline: float | None) -> Any:
        del url, auth
        if not is_away:
            return "connection"
        seconds = 20.0 if deadline is None else min(20.0, deadline - now[0])
        waits.append(seconds)
        now[0] += seconds
        raise Unavailable

    monkeypatch.setattr(db_connection, "_connect_and_check_role", wait)
    monkeypatch.setattr(db_connection.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(db_connection, "read_uptime", lambda: now[0] + frozen[0])
    connector = db_connection.RestrictedConnector("url", "iam")

    def ask(seconds: float) -> float:
        """How long it is held."""
        began_at = now[0]
        with pytest.raises(Unavailable):
            connector.connect(began_at + seconds)
        return now[0] - began_at

    assert [ask(6), ask(25)] == [6, 20], "it may wake up"
    for _ in range(3):
        assert ask(25) == 0
        now[0] += 5
        assert ask(25) == 5
    frozen[0] += 5
    is_away.clear()
    assert connector.connect(None) == "connection"
    is_away.append(True)
    assert ask(25) == 20
