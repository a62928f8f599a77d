"""The recall-loop guard: what came out of a recall is no evidence when it comes back in."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import fold_recalls_into_heat, fold_state, recall_echoes, store_recalls
from strandline.chains.fold_scope import close_idle_lanes
from strandline.chains.refold import drop_chains_of_scopes
from strandline.db.database import Caller, Database, TenantDb
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from strandline.tuning import DEFAULTS
from tests.strandline.chains.fold_fixtures import EchoTasks, dump_state, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import Gateway, ScratchDatabase, user_message

ALICE, BOB, HELPER, OTHER = "user:alice", "user:bob", "agent:helper", "agent:other"
LATER = datetime(2040, 1, 1, tzinfo=UTC)
FACT = "The red buoy at pier seven needs a new lamp before winter."
REPEATED = f"You told me: {FACT}"
QUESTION = "What about the red buoy?"


@pytest.fixture
def worker(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), EchoTasks())
    database.close()


@pytest.fixture
def access(worker: WorkerResources) -> TenantDb:
    """Background work in one tenant."""
    return worker.database.connect_as(Caller.background("acme"))


@pytest.fixture
def key(gateway: Gateway, scratch_db: ScratchDatabase) -> str:
    token = gateway.key()
    set_tuning(scratch_db)
    return token


def tell(gateway: Gateway, key: str, text: str, *who: str, **more: Any) -> str:
    body = user_message(text, *(who or (ALICE, HELPER)), **more)
    reply = gateway.call("POST", "/api/v1/events", body, key=key)
    assert reply.status == 201, reply.text
    return reply.body["event_id"]


def recall(gateway: Gateway, key: str, *who: str, query: str = QUESTION) -> list[str]:
    """The texts that a recall gives."""
    body = {"query": query, "min_relevance": 0} | ({"participants": list(who)} if who else {})
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return [hit["text"] for hit in reply.body["hits"]]


def echoes(base: ScratchDatabase) -> list[str]:
    """The events that are decided to be echoes."""
    return [
        event_id
        for (event_id,) in base.rows(
            "select event_id::text from decisions where kind = 'echo' order by at_seq"
        )
    ]


def test_recall_loop_marks_recalled_text_as_echo(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    tell(gateway, key, FACT)
    assert FACT in recall(gateway, key, ALICE, HELPER)
    receipt = tell(gateway, key, REPEATED, role="agent")
    tell(gateway, key, "The invoice of the harbour master is overdue since March.")
    assert echoes(scratch_db) == [], "the append does not look"
    process_due(worker)
    assert echoes(scratch_db) == [receipt]
    assert worker.tally.counters["EchoesFound"] == 1
    assert scratch_db.rows(
        "select at_seq, body ->> 'share' from decisions where kind = 'echo'"
    ) == [(2, "0.7692")]


def test_recall_loop_marks_context_text_as_echo(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    tell(gateway, key, FACT)
    body = {"query": QUESTION, "participants": [ALICE], "min_relevance": 0}
    reply = gateway.call("POST", "/api/v1/context", body, key=key)
    assert FACT in reply.text
    receipt = tell(gateway, key, REPEATED, role="agent")
    process_due(worker)
    assert echoes(scratch_db) == [receipt]


def test_recall_loop_marks_nothing_without_recall(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    """Who repeats himself, or is given something else, or is given it only afterwards."""
    tell(gateway, key, FACT)
    tell(gateway, key, FACT)
    tell(gateway, key, "The invoice of the harbour master is overdue since March.")
    process_due(worker)
    scratch_db.rows("delete from recall_answers")
    texts = recall(gateway, key, ALICE, HELPER, query="invoice of the harbour master")
    scratch_db.rows(
        "update recall_answers set event_ids = array(select event_id from events"
        " where content like 'The invoice%%')"
    )
    tell(gateway, key, FACT)
    process_due(worker)
    recall(gateway, key, ALICE, HELPER)
    tell(gateway, key, "So it goes.")
    process_due(worker)
    assert texts
    assert echoes(scratch_db) == []


@pytest.mark.parametrize("hours", [23, 25])
def test_recall_loop_marks_no_echo_after_one_day(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str, hours: int
) -> None:
    tell(gateway, key, FACT)
    recall(gateway, key, ALICE, HELPER)
    scratch_db.rows(
        "update recall_answers set recalled_at = recalled_at - make_interval(hours => %s)", hours
    )
    tell(gateway, key, REPEATED)
    process_due(worker)
    assert len(echoes(scratch_db)) == (hours < 24)


def test_recall_loop_ignores_answers_given_to_others(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    """Another user of the scope, a reader who is not in it, another tenant, and a recall of what
    one of the participants cannot see."""
    alice, bob = gateway.key(user=ALICE), gateway.key(user=BOB)
    tell(gateway, alice, FACT, ALICE, BOB)
    tell(gateway, alice, FACT, ALICE)
    globex = gateway.key("globex")
    tell(gateway, globex, FACT, ALICE, BOB)
    assert FACT in recall(gateway, bob)
    tell(gateway, alice, REPEATED, ALICE, BOB)  # bob was given it, by his own credential
    tell(gateway, alice, REPEATED, ALICE)
    recall(gateway, globex, ALICE)
    tell(gateway, key, REPEATED, ALICE, HELPER)
    process_due(worker)
    assert echoes(scratch_db) == []
    assert FACT in recall(gateway, alice)
    receipt = tell(gateway, alice, REPEATED, ALICE, "user:carol")  # she sees neither of the two
    repeat_receipt = tell(gateway, alice, REPEATED, ALICE, BOB)
    process_due(worker)
    assert echoes(scratch_db) == [repeat_receipt] != [receipt]


@pytest.mark.parametrize("share", [False, True])
def test_recall_loop_marks_shared_memory_of_other_agent(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str, share: bool
) -> None:
    scratch_db.rows("update tenants set agents_share = %s", share)
    tell(gateway, key, FACT, ALICE, OTHER)
    assert FACT in recall(gateway, key, ALICE)
    receipt = tell(gateway, key, REPEATED, ALICE, HELPER)
    process_due(worker)
    assert echoes(scratch_db) == ([receipt] if share else [])


def test_recall_loop_lookup_ignoring_viewers_is_noticed(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: sources that only one of the participants sees."""
    monkeypatch.setattr(recall_echoes, "drop_agents", lambda members: [ALICE])  # pyright: ignore
    scratch_db.rows("update tenants set agents_share = true")
    with pytest.raises(AssertionError):
        test_recall_loop_ignores_answers_given_to_others(gateway, scratch_db, worker, key)


def chains(base: ScratchDatabase) -> list[tuple[float, float, str | None]]:
    return base.rows(
        "select v.importance, v.density, v.rejected from chain_versions v order by v.first_seq"
    )


def test_recall_loop_chain_of_echoes_only_is_rejected(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    set_tuning(scratch_db, quality="balanced")
    tell(gateway, key, FACT, session_id="s-1")
    recall(gateway, key, ALICE, HELPER)
    tell(gateway, key, REPEATED, session_id="s-2")
    tell(gateway, key, f"Once more. {FACT}", session_id="s-2")
    process_due(worker)
    close_idle_lanes(worker, "acme", LATER)
    (importance, density, rejection), echo = chains(scratch_db)
    assert (importance, rejection) == (0.8, None)
    assert density > 0
    assert echo[:2] == (0.0, 0.0)
    assert echo[2] is not None
    assert "quality" in echo[2]
    assert scratch_db.rows("select status from chains order by status") == [
        ("active",),
        ("rejected",),
    ]


def test_recall_loop_echo_adds_nothing_to_chain(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    """Density and summary are those of the same run without it."""
    tell(gateway, key, FACT, ALICE, HELPER, OTHER, session_id="s-0")
    other = "Order it from the chandler on the quay."
    recall(gateway, key, ALICE)
    tell(gateway, key, other, ALICE, HELPER, session_id="s-1")
    tell(gateway, key, other, ALICE, OTHER, session_id="s-2")
    tell(gateway, key, REPEATED, ALICE, OTHER, session_id="s-2", role="agent")
    process_due(worker)
    close_idle_lanes(worker, "acme", LATER)
    rows = scratch_db.rows(
        "select session_id, summary, importance, density, event_count from chain_versions"
        " where session_id <> 's-0' order by session_id"
    )
    assert [row[1:4] for row in rows] == [rows[0][1:4]] * 2
    assert [row[4] for row in rows] == [1, 2]
    reply = gateway.call("GET", "/api/v1/sessions/s-2/segments", key=key)
    assert reply.status == 200, reply.text
    (chain,) = reply.body["segments"]
    assert chain["echo_ids"] == echoes(scratch_db) == chain["event_ids"][1:]


def test_recall_loop_recall_of_echo_adds_no_heat(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    access: TenantDb,
    key: str,
) -> None:
    fact = tell(gateway, key, FACT, session_id="s-1")
    recall(gateway, key, ALICE, HELPER)
    echo = tell(gateway, key, REPEATED, session_id="s-2")
    process_due(worker)
    close_idle_lanes(worker, "acme", LATER)
    now = datetime.now(UTC)
    assert store_recalls.record_recalled_events(access, uuid.uuid4(), [UUID(echo)], now) == 0
    assert store_recalls.record_recalled_events(access, uuid.uuid4(), [UUID(fact)], now) == 1


@pytest.fixture
def folded_scope(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> str:
    """Chains with and of echoes; gives one of these."""
    tell(gateway, key, FACT, session_id="s-1")
    recall(gateway, key, ALICE, HELPER)
    echo = tell(gateway, key, REPEATED, session_id="s-2")
    tell(gateway, key, "Order it from the chandler on the quay.", session_id="s-2")
    process_due(worker)
    close_idle_lanes(worker, "acme", LATER)
    assert echoes(scratch_db) == [echo]
    return echo


def test_recall_loop_refold_gives_same_chains(
    scratch_db: ScratchDatabase, worker: WorkerResources, access: TenantDb, folded_scope: str
) -> None:
    """Whatever recalls are remembered by then."""
    before = dump_state(scratch_db)
    scopes = [scope for (scope,) in scratch_db.rows("select scope_id from scopes")]
    for remembered in (True, False):
        if not remembered:
            scratch_db.rows("delete from recall_answers")
        drop_chains_of_scopes(access, scopes)
        assert not scratch_db.rows("select from chains")
        process_due(worker)
        assert dump_state(scratch_db) == before
        assert echoes(scratch_db) == [folded_scope]


def test_recall_loop_late_recall_makes_no_echo(
    scratch_db: ScratchDatabase, worker: WorkerResources, access: TenantDb, folded_scope: str
) -> None:
    """A recall that is recorded late makes no echo of what was folded before."""
    scratch_db.rows(
        "update recall_answers set event_ids = array(select event_id from events),"
        " recalled_at = (select min(recorded_at) from events)"
    )
    scopes = [scope for (scope,) in scratch_db.rows("select scope_id from scopes")]
    before = dump_state(scratch_db)
    drop_chains_of_scopes(access, scopes)
    process_due(worker)
    assert dump_state(scratch_db) == before


def test_recall_loop_repeated_decision_is_noticed(
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    access: TenantDb,
    folded_scope: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: it takes what was folded before as new."""
    real = fold_state._decide_recall_echoes  # pyright: ignore[reportPrivateUsage]

    def decide(db: TenantDb, scope: Any, turns: Any) -> Any:
        object.__setattr__(scope, "max_folded_seq", 0)
        return real(db, scope, turns)

    monkeypatch.setattr(fold_state, "_decide_recall_echoes", decide)
    with pytest.raises(AssertionError):
        test_recall_loop_late_recall_makes_no_echo(scratch_db, worker, access, folded_scope)


def test_recall_loop_decision_of_dead_worker_stands(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, key: str
) -> None:
    """A decision may be committed with a run that its event closed, before the event is folded."""
    tell(gateway, key, FACT)
    recall(gateway, key, ALICE, HELPER)
    echo = tell(gateway, key, REPEATED)
    scratch_db.rows(
        "insert into decisions"
        " (tenant_id, decision_id, scope_id, participants, event_id, kind, at_seq, body)"
        " select tenant_id, uuidv7(), scope_id, participants, event_id, 'echo', seq, '{}'"
        " from events where seq = 2"
    )
    process_due(worker)
    assert worker.tally.failures == 0
    assert scratch_db.rows("select folded_seq from scopes") == [(2,)]
    assert echoes(scratch_db) == [echo]


def test_recall_loop_records_answer_with_all_events(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    """On whose behalf, by whom; of a reader of the whole tenant nothing."""
    receipts = {tell(gateway, key, f"{FACT} No. {n}.", ALICE) for n in range(14)}
    body = {"query": QUESTION, "limit": 100, "min_relevance": 0}
    admin = gateway.key(rights=("read", "admin"))
    all_of_it = {"everybody": "true"}
    reply = gateway.call("POST", "/api/v1/recall", body, key=admin, query=all_of_it)
    assert reply.body["hits"]
    assert scratch_db.rows("select from recall_answers") == []
    gateway.call("POST", "/api/v1/recall", body, key=gateway.key(user=ALICE))
    ((who, caller, writer, event_ids),) = scratch_db.rows(
        "select participants, asker, writer, event_ids from recall_answers"
    )
    assert (who, caller, writer) == ([ALICE], ALICE, ALICE)
    assert {str(event_id) for event_id in event_ids} == receipts


def test_recall_loop_prunes_answers_with_recalls(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    access: TenantDb,
    key: str,
) -> None:
    tell(gateway, key, FACT)
    for _ in range(3):
        recall(gateway, key, ALICE)
    scratch_db.rows(
        "update recall_answers set recalled_at = recalled_at - interval '31 days'"
        " where recall_id in (select recall_id from recall_answers limit 2)"
    )
    now = datetime.now(UTC)
    assert "acme" in fold_recalls_into_heat.list_due_tenants(
        worker.database.connection(), DEFAULTS, now
    )
    assert (
        fold_recalls_into_heat.delete_old_recalls(access, now - fold_recalls_into_heat.RETENTION, 1)
        == 1
    )
    assert (
        fold_recalls_into_heat.delete_old_recalls(
            access, now - fold_recalls_into_heat.RETENTION, 10
        )
        == 1
    )
    assert len(scratch_db.rows("select from recall_answers")) == 1
