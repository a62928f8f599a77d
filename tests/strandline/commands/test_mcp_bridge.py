"""`strandline mcp` between a client and a service of which one is odd: every request is answered,
by an answer of JSON-RPC, and the process ends when it is told to."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Strandline
from strandline.client.retries import Retry
from strandline.commands.mcp_stdio_bridge import StdioBridge
from tests.strandline.client.hostile_server import Answer, HostileServer, serve_hostile, whole

ROOT = Path(__file__).parents[3]
CALL = {"name": "memory_recall", "arguments": {"query": "x"}}


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with serve_hostile() as server:
        yield server


def _request(id: object, method: str, **params: object) -> bytes:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(body).encode() + b"\n"


def _answers(server: HostileServer, *lines: bytes) -> list[Any]:
    output = io.BytesIO()
    with Strandline(server.url, "k", retry=Retry(seconds=0)) as client:
        StdioBridge(client, [], output).answer_lines(lines)
    return [json.loads(line) for line in output.getvalue().splitlines()]


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize(
    "body",
    [
        {"hello": 1},
        {"detail": "Not Found"},
        {"error": "x"},
        {"result": {}, "id": 1},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "id": 1, "result": None},
        {"jsonrpc": "2.0", "id": 1, "error": "x"},
    ],
)
def test_mcp_bridge_invalid_answer_becomes_error(
    server: HostileServer, status: int, body: object
) -> None:
    server.play = whole(json.dumps(body).encode(), status)
    (answer,) = _answers(server, _request(1, "tools/list"))
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    assert answer["error"]["code"] == -32603


def test_mcp_bridge_accepts_whole_float_as_id(server: HostileServer) -> None:
    """Languages with one kind of number write 1 as 1.0."""
    server.play = whole(b'{"jsonrpc": "2.0", "id": null, "result": {}}')
    answers = _answers(server, _request(1.0, "tools/list"), _request(1.5, "tools/list"))
    assert sorted(str(answer["id"]) for answer in answers) == ["1.0", "None"]


def test_mcp_bridge_ignores_answers_of_client(server: HostileServer) -> None:
    """Its id may be that of a request of the client's own, which would seem to have failed."""
    answers: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {}},
    ]
    assert _answers(server, *(json.dumps(answer).encode() + b"\n" for answer in answers)) == []


def test_mcp_bridge_answers_ping_during_calls(server: HostileServer) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> Answer:
        begun.release()
        gate.wait(20)
        return 200, {}, iter([b'{"jsonrpc": "2.0", "id": 1, "result": {}}'])

    server.play = hang
    output = io.BytesIO()

    def lines() -> Iterator[bytes]:
        yield from (_request(n, "tools/call", **CALL) for n in range(8))
        assert all(begun.acquire(timeout=10) for _ in range(8))
        yield _request("ping", "ping")
        assert json.loads(output.getvalue()) == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        gate.set()

    with Strandline(server.url, "k", retry=Retry(seconds=0)) as client:
        StdioBridge(client, [], output).answer_lines(lines())
    assert output.getvalue().count(b"\n") == 9


def test_mcp_bridge_interrupt_ends_during_calls(server: HostileServer) -> None:
    gate, begun = threading.Event(), threading.Event()

    def hang() -> Answer:
        begun.set()
        gate.wait(30)
        return 200, {}, iter([b"{}"])

    server.play = hang
    process = subprocess.Popen(
        [sys.executable, "-m", "strandline.commands.main", "mcp"],
        env={
            "PATH": os.defpath,
            "PYTHONPATH": str(ROOT / "shared"),
            "STRANDLINE_URL": server.url,
            "STRANDLINE_API_KEY": "k",
        },
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell that runs the tests in the background leaves the signal ignored, as would a child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdin
        process.stdin.write(_request(1, "tools/call", **CALL))
        process.stdin.flush()
        assert begun.wait(30)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
        assert (process.returncode, said.count(b"interrupted")) == (130, 1), said
    finally:
        gate.set()
        process.kill()
        process.communicate()
