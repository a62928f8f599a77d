"""Lists that go on: stable under writes, ended by bytes, and cursors nobody can bend."""

import base64
import json
from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest

from strandline.db.database import Caller
from strandline.participants import derive_scope_id
from strandline.sealing import Sealer
from tests.strandline.db.isolation import ask
from tests.support import KEY_SECRET, Gateway, ScratchDatabase, Tell, user_message

ALICE = "user:alice"
MIB = 1024 * 1024
type Page = tuple[list[str], str | None]
type Lister = Callable[[Gateway, str, str | None, int], Page]


def memories(gateway: Gateway, key: str, cursor: str | None, limit: int) -> Page:
    query = {"limit": limit} | ({"cursor": cursor} if cursor else {})
    reply = gateway.call("GET", "/memories/list", key=key, query=query)
    assert reply.status == 200, reply.text
    return [event["event_id"] for event in reply.body["events"]], reply.body["next_cursor"]


def tree(gateway: Gateway, key: str, cursor: str | None, limit: int) -> Page:
    body = {"limit": limit, "cursor": cursor}
    reply = gateway.call("POST", "/api/v1/events/query", body, key=key)
    assert reply.status == 200, reply.text
    event_ids = [event["event_id"] for scope in reply.body["scopes"] for event in scope["events"]]
    return event_ids, reply.body["next_cursor"]


def scopes(gateway: Gateway, key: str, cursor: str | None, limit: int) -> Page:
    query = {"limit": limit} | ({"cursor": cursor} if cursor else {})
    reply = gateway.call("GET", "/api/v1/scopes", key=key, query=query)
    assert reply.status == 200, reply.text
    return [scope["scope_id"] for scope in reply.body["scopes"]], reply.body["next_cursor"]


LISTS: dict[str, Lister] = {"memories": memories, "tree": tree, "scopes": scopes}


def open_append(base: ScratchDatabase) -> psycopg.Connection[Any]:
    """A transaction of another writer's that has stored an event in a scope of its own, and has
    not committed."""
    connection = psycopg.connect(base.url)
    caller = Caller("acme", (), "*")
    ask(connection, caller.tenant, "{}", caller.writer)
    item: dict[str, object] = {
        "n": 0,
        "event_id": "01934b6e-7a3c-7d2e-9f10-2b3c4d5e6f70",
        "scope_id": str(derive_scope_id("acme", ["agent:slow", ALICE])),
        "participants": ["agent:slow", ALICE],
        "session_id": "",
        "channel": "http",
        "role": "user",
        "type": "message",
        "origin": "user",
        "content": "a slow commit",
        "parts": [],
        "metadata": {},
        "edges": [],
        "cid": "bafyslow",
        "blob_stored": False,
        "pieces": [{"start": 0, "end": 13, "text": "a slow commit"}],
        "bytes": 15,
    }
    rows = connection.execute(
        "select outcome from append_events(%s, '{}', %s, %s, false)",
        (caller.tenant, caller.writer, json.dumps([item])),
    )
    assert rows.fetchone() == ("created",)
    return connection


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("name", LISTS)
def test_query_pages_show_state_of_first_page(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, name: str, limit: int
) -> None:
    """While events and scopes are appended between pages, one by a transaction that began before
    the first page and commits after it."""
    key = gateway.key(user=ALICE)
    for n in range(9):
        tell(key, f"before {n}", ALICE, f"agent:{n % 5}")
    expected = LISTS[name](gateway, key, None, 500)[0]
    assert len(expected) == (5 if name == "scopes" else 9)
    with open_append(scratch_db) as slow:
        result, cursor = LISTS[name](gateway, key, None, limit)
        slow.commit()
    turns = 0
    while cursor is not None:
        tell(key, "meanwhile", ALICE, f"agent:{turns % 5}")
        tell(key, "meanwhile", ALICE, f"agent:new-{turns}")
        page, cursor = LISTS[name](gateway, key, cursor, limit)
        assert len(page) <= limit
        result += page
        turns += 1
        assert turns < 20
    assert sorted(result) == sorted(expected)
    if name != "tree":  # there a page is in order, scope by scope
        assert result == expected
    now = LISTS[name](gateway, key, None, 500)[0]
    assert len(now) > len(expected) + turns, "what came meanwhile is on a fresh first page"


def test_query_pages_without_mark_repeat_or_miss(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell
) -> None:
    """Teeth: the same cursor with a later snapshot shows the slow commit's neighbour state."""
    key = gateway.key(user=ALICE)
    with open_append(scratch_db) as slow:
        for n in range(4):
            tell(key, f"before {n}", ALICE)
        _, cursor = memories(gateway, key, None, 2)
        slow.commit()
    assert cursor is not None
    sealer = Sealer(KEY_SECRET)
    _, *place = sealer.unseal("cursor", "acme", cursor)
    late = sealer.seal("cursor", "acme", ["9999999:9999999:", *place])
    rest, _ = memories(gateway, key, cursor, 50)
    bent, _ = memories(gateway, key, late, 50)
    assert (len(rest), len(bent)) == (2, 3)


def page_through(gateway: Gateway, path: str, key: str, limit: int) -> list[list[Any]]:
    """All pages of a list of events; each is a response under 5 MiB."""
    pages: list[list[Any]] = []
    query: dict[str, object] = {"limit": limit}
    while len(pages) < 60:
        reply = gateway.call("GET", path, key=key, query=query)
        assert reply.status == 200
        assert len(reply.text.encode()) < 5 * MIB
        pages.append(reply.body["events"])
        if "next_after_seq" in reply.body:
            if not reply.body["events"]:
                return pages[:-1]
            query["after_seq"] = reply.body["next_after_seq"]
        elif reply.body["next_cursor"] is None:
            return pages
        else:
            query["cursor"] = reply.body["next_cursor"]
    raise AssertionError("the list does not end")


def big(kind: str, n: int) -> dict[str, object]:
    """An event of about 60 KB, larger on the wire than in the log."""
    if kind == "plain":
        return user_message(f"{n} " + "calm sea " * 6600, ALICE)
    if kind == "escaped":  # as JSON inside of JSON: a quote is two bytes, a control character six
        return user_message(f"{n} " + '"\n\x01' * 20_000, ALICE)
    parts = [{"content": f"{n} " + "calm sea " * 3300, "model": m} for m in ("m1", "m2")]
    # Twice on the wire: as content, and by its parts.
    return user_message("", ALICE, role="agent", speaker="agent:x", parts=parts) | {
        "content": None,
        "participants": [ALICE, "agent:x"],
    }


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("plain", marks=pytest.mark.proof),
        "escaped",
        pytest.param("parts", marks=pytest.mark.proof),
    ],
)
def test_query_pages_end_by_bytes_and_complete(gateway: Gateway, kind: str) -> None:
    key = gateway.key(user=ALICE)
    events = [big(kind, n) for n in range(120)]
    step = 10 if kind == "escaped" else 40
    for start in range(0, len(events), step):
        batch = {"events": events[start : start + step]}
        reply = gateway.call("POST", "/api/v1/events/batch", batch, key=key)
        assert (reply.status, reply.body["failed"]) == (200, 0), reply.text[:500]
    scope = gateway.call("GET", "/api/v1/scopes", key=key).body["scopes"][0]["scope_id"]
    feed = page_through(gateway, f"/api/v1/scopes/{scope}/events", key, 500)
    listing = page_through(gateway, "/memories/list", key, 500)
    assert [event["seq"] for page in feed for event in page] == list(range(1, 121))
    assert [event["seq"] for page in listing for event in page] == list(range(120, 0, -1))
    assert 2 <= len(listing) <= 30
    tree_of_all = gateway.call("POST", "/api/v1/events/query", {"limit": 500}, key=key)
    assert len(tree_of_all.text.encode()) < 5 * MIB


NAMES = sorted([ALICE, *(f"agent:{'🌊' * 190}{n:02}" for n in range(63))])


def test_query_pages_of_events_with_long_names_end_by_bytes(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for _ in range(5):
        batch = {"events": [user_message("x", *NAMES) for _ in range(24)]}
        reply = gateway.call("POST", "/api/v1/events/batch", batch, key=key)
        assert (reply.status, reply.body["failed"]) == (200, 0), reply.text[:500]
    listing = page_through(gateway, "/memories/list", key, 500)
    assert [event["seq"] for page in listing for event in page] == list(range(120, 0, -1))


def test_query_pages_of_scopes_with_long_names_end_by_bytes(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(rights=("admin",))
    with psycopg.connect(scratch_db.admin_url) as administrator:
        administrator.execute(
            "insert into scopes (tenant_id, scope_id, participants, created_at, last_recorded_at)"
            " select 'acme', gen_random_uuid(), %s, now() - n * interval '1 s', now()"
            " from generate_series(1, 120) n",
            (NAMES,),
        )
    results: list[str] = []
    query: dict[str, object] = {"limit": 500, "everybody": "true"}
    while "cursor" not in query or query["cursor"]:
        reply = gateway.call("GET", "/api/v1/scopes", key=key, query=query)
        assert len(reply.text.encode()) < 5 * MIB
        results += [scope["scope_id"] for scope in reply.body["scopes"]]
        query["cursor"] = reply.body["next_cursor"]
    assert len(set(results)) == len(results) == 120


def word(document: object) -> str:
    """Sealed as ours are: what only a fault of our own could send out."""
    if isinstance(document, list):
        document = [*cast("list[object]", document), "a list", "a lot"]
    return Sealer(KEY_SECRET).seal("cursor", "acme", document)


AT, ROW = "2026-05-01T00:00:00+00:00", "01934b6e-7a3c-7d2e-9f10-2b3c4d5e6f70"
BENT = [
    "x",
    "****",
    "é",
    "",
    word(None),
    word(7),
    word({}),
    word(["1:1:", AT]),
    word(["1:1:", AT, ROW]),
    word(["1:1:", AT, ROW, 1, 1]),
    word(["1:1:", AT, ROW, -1]),
    word(["1:1:", AT, ROW, 2**63]),
    word(["1:1:", AT, ROW, "x"]),
    word(["1:1:", AT, ROW, None]),
    word([1, AT, ROW, 1]),
    word(["1:1:", 7, ROW, 1]),
    word(["1:1:", "2026-05-01T00:00:00", ROW, 1]),
    word(["1:1:", AT, 7, 1]),
    word(["1:1:", AT, "not an id", 1]),
    word(["", AT, ROW, 1]),
    word(["now()", AT, ROW, 1]),
    word(["5:3:", AT, ROW, 1]),
    word(["0:0:", AT, ROW, 1]),
    word(["1:9:5,3", AT, ROW, 1]),
    word(["1:9:12", AT, ROW, 1]),
    word(["99999999999999999999:99999999999999999999:", AT, ROW, 1]),
    word(["\u0661:\u0661:", AT, ROW, 1]),
    base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("="),
    base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("="),
]


def test_query_pages_refuse_forged_cursor(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    tell(key, "so that there is something to compare with a mark", ALICE)
    for cursor in BENT:
        replies = [
            gateway.call("GET", path, key=key, query={"cursor": cursor})
            for path in ("/memories/list", "/api/v1/scopes")
        ]
        replies.append(gateway.call("POST", "/api/v1/events/query", {"cursor": cursor}, key=key))
        for reply in replies:
            assert reply.status == 400, (cursor, reply.text)
            assert reply.error["details"] == {"field": "cursor"}
            assert "send next_cursor unchanged" in reply.error["message"]


def test_query_pages_refuse_bad_limit(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for limit in ("0", "501", "-1", "x", "1.5", "1e2", "\u0663", "9" * 30, ""):
        for path in ("/memories/list", "/api/v1/scopes", f"/api/v1/scopes/{ROW}/events"):
            reply = gateway.call("GET", path, key=key, query={"limit": limit})
            assert (reply.status, reply.error["details"]["field"]) == (422, "limit"), limit


def test_query_pages_refuse_bad_seq(gateway: Gateway) -> None:
    path = f"/api/v1/scopes/{ROW}/events"
    for seq in ("-1", "x", str(2**63)):
        reply = gateway.call("GET", path, key=gateway.key(user=ALICE), query={"after_seq": seq})
        assert (reply.status, reply.error["details"]["field"]) == (422, "after_seq")


def test_query_pages_complete_when_clock_stands_still(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell
) -> None:
    """Where the clock says nothing, seq orders a scope's events, and ids need not agree with it."""
    key = gateway.key(user=ALICE)
    for n in range(9):
        tell(key, f"turn {n}", ALICE)
    query = (
        "set session_replication_role = replica; update events set recorded_at = '2026-01-01Z',"
        " event_id = ('00000000-0000-7000-8000-' || lpad((100 - seq)::text, 12, '0'))::uuid"
    )
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
        administrator.execute(query)
    for lister in (memories, tree):
        ids: list[str] = []
        cursor: str | None = None
        while not ids or cursor is not None:
            page, cursor = lister(gateway, key, cursor, 2)
            ids += page
        assert len(ids) == len(set(ids)) == 9


def test_query_pages_of_feed_skip_erased_events(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell
) -> None:
    key = gateway.key(user=ALICE)
    scopes_told = {tell(key, f"turn {n}", ALICE)["scope_id"] for n in range(6)}
    erase = (
        "update events set erased_at = now(), content = null, cid = null"
        " where seq between 2 and 4 returning 1"
    )
    assert len(scratch_db.rows(erase)) == 3
    query = {"after_seq": 1, "limit": 2}
    reply = gateway.call("GET", f"/api/v1/scopes/{scopes_told.pop()}/events", key=key, query=query)
    assert [event["seq"] for event in reply.body["events"]] == [5, 6]
    assert reply.body["next_after_seq"] == reply.body["last_seq"] == 6


def test_query_pages_outlive_logical_restore(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell
) -> None:
    """Rows of another cluster bear numbers of transactions that are yet to come here."""
    key = gateway.key(user=ALICE)
    for n in range(3):
        tell(key, f"turn {n}", ALICE, f"agent:{n}")
    scratch_db.rows("update events set xid = '900000000'")
    scratch_db.rows("update scopes set xid = '900000000'")
    for lister in (memories, tree, scopes):
        first, cursor = lister(gateway, key, None, 2)
        rest, _ = lister(gateway, key, cursor, 2)
        assert (len(first), len(rest)) == (2, 1), lister.__name__


def test_query_text_finds_distant_words_of_large_payload(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    filler = "the quick brown fox jumps over it " * 1500
    tell(key, f"alpha {filler} zebrafish {filler} omegaword", ALICE)
    tell(key, "nothing of that kind", ALICE)
    for text, result in (
        ("alpha omegaword", 1),
        ("alpha -zebrafish", 0),
        ("alpha -whale", 1),
        ("whale or omegaword", 1),
        ("alice", 0),
        ("-alice kind", 1),
    ):
        query = {"text": text}
        reply = gateway.call("POST", "/api/v1/events/query", query, key=key)
        events = [event for scope in reply.body["scopes"] for event in scope["events"]]
        assert len(events) == result, text


def test_query_pages_refuse_cursor_of_another_list(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key()
    for n in range(3):
        tell(key, f"note {n}")
        tell(key, "other", "user:bob", f"agent:{n}")
    q = {"limit": 1, "participants": ALICE}
    query = {"limit": 1, "participants": [ALICE]}
    events = gateway.call("GET", "/memories/list", key=key, query=q).body["next_cursor"]
    next_cursor = gateway.call("POST", "/api/v1/events/query", query, key=key).body["next_cursor"]
    for reply in (
        gateway.call("GET", "/api/v1/scopes", key=key, query={**q, "cursor": events}),
        gateway.call("GET", "/memories/list", key=key, query={**q, "cursor": next_cursor}),
        gateway.call(
            "GET", "/memories/list", key=key, query={"participants": "user:bob", "cursor": events}
        ),
        gateway.call(
            "POST",
            "/api/v1/events/query",
            {**query, "cursor": next_cursor, "role": "agent"},
            key=key,
        ),
    ):
        assert (reply.status, reply.error["details"]["field"]) == (400, "cursor")
        assert "another list" in reply.error["message"]
    again = gateway.call("POST", "/api/v1/events/query", {**query, "cursor": next_cursor}, key=key)
    assert again.status == 200
