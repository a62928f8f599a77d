"""Requests that wait: a tenant's and a function's are limited by leases in the database."""

import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from strandline.config import get_settings
from strandline.tenants import waits
from tests.strandline.personas.act_calls import ALICE, SONAS, make_sona, push
from tests.support import Gateway, Reply, ScratchDatabase

WAIT = 3
"""Seconds."""


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three waits of the function, so that two tenants reach it."""
    monkeypatch.setenv("STRANDLINE_FUNCTION_WAITS", "3")
    get_settings.cache_clear()


def stream(gateway: Gateway, key: str, sona: str, wait: float = WAIT) -> tuple[Reply, float]:
    """The answer, and after how many seconds it came."""
    start = time.monotonic()
    query = {"participants": ALICE, "wait": str(wait)}
    reply = gateway.call("GET", f"{SONAS}/{sona}/acts", key=key, query=query)
    assert reply.status == 200, reply.text
    return reply, time.monotonic() - start


@contextmanager
def waiting(
    gateway: Gateway, base: ScratchDatabase, key: str, sona: str, number: int
) -> Generator[list[Future[tuple[Reply, float]]]]:
    """So many more requests that wait by now."""
    ((before,),) = base.rows("select count(*) from waits")
    with ThreadPoolExecutor(number) as pool:
        requests = [pool.submit(stream, gateway, key, sona) for _ in range(number)]
        end = time.monotonic() + 10
        while base.rows("select count(*) from waits") != [(before + number,)]:
            assert time.monotonic() < end, "they do not wait"
            time.sleep(0.02)
        yield requests


def assert_refused(reply: Reply, seconds: float) -> None:
    assert seconds < 1
    assert reply.headers["Retry-After"] == str(waits.RETRY_SECONDS)
    assert reply.body["retry_after"] == waits.RETRY_SECONDS
    assert (reply.body["acts"], bool(reply.body["cursor"])) == ([], True)


def test_wait_limit_is_two_per_tenant(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key, other_key = gateway.key(), gateway.key("other")
    sona, other_sona = make_sona(gateway, key), make_sona(gateway, other_key)
    with waiting(gateway, scratch_db, key, sona, 2) as first:
        assert_refused(*stream(gateway, key, sona))
        reply, _ = stream(gateway, key, sona, wait=0)
        assert reply.body["retry_after"] is None, "it did not want to wait"
        with waiting(gateway, scratch_db, other_key, other_sona, 1):
            assert_refused(*stream(gateway, other_key, other_sona))  # three of the function
    for reply, seconds in (request.result() for request in first):
        assert seconds >= WAIT
        assert reply.body["retry_after"] is None
        assert "Retry-After" not in reply.headers
    assert scratch_db.rows("select count(*) from waits") == [(0,)]


def test_wait_delivers_act_to_waiting_and_retrying(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Any
) -> None:
    key = gateway.key()
    sona, event = make_sona(gateway, key), tell(key, "The buoy is out.", ALICE)["event_id"]
    with waiting(gateway, scratch_db, key, sona, 2) as requests:
        refused, _ = stream(gateway, key, sona)
        assert push(gateway, key, sona, event, None).status == 201
    assert [act["event_id"] for act in requests[0].result()[0].body["acts"]] == [event]
    query = {"participants": ALICE, "cursor": refused.body["cursor"], "wait": str(WAIT)}
    again = gateway.call("GET", f"{SONAS}/{sona}/acts", key=key, query=query)
    assert [act["event_id"] for act in again.body["acts"]] == [event]


def test_wait_lease_of_killed_instance_expires(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    sona = make_sona(gateway, key)
    scratch_db.rows(
        "insert into waits (tenant_id, function, expires_at)"
        " select 'acme', 'query', now() + interval '1 s' from generate_series(1, 2)"
    )
    assert_refused(*stream(gateway, key, sona))
    time.sleep(1.0)
    reply, seconds = stream(gateway, key, sona, wait=0.2)
    assert (reply.body["retry_after"], seconds >= 0.2) == (None, True)
    assert scratch_db.rows("select count(*) from waits") == [(0,)], "what expired is removed"


def test_wait_limit_holds_for_concurrent_requests(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    sona, start = make_sona(gateway, key), threading.Barrier(12)

    def begin() -> tuple[Reply, float]:
        start.wait()
        return stream(gateway, key, sona, 2)

    with ThreadPoolExecutor(12) as pool:
        requests = [pool.submit(begin) for _ in range(12)]
        replies = [request.result()[0] for request in requests]
    assert [reply.body["retry_after"] for reply in replies].count(None) == 2


def test_wait_failure_returns_lease(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    sona = make_sona(gateway, key)

    def fail(_seconds: float) -> None:
        raise RuntimeError

    monkeypatch.setattr(waits, "sleep_without_wait_lease", fail)
    reply = gateway.call(
        "GET", f"{SONAS}/{sona}/acts", key=key, query={"wait": "1", "participants": ALICE}
    )
    assert reply.status == 500
    assert scratch_db.rows("select count(*) from waits") == [(0,)]
