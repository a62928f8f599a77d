"""Arguments of MCP's tools as models and clients send them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.mcp.dispatch import TOOLSETS
from strandline.mcp.tool_types import Schema, Tool
from tests.mcp_calls import ALICE, EVERYTHING, HELPER, calls_of, post, prepare
from tests.support import Gateway, Reply

TOOLS = [tool for tools in TOOLSETS.values() for tool in tools]
UNSTORABLE = ("\ud800", "a\x00b")


@pytest.fixture(autouse=True)
def keeps_its_contract() -> None:
    """MCP is not in the document."""


@pytest.fixture
def key(gateway: Gateway) -> str:
    """A key of tenant acme that is bound to nobody and may do all that a tenant's may."""
    return gateway.key(rights=("read", "write", "admin"))


def call(gateway: Gateway, key: str, tool: str, arguments: object, id: object = "q-7") -> Reply:
    params = {"name": tool, "arguments": arguments}
    options: dict[str, Any] = {"toolsets": EVERYTHING, "participants": [ALICE, HELPER]}
    return post(gateway, "tools/call", params, key=key, id=id, **options)


# text that cannot be stored ----------------------------------------------------------------------


def place_text(schema: Schema, text: str) -> object:
    """A value of a schema's type that has this text somewhere; None where it has no text."""
    match schema["type"]:
        case "string":
            return text
        case "array":
            return [place_text(schema["items"], text)]
        case "object":
            return {"edge": text, text: 1}
        case _:
            return None


def unstorable_arguments(tool: Tool) -> Iterator[tuple[str, object]]:
    for name, schema in tool.properties.items():
        for text in UNSTORABLE:
            value = place_text(schema, text)
            if value is not None:
                yield name, value


def test_text_that_cannot_be_stored_is_refused_wherever_it_stands(
    gateway: Gateway, key: str
) -> None:
    calls = calls_of(prepare(gateway, key))
    for tool in TOOLS:
        whole = calls[tool.name][0][0]
        for name, value in unstorable_arguments(tool):
            reply = call(gateway, key, tool.name, {**whole, name: value})
            assert (reply.status, reply.body["id"]) == (200, "q-7"), (tool.name, name, reply.text)
            result = reply.body["result"]
            assert result["isError"], (tool.name, name)
            text: str = result["content"][0]["text"]
            assert text.startswith(name), (tool.name, name, text)
            assert "surrogate" in text or "NUL" in text, text
    for method, params in (
        ("resources/read", {"uri": "memoria://memory/\ud800"}),
        ("prompts/get", {"name": "remember_this", "arguments": {"text": "\ud800"}}),
        ("tools/call", {"name": "\ud800"}),
        ("tools/list", {"_meta": {"\ud800": 1}}),
    ):
        reply = post(gateway, method, params, key=key, id="q-8")
        assert (reply.status, reply.body["id"]) == (200, "q-8"), reply.text
        assert reply.body["error"]["code"] == -32602
        assert "surrogate" in reply.body["error"]["message"]


def test_what_the_service_refuses_bears_the_id_of_the_request(gateway: Gateway, key: str) -> None:
    del key
    bob = gateway.key(user="user:bob")
    body = json.dumps({"jsonrpc": "2.0", "id": "q-9", "method": "ping"}).encode()
    query = {"toolsets": "other"}
    reply = gateway.call("POST", "/mcp", query=query, raw=body, key=bob)
    assert (reply.status, reply.body["id"]) == (422, "q-9"), reply.text
    broken = gateway.call("POST", "/mcp", query=query, raw=b"{", key=bob)
    assert (broken.status, broken.body["id"]) == (422, None), broken.text
