"""How long MCP's answers are: below 25,000 tokens, the limit of clients, whatever is stored and
asked; what is cut has a mark and a way to the rest."""

import base64
import json
import random
import re
from typing import Any

import pytest

from strandline.mcp.answer_size import MAX_TOKENS, count_fitting_chars, count_tokens
from strandline.mcp.rendering import fence_json, fence_lines
from tests.context_block import read_fence
from tests.mcp_calls import ALICE, HELPER, call_tool, post
from tests.support import Gateway

CLIENT_TOKENS = 25_000
EVENTS, EVENT_BYTES = 6, 60 * 1024
WORDS = ("buoy", "harbour", "battery", "Friday", "crane", "skipper", "dredger", "Petrel")


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(rights=("read", "write", "admin"))


def prose(size: int, seed: int) -> str:
    words = random.Random(seed).choices(WORDS, k=size // 5)
    return f"buoy number {seed}: {' '.join(words)}"[:size]


def noise(size: int, seed: int) -> str:
    return f"buoy {base64.b64encode(random.Random(seed).randbytes(size)).decode()}"[:size]


def chinese(size: int, seed: int) -> str:
    rand = random.Random(seed)
    return "buoy " + "".join(chr(rand.randrange(0x4E00, 0x9FA5)) for _ in range(size // 3))


def length(text: str) -> int:
    """The tokens of an answer: the more of two counts."""
    return max(count_tokens(text), len(text) // 4)


TEXTS = {"prose": prose, "noise": noise, "chinese": chinese}


def test_mcp_size_of_answers_fits_client_limit(gateway: Gateway, key: str) -> None:
    ids = store(gateway, key)
    calls: list[tuple[str, dict[str, Any]]] = [
        (tool, {**arguments, "format": form})
        for tool, arguments in (
            ("recall", {"query": "buoy", "limit": 100}),
            ("context", {"query": "buoy", "budget": 8000}),
            ("query_event_nodes", {"text": "buoy", "limit": 20}),
            ("query_event_nodes", {"limit": 500}),
            ("query_references", {"query": "buoy", "budget": 8000, "limit": 100}),
            ("query_references", {"budget": 8000}),
        )
        for form in ("text", "json")
    ]
    for name, arguments in calls:
        text, is_error = call_tool(gateway, name, arguments, key=key, participants=[ALICE])
        assert not is_error, (name, text[:500])
        assert length(text) < CLIENT_TOKENS, (name, arguments)
        block = re.search(r"<memory-.*</memory-[0-9a-f]{12}>", text, re.DOTALL)
        assert block, name
        read_fence(block[0])
    for form in ("text", "json"):
        found, cursor, pages = list[str](), None, 0
        while pages == 0 or cursor:
            more = {"limit": 20, "cursor": cursor, "format": form}
            text, is_error = call_tool(
                gateway, "query_event_nodes", more, key=key, participants=[ALICE]
            )
            assert not is_error, text
            found += [one for one in ids if one in text]
            cursors = re.findall(r"\nMore: cursor=(\S+)", text)
            cursor, pages = (cursors or [None])[0], pages + 1
            assert pages <= EVENTS
        assert sorted(found) == sorted(ids), form


def test_mcp_size_cut_lines_and_json_are_marked() -> None:
    for kind in TEXTS.values():
        lines = [f"- event {n}: {kind(1500, n)}" for n in range(200)]
        text = fence_lines(lines)
        assert length(text) < CLIENT_TOKENS
        (left_out,) = re.findall(r"\nCut: (\d+) of 200 lines", text)
        assert len(read_fence(text.partition("\nCut")[0])) == 200 - int(left_out)
        for page in (
            {"events": [{"event_id": n, "content": kind(60_000, n)} for n in range(20)]},
            {"events": [{"event_id": n, "content": kind(150, n)} for n in range(900)]},
            {"scopes": [{"events": [kind(60_000, n)]} for n in range(9)], "metadata": {"a": "b"}},
        ):
            text = fence_json(page)
            assert (length(text) < CLIENT_TOKENS, "\nCut to" in text) == (True, True)
            block = read_fence(text.partition("\nCut to")[0])
            assert json.loads(block[-1]).keys() == page.keys()


def store(gateway: Gateway, key: str) -> list[str]:
    ids: list[str] = []
    for n in range(EVENTS):
        content = noise(EVENT_BYTES, n)
        body = {"participants": [ALICE, HELPER], "role": "user", "content": content}
        ids.append(gateway.call("POST", "/api/v1/events", body, key=key).body["event_id"])
    return ids


def test_mcp_size_long_text_is_read_in_pieces(gateway: Gateway, key: str) -> None:
    content = "\n".join(f"Line {n}: the buoy is at {n * 7919}." for n in range(12_000))
    for text in (content[:60_000], content):
        body = {"participants": [ALICE], "role": "user", "content": text}
        event_id = gateway.call("POST", "/api/v1/events", body, key=key).body["event_id"]
        start, lines, pieces = 0, list[str](), 0
        while start is not None:
            arguments = {"event_id": event_id, "from": start, "participants": [ALICE]}
            answer, is_error = call_tool(gateway, "read", arguments, key=key)
            assert not is_error, answer
            assert length(answer) < CLIENT_TOKENS
            block = answer.partition("\nMore:")[0].partition("\nThe whole file")[0]
            lines.append("".join(read_fence(block)[1:]))
            more = re.findall(r"\nMore: from=(\d+) of", answer)
            start, pieces = (int(more[0]) if more else None), pieces + 1
            assert pieces < 50
        assert pieces > 1
        assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)


def test_mcp_text_keeps_indentation_and_blank_lines(gateway: Gateway, key: str) -> None:
    text = "def moor(boat):\n    if boat:\n\t\treturn 1\n\n    return 0"
    body = {"participants": [ALICE], "role": "user", "content": text}
    event_id = gateway.call("POST", "/api/v1/events", body, key=key).body["event_id"]
    arguments = {"event_id": event_id, "participants": [ALICE]}
    answer, is_error = call_tool(gateway, "read", arguments, key=key)
    assert (is_error, text in answer) == (False, True), answer
    answer, is_error = call_tool(gateway, "read", arguments | {"from": 900}, key=key)
    assert (is_error, f"from: the text ends at {len(text)}" in answer) == (True, True), answer


def test_mcp_size_file_resource_comes_in_pieces(gateway: Gateway, key: str) -> None:
    content = "\n".join(f"Line {n}: the buoy is at {n * 7919}." for n in range(12_000))
    body = {"participants": [ALICE], "role": "user", "content": content}
    cid = gateway.call("POST", "/api/v1/events", body, key=key).body["blob"]["cid"]
    uri, whole, pieces = f"memoria://file/{cid}", "", 0
    while uri:
        reply = post(gateway, "resources/read", {"uri": uri}, key=key, participants=[ALICE])
        first, *notes = reply.body["result"]["contents"]
        assert length(json.dumps(reply.body)) < CLIENT_TOKENS
        whole, pieces = whole + first["text"], pieces + 1
        uri = re.findall(rf"memoria://file/{cid}\?from=\d+", notes[0]["text"])[0] if notes else ""
    assert (whole, pieces > 1) == (content, True)
    for wrong in ("memoria://memory/x?from=1", f"memoria://file/{cid}?from=-1"):
        reply = post(gateway, "resources/read", {"uri": wrong}, key=key, participants=[ALICE])
        assert reply.body["error"]["code"] == -32002
    event = {"participants": [ALICE], "role": "user", "content": noise(EVENT_BYTES, 1)}
    stored = gateway.call("POST", "/api/v1/events", event, key=key).body
    memory = f"memoria://memory/{stored['cid']}"
    reply = post(gateway, "resources/read", {"uri": memory}, key=key, participants=[ALICE])
    document, note = reply.body["result"]["contents"]
    assert json.loads(document["text"])["event_id"] == stored["event_id"]
    assert f"memory_read with event_id {stored['event_id']}" in note["text"]
    assert length(json.dumps(reply.body)) < CLIENT_TOKENS


def test_mcp_size_graph_lists_fit_client_limit(gateway: Gateway, key: str) -> None:
    members = {"participants": [ALICE]}
    nodes = [{"type": "fact", "content": f"buoy {n} {noise(1400, n)}"} for n in range(50)]
    body = {**members, "nodes": nodes}
    assert gateway.call("POST", "/api/v1/graph/nodes", body, key=key).status == 201
    found, cursor, pages = set[str](), None, 0
    while pages == 0 or cursor:
        arguments = {"node_type": "fact", "limit": 100, "cursor": cursor, **members}
        text, _ = call_tool(gateway, "mie_list", arguments, key=key)
        assert length(text) < CLIENT_TOKENS
        found |= set(re.findall(r"- (fact:[0-9a-f-]{36})", text))
        cursors = re.findall(r"\nMore: cursor=(\S+)", text)
        cursor, pages = (cursors or [None])[0], pages + 1
    assert (len(found), pages > 1) == (50, True)
    for form in ("text", "json"):
        arguments = {"query": "buoy", "limit": 50, "format": form, **members}
        text, is_error = call_tool(gateway, "mie_query", arguments, key=key)
        assert (is_error, length(text) < CLIENT_TOKENS, "Cut" in text) == (False, True, True)


def test_mcp_size_token_count_errs_high() -> None:
    """Against what a tokenizer of large models makes of such texts: 4.4 characters of prose a
    token, 1.35 of base64, 0.9 of Chinese."""
    for kind, characters in (("prose", 4.4), ("noise", 1.35), ("chinese", 0.9)):
        text = TEXTS[kind](20_000, 1)
        assert count_tokens(text) * CLIENT_TOKENS / MAX_TOKENS >= len(text) / characters, kind
        shown = count_fitting_chars(text, 1000)
        assert 990 <= count_tokens(text[:shown]) <= 1001
