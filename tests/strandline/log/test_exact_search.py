"""Substring search: `mode=exact` of POST /api/v1/events/query, before and after the text is
indexed."""

from collections.abc import Callable

import pytest

from strandline.background import embed_scopes
from tests.support import Gateway, Reply, ScratchDatabase, Tell

ALICE, BOB = "user:alice", "user:bob"
UNINDEXED_QUERY = "select count(*) from scopes where last_seq > indexed_seq"
type Settle = Callable[[], None]


def search(gateway: Gateway, key: str, text: object, **narrowing: object) -> Reply:
    body = {"text": text, "mode": "exact", **narrowing}
    return gateway.call("POST", "/api/v1/events/query", body, key=key)


def contents(reply: Reply) -> list[str]:
    assert reply.status == 200, reply.text
    events = [event for scope in reply.body["scopes"] for event in scope["events"]]
    return [event["content"] for event in events]


@pytest.fixture(params=["as appended", "as indexed", "in part"])
def settle(request: pytest.FixtureRequest, gateway: Gateway, scratch_db: ScratchDatabase) -> Settle:
    """What happens between an append and a search: nothing, the worker, or half of its work."""

    def work() -> None:
        if request.param == "as appended":
            return
        gateway.sweep()
        assert scratch_db.rows(UNINDEXED_QUERY) == [(0,)]
        if request.param == "in part":
            scratch_db.rows("update scopes set indexed_seq = last_seq / 2")
            scratch_db.rows(
                "delete from event_texts t using events e, scopes s where e.event_id = t.event_id"
                " and s.scope_id = e.scope_id and e.seq > s.indexed_seq"
            )

    return work


EXPECTED_HITS: list[tuple[str, list[int]]] = [
    ("strand", [0]),
    ("RANDLINE", [0]),
    ("e, c", [1]),
    ("c++ ", [1]),
    ("->x", []),
    ("%_%", [2]),
    ("100%", [2]),
    ("1_0", []),
    ("\\n\\", [3]),
    ("caf\u00e9", [4]),
    ("CAFE\u0301", [4]),
    ("\u6f6e\u6c50\u8868", [5]),
    ("'; drop", [6]),
    ("nowhere", []),
    ("\U0001f30a!\U0001f30a", [7]),
    ("   ", [7]),
]
TEXTS = [
    "The Strandline of the tide",
    "Rust, Go, Me, C++ and SQL",
    "100%_% sure of 100 things",
    r"C:\n\new",
    "The cafe\u0301 is closed",
    "\u4eca\u65e5\u306e\u6f6e\u6c50\u8868\u3092\u898b\u308b",
    "Robert'; drop table events; --",
    "   \U0001f30a!\U0001f30a",
]


def test_exact_search_matches_text_literally(gateway: Gateway, tell: Tell, settle: Settle) -> None:
    """Case and composition do not matter; spaces and punctuation do, and nothing is a wildcard."""
    key = gateway.key(user=ALICE)
    for text in TEXTS:
        tell(key, text, ALICE)
    settle()
    for text, places in EXPECTED_HITS:
        assert contents(search(gateway, key, text)) == [TEXTS[n] for n in places], text


def test_exact_search_finds_only_visible_events(
    gateway: Gateway, tell: Tell, settle: Settle
) -> None:
    key, other = gateway.key(), gateway.key("beta")
    tell(key, "alice's harbour", ALICE)
    tell(key, "bob's harbour", BOB)
    tell(key, "their harbour", ALICE, BOB, session_id="s1")
    tell(other, "beta's harbour", ALICE)
    settle()
    cases: list[tuple[str, dict[str, object], set[str]]] = [
        (gateway.key(user=ALICE), {}, {"alice's harbour", "their harbour"}),
        (gateway.key(user=ALICE), {"participants": [ALICE, BOB]}, {"their harbour"}),
        (gateway.key(user=BOB), {"session_id": "s1"}, {"their harbour"}),
        (gateway.key(user=BOB), {"session_id": "s2"}, set()),
        (gateway.key("beta", user=ALICE), {}, {"beta's harbour"}),
        (gateway.key("beta", user=BOB), {}, set()),
    ]
    for caller, narrowing, expected in cases:
        assert set(contents(search(gateway, caller, "HARBOUR", **narrowing))) == expected


def test_exact_search_pages_from_newest_back(gateway: Gateway, tell: Tell, settle: Settle) -> None:
    """The first page is what many events match; those far back are found by index."""
    key = gateway.key(user=ALICE)
    numbers = [*range(3), *range(20, 60)]
    for n in range(60):
        tell(key, f"turn {n} {'of the harbour' if n in numbers else 'of nothing'}", ALICE)
    settle()
    ids, cursor = list[str](), None
    for _ in range(20):
        reply = search(gateway, key, "the harb", limit=7, cursor=cursor)
        page = contents(reply)
        ids += reversed(page)
        cursor = reply.body["next_cursor"]
        if cursor is None:
            break
    assert [int(text.split()[1]) for text in ids] == numbers[::-1]


def test_exact_search_cursor_is_bound_to_its_mode(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    for n in range(3):
        tell(key, f"harbour {n}", ALICE)
    cursor = search(gateway, key, "harbour", limit=1).body["next_cursor"]
    body = {"text": "harbour", "limit": 1, "cursor": cursor}
    assert gateway.call("POST", "/api/v1/events/query", body, key=key).status == 400
    assert search(gateway, key, "harbour", limit=1, cursor=cursor).status == 200


@pytest.mark.parametrize("text", ["", "ab", "e\u0301a", None])
def test_exact_search_refuses_too_short_text_by_name(gateway: Gateway, text: str | None) -> None:
    reply = search(gateway, gateway.key(user=ALICE), text)
    assert (reply.status, reply.error["code"]) == (422, "invalid_field")
    assert reply.error["details"]["field"] == "text"


def test_exact_search_refuses_unknown_mode(gateway: Gateway) -> None:
    body = {"text": "harbour", "mode": "like"}
    reply = gateway.call("POST", "/api/v1/events/query", body, key=gateway.key(user=ALICE))
    assert (reply.status, reply.error["details"]["field"]) == (422, "mode")


def test_exact_search_does_not_read_payloads(gateway: Gateway, tell: Tell, settle: Settle) -> None:
    """Content that moved to S3 is not in the log, so that no text can be compared with it."""
    key = gateway.key(user=ALICE)
    tell(key, "a harbour " * 10_000, ALICE, speaker=ALICE)
    settle()
    words = gateway.call("POST", "/api/v1/events/query", {"text": "harbour"}, key=key)
    assert len(words.body["scopes"]) == 1
    assert contents(search(gateway, key, "harbour")) == []


def test_exact_search_omits_erased_event(
    gateway: Gateway, tell: Tell, settle: Settle, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    event_id = tell(key, "the old harbour", ALICE)["event_id"]
    tell(key, "the new harbour", ALICE)
    erase = "update events set erased_at = now(), content = null, cid = null where event_id = %s"
    settle()
    scratch_db.rows(erase, event_id)
    assert contents(search(gateway, key, "harbour")) == ["the new harbour"]


def test_exact_search_index_fills_in_batches_without_payloads(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed_scopes, "SUBSTRING_BATCH", 2)
    key = gateway.key(user=ALICE)
    for n in range(5):
        tell(key, f"Harbour {n}", ALICE)
    tell(key, "a long log line " * 6000, ALICE, speaker=ALICE)
    tell(key, "Another's", ALICE, BOB)
    gateway.sweep()
    gateway.sweep()
    indexed = sorted(text for (text,) in scratch_db.rows("select text from event_texts"))
    assert indexed == ["another's", *(f"harbour {n}" for n in range(5))]
    assert scratch_db.rows(UNINDEXED_QUERY) == [(0,)]
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]


def test_exact_search_index_fills_at_next_sweep_without_work(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    """As after the release that brings the index: the log is embedded and folded long since."""
    tell(gateway.key(user=ALICE), "the harbour", ALICE)
    gateway.sweep()
    scratch_db.rows("delete from event_texts")
    scratch_db.rows("update scopes set indexed_seq = 0")
    scratch_db.rows("update tenants set swept_at = swept_at - interval '2 days'")
    gateway.sweep()
    assert scratch_db.rows("select text from event_texts") == [("the harbour",)]
