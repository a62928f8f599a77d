"""What a session's agent has in mind: short-term memory, and chains with their heat."""

import functools
import json
import math
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.chains import store_recalls
from strandline.context import session_context
from strandline.context.short_term_memory import coalesce_by_execution
from strandline.embeddings.embedder import Embedder
from strandline.sessions.chains_view import SessionReadContext
from strandline.sessions.store import RecentEventExecution
from tests.chains import add_chain
from tests.strandline.embeddings.fake_embedders import delay
from tests.support import Gateway, ScratchDatabase, user_message

SESSIONS = "/api/v1/sessions"
ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
type Tell = Callable[..., Any]
type AddChain = Callable[..., str]


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


@pytest.fixture
def chain(gateway: Gateway, scratch_db: ScratchDatabase) -> AddChain:
    return lambda *ids, **more: add_chain(gateway, scratch_db, ids, **more)


def get(gateway: Gateway, key: str, path: str, **query: object) -> Any:
    reply = gateway.call("GET", f"{SESSIONS}/{path}", key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


def tell_all(tell: Tell, key: str, *texts: str, **more: object) -> list[str]:
    """Events of session s, by their ids."""
    return [tell(key, text, **{"session_id": "s", **more})["event_id"] for text in texts]


def tune(base: ScratchDatabase, **thresholds: object) -> None:
    base.rows("update tenants set tuning = %s", json.dumps(thresholds))


def contents(result: Any) -> list[str]:
    return [row["event"]["content"] for row in result["recent"]]


# short-term memory -------------------------------------------------------------------------------


def test_context_short_term_memory_is_newest_of_session(
    gateway: Gateway, tell: Tell, key: str
) -> None:
    for n in range(12):
        tell_all(tell, key, str(n))
        tell(key, "another session", session_id="t")
        tell(key, "none")
    body = get(gateway, key, "s/context")
    assert contents(body) == [str(n) for n in range(11, 1, -1)]
    assert {row["count"] for row in body["recent"]} == {1}
    assert contents(get(gateway, key, "s/context", limit=3)) == ["11", "10", "9"]
    assert len(contents(get(gateway, key, "s/context", limit=50))) == 10


def test_context_short_term_window_is_set_by_tenant(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, key: str
) -> None:
    ids = tell_all(tell, key, *map(str, range(6)))
    tune(scratch_db, window_events=4)
    assert contents(get(gateway, key, "s/context")) == ["5", "4", "3", "2"]
    old = "update events set recorded_at = recorded_at - interval '%s s' where event_id = any (%%s)"
    scratch_db.rows(old.replace("%s", "3590", 1).replace("%%", "%"), list(map(uuid.UUID, ids[:4])))
    scratch_db.rows(old.replace("%s", "3610", 1).replace("%%", "%"), list(map(uuid.UUID, ids[:2])))
    tune(scratch_db, window_events=10)
    assert contents(get(gateway, key, "s/context")) == ["5", "4", "3", "2"]
    tune(scratch_db, window_seconds=600)
    assert contents(get(gateway, key, "s/context")) == ["5", "4"]


def test_context_automation_shows_newest_event_of_each_type(
    gateway: Gateway, tell: Tell, key: str
) -> None:
    flow: dict[str, Any] = {"metadata": {"workflow_id": "w"}}
    for n in range(30):
        tell(key, f"do {n}", session_id="s", role="agent", type="action", **flow)
        tell(key, f"see {n}", session_id="s", type="observation", **flow)
    tell_all(tell, key, "Thanks.")
    body = get(gateway, key, "s/context")
    assert contents(body) == ["Thanks.", "see 29", "do 29"]
    assert [row["count"] for row in body["recent"]] == [1, 30, 30]


@pytest.mark.parametrize(
    ("events", "rest"),
    [
        ("", ""),
        ("m.. m..", "01 11"),
        ("mw. mw. mv.", "02 21"),
        ("mw. aw.", "01 11"),
        ("m.w mw.", "01 11"),  # the one's workflow is not the other's execution
        ("mwe m.e mw.", "03"),
        ("mw. mve m.e mwe", "02 12"),
        ("mwe mvf m.f mv.", "01 13"),
    ],
)
def test_context_equal_executions_are_counted_as_one(events: str, rest: str) -> None:
    """Type, workflow_id and execution_id a letter each, newest first; a place and a count each."""
    ids = [uuid.UUID(int=n) for n in range(9)]
    glimpses = [
        RecentEventExecution(ids[n], kind, w.strip(".") or None, e.strip(".") or None)
        for n, (kind, w, e) in enumerate(map(tuple, events.split()))
    ]
    assert " ".join(f"{i.int}{count}" for i, count in coalesce_by_execution(glimpses)) == rest


def test_context_recent_event_names_its_chain(
    gateway: Gateway, tell: Tell, key: str, chain: AddChain
) -> None:
    first, _ = tell_all(tell, key, "closed", "open")
    chain_id = chain(first)
    assert [row["chain_id"] for row in get(gateway, key, "s/context")["recent"]] == [None, chain_id]


def test_context_size_limit_drops_chains_first(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, key: str, chain: AddChain
) -> None:
    """Short-term memory goes before chains."""
    tune(scratch_db, window_events=100)
    ids = tell_all(tell, key, *["\x01" * 60_000] * 14)  # six bytes each over the wire
    chain(ids[0])
    body = get(gateway, key, "s/context")
    assert (len(body["recent"]), body["chains"]) == (11, [])
    assert body["degraded"] == ["cut_by_size"]


# chains ------------------------------------------------------------------------------------------


def test_context_without_query_lists_latest_chains_first(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, key: str, chain: AddChain
) -> None:
    start = datetime(2026, 5, 8, 12, tzinfo=UTC)
    ids = tell_all(tell, key, *"abcde")
    other = tell(key, "of another session", session_id="t")["event_id"]
    chain(ids[0], topic="old", last_event_at=start)
    chain(ids[1], topic="new", last_event_at=start + timedelta(hours=2))
    chain(other, topic="other", last_event_at=start + timedelta(hours=1))
    chain(ids[2], topic="thin", status="rejected")
    chain_id = chain(ids[3], topic="gone")
    scratch_db.rows(
        "update chains set status = 'archived', archived_at = now() where chain_id = %s",
        uuid.UUID(chain_id),
    )
    body = get(gateway, key, "s/context")
    assert [c["topic"] for c in body["chains"]] == ["new", "other", "old"]
    assert [c["topic"] for c in get(gateway, key, "s/context", chains=1)["chains"]] == ["new"]
    assert get(gateway, key, "s/context", chains=0)["chains"] == []
    assert scratch_db.rows("select count(*) from recalls") == [(0,)]
    tune(scratch_db, context_chains=2)
    assert len(get(gateway, key, "s/context", chains=200)["chains"]) == 2


def test_context_chain_shows_its_fields_and_events(
    gateway: Gateway, tell: Tell, key: str, chain: AddChain
) -> None:
    ids = tell_all(tell, key, "a", "b")
    chain_id = chain(*ids)
    (result,) = get(gateway, key, "s/context")["chains"]
    assert result["event_ids"] == ids
    expected = {
        "chain_id": chain_id,
        "version": 1,
        "session_id": "s",
        "status": "active",
        "rejected": None,
        "topic": "the buoy",
        "summary": "They talked about the buoy.",
        "entities": [{"name": "the buoy", "kind": "other"}],
        "event_count": 2,
        "first_seq": 1,
        "last_seq": 2,
        "closed_by": "break",
        "merged": False,
        "importance": 0.5,
        "density": 0.5,
        "strength": 1.0,
        "archived_at": None,
    }
    assert {name: result[name] for name in expected} == expected
    by = {"model": "heuristic/4", "prompt": "summarise/1", "fell_back": None}
    assert result["made_by"] == {"summarise": by}
    assert result["heat"] == pytest.approx(0.5, abs=0.01)


def test_context_query_finds_and_warms_chains_by_meaning(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    embedder: Embedder,
    tell: Tell,
    key: str,
    chain: AddChain,
) -> None:
    topics = ("a broken car engine", "a birthday cake", "the weather at sea")
    ids = tell_all(tell, key, *topics)
    gateway.sweep()
    results = {t: chain(i, topic=t, embedder=embedder) for t, i in zip(topics, ids, strict=True)}
    body = get(gateway, key, "s/context", query="Who baked something sweet?", chains=2)
    assert body["chains"][0]["topic"] == "a birthday cake"
    assert (body["degraded"], body["known"] > 0.3) == ([], True)
    rows = scratch_db.rows("select chain_id::text, participants from recalls order by 1")
    assert len(body["chains"]) == 1, "the others are no answer"
    assert rows == [(results["a birthday cake"], [HELPER, ALICE])]
    query = {"query": "Will it storm on the ocean?", "similarity_threshold": 0.7}
    reply = gateway.call("POST", f"{SESSIONS}/s/context/search", query, key=key)
    (hit,) = reply.body["hits"]
    assert hit["chain"]["chain_id"] == results["the weather at sea"]
    assert hit["similarity"] > 0.3
    assert 0 < hit["relevance"] <= reply.body["known"]
    assert scratch_db.rows("select count(*), count(distinct recall_id) from recalls") == [(2, 2)]
    tokens = {body["read_token"], reply.body["read_token"]}
    assert len(tokens) == 2


def test_context_query_returns_ten_chains_by_default(
    gateway: Gateway, embedder: Embedder, tell: Tell, key: str, chain: AddChain
) -> None:
    for i in tell_all(tell, key, *(f"Buoy {n}." for n in range(12))):
        chain(i, embedder=embedder)
    assert len(get(gateway, key, "s/context", query="buoy")["chains"]) == 10
    assert len(get(gateway, key, "s/context", query="buoy", chains=11)["chains"]) == 11
    assert len(get(gateway, key, "s/context")["chains"]) == 12


def test_context_min_relevance_zero_keeps_every_chain(
    gateway: Gateway, embedder: Embedder, tell: Tell, key: str, chain: AddChain
) -> None:
    texts = ("The buoy is red.", "Bread rises overnight.", "Chess on Sunday.", "A tax form.")
    ids = tell_all(tell, key, *(f"{text} Entry {n}." for n in range(7) for text in texts))
    for i in ids:
        chain(i, embedder=embedder, topic="invoices")
    path = f"{SESSIONS}/s/context/search"
    query = {"query": "Where is the buoy?", "limit": 50}

    def search(**more: object) -> list[Any]:
        return gateway.call("POST", path, {**query, **more}, key=key).body["hits"]

    assert len(search(min_relevance=0)) == len(ids)
    body = get(gateway, key, "s/context", query=query["query"], chains=50, min_relevance=0)
    assert len(body["chains"]) == len(ids)
    assert 0 < len(search()) <= 20
    everything = search(min_relevance=0)
    assert min(hit["similarity"] for hit in everything) < 0.3
    floor = everything[10]["relevance"]
    relevant = [hit for hit in everything if hit["relevance"] >= floor]
    assert len(search(min_relevance=floor - 0.00005)) == len(relevant) < len(ids)
    shares = [len(search(min_relevance=0, similarity_threshold=n / 10)) for n in range(11)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == len(ids)
    assert 1 <= shares[10] <= shares[7] < len(ids)
    best = search(similarity_threshold=1.0)[0]["chain"]["chain_id"]
    assert best == everything[0]["chain"]["chain_id"]
    refused = gateway.call("POST", path, {**query, "similarity_threshold": -0.1}, key=key)
    assert (refused.status, refused.error["details"]["field"]) == (422, "similarity_threshold")


def test_context_search_keeps_chain_beside_facts_and_open_events(
    gateway: Gateway, embedder: Embedder, tell: Tell, key: str, chain: AddChain
) -> None:
    (event,) = tell_all(tell, key, "Ada builds the compiler for Rust at work.")
    works = chain(event, topic="Ada's work", embedder=embedder)
    nodes = [{"type": "fact", "content": "Ada works on Rust."}]
    body = {"participants": [ALICE, HELPER], "nodes": nodes}
    assert gateway.call("POST", "/api/v1/graph/nodes", body, key=key).status == 201
    tell_all(tell, key, "What does Ada work on?")
    gateway.sweep()
    query = {"query": "What does Ada work on?"}
    reply = gateway.call("POST", f"{SESSIONS}/s/context/search", query, key=key)
    assert [hit["chain"]["chain_id"] for hit in reply.body["hits"]] == [works]


def test_context_search_finds_chain_without_vector_by_words(
    gateway: Gateway, embedder: Embedder, tell: Tell, key: str, chain: AddChain
) -> None:
    strange, with_vector = tell_all(tell, key, "Nothing.", "A boat passes.")
    gateway.sweep()
    (without,) = tell_all(tell, key, "The buoy is red.")
    chain(with_vector, topic="boats", embedder=embedder)
    bare = chain(without, topic="bare")
    chain(strange, topic="strange")
    reply = gateway.call("POST", f"{SESSIONS}/s/context/search", {"query": "a buoy"}, key=key)
    hit = reply.body["hits"][0]
    assert (hit["chain"]["chain_id"], hit["similarity"]) == (bare, None)
    assert "strange" not in [other["chain"]["topic"] for other in reply.body["hits"]]


def test_context_search_without_model_uses_words_and_says_so(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    embedder: Embedder,
    tell: Tell,
    key: str,
    chain: AddChain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second, first = tell_all(tell, key, "Bread rises overnight.", "The buoy is red.")
    chain_id = chain(first, topic="buoys", embedder=embedder)
    chain(second, topic="bread", embedder=embedder)

    def late(texts: Any, *, timeout: float) -> Any:
        delay(timeout)(texts)
        raise TimeoutError

    monkeypatch.setattr(embedder, "embed", late)
    monkeypatch.setenv("STRANDLINE_QUERY_VECTOR_SECONDS", "0.05")
    body = get(gateway, key, "s/context", query="buoy")
    assert [c["chain_id"] for c in body["chains"]] == [chain_id]
    assert body["degraded"] == ["no_query_vector"]
    reply = gateway.call("POST", f"{SESSIONS}/s/context/search", {"query": "buoy"}, key=key)
    assert [hit["similarity"] for hit in reply.body["hits"]] == [None]
    assert reply.body["degraded"] == ["no_query_vector"]
    assert scratch_db.rows("select count(*) from recalls") == [(2,)]


def test_context_answers_if_recall_cannot_be_recorded(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    embedder: Embedder,
    tell: Tell,
    key: str,
    chain: AddChain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (event,) = tell_all(tell, key, "x")
    chain(event, topic="a red buoy", embedder=embedder)
    attempts: list[object] = []

    def fail(*_: object, **__: object) -> None:
        attempts.append(None)
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(store_recalls, "record_recalled_chains", fail)
    monkeypatch.setattr(store_recalls, "record_recalled_events", fail)
    assert len(get(gateway, key, "s/context", query="a red buoy")["chains"]) == 1
    assert gateway.call("POST", "/api/v1/recall", {"query": "x"}, key=key).body["hits"]
    assert len(attempts) == 2
    assert scratch_db.rows("select count(*) from recalls") == [(0,)]


def test_context_chain_is_warmed_by_recall_of_its_event(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    embedder: Embedder,
    tell: Tell,
    key: str,
    chain: AddChain,
) -> None:
    other, request = tell_all(tell, key, "Bread rises overnight.", "The buoy is red.")
    gateway.sweep()
    scratch_db.rows("delete from chain_events")
    chain_id = chain(request, topic="buoys", embedder=embedder)
    chain(other, topic="bread", embedder=embedder)
    body = gateway.call("POST", "/api/v1/recall", {"query": "Which buoy is red?"}, key=key).body
    assert len(body["hits"]) == 2
    assert scratch_db.rows("select chain_id::text from recalls") == [(chain_id,)]


# who sees which ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [True, False])
def test_context_holds_nothing_of_other_scopes(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    embedder: Embedder,
    tell: Tell,
    chain: AddChain,
    bound: bool,
) -> None:
    """Nor of a session of the same name, nor of a scope with more participants: it is in view, and
    not the session's."""
    alice = gateway.key(user=ALICE)
    (mine,) = tell_all(tell, alice, "mine: the buoy")
    wide = gateway.key(user=BOB)
    three = user_message("wide: the buoy", ALICE, BOB, HELPER, session_id="s", speaker=BOB)
    other = gateway.call("POST", "/api/v1/events", three, key=wide).body
    own = chain(mine, topic="the buoy", embedder=embedder)
    chain(other["event_id"], topic="the buoy", embedder=embedder)
    scope = scratch_db.rows("select scope_id::text from events where content like 'mine%%'")[0][0]
    key = alice if bound else gateway.key()
    for query in ({}, {"query": "buoy"}):
        body = get(gateway, key, "s/context", scope_id=scope, **query)
        assert contents(body) == ["mine: the buoy"]
        assert [c["chain_id"] for c in body["chains"]] == [own]
    params: dict[str, Any] = {"query": "buoy", "similarity_threshold": 0.0}
    path = f"{SESSIONS}/s/context/search"
    hits = gateway.call("POST", path, params, key=key, query={"scope_id": scope}).body["hits"]
    assert [hit["chain"]["chain_id"] for hit in hits] == [own]
    for path, name in (("segments", "segments"), ("analysis/heat", "chains")):
        listing = get(gateway, key, f"s/{path}", scope_id=scope)[name]
        assert [c["chain_id"] for c in listing] == [own]
    assert scratch_db.rows("select distinct chain_id::text from recalls") == [(own,)]


def test_context_search_scope_fault_is_noticed(
    gateway: Gateway,
    embedder: Embedder,
    tell: Tell,
    chain: AddChain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted fault: it looks into a scope with one more in it, which is in view. And another:
    into one where somebody of the session is missing, which the database does not show."""
    alice = gateway.key(user=ALICE)
    (mine,) = tell_all(tell, alice, "mine")
    wide = tell(alice, "wide", ALICE, BOB, HELPER, session_id="t")
    less = tell(alice, "less", ALICE, session_id="u")
    for event in (mine, wide["event_id"], less["event_id"]):
        chain(event, embedder=embedder)
    search, results = session_context.search, list[int]()
    for scope in (wide["scope_id"], less["scope_id"]):
        elsewhere = functools.partial(_search_elsewhere, search, uuid.UUID(scope))
        monkeypatch.setattr(session_context, "search", elsewhere)
        monkeypatch.setattr(SessionReadContext, "only_scope_id", uuid.UUID(scope))
        results.append(len(get(gateway, alice, "s/context", query="buoy")["chains"]))
    assert results == [1, 0]


def _search_elsewhere(search: Callable[..., Any], scope: uuid.UUID, *args: Any, **more: Any) -> Any:
    return search(*args, **more | {"scopes": [scope]})


# the session's chains ----------------------------------------------------------------------------


def test_context_segments_are_chains_of_session(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, key: str, chain: AddChain
) -> None:
    a, b, c, d = tell_all(tell, key, *"abcd")
    other = tell(key, "other", session_id="t")["event_id"]
    both = chain(other, topic="both")
    chain(a, topic="both", chain_id=both)  # merged over sessions: each has it
    active, thin, cold = chain(b), chain(c, status="rejected"), chain(d)
    scratch_db.rows(
        "update chains set status = 'archived', archived_at = now() where chain_id = %s",
        uuid.UUID(cold),
    )
    listing = {
        include: {c["chain_id"] for c in get(gateway, key, "s/segments", **query)["segments"]}
        for include, query in (
            ("", {}),
            ("rejected", {"include": "rejected"}),
            ("archived", {"include": "archived"}),
            ("all", {"include": "all"}),
        )
    }
    assert listing == {
        "": {both, active},
        "rejected": {both, active, thin},
        "archived": {both, active, cold},
        "all": {both, active, thin, cold},
    }
    of_t = get(gateway, key, "t/segments", include="all")["segments"]
    assert [c["chain_id"] for c in of_t] == [both]
    segments = get(gateway, key, "s/segments", include="rejected")["segments"]
    assert {c["rejected"] for c in segments} == {None, "too thin"}
    wrong = gateway.call("GET", f"{SESSIONS}/s/segments", key=key, query={"include": "x"})
    assert (wrong.status, wrong.error["details"]["field"]) == (422, "include")


def test_context_segments_pages_keep_first_page_state(
    gateway: Gateway, tell: Tell, key: str, chain: AddChain
) -> None:
    """A merge that moves a chain to the front between two pages neither hides nor doubles it."""
    start = datetime(2026, 5, 8, tzinfo=UTC)
    ids = tell_all(tell, key, *map(str, range(8)))
    chain_ids = [
        chain(i, topic=str(n), last_event_at=start + timedelta(hours=n))
        for n, i in enumerate(ids[:6])
    ]
    visible_ids: list[tuple[str, int]] = []
    cursor: dict[str, object] = {}
    for place in range(3):
        page = get(gateway, key, "s/segments", limit=2, **cursor)
        visible_ids += [(c["chain_id"], c["version"]) for c in page["segments"]]
        cursor = {"cursor": page["next_cursor"]}
        if place == 0:
            chain(ids[6], chain_id=chain_ids[0], last_event_at=start + timedelta(hours=9))
            chain(ids[7], topic="new", last_event_at=start + timedelta(hours=10))
    assert cursor == {"cursor": None}
    assert visible_ids == [(c, 1) for c in reversed(chain_ids)]
    fresh = get(gateway, key, "s/segments")["segments"]
    assert [(c["topic"], c["version"]) for c in fresh[:2]] == [("new", 1), ("the buoy", 2)]
    assert fresh[1]["event_ids"] == [ids[0], ids[6]]
    heat = get(gateway, key, "s/analysis/heat", limit=2)
    assert len(heat["chains"]) == 2
    foreign = gateway.call(
        "GET", f"{SESSIONS}/s/segments", key=key, query={"cursor": heat["next_cursor"]}
    )
    assert (foreign.status, foreign.error["details"]["field"]) == (400, "cursor")


def test_context_segment_names_at_most_200_events(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, chain: AddChain
) -> None:
    events = [user_message(str(n), session_id="s") for n in range(210)]
    batch = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key).body
    ids = [item["event"]["event_id"] for item in batch["results"]]
    chain(*ids)
    (segment,) = get(gateway, key, "s/segments")["segments"]
    assert (segment["event_count"], segment["event_ids"]) == (210, ids[:200])


def test_context_heat_shows_its_components(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, key: str, chain: AddChain
) -> None:
    (event,) = tell_all(tell, key, "x")
    formed_at = datetime.now(UTC) - timedelta(hours=12)
    chain_id = chain(event, formed_at=formed_at, importance=0.8)
    scratch_db.rows("update chains set strength = 1.5, boosted_at = %s", formed_at)
    body = get(gateway, key, "s/analysis/heat")
    (row,) = body["chains"]
    assert (row["chain_id"], row["status"], row["strength"]) == (chain_id, "active", 1.5)
    assert row["hours_since_access"] == pytest.approx(12, abs=0.1)
    assert row["base"] == pytest.approx(0.7 * 0.8 + 0.3 * 0.5)
    assert row["retention"] == pytest.approx(math.exp(-row["hours_since_access"] / (24 * 1.5)))
    assert row["heat"] == pytest.approx(row["base"] * row["retention"])
    assert (row["weight_importance"], row["weight_density"], row["tau_hours"]) == (0.7, 0.3, 24.0)
    moments = [datetime.fromisoformat(row[n]) for n in ("boosted_at", "accessed_at", "cold_at")]
    assert moments == [formed_at, formed_at, moments[2]]
    assert moments[2] > formed_at + timedelta(days=7) - timedelta(seconds=1)
    tune(scratch_db, heat_hours=1)
    assert get(gateway, key, "s/analysis/heat")["chains"][0]["heat"] < 0.001


# topics ------------------------------------------------------------------------------------------


def test_context_topics_come_from_short_term_memory(
    gateway: Gateway, tell: Tell, key: str, chain: AddChain
) -> None:
    """Those of its chains as they were named, and of what is open as it is named now."""
    gateway.call("POST", SESSIONS, {"participants": [ALICE, HELPER], "session_id": "s"}, key=key)
    assert get(gateway, key, "s/analysis/topics") == {"session_id": "s", "topics": []}
    closed = tell_all(tell, key, "Who waters the roses?", "Nobody.")
    by = {"model": "openai:m", "prompt": "topic/1", "fell_back": None}
    chain_id = chain(*closed, topic="roses", models={"topic": by})
    ids = tell_all(tell, key, "The buoy needs paint.", "Red paint for the buoy, then.")
    latest, before = get(gateway, key, "s/analysis/topics")["topics"]
    vectors = {
        "topic": "roses",
        "summary": "They talked about roses.",
        "event_ids": closed,
        "chain_id": chain_id,
        "trust": "user",
        "made_by": by,
    }
    assert before == vectors
    assert (latest["event_ids"], latest["chain_id"]) == (ids, None)
    assert (latest["topic"], latest["summary"]) == ("buoy", None)
    assert (latest["made_by"]["model"], latest["made_by"]["fell_back"]) == ("heuristic/4", None)


def test_context_topics_split_open_events(gateway: Gateway, tell: Tell, key: str) -> None:
    garden = tell_all(
        tell,
        key,
        "The tomatoes in the garden need water twice a day now.",
        "The tomatoes at the fence are thirsty too.",
        "The garden gets no rain until Sunday.",
        "Then the hose has to reach the garden fence.",
        "The hose is long enough for the tomatoes.",
    )
    phone = tell_all(
        tell,
        key,
        "By the way, has anybody seen my phone charger?",
        "My phone battery has died again.",
        "The phone battery was new in May.",
    )
    topics = get(gateway, key, "s/analysis/topics")["topics"]
    assert [topic["event_ids"] for topic in topics] == [phone, garden]
    assert topics[0]["topic"] != topics[1]["topic"]


def test_context_chain_without_topic_shows_summary(
    gateway: Gateway, tell: Tell, key: str, chain: AddChain
) -> None:
    gateway.call("POST", SESSIONS, {"participants": [ALICE, HELPER], "session_id": "s"}, key=key)
    closed = tell_all(tell, key, "Well?", "It is what it is.")
    chain_id = chain(*closed, topic=None, summary="It is.", entities=[])
    ids = tell_all(tell, key, "Das Boot fährt am Freitag hinaus.")
    latest, before = get(gateway, key, "s/analysis/topics")["topics"]
    topics_ = ("topic", "summary", "chain_id")
    assert [before[name] for name in topics_] == [None, "It is.", chain_id]
    assert [latest[name] for name in topics_] == [None, None, None]
    assert latest["event_ids"] == ids
    (listing,) = get(gateway, key, "s/context")["chains"]
    assert (listing["topic"], listing["summary"]) == (None, "It is.")
    assert get(gateway, key, "s/analysis/heat")["chains"][0]["topic"] is None
