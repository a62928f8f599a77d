"""Recall weighted by recency and importance: asked for, shown, and never a change of the default.
Importance rests on recalls for those who read alone."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from strandline.chains import fold_recalls_into_heat
from strandline.db.database import Caller, TenantDb
from strandline.embeddings.embedder import ENGLISH_DIMENSIONS
from strandline.recall.importance import delete_expired_event_uses, fold_answers_into_event_uses
from strandline.tuning import DEFAULTS
from tests.support import Gateway, ScratchDatabase, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
QUESTION = "Which lamp is at the pier?"
FEATURES = {
    "cosine",
    "words",
    "words_nearby",
    "cosine_before",
    "cosine_after",
    "cosine_nearby",
    "other_speaker",
    "question_share",
    "date",
    "length",
    "by_agent",
    "by_tool",
    "says_nothing",
    "newness",
}
ONCE_TODAY = 0.1 / (1 - 0.9**30)


@pytest.fixture(autouse=True)
def same_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question has the same vector at once: how busy the machine is decides nothing."""
    vector = [1.0] + [0.0] * (ENGLISH_DIMENSIONS - 1)

    def embed_query(*_: object) -> tuple[list[float], list[str]]:
        return vector, []

    monkeypatch.setattr("strandline.recall.search.embed_query", embed_query)


@pytest.fixture
def key(gateway: Gateway) -> str:
    """Of a program that may ask for anybody."""
    return gateway.key()


@pytest.fixture
def access(gateway: Gateway) -> TenantDb:
    """Background work in the tenant."""
    return gateway.database.connect_as(Caller.background("acme"))


def recall(gateway: Gateway, key: str, *who: str, **more: object) -> Any:
    body = {"query": QUESTION, "min_relevance": 0, "participants": list(who or (ALICE,)), **more}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def fold(access: TenantDb) -> None:
    while fold_answers_into_event_uses(access, datetime.now(UTC), 100):
        pass


def use(gateway: Gateway, key: str, access: TenantDb, query: str, *who: str) -> None:
    """One recall whose only hit counts as used, folded."""
    assert len(recall(gateway, key, *who, query=query, limit=1)["hits"]) == 1
    fold(access)


def importances(gateway: Gateway, key: str, *who: str) -> dict[str, float]:
    """What each event's importance is for these participants, without a use by this look."""
    answer = recall(gateway, key, *who, weights={"importance": 0.5}, explain=True, limit=100)
    return {hit["text"]: hit["features"]["importance"] for hit in answer["hits"]}


def last_word(text: str) -> str:
    return text.rstrip(".").split()[-1]


def lamps(tell: Tell, key: str, *who: str, **more: object) -> list[Any]:
    """Three events that answer alike, one of them by a word of its own."""
    return [
        tell(key, f"The {kind} lamp is at the pier.", *(who or (ALICE,)), **more)
        for kind in ("zyzzyva", "quokka", "wombat")
    ]


# what is asked for -------------------------------------------------------------------------------


def test_recall_weights_default_changes_nothing(
    gateway: Gateway, key: str, access: TenantDb, tell: Tell
) -> None:
    lamps(tell, key)
    before = recall(gateway, key, explain=True)
    use(gateway, key, access, "zyzzyva", ALICE)
    for weights in (None, {}, {"recency": 0}, {"recency": 0, "importance": 0.0}):
        answer = recall(gateway, key, explain=True, weights=weights)
        assert {**answer, "read_token": ""} == {**before, "read_token": ""}
    assert {name for hit in before["hits"] for name in hit["features"]} == FEATURES


def test_recall_weights_recency_orders_by_event_time(
    gateway: Gateway, key: str, tell: Tell
) -> None:
    now = datetime(2026, 6, 30, tzinfo=UTC)
    days = (40, 0, 90, 7)
    for age in days:
        at = (now - timedelta(days=age)).isoformat()
        tell(key, f"A lamp is at the pier, {age}.", ALICE, occurred_at=at)
    plain = recall(gateway, key, now=now.isoformat())
    body = recall(gateway, key, now=now.isoformat(), weights={"recency": 1}, explain=True)
    assert [last_word(hit["text"]) for hit in body["hits"]] == ["0", "7", "40", "90"]
    assert body["known"] == plain["known"]
    assert {h["event_id"]: h["relevance"] for h in body["hits"]} == {
        h["event_id"]: h["relevance"] for h in plain["hits"]
    }
    assert {name for hit in body["hits"] for name in hit["features"]} == {
        *FEATURES,
        "recency",
        "importance",
    }
    for hit in body["hits"]:
        age = int(last_word(hit["text"]))
        assert hit["features"]["recency"] == pytest.approx(2.718281828 ** (-age / 30), abs=1e-5)
    old = recall(gateway, key, now="2026-03-01T00:00:00Z", weights={"recency": 1}, explain=True)
    assert {hit["features"]["recency"] for hit in old["hits"]} == {1.0}, "all yet to happen"


def test_recall_weights_importance_orders_by_use(
    gateway: Gateway, key: str, access: TenantDb, tell: Tell
) -> None:
    at = (datetime.now(UTC) - timedelta(days=60)).isoformat()
    lamps(tell, key, occurred_at=at)
    for name in ("zyzzyva", "wombat", "quokka"):
        if name != "wombat":
            use(gateway, key, access, name, ALICE)
    body = recall(gateway, key, weights={"importance": 1, "recency": 0.5}, explain=True)
    uses = {hit["text"]: hit["features"] for hit in body["hits"]}
    assert body["hits"][-1]["text"] == "The wombat lamp is at the pier."
    assert uses["The zyzzyva lamp is at the pier."]["importance"] == pytest.approx(
        ONCE_TODAY, abs=1e-6
    )
    assert uses["The wombat lamp is at the pier."]["importance"] == 0
    assert (
        uses["The zyzzyva lamp is at the pier."]["recency"]
        > uses["The wombat lamp is at the pier."]["recency"]
    )


def test_recall_weights_apply_before_limit(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    lamps(tell, key)
    (first,) = recall(gateway, key, limit=1)["hits"]
    name = "zyzzyva" if "zyzzyva" not in first["text"] else "quokka"
    use(gateway, key, access, name, ALICE)
    scratch_db.rows(  # every day since long ago
        "insert into event_uses select u.tenant_id, u.cited_id, u.asker_id, u.event_id,"
        " u.day - n, u.participants, u.impact from event_uses u, generate_series(1, 40) n"
        " where exists (select from events e where e.event_id = u.event_id and e.content like %s)",
        f"%{name}%",
    )
    (hit,) = recall(gateway, key, limit=1, weights={"importance": 1})["hits"]
    assert name in hit["text"]
    assert name not in recall(gateway, key, limit=1)["hits"][0]["text"]


@pytest.mark.parametrize(
    ("weights", "field"),
    [
        ({"recency": 1.01}, "weights.recency"),
        ({"recency": -0.01}, "weights.recency"),
        ({"importance": "1"}, "weights.importance"),
        ({"importance": True}, "weights.importance"),
        ({"importance": None}, "weights.importance"),
        ({"novelty": 1}, "weights.novelty"),
        ([], "weights"),
        (1, "weights"),
    ],
)
def test_recall_weights_refuse_invalid_values(
    gateway: Gateway, key: str, weights: object, field: str
) -> None:
    body = {"query": QUESTION, "participants": [ALICE], "weights": weights}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 422
    assert field in reply.error["message"]


# use ----------------------------------------------------------------------------------------------


def test_recall_weights_use_counts_daily_and_fades(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    lamps(tell, key, ALICE, HELPER)
    lamp = "The zyzzyva lamp is at the pier."
    for who in ((ALICE,), (ALICE,), (ALICE, HELPER)):
        use(gateway, key, access, "zyzzyva", *who)
    assert importances(gateway, key)[lamp] == pytest.approx(ONCE_TODAY, abs=1e-6)
    scratch_db.rows("delete from recall_answers")
    for days, expected in ((1, 0.9), (29, 0.9**29), (30, 0.0)):
        scratch_db.rows("update event_uses set day = (now() at time zone 'UTC')::date - %s", days)
        importance = importances(gateway, key)[lamp]
        assert importance == pytest.approx(expected * ONCE_TODAY, abs=1e-6)
    now = datetime.now(UTC)
    assert delete_expired_event_uses(access, now, 10) == 0
    scratch_db.rows("update event_uses set day = (now() at time zone 'UTC')::date - 31")
    connection = gateway.database.connection()
    assert fold_recalls_into_heat.list_due_tenants(connection, DEFAULTS, now)
    assert (
        delete_expired_event_uses(access, now, 1),
        delete_expired_event_uses(access, now, 10),
    ) == (1, 1)
    assert scratch_db.rows("select from event_uses") == []


def test_recall_weights_use_travels_along_edges(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    def cite(receipt: Any, weight: float) -> dict[str, object]:
        return {"event_id": receipt["event_id"], "weight": weight}

    shared = tell(key, "A lamp at the pier, of both.", ALICE, BOB)
    fourth = tell(key, "A lamp at the pier, fourth.", ALICE)
    third = tell(key, "A lamp at the pier, third.", ALICE, edges=[cite(fourth, 1.0)])
    second = tell(key, "A lamp at the pier, second.", ALICE, edges=[cite(third, 0.5)])
    slight = tell(key, "A lamp at the pier, slight.", ALICE)
    edges = [cite(second, 0.8), cite(shared, 1.0), cite(slight, 0.009)]
    first = tell(key, "The zyzzyva.", ALICE, edges=edges)
    tell(key, "A lamp at the pier, citing.", ALICE, edges=[cite(first, 1.0)])
    use(gateway, key, access, "zyzzyva", ALICE)
    results = {
        last_word(text): value / ONCE_TODAY for text, value in importances(gateway, key).items()
    }
    assert results == pytest.approx(
        {"zyzzyva": 1, "second": 0.8, "third": 0.4, "fourth": 0.4}
        | dict.fromkeys(("both", "slight", "citing"), 0),
        abs=1e-4,
    )


def test_recall_weights_echo_is_no_use(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    lamp = tell(key, "A lamp is at the pier.", ALICE)
    edge = {"event_id": lamp["event_id"], "weight": 1.0}
    echo = tell(key, "The zyzzyva of the pier.", ALICE, edges=[edge])
    use(gateway, key, access, "zyzzyva", ALICE)
    assert list(importances(gateway, key).values()) == pytest.approx([ONCE_TODAY] * 2, abs=1e-6)
    scratch_db.rows("delete from recall_answers")
    scratch_db.rows(
        "insert into decisions (tenant_id, decision_id, scope_id, participants, event_id, kind,"
        " at_seq, body) select tenant_id, uuidv7(), scope_id, participants, event_id, 'echo', seq,"
        " '{}' from events where event_id = %s",
        echo["event_id"],
    )
    assert set(importances(gateway, key).values()) == {0}


def test_recall_weights_ignore_erased_events(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    lamp = tell(key, "A lamp is at the pier.", ALICE)
    edge = {"event_id": lamp["event_id"], "weight": 1.0}
    citing = tell(key, "The zyzzyva of the pier.", ALICE, edges=[edge])
    use(gateway, key, access, "zyzzyva", ALICE)
    assert importances(gateway, key)["A lamp is at the pier."] > 0
    scratch_db.rows(
        "update events set erased_at = now(), content = null, cid = null where event_id = %s",
        citing["event_id"],
    )
    assert importances(gateway, key) == {"A lamp is at the pier.": 0}
    with pytest.raises(psycopg.DatabaseError, match="erased event cannot be cited"):
        scratch_db.rows(
            "insert into event_uses select tenant_id, cited_id, asker_id, event_id, day + 1,"
            " participants, impact from event_uses"
        )
    scratch_db.rows("delete from event_uses")
    scratch_db.rows("update recall_answers set folded_at = null")
    fold(access)
    assert scratch_db.rows("select distinct cited_id::text, event_id::text from event_uses") == [
        (lamp["event_id"], lamp["event_id"])
    ]


def test_recall_weights_use_can_be_refolded(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    events = [tell(key, "Lamp zero at the pier.", ALICE, HELPER)]
    for n in range(1, 6):
        edge = {"event_id": events[-1]["event_id"], "weight": 0.5 + n / 20}
        events.append(tell(key, f"Lamp {n} at the pier.", ALICE, HELPER, edges=[edge]))
    for who in ((ALICE,), (HELPER,), (ALICE, HELPER)):
        for limit in (1, 3):
            recall(gateway, key, *who, limit=limit)
    scratch_db.rows(
        "update recall_answers a set recalled_at = recalled_at - make_interval(days => n::int)"
        " from (select recall_id, row_number() over (order by recall_id) %% 3 as n"
        " from recall_answers) r where r.recall_id = a.recall_id"
    )
    dump = "select to_jsonb(u) from event_uses u order by cited_id, asker_id, event_id, day"
    chance = random.Random(3)
    folds: list[list[Any]] = []
    for _ in range(4):
        scratch_db.rows("delete from event_uses")
        scratch_db.rows("update recall_answers set folded_at = null")
        while fold_answers_into_event_uses(access, datetime.now(UTC), chance.randint(1, 3)):
            pass
        folds.append(scratch_db.rows(dump))
        fold(access)
        assert scratch_db.rows(dump) == folds[-1], "folded once, it is folded"
    assert len(folds[0]) > 10
    assert folds[1:] == folds[:-1]


def test_recall_weights_use_is_folded_by_sweep(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, tell: Tell
) -> None:
    lamps(tell, key)
    gateway.sweep()
    recall(gateway, key, query="zyzzyva", limit=1)
    connection, now = gateway.database.connection(), datetime.now(UTC)
    assert fold_recalls_into_heat.list_due_tenants(connection, DEFAULTS, now) == ["acme"]
    gateway.sweep()
    assert [impact for (impact,) in scratch_db.rows("select impact from event_uses")] == [1.0]
    assert fold_recalls_into_heat.list_due_tenants(connection, DEFAULTS, now) == []


def test_recall_weights_use_counts_ten_best_hits(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, access: TenantDb, tell: Tell
) -> None:
    """Ten at most, whatever the order of the answer; never what an edge added."""
    base = tell(key, "Underneath.", ALICE)
    edge = {"event_id": base["event_id"], "weight": 1.0}
    for n in range(13):
        tell(key, f"Lamp {n} at the pier.", ALICE, edges=[edge])
    body = recall(gateway, key, limit=50, order="time", expand=5)
    best = {h["event_id"] for h in recall(gateway, key, limit=10)["hits"]}
    ((event_ids, usage),) = scratch_db.rows(
        "select event_ids, used from recall_answers order by recalled_at limit 1"
    )
    assert usage == 10
    assert {str(event_id) for event_id in event_ids[:usage]} == best
    assert {str(event_id) for event_id in event_ids} == {h["event_id"] for h in body["hits"]}
    assert UUID(base["event_id"]) in event_ids[usage:]
    fold(access)
    rows = scratch_db.rows("select distinct event_id::text from event_uses")
    assert {event_id for (event_id,) in rows} == best


# whose use ----------------------------------------------------------------------------------------


def test_recall_weights_importance_depends_on_readers(
    gateway: Gateway, key: str, access: TenantDb, tell: Tell
) -> None:
    """What alice asks alone, bob never learns, nor do both together; what both ask, each knows."""
    lamps(tell, key, ALICE, BOB, HELPER)
    lamp = "The zyzzyva lamp is at the pier."

    def is_visible(*who: str) -> bool:
        return importances(gateway, key, *who)[lamp] > 0

    gateway.database.connection()
    views = ((ALICE,), (BOB,), (HELPER,), (ALICE, BOB), (ALICE, HELPER), (ALICE, BOB, HELPER))
    for callers in views:
        scratch_delete(access)
        use(gateway, key, access, "zyzzyva", *callers)
        assert {who for who in views if is_visible(*who)} == {
            who for who in views if set(who) <= set(callers)
        }


def scratch_delete(access: TenantDb) -> None:
    """Forget all use."""
    with access.transaction():
        access.execute("delete from event_uses", {})
        access.execute("delete from recall_answers", {})


def test_recall_weights_ignore_use_of_other_tenants(gateway: Gateway, key: str, tell: Tell) -> None:
    globex = gateway.key("globex")
    for one in (key, globex):
        lamps(tell, one)
    recall(gateway, key, query="zyzzyva", limit=1)
    for tenant in ("acme", "globex"):
        fold(gateway.database.connect_as(Caller.background(tenant)))
    assert any(importances(gateway, key).values())
    assert not any(importances(gateway, globex).values())
