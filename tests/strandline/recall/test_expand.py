"""Recall along edges: what the best hits rest on, within a budget, in an order that can be read."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.chains import store_recalls
from strandline.db.database import TenantDb
from strandline.recall import hit_postprocessing
from strandline.recall.hit_postprocessing import fit_to_budget, sort_cited_first_then_by_time
from strandline.recall.schemas import Hit
from tests.mcp_calls import call_tool
from tests.support import Gateway, ScratchDatabase, Tell

ALICE, BOB = "user:alice", "user:bob"
QUESTION = "Which zyzzyva did the harbour master choose?"
HIT = "The harbour master chose the red zyzzyva."


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


def recall(gateway: Gateway, key: str, **more: Any) -> list[Any]:
    body = {"query": QUESTION, "min_relevance": 0, "limit": 1, **more}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body["hits"]


def texts(hits: list[Any]) -> list[str]:
    return [hit["text"] for hit in hits]


def edge(receipt: Any, weight: float = 1.0) -> dict[str, object]:
    return {"event_id": receipt["event_id"], "weight": weight}


def test_recall_expand_adds_cited_events_by_weight(gateway: Gateway, key: str, tell: Tell) -> None:
    deep = tell(key, "Deep.", ALICE)
    chain = tell(key, "Third.", ALICE, edges=[edge(deep)])
    second = tell(key, "Second.", ALICE, edges=[edge(chain)])
    light = tell(key, "Light.", ALICE)
    heavy = tell(key, "Heavy.", ALICE, edges=[edge(second, 0.5)])
    tell(key, HIT, ALICE, edges=[edge(light, 0.3), edge(heavy, 0.9)])
    plain = recall(gateway, key)
    assert texts(plain) == [HIT], "by default nothing is added"
    hits = recall(gateway, key, expand=50)
    # Heavy 0.9, Second 0.45, Third 0.45 (newer first), Light 0.3; what is four edges away is not.
    assert texts(hits) == [HIT, "Heavy.", "Second.", "Third.", "Light."]
    assert hits[0]["event_id"] == plain[0]["event_id"]
    assert {(hit["relevance"], *hit["why"]) for hit in hits[1:]} == {(None, "edge")}
    assert texts(recall(gateway, key, expand=2)) == [HIT, "Heavy.", "Second."]
    assert recall(gateway, key, expand=1, include="full")[1]["event"]["cid"] == heavy["cid"]


def test_recall_expand_works_in_context_by_http_and_mcp(
    gateway: Gateway, key: str, tell: Tell
) -> None:
    """By HTTP and by MCP, where it is asked for."""
    reason = tell(key, "Its paint lasts.", ALICE)
    tell(key, HIT, ALICE, edges=[edge(reason)])
    for n in range(12):
        tell(key, f"The harbour master saw boat {n} of the harbour today.", ALICE)
    body: dict[str, Any] = {"query": QUESTION, "limit": 1, "budget": 300}
    for expand, is_shown in ((0, False), (1, True), (50, True)):
        asked = {**body, "expand": expand}
        text = gateway.call("POST", "/api/v1/context", asked, key=key).body["text"]
        assert (HIT in text, "Its paint lasts." in text) == (True, is_shown), text
    text, is_error = call_tool(gateway, "recall", {"query": QUESTION, "expand": 5}, key=key)
    assert (is_error, "Its paint lasts." in text) == (False, True), text
    question = {"query": QUESTION, "expand": 5, "budget": 300}
    text, is_error = call_tool(gateway, "context", question, key=key)
    assert (is_error, "Its paint lasts." in text) == (False, True), text
    wrong = {**body, "expand": 51}
    refused = gateway.call("POST", "/api/v1/context", wrong, key=key)
    assert (refused.status, refused.error["details"]["field"]) == (422, "expand")


def test_recall_expand_follows_only_five_edges_per_event(
    gateway: Gateway, key: str, tell: Tell
) -> None:
    receipts = [tell(key, f"No. {n}.", ALICE) for n in range(9)]
    edges = [edge(one, n / 10) for n, one in enumerate(receipts)]
    tell(key, HIT, ALICE, edges=edges)
    hits = recall(gateway, key, expand=50)
    assert texts(hits)[1:] == [f"No. {n}." for n in (8, 7, 6, 5, 4)]


def test_recall_expand_adds_no_hit_twice(gateway: Gateway, key: str, tell: Tell) -> None:
    receipt = tell(key, "A zyzzyva is a weevil.", ALICE)
    tell(key, HIT, ALICE, edges=[edge(receipt)])
    hits = recall(gateway, key, limit=10, expand=50)
    assert sorted(texts(hits)) == sorted([HIT, "A zyzzyva is a weevil."])
    assert all(hit["relevance"] is not None for hit in hits)


def test_recall_expand_adds_no_event_out_of_view(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    """Neither through an edge that the API would refuse, nor one of another tenant's."""
    unbound = gateway.key()
    receipt = tell(unbound, "For bob alone.", BOB)
    shared = tell(unbound, "For both.", ALICE, BOB)
    hit = tell(unbound, HIT, ALICE, edges=[edge(shared)])
    scratch_db.rows(
        "insert into memory_edges (tenant_id, scope_id, participants, event_id, cited_id,"
        " cited_cid, weight) values ('acme', %s, %s, %s, %s, %s, 1)",
        *(hit["scope_id"], [ALICE], hit["event_id"], receipt["event_id"], receipt["cid"]),
    )
    assert texts(recall(gateway, gateway.key(user=ALICE), expand=50)) == [HIT, "For both."]
    assert recall(gateway, gateway.key(user=BOB), expand=50) != []
    assert HIT not in texts(recall(gateway, gateway.key(user=BOB), limit=50, expand=50))
    assert recall(gateway, gateway.key("globex", user=ALICE), expand=50) == []


def test_recall_expand_respects_filters_and_erasure(
    gateway: Gateway, key: str, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    one = tell(key, "In the session.", ALICE, session_id="s-1")
    other = tell(key, "Elsewhere.", ALICE)
    receipt = tell(key, "Gone.", ALICE, session_id="s-1")
    tell(key, HIT, ALICE, session_id="s-1", edges=[edge(one), edge(other), edge(receipt)])
    scratch_db.rows(
        "update events set erased_at = now(), content = null, cid = null where event_id = %s",
        receipt["event_id"],
    )
    assert texts(recall(gateway, key, session_id="s-1", expand=9)) == [HIT, "In the session."]


def test_recall_expand_follows_all_edges_in_one_statement(
    gateway: Gateway, key: str, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt: Any = None
    for n in range(6):
        receipt = tell(key, f"Step {n}.", ALICE, edges=[edge(receipt)] if receipt else [])
    tell(key, HIT, ALICE, edges=[edge(receipt)])
    statements: list[str] = []
    real = TenantDb.fetch

    def count(access: TenantDb, row_type: Any, statement: Any, params: Any) -> Any:
        statements.append(statement)
        return real(access, row_type, statement, params)

    monkeypatch.setattr(TenantDb, "fetch", count)
    assert len(recall(gateway, key, expand=50)) == 4
    assert sum("memory_edges" in statement for statement in statements) == 1
    statements.clear()
    recall(gateway, key)
    assert not any("memory_edges" in statement for statement in statements)


def test_recall_expand_in_time_order_puts_cited_first(
    gateway: Gateway, key: str, tell: Tell
) -> None:
    """Even if it happened later than what cites it, by the callers' clocks."""
    late = tell(key, "Late.", ALICE, occurred_at="2026-05-09T12:00:00Z")
    old = tell(key, "Old.", ALICE, occurred_at="2026-05-01T12:00:00Z")
    tell(key, HIT, ALICE, occurred_at="2026-05-08T12:00:00Z", edges=[edge(late), edge(old)])
    tell(key, "The zyzzyva is late, too.", ALICE, occurred_at="2026-05-10T12:00:00Z")
    hits = recall(gateway, key, limit=2, expand=9, order="time")
    assert texts(hits) == ["Old.", "Late.", HIT, "The zyzzyva is late, too."]
    assert texts(recall(gateway, key, limit=2, expand=9))[0] == HIT


def test_recall_expand_spends_budget_on_best_first(gateway: Gateway, key: str, tell: Tell) -> None:
    long = tell(key, "Long and on. " * 50, ALICE)
    short = tell(key, "Short.", ALICE)
    tell(key, HIT, ALICE, edges=[edge(long, 0.9), edge(short, 0.1)])
    needed = -(-len(HIT.encode()) // 4)
    assert texts(recall(gateway, key, expand=9, max_tokens=needed)) == [HIT]
    assert texts(recall(gateway, key, expand=9, max_tokens=needed - 1)) == ["Short."]
    assert texts(recall(gateway, key, expand=9, max_tokens=needed + 2)) == [HIT, "Short."]
    assert len(recall(gateway, key, expand=9, max_tokens=1000)) == 3


def test_recall_expand_warms_no_added_event(
    gateway: Gateway, key: str, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    """It was given, though: what says it again is an echo."""
    receipt = tell(key, "Supporting words.", ALICE)
    hit = tell(key, HIT, ALICE, edges=[edge(receipt)])
    visible_ids: list[Any] = []

    def record(access: TenantDb, recall_id: Any, usage: Any, now: Any, arguments: Any) -> int:
        visible_ids.append((usage, arguments))
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_recalls, "record_recalled_events", record)
        recall(gateway, key, expand=9, order="time")
    ids = uuid.UUID(receipt["event_id"]), uuid.UUID(hit["event_id"])
    assert visible_ids == [([ids[1]], list(ids))]
    assert scratch_db.rows("select from recall_answers") == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expand", -1),
        ("expand", 51),
        ("expand", "9"),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("order", "age"),
    ],
)
def test_recall_expand_refusal_names_option(
    gateway: Gateway, key: str, field: str, value: object
) -> None:
    body = {"query": QUESTION, field: value}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)


def make_hit(at: int, text: str = "") -> Hit:
    return Hit(
        event_id=uuid.uuid4(),
        source_event_key=None,
        speaker=None,
        occurred_at=datetime(2026, 5, 8, tzinfo=UTC) + timedelta(hours=at),
        text=text,
        name=None,
        piece=None,
        excerpt=None,
        relevance=None,
        why=[],
        superseded_by=None,
        superseded_sentence=None,
        features=None,
        event=None,
        similar=None,
    )


def test_recall_expand_time_order_ignores_input_order() -> None:
    hits = [make_hit(at) for at in (5, 1, 4, 1, 3)]
    citations = {hits[1].event_id: [hits[0].event_id], hits[2].event_id: [uuid.uuid4()]}
    scope, recorded_at = uuid.uuid4(), datetime(2026, 5, 9, tzinfo=UTC)
    seqs = {hit.event_id: seq for seq, hit in enumerate(hits)}

    def sort(hits: list[Hit]) -> list[Hit]:
        return sort_cited_first_then_by_time(
            hits, lambda n: citations.get(n, ()), lambda n: (recorded_at, scope, seqs[n])
        )

    expected = sort(hits)
    assert sort(hits[::-1]) == expected
    assert [hit.occurred_at.hour for hit in expected] == [1, 3, 4, 5, 1]
    same = [make_hit(1) for _ in range(20)]
    seqs |= {hit.event_id: seq for seq, hit in enumerate(same)}
    assert sort(same[::-1]) == same, "of one time: the order of the log, not of random ids"


def test_recall_expand_without_budget_keeps_all_hits() -> None:
    hits = [make_hit(0, "x" * 1000) for _ in range(3)]
    assert fit_to_budget(hits, None) == (hits, 0, False)
    assert fit_to_budget(hits, 500) == (hits[:2], 1, False)
    assert fit_to_budget([], 1) == ([], 0, False)
    assert not fit_to_budget([make_hit(0, "é")], 1).is_cut
    assert fit_to_budget([make_hit(0, "éé€")], 1).is_cut


def test_recall_expand_budget_smaller_than_best_hit_cuts_it() -> None:
    for text in ("€" * 100, "x" * 300, "é" * 200):
        for max_tokens in (1, 2, 20):
            hits = [make_hit(0, text), make_hit(1, "y" * 500)]
            cut, left_out, is_cut = fit_to_budget(hits, max_tokens)
            assert (len(cut), left_out, is_cut) == (1, 1, True)
            shown = cut[0].text or ""
            assert shown.endswith("…")
            assert text.startswith(shown[:-1])
            assert 4 * max_tokens - 3 <= len(shown.encode()) <= 4 * max_tokens
    hits = [make_hit(0, "x" * 500), make_hit(1, "short")]
    assert fit_to_budget(hits, 10) == (hits[1:], 1, False), "a long one hides no short one"


def test_recall_expand_depth_fault_is_noticed(
    gateway: Gateway, key: str, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted."""
    monkeypatch.setattr(hit_postprocessing, "_MAX_DEPTH", 9)
    with pytest.raises(AssertionError):
        test_recall_expand_adds_cited_events_by_weight(gateway, key, tell)


def test_recall_expand_follows_tiny_weights_last(gateway: Gateway, key: str, tell: Tell) -> None:
    """Their product is too small for a double."""
    deep = tell(key, "Deep.", ALICE)
    faint = tell(key, "Faint.", ALICE, edges=[edge(deep, 1e-200)])
    light = tell(key, "Light.", ALICE)
    tell(key, HIT, ALICE, edges=[edge(faint, 1e-200), edge(light, 0.1)])
    assert texts(recall(gateway, key, expand=5)) == [HIT, "Light.", "Faint.", "Deep."]
