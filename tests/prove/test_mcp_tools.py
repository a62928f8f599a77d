"""MCP by what its makers check servers with: the inspector, and the conformance suite.

Both come from npm, with the Node.js that they need (mcp_tools/package-lock.json), into build/.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.local.http_server import GatewayApp, Message, Receive, Send
from strandline.mcp.dispatch import TOOLSETS
from tests.mcp_calls import EVERYTHING, Samples, prepare
from tests.strandline.client.conftest import serve_http
from tests.support import Gateway

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[2]
LOCKED = Path(__file__).parent / "mcp_tools"
SECONDS = 300


@pytest.fixture(scope="module")
def node() -> Path:
    """The folder of npm's programs, installed from the lock."""
    place = ROOT / "build" / "mcp_tools"
    lock = place / "package-lock.json"
    installed = place / "node_modules" / ".package-lock.json"
    lock_file = (LOCKED / "package-lock.json").read_bytes()
    if not installed.exists() or lock.read_bytes() != lock_file:
        shutil.copytree(LOCKED, place, dirs_exist_ok=True)
        subprocess.run(["npm", "ci", "--silent"], cwd=place, check=True, timeout=SECONDS)
    return place / "node_modules" / ".bin"


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(rights=("read", "write", "admin"))


@pytest.fixture
def samples(gateway: Gateway, key: str) -> Samples:
    return prepare(gateway, key)


@pytest.fixture
def url(samples: Samples, key: str) -> Iterator[str]:
    """The service's address; anyone who calls it has the key, as the suite cannot send one."""
    del samples

    def wrap(app: GatewayApp) -> Any:
        async def serve(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                scope["headers"] = [*scope["headers"], (b"x-api-key", key.encode())]
            await app(scope, receive, send)

        return serve

    with serve_http(wrap=wrap) as address:
        yield address


def run(
    node: Path, program: str, *arguments: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """One of the programs, with its home in `folder`."""
    return subprocess.run(
        [str(node / "node"), str(node / program), *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT / "shared")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


# the inspector -----------------------------------------------------------------------------------


def inspect(node: Path, folder: Path, target: list[str], *arguments: str) -> Any:
    """What the inspector's command line shows of a server."""
    result = run(node, "mcp-inspector", "--cli", *target, *arguments, folder=folder)
    assert result.returncode == 0, (arguments, result.stdout[-2000:], result.stderr[-2000:])
    return json.loads(result.stdout)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_mcp_tools_are_listed_called_and_read_by_inspector(
    transport: str, node: Path, url: str, key: str, samples: Samples, tmp_path: Path
) -> None:
    query = f"toolsets={EVERYTHING}&participants=user:alice&participants=agent:helper"
    target = [f"{url}/mcp?{query}", "--transport", "http"]
    if transport == "stdio":
        server = {
            "command": sys.executable,
            "args": [
                *("-m", "strandline.commands.main", "--url", url, "--key", key, "mcp"),
                *("--toolsets", EVERYTHING, "--user", "alice", "--agent", "helper"),
            ],
            "env": {"PYTHONPATH": str(ROOT / "shared")},
        }
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"memory": server}}))
        target = ["--config", str(file), "--server", "memory"]
    listing = inspect(node, tmp_path, target, "--method", "tools/list")
    assert [tool["name"] for tool in listing["tools"]] == [
        tool.name for tools in TOOLSETS.values() for tool in tools
    ]
    call = ("--method", "tools/call", "--tool-name", "memory_recall", "--tool-arg", "query=battery")
    assert samples.event_id in inspect(node, tmp_path, target, *call)["content"][0]["text"]
    uri = ("--method", "resources/read", "--uri", f"memoria://memory/{samples.cid}")
    assert samples.event_id in inspect(node, tmp_path, target, *uri)["contents"][0]["text"]
    prompt = ("--method", "prompts/get", "--prompt-name", "what_do_i_know")
    assert inspect(node, tmp_path, target, *prompt)["messages"]


def test_mcp_tools_schemas_pass_inspector(node: Path, url: str, tmp_path: Path) -> None:
    address = f"{url}/mcp?toolsets={EVERYTHING}"
    strict = ("--transport", "http", "--method", "tools/list", "--strict")
    result = run(node, "mcp-inspector", "--cli", address, *strict, folder=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]


# the conformance suite ---------------------------------------------------------------------------

SCENARIOS = {
    "2025-11-25": (
        *("server-initialize", "ping", "tools-list", "resources-list", "prompts-list"),
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        *("tools-list", "resources-list", "prompts-list", "caching", "http-header-validation"),
        *("sep-2164-resource-not-found", "dns-rebinding-protection"),
    ),
}
"""What holds for any server. Other scenarios call tools, resources and prompts of the suite's own
(`test_simple_text` and others), or what this server does not do."""


@pytest.mark.parametrize("version", SCENARIOS)
def test_mcp_tools_pass_conformance_suite(
    version: str, node: Path, url: str, tmp_path: Path
) -> None:
    address = f"{url}/mcp?participants=user:alice"
    for scenario in SCENARIOS[version]:
        options = ("--url", address, "--scenario", scenario, "--spec-version", version)
        result = run(node, "conformance", "server", *options, folder=tmp_path)
        assert result.returncode == 0, (scenario, result.stdout[-4000:], result.stderr[-2000:])
