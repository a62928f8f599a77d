"""The command line between a terminal or a client of MCP and a service that misbehaves."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from strandline import Strandline
from strandline.client.retries import Retry
from strandline.commands.main import main
from strandline.commands.mcp_stdio_bridge import StdioBridge
from tests.strandline.client.hostile_server import (
    Answer,
    HostileServer,
    endless,
    serve_hostile,
    whole,
)

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
DEEP = b"[" * 200_000
ESCAPES = "\x1b]0;mine\x07\x1b[2J\x9b31m\x7fred"


CONTEXT: dict[str, Any] = {
    "tokens": 1,
    "known": None,
    "citations": [],
    "degraded": [],
    "breadth": False,
    "not_yet_embedded": None,
    "not_yet_folded": None,
    "read_token": "t",
    "cut": {"recent": 0, "topics": 0, "events": 0, "shortened": 0},
}


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with serve_hostile() as server:
        yield server


def talk(url: str, lines: Sequence[bytes]) -> list[Any]:
    """What the bridge answers to these lines."""
    output = io.BytesIO()
    with Strandline(url, "k", retry=Retry(seconds=0)) as client:
        StdioBridge(client, [], output).answer_lines(lines)
    return [json.loads(line) for line in output.getvalue().splitlines()]


@pytest.mark.parametrize(
    "line", [DEEP, b'{"a":' * 100_000, b"\xff", b'{"id":' + b"9" * 5000 + b"}"]
)
def test_mcp_bridge_of_hostile_service_survives_unreadable_line(
    server: HostileServer, line: bytes
) -> None:
    server.play = whole(json.dumps({"jsonrpc": "2.0", "id": 7, "result": {}}).encode())
    first, second = talk(server.url, [line, json.dumps(PING).encode()])
    assert first["error"]["code"] == -32700
    assert second == {"jsonrpc": "2.0", "id": 7, "result": {}}


@pytest.mark.parametrize(
    ("name", "play"),
    [
        ("deep", whole(DEEP)),
        ("a list", whole(b"[]")),
        ("no id", whole(b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32603}}')),
        ("endless", endless),
        ("no JSON", whole(b"<html>", 502)),
    ],
)
def test_mcp_bridge_answers_despite_hostile_service(
    server: HostileServer, name: str, play: Callable[[], Answer]
) -> None:
    server.play = play
    asked = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}  # a ping is the bridge's to answer
    (answer,) = talk(server.url, [json.dumps(asked).encode()])
    assert (answer["id"], answer["error"]["code"]) == (7, -32603), name


def test_cli_strips_control_codes_of_service_error(
    server: HostileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    error: dict[str, Any] = {"code": "x", "message": ESCAPES, "details": {}, "retryable": False}
    server.play = whole(json.dumps({"error": error}).encode(), 400)
    for arguments in (["recall", "x"], ["--json", "status"], ["verify"]):
        assert main(["--url", server.url, "--key", "k", *arguments]) == 1
        output = capsys.readouterr()
        assert "red" in output.out + output.err
        assert_harmless(output.out + output.err)


def test_cli_strips_control_codes_of_service_answer(
    server: HostileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    context = {"text": f"one\n\ttwo {ESCAPES}"} | CONTEXT
    server.play = whole(json.dumps(context).encode())
    for options in ([], ["--json"]):
        main(["--url", server.url, "--key", "k", *options, "context", "x"])
        output = capsys.readouterr().out
        assert "one" in output
        assert_harmless(output)


def assert_harmless(text: str) -> None:
    assert [c for c in text if c != "\n" and c != "\t" and not c.isprintable()] == []
