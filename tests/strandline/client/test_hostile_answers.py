"""Whatever a server answers: the client takes a bounded part of it, ends, and raises its own
errors only. Of both clients."""

import asyncio
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from strandline import AsyncStrandline, ServiceError, Strandline
from strandline.client import errors
from strandline.client.answer_bodies import MAX_ANSWER_BYTES
from strandline.client.errors import make_error
from strandline.client.retries import Retry
from tests.strandline.client.hostile_server import (
    Answer,
    HostileServer,
    bomb,
    broken_gzip,
    drip,
    endless,
    refusal,
    serve_hostile,
    whole,
)

SCOPE: dict[str, Any] = {
    "scope_id": "44df5d0a-ac96-874b-bcce-b302099a8057",
    "participants": ["user:alice"],
    "last_seq": 5,
    "created_at": "2026-05-08T13:56:00Z",
}
EXPORT: dict[str, Any] = {
    "export_id": "44df5d0a-ac96-874b-bcce-b302099a8057",
    "expires_at": "2026-05-08T13:56:00Z",
    "bytes": 10,
    "sha256": "0" * 64,
    "lines": 1,
    "counts": {},
}
QUICK = Retry(seconds=0)
DEEP = 200_000
Client: TypeAlias = Strandline | AsyncStrandline


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with serve_hostile() as server:
        yield server


async def _with_async_client(url: str, timeout: float, ask: Callable[[Any], Any]) -> Any:
    async with AsyncStrandline(url, "k", timeout=timeout, retry=QUICK) as client:
        answer = ask(client)
        return [item async for item in answer] if hasattr(answer, "__aiter__") else await answer


def ask_either(
    url: str, kind: str, ask: Callable[[Any], Any] = lambda c: c.recall("x"), timeout: float = 5
) -> Any:
    """The answer to a question of the blocking or the asynchronous client."""
    if kind == "async":
        return asyncio.run(_with_async_client(url, timeout, ask))
    with Strandline(url, "k", timeout=timeout, retry=QUICK) as client:
        answer = ask(client)
        return [*answer] if hasattr(answer, "__next__") else answer


UNREADABLE: dict[str, Callable[[], Answer]] = {
    "deep": whole(b"[" * DEEP),
    "null": whole(b"null"),
    "wrong types": whole(b'{"known": [], "hits": "x"}'),
    "no JSON": whole(b"\xff\xfe<html>"),
    "endless": endless,
    "bomb": bomb,
    "broken gzip": broken_gzip,
}


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_client_refuses_unreadable_answer(server: HostileServer, name: str, kind: str) -> None:
    server.play = UNREADABLE[name]
    if name == "bomb":
        bomb()  # packed before memory is counted
    tracemalloc.start()
    try:
        with pytest.raises(errors.UnexpectedAnswerError):
            ask_either(server.url, kind)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_ANSWER_BYTES


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_client_times_out_on_dripping_answer(server: HostileServer, kind: str) -> None:
    server.play = drip
    start = time.monotonic()
    with pytest.raises(errors.ConnectionFailedError, match="did not answer in time"):
        ask_either(server.url, kind, timeout=0.3)
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_client_reads_large_answer_within_limit(server: HostileServer, kind: str) -> None:
    text = json.dumps({"status": "ok", "x": "y" * (MAX_ANSWER_BYTES - 100)}).encode()
    server.play = whole(text)
    assert len(ask_either(server.url, kind, lambda c: c.openapi())["x"]) > MAX_ANSWER_BYTES - 200


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_client_refuses_repeated_cursor(server: HostileServer, kind: str) -> None:
    cursors = iter(["a", "b", "c", *["a", "b", "c"] * 50])
    server.play = lambda: whole(json.dumps({"scopes": [], "next_cursor": next(cursors)}).encode())()
    with pytest.raises(errors.UnexpectedAnswerError, match="cursor"):
        ask_either(server.url, kind, lambda c: c.scopes())
    assert server.requests == 4


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_client_refuses_event_feed_without_progress(server: HostileServer, kind: str) -> None:
    event = {
        "event_id": SCOPE["scope_id"],
        "scope_id": SCOPE["scope_id"],
        "cid": "b",
        "seq": 1,
        "participants": ["user:alice"],
        "role": "user",
        "type": "message",
        "content": "x",
        "recorded_at": SCOPE["created_at"],
        "origin": "user",
        "trust": "user",
        "speaker": "user:alice",
        "channel": "http",
        "source_event_key": "k",
    }
    page = {"events": [event], "next_after_seq": 0, "last_seq": 5, "unreadable": 0}
    server.play = whole(json.dumps(page).encode())
    with pytest.raises(errors.UnexpectedAnswerError):
        ask_either(server.url, kind, lambda c: c.events(SCOPE["scope_id"], user="alice"))
    assert server.requests <= 2


REFUSALS: dict[str, tuple[Callable[[], Answer], type[ServiceError]]] = {
    "deep": (whole(b'{"error":' * DEEP, 500), errors.InternalError),
    "odd members": (refusal(code=["x"], message={"a": 1}, details="x", request_id=5), ServiceError),
    "no message": (refusal(code={}, message=None, details=[["a"]], retryable="y"), ServiceError),
    "odd field": (
        refusal(code="invalid_field", details={"field": ["a"]}),
        errors.InvalidFieldError,
    ),
    "JSON-RPC": (refusal(status=503, code=7, data={"request_id": 1, "details": 3}), ServiceError),
    "long pause": (
        whole(b'{"error":{}}', 429, Retry_After="1" + "0" * 400),
        errors.ThrottledError,
    ),
    "a list": (whole(b'{"error":[]}', 404), errors.NotFoundError),
}


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("name", REFUSALS)
def test_client_reads_error_of_odd_shape(server: HostileServer, kind: str, name: str) -> None:
    server.play, error = REFUSALS[name]
    with pytest.raises(error) as caught:
        ask_either(server.url, kind)
    assert isinstance(str(caught.value), str)
    assert caught.value.field is None or isinstance(caught.value.field, str)
    assert caught.value.request_id is None or isinstance(caught.value.request_id, str)


def test_client_error_names_field_and_request_id() -> None:
    refusal = {"code": "invalid_field", "message": "m", "details": {"field": "a"}}
    error = make_error(422, {**refusal, "request_id": "r"}, 1.0)
    assert (error.field, error.request_id, error.message) == ("a", "r", "m")


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("length", [0, 2, 3])
def test_client_refuses_incomplete_batch_answer(
    server: HostileServer, kind: str, length: int
) -> None:
    results = [{"status": 201, "event": None, "error": None}] * length
    server.play = whole(json.dumps({"results": results, "stored": 0, "failed": 0}).encode())
    with pytest.raises(errors.UnexpectedAnswerError):
        ask_either(server.url, kind, lambda c: c.add_turn("a", "b", user="alice"))
    with pytest.raises(errors.UnexpectedAnswerError):
        ask_either(server.url, kind, lambda c: c.add_batch([{"role": "user"}] * 2))


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:1", "http://h\ud800", "http://h:x"])
def test_client_download_from_bad_address_fails(
    server: HostileServer, kind: str, url: str, tmp_path: Path
) -> None:
    server.play = whole(json.dumps({**EXPORT, "url": url}).encode())
    with pytest.raises(ServiceError):
        ask_either(server.url, kind, lambda c: c.graph.export_file(tmp_path / "g", user="a"))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_client_download_stops_at_expected_size(
    server: HostileServer, kind: str, tmp_path: Path
) -> None:
    """A file's download goes to the disk, and stops where the file should end."""
    export = json.dumps({**EXPORT, "url": f"{server.url}/file"}).encode()
    plays = iter([whole(export), endless])
    server.play = lambda: next(plays)()
    with pytest.raises(errors.UnexpectedAnswerError):
        ask_either(server.url, kind, lambda c: c.graph.export_file(tmp_path / "g", user="a"))
    assert [*tmp_path.iterdir()] == []
