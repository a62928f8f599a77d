"""Arguments of MCP's tools as models and clients send them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.mcp.dispatch import TOOLSETS
from strandline.mcp.tool_types import Schema, Tool
from tests.mcp_calls import ALICE, EVERYTHING, HELPER, call_tool, calls_of, post, prepare
from tests.support import Gateway, Reply, ScratchDatabase

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


# whose words -------------------------------------------------------------------------------------

NODE = {"type": "entity", "name": "Petrel", "kind": "product"}
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("add", {"content": "The buoy is red."}),
    ("insert", {"content": "The buoy is green."}),
    ("mie_store", {"type": "fact", "content": "The buoy is blue"}),
    ("mie_bulk_store", {"nodes": [NODE]}),
]


@pytest.mark.parametrize("user", [None, ALICE])
@pytest.mark.parametrize(
    ("members", "speaker", "expected"),
    [
        ([ALICE, HELPER], None, (HELPER, "agent", "agent")),
        ([ALICE], None, (None, "agent", "agent")),
        ([ALICE, HELPER], ALICE, (ALICE, "user", "user")),
        ([ALICE], f" {ALICE}", (ALICE, "user", "user")),
        ([ALICE, HELPER], HELPER, (HELPER, "agent", "agent")),
    ],
)
def test_what_is_stored_is_the_agents_unless_a_speaker_is_named(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    user: str | None,
    members: list[str],
    speaker: str | None,
    expected: tuple[str | None, str, str],
) -> None:
    own = gateway.key(user=user)
    for tool, arguments in WRITES:
        whole = {**arguments, "participants": members, "speaker": speaker}
        given = {name: value for name, value in whole.items() if value is not None}
        text, is_error = call_tool(gateway, tool, given, key=own)
        assert not is_error, (tool, text)
    rows = scratch_db.rows("select speaker, role, origin from events")
    assert rows == [expected] * len(WRITES)
    assert {trust for (trust,) in scratch_db.rows("select trust from graph_nodes")} == {expected[2]}
    fact = re.findall(
        r"fact:[0-9a-f-]{36}",
        call_tool(gateway, "mie_list", {"node_type": "fact", "participants": [ALICE]}, key=own)[0],
    )[0]
    change = {"node_id": fact, "action": "invalidate", "reason": "It was painted."}
    whole = {**change, "participants": members} | ({"speaker": speaker} if speaker else {})
    text, is_error = call_tool(gateway, "mie_update", whole, key=own)
    assert not is_error, text
    assert scratch_db.rows(
        "select speaker, role, origin from events order by seq desc limit 1"
    ) == [expected]


def test_who_may_not_speak_is_told(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    alice = gateway.key(user=ALICE)
    both = [ALICE, "user:bob", HELPER]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"speaker": "user:bob", "participants": both}, "(forbidden)"),
        ({"speaker": "user:zoe", "participants": both}, "must be one of the participants"),
        ({"speaker": "bot:x", "participants": [*both, "bot:x"]}, "speaker: "),
        ({"role": "user", "participants": both}, 'as in "user:alice"'),
        ({"role": "system", "participants": both}, "role: must be one of user, agent"),
        ({"participants": [*both, "agent:scout"]}, "name the agent that speaks"),
    ]
    for arguments, expected in cases:
        text, is_error = call_tool(gateway, "add", {"content": "x", **arguments}, key=alice)
        assert (is_error, expected in text) == (True, True), text
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_over_http_a_statement_is_a_users_by_default_and_an_agents_on_request(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    alice = gateway.key(user=ALICE)
    for role, expected in ((None, (ALICE, "user", "user")), ("agent", (None, "agent", "agent"))):
        body = {"participants": [ALICE], "nodes": [NODE], **({"role": role} if role else {})}
        assert gateway.call("POST", "/api/v1/graph/nodes", body, key=alice).status == 201
        rows = scratch_db.rows("select speaker, role, origin from events order by seq desc limit 1")
        assert rows == [expected]
    wrong = {"participants": [ALICE], "nodes": [NODE], "role": "agent", "speaker": ALICE}
    reply = gateway.call("POST", "/api/v1/graph/nodes", wrong, key=alice)
    assert (reply.status, reply.error["details"]["field"]) == (422, "speaker")
