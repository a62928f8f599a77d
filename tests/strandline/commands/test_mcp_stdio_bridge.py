"""MCP as the official client sees it, over HTTP and `strandline mcp`, and as MIE's clients do."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio
import click
import pytest

from strandline.commands.main import cli
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response
from strandline.mcp.dispatch import TOOLSETS
from strandline.mcp.protocol import HANDSHAKE_VERSIONS, MODERN
from strandline.mcp.routes import McpQuery
from tests.context_block import read_fence
from tests.mcp_calls import Samples, calls_of, prepare
from tests.strandline.client.conftest import HttpService, service
from tests.strandline.commands.mcp_transports import (
    RIGHTS,
    ROOT,
    TRANSPORTS,
    Mode,
    command,
    environment,
    text_of,
)

if TYPE_CHECKING:
    from mcp import Client  # imported where it is used: that takes a second

__all__ = ["service"]
pytestmark = pytest.mark.integration
VERSIONS: dict[Mode, str] = {"auto": MODERN, "legacy": HANDSHAKE_VERSIONS[0]}


async def exercise(client: Client, known_value: Samples, mode: Mode) -> None:
    """Everything that a client does: list, call each tool, read, prompt, and be wrong."""
    from mcp import MCPError
    from mcp_types import CallToolResult, TextContent, TextResourceContents

    assert client.protocol_version == VERSIONS[mode]
    assert client.instructions is not None
    listing = [tool.name for tool in (await client.list_tools()).tools]
    assert listing == [tool.name for tools in TOOLSETS.values() for tool in tools]
    for name, samples in calls_of(known_value).items():
        for arguments, expected in samples:
            result = await client.call_tool(name, arguments)
            assert expected in text_of(result), (name, text_of(result))
    wrong = await client.call_tool("recall", {"limit": 3})
    assert isinstance(wrong, CallToolResult)
    assert wrong.is_error
    assert "query is missing" in text_of(wrong)
    templates = (await client.list_resource_templates()).resource_templates
    assert {t.uri_template.partition("{")[0] for t in templates} == {
        "ipfs://",
        "memoria://memory/",
        "memoria://file/",
        "memoria://sona/",
    }
    assert (await client.list_resources()).resources
    memory = (await client.read_resource(f"memoria://memory/{known_value.cid}")).contents[0]
    assert isinstance(memory, TextResourceContents)
    assert json.loads(memory.text)["event_id"] == known_value.event_id
    await client.read_resource(f"ipfs://{known_value.cid}")
    sona = (await client.read_resource(f"memoria://sona/{known_value.sona}")).contents[0]
    assert isinstance(sona, TextResourceContents)
    assert json.loads(sona.text)["names"] == ["Harbour master"]
    with pytest.raises(MCPError):
        await client.read_resource("memoria://memory/bafyreinothing")
    with pytest.raises(MCPError, match="There are: "):
        await client.call_tool("forget_everything", {})
    assert [p.name for p in (await client.list_prompts()).prompts] == [
        "remember_this",
        "what_do_i_know",
    ]
    prompt = await client.get_prompt("what_do_i_know", {"topic": "the battery"})
    content = prompt.messages[0].content
    assert isinstance(content, TextContent)
    assert read_fence("<memory-" + content.text.partition("<memory-")[2].partition("\nEvents:")[0])


@pytest.mark.parametrize(
    ("transport", "mode"),
    [
        ("http", "auto"),
        pytest.param("stdio", "legacy", marks=pytest.mark.proof),
        pytest.param("http", "legacy", marks=pytest.mark.proof),
        pytest.param("stdio", "auto", marks=pytest.mark.proof),
    ],
)
def test_mcp_official_client_does_everything(
    service: HttpService, transport: str, mode: Mode
) -> None:
    key = service.gateway.key(rights=RIGHTS)
    samples = prepare(service.gateway, key)

    async def run() -> None:
        async with TRANSPORTS[transport](service.url, key, mode) as client:
            await exercise(client, samples, mode)

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_mcp_hides_memory_of_other_user(service: HttpService, transport: str) -> None:
    from mcp import MCPError

    samples = prepare(service.gateway, service.gateway.key(rights=RIGHTS))
    bob = service.gateway.key(user="user:bob", rights=RIGHTS)

    async def run() -> None:
        async with TRANSPORTS[transport](service.url, bob, "auto") as client:
            text = text_of(await client.call_tool("recall", {"query": "the buoy's battery"}))
            assert text.startswith("Nothing is known")
            node = await client.call_tool("mie_query", {"node_id": samples.fact})
            assert "(not_found)" in text_of(node)
            for uri in (f"ipfs://{samples.cid}", f"memoria://file/{samples.file_cid}"):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_mcp_without_valid_credential_fails(service: HttpService, transport: str) -> None:
    from mcp import MCPError

    async def run() -> None:
        async with TRANSPORTS[transport](service.url, "strandline_made-up", "legacy") as client:
            await client.list_tools()

    with pytest.RaisesGroup(MCPError, allow_unwrapped=True, flatten_subgroups=True):
        asyncio.run(run())


# cancellation ------------------------------------------------------------------------------------


class Gate:
    """A recall that answers when it is told to."""

    def __init__(self) -> None:
        self.entered, self.opened, self.left = (threading.Event() for _ in range(3))

    def __call__(self, request: Request, handler: Any) -> Response:
        self.entered.set()
        assert self.opened.wait(20)
        try:
            return handler(request)
        finally:
            self.left.set()


@contextmanager
def slow_recall() -> Generator[Gate]:
    """Recall waits at a gate."""
    operations: Any = importlib.import_module("functions.mcp.handler").OPERATIONS
    name, gate = "POST /api/v1/recall", Gate()
    route = operations[name]
    operations[name] = replace(route, handler=functools.partial(gate, handler=route.handler))
    try:
        yield gate
    finally:
        gate.opened.set()
        operations[name] = route


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_mcp_cancelled_call_keeps_connection(service: HttpService, transport: str) -> None:
    key = service.gateway.key(rights=RIGHTS)

    async def run(gate: Gate) -> None:
        async with TRANSPORTS[transport](service.url, key, "auto") as client:
            with anyio.move_on_after(0.5) as scope:
                await client.call_tool("recall", {"query": "x"})
            assert scope.cancelled_caught
            assert gate.entered.is_set()
            assert (await client.list_tools()).tools
            gate.opened.set()
            assert "Nothing" in text_of(await client.call_tool("recall", {"query": "y"}))

    with slow_recall() as gate:
        asyncio.run(run(gate))


# as MIE's clients speak: one JSON object a line, 2024-11-05 ---------------------------------------


class Lines:
    """A server process, line by line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, *messages: object) -> None:
        assert self.process.stdin
        for message in messages:
            text = message if isinstance(message, str) else json.dumps(message)
            self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def end(self) -> list[bytes]:
        """Close its input; what it still says until it ends."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        rest = self.process.stdout.readlines()
        self.process.stdout.close()
        assert self.process.wait(10) == 0
        return rest


def request(id: object, method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def test_mcp_stdio_speaks_oldest_version(service: HttpService) -> None:
    key = service.gateway.key(rights=RIGHTS)
    lines = Lines(*command(service.url, key, "--user", "alice", "--toolsets", "graph"))
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x"}}
    lines.send(request(1, "initialize", **hello))
    result = lines.receive()["result"]
    assert result["protocolVersion"] == "2024-11-05"
    assert set(result["serverInfo"]) == {"name", "version"}
    lines.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, "", "{", "[]")
    assert [lines.receive()["error"]["code"] for _ in range(2)] == [-32700, -32600]
    lines.send(request("a", "tools/list"))
    answer = lines.receive()
    assert answer["id"] == "a"
    assert len(answer["result"]["tools"]) == 12
    rows = {"name": "mie_store", "arguments": {"type": "topic", "name": "Bøyer"}}
    lines.send(request(3, "tools/call", **rows))
    assert "Stored topic:" in lines.receive()["result"]["content"][0]["text"]
    lines.send(request(4, "bogus/method"), request(5, "ping"))
    answers = {answer["id"]: answer for answer in (lines.receive(), lines.receive())}
    assert answers[4]["error"]["code"] == -32601
    assert answers[5]["result"] == {}
    assert lines.end() == []


def test_mcp_stdio_cancelled_line_is_not_answered(service: HttpService) -> None:
    key = service.gateway.key(rights=RIGHTS)
    lines = Lines(*command(service.url, key, "--user", "alice"))
    call = {"name": "recall", "arguments": {"query": "x"}}
    with slow_recall() as gate:
        lines.send(request(1, "tools/call", **call))
        assert gate.entered.wait(20)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
        lines.send({"jsonrpc": "2.0", **cancel}, request(2, "ping"))
        assert lines.receive() == {"jsonrpc": "2.0", "id": 2, "result": {}}
        gate.opened.set()
        assert gate.left.wait(20)
    lines.send(request(1, "tools/call", **call))
    assert lines.receive()["id"] == 1, "the same id again is another request"
    assert lines.end() == []


def test_mcp_stdio_refusal_of_service_is_error_answer(service: HttpService) -> None:
    lines = Lines(*command(service.url, "strandline_made-up"))
    lines.send(request(1, "initialize"))
    error = lines.receive()["error"]
    assert (error["code"], error["data"]["status"]) == (-32603, 401)
    assert lines.end() == []


def test_mcp_stdio_without_service_answers_errors(tmp_path: Path) -> None:
    """As an app begins it: another folder, hardly a variable. Nothing else is on its output."""
    messages = [request(1, "initialize"), request("a", "tools/list"), {"method": "x"}, 3]
    lines = "".join(f"{json.dumps(message)}\n" for message in [*messages, "{"])
    variables = {"HOME": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": str(ROOT / "shared")}
    cases: list[tuple[list[str], str, int]] = [
        ([], "No service", 2),
        (["--url", "nowhere"], "the service's address", 2),
        (["--url", "http://127.0.0.1:1"], "127.0.0.1:1", 0),
    ]
    for address, reason, code in cases:
        result = subprocess.run(
            [sys.executable, "-m", "strandline.commands.main", *address, "mcp"],
            input=lines,
            cwd="/",
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
        )
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        refused = {one["id"]: one["error"] for one in answers if one["id"] is not None}
        assert refused.keys() == {1, "a"}, result.stdout
        assert all(error["code"] == -32603 for error in refused.values())
        assert all(reason in error["message"] for error in refused.values()), refused
        assert (result.returncode, result.stderr.count("\n")) == (code, 1), result.stderr
        assert reason in result.stderr


# the page of documentation ------------------------------------------------------------------------


def snippets() -> Iterator[dict[str, Any]]:
    """The servers of the configurations in docs/mcp.md."""
    for block in re.findall(r"```json\n(.*?)```", (ROOT / "docs/mcp.md").read_text(), re.DOTALL):
        document = json.loads(block)
        yield from (document.get("mcpServers") or document["servers"]).values()


def test_mcp_documented_configurations_are_valid() -> None:
    kinds: list[str] = []
    for server in snippets():
        if "command" in server:
            name, *options = server["args"]
            context = cli.commands[name].make_context(name, options)
            assert set(context.params["toolsets"].split(",")) <= TOOLSETS.keys()
            variables = {option.envvar for option in cli.params if isinstance(option, click.Option)}
            assert server["env"].keys() <= variables
            kinds.append("stdio")
        else:
            query = parse_qs(urlsplit(str(server["url"])).query)
            fields: dict[str, Any] = {
                n: v if n == "participants" else v[0] for n, v in query.items()
            }
            assert McpQuery.model_validate(fields).participants == ["user:alice"]
            assert server["headers"]["Authorization"].startswith("Bearer ")
            kinds.append("http")
    assert kinds == ["stdio", "http", "http"]


def test_mcp_documentation_names_every_tool() -> None:
    text = (ROOT / "docs/mcp.md").read_text()
    table = text.partition("| toolset | tool |")[2].partition("\n\n")[0]
    names = {tool.name for tools in TOOLSETS.values() for tool in tools}
    assert names <= set(re.findall(r"`(\w+)`", table))
