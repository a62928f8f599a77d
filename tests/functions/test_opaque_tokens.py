"""Marks, cursors and tokens tell a caller nothing, of other tenants least of all."""

import base64
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.sealing import Sealer
from tests.contract import takes
from tests.support import KEY_SECRET, Gateway, ScratchDatabase, Tell

QUERY, SESSION = "/api/v1/events/query", "/api/v1/sessions/dock"
ALICE, HELPER = "user:alice", "agent:helper"
EVERYBODY = {"everybody": "true"}


@pytest.fixture
def key(gateway: Gateway, tell: Tell) -> str:
    """A reader's of a tenant that nobody writes to any more."""
    key = gateway.key("beta", rights=("read", "write", "admin", "operator"))
    session = {"session_id": "dock", "participants": [ALICE, HELPER]}
    for n in range(3):
        session["session_id"] = f"dock{n or ''}"
        assert gateway.call("POST", "/api/v1/sessions", session, key=key).status == 201
        tell(key, f"note {n}", ALICE, HELPER, session_id="dock")
        tell(key, f"aside {n}", ALICE, f"agent:{n}")
        gateway.key("beta")
    return key


def _words(gateway: Gateway, key: str) -> Iterator[tuple[str, str]]:
    """Every sealed word of a round of reads, with what it is."""
    one: dict[str, Any] = {"limit": 1}
    for method, path, body, query in (
        ("POST", QUERY, one, None),
        ("GET", "/memories/list", None, one),
        ("GET", "/api/v1/scopes", None, one),
        ("GET", "/api/v1/sessions", None, one),
        ("GET", "/api/v1/admin/tenants/beta/keys", None, one),
        ("GET", "/api/v1/admin/tenants/beta/audit", None, one),
        ("POST", "/api/v1/recall", {"query": "note"}, None),
        ("POST", "/api/v1/context", {"query": "note"}, None),
        ("POST", "/api/v1/references/query", {"query": "note"}, None),
        ("POST", "/api/v1/references/query", {}, None),
        ("GET", f"{SESSION}/context", None, None),
        ("GET", f"{SESSION}/context", None, {"query": "note"}),
        ("POST", f"{SESSION}/context/search", {"query": "note"}, None),
    ):
        whole = EVERYBODY if takes(method, path, "everybody") else {}
        reply = gateway.call(method, path, body, key=key, query={**(query or {}), **whole})
        assert reply.status == 200, reply.text
        results = {name: reply.body.get(name) for name in ("mark", "next_cursor", "read_token")}
        words = [(f"{path} {name}", word) for name, word in results.items() if word]
        assert words, path
        yield from words


def _bytes(word: str) -> bytes:
    return base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))


def test_opaque_tokens_hide_transaction_counter(
    gateway: Gateway, key: str, scratch_db: ScratchDatabase, tell: Tell
) -> None:
    rounds = list[dict[str, str]]()
    for writes in (0, 0, 20):  # of another tenant
        for n in range(writes):
            tell(gateway.key("acme"), f"elsewhere {n}")
        rounds.append(dict(_words(gateway, key)))
    ((xid,),) = scratch_db.rows("select pg_current_xact_id()::text")
    near = [str(int(xid) - n).encode() for n in range(200)]
    for words in rounds:
        for name, word in words.items():
            raw = _bytes(word)
            assert not any(number in raw for number in near), name
            assert not re.search(rb"\d+:\d+:", raw), name
            assert len(set(raw)) > len(raw) * 0.45, name  # as of bytes by lot
    for name in rounds[0]:
        words = [words[name] for words in rounds]
        assert len({len(word) for word in words}) == 1, name
        # They differ always: so it does not tell either that something was written elsewhere.
        assert len(set(words)) == len(words), name
        for one, other in itertools.combinations(map(_bytes, words), 2):
            same = sum(a == b for a, b in zip(one, other, strict=True))
            assert same < len(one) * 0.1, name


def test_opaque_tokens_repeat_page_byte_for_byte(gateway: Gateway, key: str, tell: Tell) -> None:
    first = gateway.call("POST", QUERY, {"limit": 1}, key=key, query=EVERYBODY).body
    query = {"limit": 1, "cursor": first["next_cursor"]}
    second = gateway.call("POST", QUERY, query, key=key, query=EVERYBODY)
    tell(gateway.key("acme"), "elsewhere")
    assert gateway.call("POST", QUERY, query, key=key, query=EVERYBODY).text == second.text
    assert second.body["mark"] == first["mark"]


def test_opaque_tokens_refuse_cursor_of_other_tenant(gateway: Gateway, key: str) -> None:
    cursor = gateway.call("POST", QUERY, {"limit": 1}, key=key, query=EVERYBODY).body["next_cursor"]
    other = gateway.key("acme", rights=("read", "admin"))
    for method, path, place in (("POST", QUERY, "body"), ("GET", "/memories/list", "query")):
        headers: dict[str, Any] = {place: {"cursor": cursor}}
        query = {**headers.get("query", {}), **EVERYBODY}
        reply = gateway.call(method, path, headers.get("body"), query=query, key=other)
        assert (reply.status, reply.error["details"]["field"]) == (400, "cursor")
        assert "send next_cursor unchanged" in reply.error["message"]


def test_opaque_tokens_unsealed_are_detected(
    gateway: Gateway,
    key: str,
    scratch_db: ScratchDatabase,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plain(self: Sealer, purpose: str, tenant: str, document: object) -> str:
        del self, purpose, tenant
        return base64.urlsafe_b64encode(repr(document).encode()).decode().rstrip("=")

    monkeypatch.setattr(Sealer, "seal", plain)
    with pytest.raises(AssertionError):
        test_opaque_tokens_hide_transaction_counter(gateway, key, scratch_db, tell)


def test_opaque_tokens_are_read_by_every_process(gateway: Gateway, key: str) -> None:
    cursor = gateway.call("POST", QUERY, {"limit": 1}, key=key, query=EVERYBODY).body["next_cursor"]
    assert Sealer(KEY_SECRET).unseal("cursor", "beta", cursor)
