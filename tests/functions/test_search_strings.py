"""Whatever string a caller looks for things by: an answer or a refusal, never a fault of ours."""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

import pytest

from strandline.log.fulltext_input import to_websearch_query
from tests.contract import takes
from tests.search_strings import FIXED, rules, strings
from tests.support import Gateway, ScratchDatabase, Tell

ALICE, HELPER = "user:alice", "agent:helper"
QUERY, RECALL = "/api/v1/events/query", "/api/v1/recall"
CONTEXT = "/api/v1/sessions/dock/context"
GRAPH = "/api/v1/graph"
WORD = "lighthouse"


class Sink(NamedTuple):
    """A place for a string in a request: of a body, of a query string or of a path."""

    method: str
    path: str
    body: Callable[[str], object] | None = None
    query: Callable[[str], Mapping[str, object]] | None = None


def _with_name(name: str, fixed: Mapping[str, object]) -> Callable[[str], Mapping[str, object]]:
    def parameters(text: str) -> Mapping[str, object]:
        return {**fixed, name: text}

    return parameters


def _in_body(path: str, *names: str, **constants: object) -> list[Sink]:
    return [Sink("POST", path, _with_name(name, constants)) for name in names]


def _in_query(path: str, *names: str) -> list[Sink]:
    return [Sink("GET", path, None, _with_name(name, {})) for name in names]


def _participants(text: str) -> object:
    return {"participants": [text, f"user:{text}"]}


def _metadata(text: str) -> object:
    return {"metadata": {text: [text, {text: text}]}, "text": text[:1000]}


def _recalled_metadata(text: str) -> object:
    return {"metadata": {"a": {text: text}}, "query": text}


_NARROW = ("session_id", "channel", "speaker", "since", "until", "role", "type", "origin")
WORDS = [
    *_in_body(QUERY, "text") * 4,
    *_in_body(RECALL, "query"),
    *_in_body("/api/v1/context", "query"),
    *_in_body("/api/v1/references/query", "query"),
    *_in_body(f"{GRAPH}/search", "query"),
    *_in_body(f"{GRAPH}/search", "query", mode="exact"),
    *_in_body(f"{GRAPH}/conflicts", "content"),
    *_in_body(f"{CONTEXT}/search", "query"),
    *_in_query(CONTEXT, "query"),
]
"""What is read as words."""
NAMES = [
    *_in_body(QUERY, *_NARROW, "scope_id", "cursor"),
    *_in_body(RECALL, *_NARROW, query=WORD),
    *_in_body("/api/v1/context", "session_id", "scope_id", "now"),
    *_in_body("/api/v1/references/query", "read_token", "now"),
    *_in_body(f"{GRAPH}/search", "mode", "as_of", query=WORD),
    *_in_body(f"{GRAPH}/traverse", "node_id"),
    *_in_body(f"{GRAPH}/conflicts", "node_id", "category"),
    *_in_body(f"{GRAPH}/exports", "scope_id"),
    *_in_body(f"{GRAPH}/imports", "cid", "content"),
    *_in_query(f"{GRAPH}/status", "participants"),
    Sink("POST", QUERY, _participants),
    Sink("POST", QUERY, _metadata),
    Sink("POST", RECALL, _recalled_metadata),
    *_in_query("/memories/list", "participants", "cursor", "limit"),
    *_in_query("/api/v1/scopes", "participants", "cursor"),
    *_in_query("/api/v1/sessions", "participants", "cursor"),
    *_in_query("/api/v1/sessions/dock/segments", "cursor", "include", "scope_id"),
    *_in_query("/api/v1/sessions/dock/analysis/heat", "cursor"),
    *_in_query("/api/v1/model-calls", "cursor"),
    *_in_query("/api/v1/graph/nodes", "type", "category", "status", "as_of", "sort", "cursor"),
    *_in_query("/api/v1/graph/merges/proposals", "scope_id", "min_similarity"),
    *_in_query("/api/v1/graph/communities", "node_id", "participants", "cursor"),
    *_in_query("/api/v1/topics", "version", "scope_id", "slot", "node_id", "cursor"),
    *_in_query("/api/v1/admin/communities", "node_id", "cursor"),
    *_in_query("/api/v1/admin/jobs", "state", "kind", "cursor"),
    *_in_query("/api/v1/admin/tenants", "cursor"),
    *_in_query("/api/v1/admin/tenants/acme/keys", "cursor"),
    *_in_query("/api/v1/admin/tenants/acme/audit", "cursor"),
]
"""What is compared, contained, or a place in a list."""
PATHS = (
    "/api/v1/sessions/{}", "/api/v1/sessions/{}/context", "/api/v1/events/{}", "/api/v1/scopes/{}",
    "/api/v1/provenance/{}", "/api/v1/graph/nodes/{}", "/api/v1/graph/nodes/{}/history",
    "/api/v1/graph/topics/{}/fields", "/api/v1/graph/topics/topic:x/fields/{}",
    "/api/v1/graph/communities/{}",
    "/api/v1/scopes/{}/events", "/memory/{}", "/ipfs/{}", "/ipfs/{}/{}", "/file/{}",
    "/api/v1/admin/jobs/{}",
    "/api/v1/admin/tenants/{}", "/api/v1/admin/tenants/acme/keys/{}",
)  # fmt: skip


@pytest.fixture
def key(gateway: Gateway, tell: Tell) -> str:
    """A key for everything, of a tenant with one session."""
    key = gateway.key(rights=("read", "write", "admin", "operator"))
    session = {"session_id": "dock", "participants": [ALICE, HELPER]}
    assert gateway.call("POST", "/api/v1/sessions", session, key=key).status == 201
    tell(key, f"The {WORD} is lit at seven.", session_id="dock", metadata={"a": {"b": "c"}})
    tell(key, "A buoy went adrift.", session_id="dock")
    return key


def _faults(gateway: Gateway, key: str, sinks: list[Sink], texts: list[str]) -> Iterator[str]:
    """Where a string brought about a fault of ours."""
    rand = random.Random(7)
    for text in texts:
        place = rand.choice(sinks)
        if place.query and any("\ud800" <= c <= "\udfff" for c in text):
            continue  # no URL can say it
        query = {} if place.query is None else {**place.query(text)}
        has_readers = "participants" in query or place.body is _participants
        if not has_readers and takes(place.method, place.path, "everybody"):
            query["everybody"] = "true"
        reply = gateway.call(
            place.method,
            place.path,
            place.body and place.body(text),
            query=query,
            key=key,
        )
        if reply.status >= 500:
            yield f"{place.method} {place.path} {text[:80]!r} {len(text)}: {reply.status}"


def test_search_strings_of_many_dashes_are_read(gateway: Gateway, key: str) -> None:
    for sink in WORDS:
        for text in ("-" * 33, "a " + "-" * 32 + "b", "- " * 50, "-!" * 50):
            body, params = sink.body and sink.body(text), sink.query and sink.query(text)
            if takes(sink.method, sink.path, "everybody"):
                params = {**(params or {}), "everybody": "true"}
            reply = gateway.call(sink.method, sink.path, body, query=params, key=key)
            assert reply.status == 200, (sink.path, text)


def test_search_strings_as_words_cause_no_server_error(
    gateway: Gateway, key: str, proof_size: Callable[[int], int]
) -> None:
    texts = strings(20261, proof_size(2000), 1000) + strings(20262, proof_size(700), 8000)[FIXED:]
    assert list(_faults(gateway, key, WORDS, texts)) == []


def test_search_strings_as_names_cause_no_server_error(
    gateway: Gateway, key: str, proof_size: Callable[[int], int]
) -> None:
    texts = strings(20263, proof_size(2500), 128) + strings(20264, proof_size(700), 4000)[FIXED:]
    assert list(_faults(gateway, key, NAMES, texts)) == []


def test_search_strings_as_paths_cause_no_server_error(
    gateway: Gateway, key: str, proof_size: Callable[[int], int]
) -> None:
    rand, wrong = random.Random(7), list[str]()
    for text in strings(20265, proof_size(3000), 200):
        if any("\ud800" <= c <= "\udfff" for c in text):
            continue  # no URL can say it
        path = rand.choice(PATHS).replace("{}", quote(text, safe=""))
        query = {"everybody": "true"} if takes("GET", path, "everybody") else None
        reply = gateway.call("GET", path, key=key, query=query)
        if reply.status >= 500:
            wrong.append(f"{path[:120]}: {reply.status}")
    assert wrong == []


def _count_hits(gateway: Gateway, key: str, text: str) -> int:
    query = {"everybody": "true"}
    reply = gateway.call("POST", QUERY, {"text": text}, key=key, query=query)
    assert reply.status == 200, (text, reply.text)
    return sum(len(scope["events"]) for scope in reply.body["scopes"])


def test_search_strings_find_word_between_rules(
    gateway: Gateway, key: str, proof_size: Callable[[int], int]
) -> None:
    for rule in rules(20266, proof_size(500)):
        text = f"{rule} {WORD} {rule}"
        assert _count_hits(gateway, key, text) == 1, text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{'-' * 33}{WORD}", 1),
        (f"{'-' * 32}{WORD}", 1),
        (f"{'- ' * 50}{WORD}", 1),
        (f"- {WORD}\n- seven", 1),
        ("-" * 33, 0),
        (f"-{WORD}", 1),  # the other one
        (f"adrift -{WORD}", 1),
        (f"lit -{WORD}", 0),
        (f'lit -"{WORD} is lit"', 0),
        (f'lit -"{WORD} is dark"', 1),
        (f'"{WORD} is lit"', 1),
        (f'"lit {WORD}"', 0),
        (f'"{WORD}', 1),
        (f"{WORD} or adrift", 2),
        (f"{WORD} OR adrift", 2),
        (f"{WORD} adrift", 0),
        (f"-({WORD})", 1),
        ("buoy or -adrift", 2),
    ],
)
def test_search_strings_keep_web_search_syntax(
    gateway: Gateway, key: str, text: str, count: int
) -> None:
    assert _count_hits(gateway, key, text) == count


def test_search_strings_match_postgres_parsing(
    scratch_db: ScratchDatabase, proof_size: Callable[[int], int]
) -> None:
    """Where no dash meets another and no word is an address, the spelling is the same query."""
    meeting = ("--", "- ", "-!", "-&", "-|", " -")
    texts = [
        text
        for text in strings(20267, proof_size(20_000), 200)
        if text.isprintable()
        and ":" not in text
        and not any(dashes in re.sub("[()]", "", text) for dashes in meeting)
    ]
    assert len(texts) > proof_size(2000)
    rows = scratch_db.rows(
        "select a, b from unnest(%s::text[], %s::text[]) t (a, b) where"
        " websearch_to_tsquery('english', a) is distinct from websearch_to_tsquery('english', b)",
        texts,
        [to_websearch_query(text) for text in texts],
    )
    assert rows == []
