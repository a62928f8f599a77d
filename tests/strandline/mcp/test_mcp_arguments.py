"""Arguments of MCP's tools as models and clients send them."""

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.mcp.argument_schemas import (
    Schema,
    boolean_schema,
    choice_schema,
    integer_schema,
    number_schema,
    object_list_schema,
    text_list_schema,
    text_schema,
)
from strandline.mcp.arguments import WrongArgument, parse_tool_arguments
from strandline.mcp.dispatch import TOOLSETS
from strandline.mcp.tool_types import Tool
from tests.mcp_calls import ALICE, EVERYTHING, FAILS, HELPER, call_tool, calls_of, post, prepare
from tests.support import Gateway, Reply, ScratchDatabase

TOOLS = [tool for tools in TOOLSETS.values() for tool in tools]
UNSTORABLE = ("\ud800", "a\x00b")


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
    match schema.get("type", "string"):
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
        for unstorable in UNSTORABLE:
            value = place_text(schema, unstorable)
            if value is not None:
                yield name, value


def test_mcp_arguments_refuse_unstorable_text(gateway: Gateway, key: str) -> None:
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


def test_mcp_refusal_bears_request_id(gateway: Gateway, key: str) -> None:
    del key
    bob = gateway.key(user="user:bob")
    body = json.dumps({"jsonrpc": "2.0", "id": "q-9", "method": "ping"}).encode()
    query = {"toolsets": "other"}
    reply = gateway.call("POST", "/mcp", query=query, raw=body, key=bob)
    assert (reply.status, reply.body["id"]) == (422, "q-9"), reply.text
    broken = gateway.call("POST", "/mcp", query=query, raw=b"{", key=bob)
    assert (broken.status, broken.body["id"]) == (422, None), broken.text


# null, and other types ---------------------------------------------------------------------------

OPTIONAL = [(tool, name) for tool in TOOLS for name in tool.properties if name not in tool.required]


@pytest.mark.parametrize(("tool", "name"), OPTIONAL, ids=[f"{t.name}-{n}" for t, n in OPTIONAL])
def test_mcp_arguments_treat_null_as_omitted(tool: Tool, name: str) -> None:
    needed = {one: example_of(tool.properties[one]) for one in tool.required}
    assert tool.parse_arguments({**needed, name: None}) == tool.parse_arguments(needed)
    given = {**needed, name: example_of(tool.properties[name])}
    assert name in tool.parse_arguments(given)


def example_of(schema: Schema) -> object:
    """A value that a schema has."""
    if "enum" in schema:
        return schema["enum"][0]
    examples: dict[str, object] = {"integer": 1, "number": 0.5, "boolean": True, "object": {}}
    match schema.get("type", "string"):
        case "string":
            return "x"
        case "array":
            return [example_of(schema["items"])]
        case kind:
            return examples[kind]


def test_mcp_arguments_take_null_in_every_tool(gateway: Gateway, key: str) -> None:
    for tool, calls in calls_of(prepare(gateway, key)).items():
        properties = next(one for one in TOOLS if one.name == tool).properties
        for arguments, expected in calls:
            nulls = {name: None for name in properties if "type" in properties[name]}
            answer, is_error = call_tool(
                gateway,
                tool,
                {**nulls, **arguments},
                key=key,
                participants=[ALICE, HELPER],
            )
            assert expected in answer, (tool, answer)
            assert is_error is any(sign in expected for sign in FAILS), (tool, answer)
    nodes = [{"type": "topic", "name": "Tides", "description": None, "relationships": None}]
    arguments = {"nodes": nodes, "participants": [ALICE]}
    answer, is_error = call_tool(gateway, "mie_bulk_store", arguments, key=key)
    assert not is_error, answer


def test_mcp_message_takes_null_params_and_arguments(gateway: Gateway, key: str) -> None:
    options: dict[str, Any] = {"key": key, "query": {"participants": [ALICE]}}

    def send(method: str, **members: object) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, **members}
        return gateway.call("POST", "/mcp", raw=json.dumps(body).encode(), **options).body

    for method in ("ping", "tools/list", "prompts/list", "initialize"):
        assert "result" in send(method, params=None), method
    for arguments in ({"arguments": None}, {}):
        result = send("tools/call", params={"name": "context", **arguments})["result"]
        assert not result["isError"], result
        lacking = send("tools/call", params={"name": "recall", **arguments})["result"]
        assert "query is missing" in lacking["content"][0]["text"]
        prompt = send("prompts/get", params={"name": "what_do_i_know", **arguments})
        assert "messages" in prompt["result"]
    assert send("tools/call", params=None)["error"]["code"] == -32602


def test_mcp_arguments_convert_plain_types() -> None:
    """Each that is, and beside it what is refused."""
    accepted: list[tuple[Schema, object, object]] = [
        (integer_schema(""), "10", 10),
        (integer_schema(""), " 10", None),
        (integer_schema(""), "-3", -3),
        (integer_schema(""), 10.0, 10),
        (integer_schema(""), 10.5, None),
        (integer_schema(""), "10.5", None),
        (integer_schema(""), "1e3", None),
        (integer_schema(""), "ten", None),
        (integer_schema(""), "٣", None),
        (integer_schema(""), "9" * 20, None),
        (integer_schema(""), True, None),
        (number_schema(""), "0.5", 0.5),
        (number_schema(""), "NaN", None),
        (number_schema(""), 1, 1),
        (number_schema(""), True, None),
        (boolean_schema(""), "true", True),
        (boolean_schema(""), "false", False),
        (boolean_schema(""), "True", None),
        (boolean_schema(""), "yes", None),
        (boolean_schema(""), 1, None),
        (text_list_schema(""), "user:alice", ["user:alice"]),
        (text_list_schema(""), '["user:alice", "agent:b"]', ["user:alice", "agent:b"]),
        (text_list_schema(""), '["user:alice"', None),
        (text_list_schema(""), "[1]", None),
        (text_list_schema(""), {"a": 1}, None),
        (text_list_schema(""), 5, None),
        (object_list_schema(""), {"a": 1}, [{"a": 1}]),
        (object_list_schema(""), '[{"a": 1}]', [{"a": 1}]),
        (object_list_schema(""), "[" * 100_000, None),
        (object_list_schema(""), "x", None),
        (text_schema(""), 10, None),
        (text_schema(""), True, None),
        (text_schema(""), ["x"], None),
        (choice_schema("", "a"), "A", None),
    ]
    for schema, value, expected in accepted:
        if expected is None:
            with pytest.raises(WrongArgument, match=r"^a(\[0\])?: must be "):
                parse_tool_arguments("t", {"a": schema}, (), {"a": value})
            continue
        actual = parse_tool_arguments("t", {"a": schema}, (), {"a": value})["a"]
        assert (actual, type(actual)) == (expected, type(expected)), (schema, value)


def test_mcp_tools_never_erase_or_change_rights() -> None:
    """Nothing that a model meant otherwise can cost memory or open it."""
    operations: Any = importlib.import_module("functions.mcp.handler").OPERATIONS
    assert not [name for name in operations if operations[name].right in ("erase", "operator")]
    assert not [name for name in operations if re.search(r"keys|tenants|certificates|eras", name)]


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
def test_mcp_arguments_speaker_defaults_to_agent(
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


def test_mcp_arguments_refuse_wrong_speaker(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
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


def test_http_arguments_speaker_defaults_to_user(
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
