"""The batching writer, against a service in this process that loses answers: nothing is lost,
doubled or reordered, and nothing is dropped without a word."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from strandline import AsyncStrandline
from strandline.client import errors, outbox
from strandline.client.outbox import NotStoredError, UnstoredEvent
from tests.strandline.client.lossy_service import LossyService
from tests.strandline.client.scripted_transport import QUICK, URL


def expected(count: int) -> list[str]:
    return [f"event {n}" for n in range(count)]


@pytest.mark.parametrize("way", [LossyService.write, LossyService.write_later])
def test_writer_stores_each_event_once_in_order(way: Callable[[LossyService, int], None]) -> None:
    service = LossyService(losses=0.3)
    way(service, 3000)
    assert service.log == expected(3000)


def test_writer_without_keys_doubles_events() -> None:
    """Planted: a service that knows no keys."""
    service = LossyService(keeps_keys=False, losses=0.3)
    service.write(3000)
    assert len(service.log) > 3000
    assert set(service.log) == set(expected(3000))


def test_writer_full_queue_blocks_until_timeout() -> None:
    service = LossyService()
    service.open.clear()
    with service.client().writer(max_pending=3, linger=0) as writer:
        for n in range(3):
            writer.add(f"event {n}", user="alice")
        with pytest.raises(TimeoutError, match="3 events wait"):
            writer.add("one too many", user="alice", timeout=0.05)
        with pytest.raises(TimeoutError, match="3 events are not stored"):
            writer.flush(timeout=0.05)
        service.open.set()
        writer.add("event 3", user="alice", timeout=5)
    assert service.log == expected(4)
    with pytest.raises(RuntimeError, match="closed"):
        writer.add("too late", user="alice")


def test_writer_fills_batches_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    service = LossyService()
    service.open.clear()
    with service.client().writer(linger=0.2) as writer:
        for n in range(1200):
            writer.add(f"event {n}", user="alice")
        service.open.set()
        writer.flush()
        assert (writer.stored, writer.pending) == (1200, 0)
    assert max(service.batches) == 500
    assert len(service.batches) <= 4
    monkeypatch.setattr(outbox, "MAX_BATCH_BYTES", 1000)
    service.batches.clear()
    service.write(20)
    assert max(service.batches) < 12, "about 120 bytes each"


def test_writer_halves_too_large_batch() -> None:
    service = LossyService()
    service.max_batch = 7
    service.write(100)
    assert service.log == expected(100)
    service.max_batch = 0
    with pytest.raises(NotStoredError) as error:
        service.write(3)
    assert all(isinstance(failure.error, errors.TooLargeError) for failure in error.value.failures)


def test_writer_raises_refused_event_and_stores_rest() -> None:
    service = LossyService()
    service.refuse = lambda event: (409, "key_conflict") if event["content"] == "bad" else None
    events: list[UnstoredEvent] = []
    with service.client().writer(on_failure=events.append) as writer:
        key = writer.add("bad", user="alice", source_event_key="mine")
        writer.add("good", user="alice")
        with pytest.raises(NotStoredError, match=r"1 events were not stored.*'mine'") as error:
            writer.flush()
        writer.flush()  # it is said once
    assert key == "mine"
    (failure,) = error.value.failures
    assert failure is events[0]
    assert isinstance(failure.error, errors.KeyConflictError)
    assert (service.log, writer.stored) == (["good"], 1)


def test_writer_retries_retryable_item() -> None:
    service = LossyService()
    tries: list[str] = []

    def refuse(event: dict[str, Any]) -> tuple[int, str] | None:
        tries.append(event["content"])
        return (
            (503, "unavailable")
            if tries.count("event 1") < 3 and event["content"] == "event 1"
            else None
        )

    service.refuse = refuse
    service.write(3)
    assert sorted(service.log) == expected(3)
    assert tries.count("event 1") == 3
    assert tries.count("event 0") == 1


@pytest.mark.parametrize("way", ["thread", "task"])
def test_writer_gives_up_and_returns_every_event(way: str) -> None:
    async def write() -> None:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(LossyService(losses=1).later))
        client = AsyncStrandline(URL, "k", http=http, retry=QUICK)
        async with client.writer(give_up_after=0.05) as writer:
            for n in range(10):
                await writer.add(f"event {n}", user="alice")

    def write_from_thread() -> None:
        with LossyService(losses=1).client().writer(give_up_after=0.05) as writer:
            for n in range(10):
                writer.add(f"event {n}", user="alice")

    with pytest.raises(NotStoredError) as error:
        asyncio.run(write()) if way == "task" else write_from_thread()
    failures = error.value.failures
    assert [failure.event["content"] for failure in failures] == expected(10)
    assert {type(failure.error) for failure in failures} == {errors.ConnectionFailedError}


def test_writer_keeps_error_raised_in_block() -> None:
    service = LossyService()
    service.refuse = lambda _: (403, "forbidden")

    def fail() -> None:
        with service.client().writer() as writer:
            writer.add("x", user="alice")
            raise KeyError("the program's own")

    with pytest.raises(KeyError) as error:
        fail()
    assert "1 events were not stored" in error.value.__notes__[0]


def test_writer_refuses_wrong_fields_at_once() -> None:
    with LossyService().client().writer() as writer, pytest.raises(TypeError, match="colour"):
        writer.add("x", colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="max_pending"):
        LossyService().client().writer(max_pending=0)


_PROGRAM = """
import sys, httpx2
from strandline import Strandline
from tests.strandline.client.lossy_service import LossyService
from tests.strandline.client.scripted_transport import QUICK, URL
service = LossyService(losses={losses})
writer = service.client(QUICK).writer(linger=10, give_up_after=0.1)
for n in range(50):
    writer.add(f"event {{n}}", user="alice")
import atexit
atexit._run_exitfuncs()
print(len(service.log))
"""


_LEFT_OPEN = """
import asyncio, httpx2
from strandline import AsyncStrandline
from tests.strandline.client.lossy_service import LossyService
from tests.strandline.client.scripted_transport import URL
async def main():
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(LossyService().later))
    writer = AsyncStrandline(URL, "k", http=http).writer(linger=10)
    for n in range(3):
        await writer.add(f"event {n}", user="alice")
asyncio.run(main())
"""


@pytest.mark.integration
def test_writer_flushes_at_program_exit(repository: Path) -> None:
    def run(program: str) -> subprocess.CompletedProcess[str]:
        began = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-c", program],
            cwd=repository,
            env={"PYTHONPATH": "shared:.", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert time.monotonic() - began < 9, "it does not linger"
        return process

    assert run(_PROGRAM.format(losses=0)).stdout == "50\n"
    assert "3 events of a writer that nobody closed" in run(_LEFT_OPEN).stderr
    missing = run(_PROGRAM.format(losses=1))
    assert missing.stdout == "0\n"
    assert "50 events were not stored" in missing.stderr
