"""Promise: a database that is away, or goes away at any moment of a request, is a 503 that says to
try again; never a wrong acknowledgement; and the process serves again when it is back."""

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import LiteralString

import psycopg
import pytest

from strandline.db.database import Database
from strandline.embeddings.embedder import Embedder
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.prove.append_history import stored_in
from tests.support import (
    KEY_SECRET,
    TEMPLATE,
    Gateway,
    Reply,
    ScratchDatabase,
    user_message,
    wire_handlers,
)

EVENTS, LIST = "/api/v1/events", "/memories/list"


def is_away(reply: Reply) -> bool:
    """Says that it is worth to try again, and when."""
    assert reply.status == 503, reply.text
    assert reply.headers["Retry-After"].isdecimal()
    assert reply.error["retryable"] is True
    assert reply.error["code"] in ("unavailable", "outcome_unknown")
    return reply.error["code"] == "unavailable"


@pytest.fixture
def frail(
    start_durable_server: Callable[..., EmbeddedPostgres],
    aws: LocalAws,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[EmbeddedPostgres, Gateway]]:
    """A gateway as the fixture of this name, on a server that may be killed."""
    server = start_durable_server()
    url = ScratchDatabase(server, TEMPLATE).url
    environment = {
        "STRANDLINE_DATABASE_URL": url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
    }
    services = wire_handlers(environment, monkeypatch, embedder)
    gateway = Gateway(url)
    yield server, gateway
    for database in [gateway.database, *(service.database for service in services)]:
        database.close()


@pytest.mark.parametrize(
    "pause",
    [pytest.param(0.0, id="in use", marks=pytest.mark.proof), pytest.param(1.2, id="at rest")],
)
def test_database_outage_is_503_and_ends_by_itself(
    frail: tuple[EmbeddedPostgres, Gateway], pause: float
) -> None:
    """Every route says 503 with Retry-After while the database is away, for a connection that was
    just used and for one that rested; and the same process serves again when it is back."""
    server, gateway = frail
    new_key, never_seen = gateway.key(user="user:alice"), gateway.key(user="user:alice")
    body, key = user_message("The buoy is out.", "user:alice"), {"Idempotency-Key": "k"}
    first = gateway.call("POST", EVENTS, body, key=new_key, headers={"Idempotency-Key": "first"})
    gateway.call("GET", LIST, key=new_key)
    server.kill()
    time.sleep(pause)
    is_away(
        gateway.call("POST", EVENTS, body, key=new_key, headers=key)
    )  # perhaps the break itself
    for token in (new_key, never_seen):
        assert is_away(gateway.call("POST", EVENTS, body, key=token, headers=key))
        is_away(gateway.call("GET", LIST, key=token))
        assert is_away(gateway.call("GET", LIST, key=token))
        assert is_away(gateway.call("POST", "/api/v1/recall", {"query": "buoy"}, key=token))
    health = gateway.call("GET", "/api/v1/health", key=new_key)
    assert (health.status, health.body["dependencies"]["database"]) == (503, "unavailable")
    assert health.headers["Retry-After"].isdecimal()
    assert gateway.call("GET", "/health").status == 200
    server.start()
    back = time.monotonic()
    again = gateway.call("POST", EVENTS, body, key=new_key, headers=key)
    assert (again.status, again.body["seq"]) == (201, first.body["seq"] + 1)
    assert gateway.call("POST", EVENTS, body, key=never_seen, headers=key).text == again.text
    page = gateway.call("GET", LIST, key=new_key)
    assert page.status == 200
    assert len(page.body["events"]) == 2
    assert gateway.call("POST", "/api/v1/recall", {"query": "buoy"}, key=new_key).status == 200
    print(f"\nserving again {time.monotonic() - back:.2f} s after the database")
    assert time.monotonic() - back < 5


@pytest.mark.proof
def test_database_outage_during_request_leaves_outcome_unknown(
    frail: tuple[EmbeddedPostgres, Gateway],
) -> None:
    """Killed while the append waits for a lock: the retry with the same key stores it once."""
    server, gateway = frail
    token, headers = gateway.key(user="user:alice"), {"Idempotency-Key": "k"}
    body = user_message("The buoy is out.", "user:alice")
    assert (
        gateway.call("POST", EVENTS, user_message("First.", "user:alice"), key=token).status == 201
    )
    base = ScratchDatabase(server, TEMPLATE)

    def send() -> Reply:
        return gateway.call("POST", EVENTS, body, key=token, headers=headers)

    with ThreadPoolExecutor(1) as pool, closing(psycopg.connect(base.admin_url)) as holder:
        holder.execute("select from scopes for update")
        waiting = pool.submit(send)
        _await(base, "wait_event_type = 'Lock'")
        server.kill()
        reply = waiting.result(20)
        server.start()
        again = pool.submit(send).result(20)
    is_away(reply)
    assert reply.error["code"] == "outcome_unknown"
    assert again.status == 201
    assert [event.content for event in stored_in(base)] == ["First.", "The buoy is out."]


_AT_COMMIT = """
create function at_commit() returns trigger language plpgsql as $$
begin {} return null; end $$;
create constraint trigger at_commit after insert on events deferrable initially deferred
for each row execute function at_commit();
"""


@pytest.mark.proof
def test_database_outage_during_commit_is_not_acknowledged(
    frail: tuple[EmbeddedPostgres, Gateway],
) -> None:
    """Killed in the middle of COMMIT, when the append function has long given its receipt."""
    server, gateway = frail
    base, token = ScratchDatabase(server, TEMPLATE), gateway.key(user="user:alice")
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute(_AT_COMMIT.format("perform pg_sleep(20);").encode())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            gateway.call,
            "POST",
            EVENTS,
            user_message("The buoy is out.", "user:alice"),
            key=token,
            headers={"Idempotency-Key": "k"},
        )
        _await(base, "wait_event = 'PgSleep'")
        server.kill()
        reply = waiting.result(20)
    is_away(reply)
    assert reply.error["code"] == "outcome_unknown"
    server.start()
    assert stored_in(base) == []


def test_database_outage_failed_commit_is_not_acknowledged(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """The receipt was read already, and then COMMIT itself is refused: nothing is stored, and the
    answer says so."""
    token = gateway.key(user="user:alice")
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
        administrator.execute(_AT_COMMIT.format("raise 'refused';").encode())
    reply = gateway.call("POST", EVENTS, user_message("The buoy is out.", "user:alice"), key=token)
    assert reply.status >= 500
    assert stored_in(scratch_db) == []
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
        administrator.execute("drop trigger at_commit on events")
    again = gateway.call("POST", EVENTS, user_message("The buoy is out.", "user:alice"), key=token)
    assert (again.status, again.body["seq"]) == (201, 1)


def _await(base: ScratchDatabase, waiting: LiteralString) -> None:
    """Return once a session waits so."""
    deadline = time.monotonic() + 10
    while not base.rows("select from pg_stat_activity where " + waiting):
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)


@contextmanager
def a_way_that_ends_at_the_first_statement(port: int) -> Generator[int]:
    """A port that leads to the server at `port` until a client that has logged in says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def pump(source: socket.socket, target: socket.socket, until: bytes) -> None:
            while (data := source.recv(65536)) and data[:1] not in until:
                target.sendall(data)
            source.shutdown(socket.SHUT_RDWR)
            target.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                back = threading.Thread(target=pump_back, args=(server, client))
                back.start()
                pump(client, server, b"QP")  # Query, Parse
                back.join(10)

        def pump_back(server: socket.socket, client: socket.socket) -> None:
            while data := server.recv(65536):
                client.sendall(data)

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(serve)
            yield listener.getsockname()[1]
            served.result(20)


def test_database_outage_after_login_is_unavailable(
    scratch_db: ScratchDatabase,
) -> None:
    """The first statement on a new connection is ours, not the caller's: it broke all the same."""
    port = scratch_db.server.port
    with a_way_that_ends_at_the_first_statement(port) as way:
        database = Database(scratch_db.url.replace(f":{port}/", f":{way}/"))
        with closing(database), pytest.raises(Unavailable):
            database.connection()
