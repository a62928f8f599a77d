"""MCP by the official client, over HTTP and over `strandline mcp`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx2

from tests.mcp_calls import EVERYTHING

if TYPE_CHECKING:
    from mcp import Client  # imported where it is used: that takes a second

ROOT = Path(__file__).parents[3]
RIGHTS = ("read", "write", "admin")
type Mode = Literal["auto", "legacy"]


def command(url: str, key: str, *options: str) -> list[str]:
    """The command line of a server on standard input and output."""
    return ["-m", "strandline.commands.main", "--url", url, "--key", key, "mcp", *options]


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "shared"), "PATH": "/usr/bin:/bin"}


@asynccontextmanager
async def over_http(url: str, key: str, mode: Mode) -> AsyncGenerator[Client]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    query = f"toolsets={EVERYTHING}&participants=user:alice&participants=agent:helper"
    async with httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=30.0) as http:
        transport = streamable_http_client(f"{url}/mcp?{query}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(url: str, key: str, mode: Mode) -> AsyncGenerator[Client]:
    from mcp import Client, StdioServerParameters

    options = ("--toolsets", EVERYTHING, "--user", "alice", "--agent", "helper")
    server = StdioServerParameters(
        command=sys.executable, args=command(url, key, *options), env=environment()
    )
    async with Client(server, mode=mode) as client:
        yield client


TRANSPORTS = {"http": over_http, "stdio": over_stdio}


def text_of(result: Any) -> str:
    from mcp_types import CallToolResult, TextContent

    assert isinstance(result, CallToolResult)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
