"""The promoter: warm chains become nodes and edges that cite their events."""

import importlib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.aws.run_requests import MIN_SPACING
from strandline.config import get_settings
from strandline.db.database import Caller, Database
from strandline.graph.promotion import promoter
from strandline.jobs import next_runs
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import GraphExtraction
from strandline.resources import Resources
from strandline.tuning import DEFAULTS
from tests.chains import warm
from tests.graph_calls import Graph, fact
from tests.strandline.graph.promotions import FACTS, STATE, TALK, forget, names
from tests.strandline.graph.unfounded_rows import CHECK, UnfoundedRow
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase, Tell

JOBS = "/api/v1/admin/jobs"


def form(base: ScratchDatabase, gateway: Gateway, tell: Tell, key: str, **more: object) -> None:
    """A warm chain of the talk."""
    for text in TALK:
        tell(key, text, **more)
    fold_all(gateway, base)
    warm(base)


def test_promoter_turns_warm_chain_into_cited_nodes(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key()
    form(scratch_db, gateway, tell, key)
    totals = gateway.run_job("promoter")
    assert totals["chains_promoted"] >= 1
    assert names(scratch_db, "fact") == FACTS
    assert names(scratch_db, "decision") == ["We decided to use Postgres"]
    assert {"Alice", "Linnea"} <= set(names(scratch_db, "entity"))
    assert scratch_db.rows(
        "select distinct e.content from graph_sources s join events e using (event_id)"
        " join graph_nodes n on n.node_id = s.target_id where n.name = %s",
        FACTS[0],
    ) == [(TALK[1],)]
    ((node_id,),) = scratch_db.rows("select node_id from graph_nodes where name = %s", FACTS[0])
    reply = gateway.call(
        "GET",
        f"/api/v1/graph/nodes/fact:{node_id}",
        query={"participants": ["user:alice", "agent:helper"]},
        key=key,
    )
    assert (reply.status, reply.body["trust"]) == (200, "user")
    assert reply.body["properties"]["category"] == "personal"

    before = scratch_db.rows(STATE)
    assert gateway.run_job("promoter") == {}, "nothing is due"
    gateway.run_job("promoter", "acme")
    assert scratch_db.rows(STATE) == before


def test_promoter_provenance_links_event_and_graph(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key()
    form(scratch_db, gateway, tell, key)
    gateway.run_job("promoter")

    def trace(row_id: str, caller: str = key, who: str = "user:alice", **query: object) -> Any:
        query = {"participants": who, **query}
        return gateway.call("GET", f"/api/v1/provenance/{row_id}", key=caller, query=query)

    ((event_id, chain_id, node_id),) = scratch_db.rows(
        "select s.event_id::text, s.source_id::text, 'fact:' || n.node_id from graph_sources s"
        " join graph_nodes n on n.node_id = s.target_id where n.name = %s",
        FACTS[0],
    )
    item = {"kind": "node", "id": node_id, "type": "fact"}
    assert item in trace(event_id).body["graph"]
    of_chain = trace(chain_id).body["graph"]
    assert item in of_chain
    edges = [one for one in of_chain if one["kind"] == "graph_edge"]
    assert edges
    for one in of_chain:
        body = trace(one["id"]).body
        citations = {event["event_id"]: event["chain_id"] for event in body["events"]}
        expected = scratch_db.rows(
            "select distinct event_id::text, source_id::text from graph_sources"
            " where target_id = %s",
            one["id"].rpartition(":")[2],
        )
        assert (body["kind"], citations) == (one["kind"], dict(expected))
        assert trace(one["id"], who="user:eve").status == 404
        assert trace(one["id"], gateway.key("globex")).status == 404
    many = max(of_chain, key=lambda one: len(trace(one["id"]).body["events"]))["id"]
    whole = trace(many).body["events"]
    assert len(whole) > 1
    first = trace(many, limit=1).body
    rest = trace(many, cursor=first["next_cursor"]).body
    assert first["events"] + rest["events"] == whole
    assert trace(f"fact:{event_id}x").status == 404


def test_promoter_sources_stay_in_scope(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And confidences are computed as the deployment says, here by halves, with what callers
    state."""
    monkeypatch.setenv("STRANDLINE_TUNING", '{"edge_confidence": "halving"}')
    get_settings.cache_clear()
    key = gateway.key()
    form(scratch_db, gateway, tell, key)
    form(scratch_db, gateway, tell, key, participants=["user:bob", "agent:helper"])
    graph = Graph(gateway, key, ("user:alice", "agent:helper"))
    for _ in range(2):
        graph.create(fact(FACTS[0], confidence=0.1))
    warm(scratch_db)
    gateway.run_job("promoter", "acme")
    for viewer in (("agent:helper", "user:alice"), ("user:bob",), ()):
        access = gateway.database.connect_as(Caller("acme", viewer))
        (row,) = access.fetch(UnfoundedRow, CHECK, {})
        assert row == UnfoundedRow(row.seen, 0, 0, 0, 0)
        assert row.seen > 5
    assert scratch_db.rows(
        "select confidence from graph_nodes where name = %s and 'user:alice' = any (participants)",
        FACTS[0],
    ) == [(pytest.approx(((0.95 + 0.1) / 2 + 0.1) / 2),)]


def test_promoter_skips_chain_not_warm(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    scratch_db.rows("update chains set promote_until = now() - interval '1 second'")
    gateway.run_job("promoter", "acme")
    assert scratch_db.rows(STATE) == []


def test_promoter_takes_allergy_and_skips_small_talk(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    """As they are judged: neither is warmed."""
    key, bob = gateway.key(), ("user:bob", "agent:helper")
    tell(key, "I'm allergic to penicillin, came out in hives at twelve.")
    tell(key, "The lamp hums a bit.", *bob)
    fold_all(gateway, scratch_db)
    gateway.run_job("promoter", "acme")
    assert names(scratch_db, "fact") == ["Alice is allergic to penicillin."]
    assert scratch_db.rows("select distinct 'user:bob' = any (participants) from graph_nodes") == [
        (False,)
    ]


def test_promoter_is_run_by_archiver_for_cold_chain(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    cold = "update chains set promote_until = '-infinity', cold_at = now() - interval '1 second'"
    scratch_db.rows(cold)
    totals = gateway.run_job("archiver")
    assert totals["chains_promoted"] == totals["chains_archived"] >= 1
    assert names(scratch_db, "fact") == FACTS
    assert scratch_db.rows("select distinct status from chains") == [("archived",)]


def test_promoter_failure_prevents_archiving(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    scratch_db.rows("update chains set cold_at = now() - interval '1 second'")
    with monkeypatch.context() as patch:
        patch.setattr(promoter, "build_chain_observations", fail)
        gateway.run_job("archiver")
    assert scratch_db.rows("select distinct status from chains") == [("active",)]
    gateway.run_job("archiver")
    assert scratch_db.rows("select distinct status from chains") == [("archived",)]


def fail(*_: object, **__: object) -> None:
    raise ValueError


@pytest.mark.parametrize("job", ["promoter", "archiver"])
def test_promoter_is_off_without_long_term_memory(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, job: str
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    scratch_db.rows("update tenants set tuning = '{\"ltm_enabled\": false}'")
    scratch_db.rows("update chains set cold_at = now() - interval '1 second'")
    assert "chains_promoted" not in gateway.run_job(job)
    gateway.run_job(job, "acme")
    assert scratch_db.rows(STATE) == []
    status = "active" if job == "promoter" else "archived"
    assert scratch_db.rows("select distinct status from chains") == [(status,)]


def test_promoter_failure_is_listed_isolated_and_retried(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = gateway.key(rights=("read", "write", "admin"))
    form(scratch_db, gateway, tell, key)
    form(scratch_db, gateway, tell, key, participants=["user:bob", "agent:helper"])
    warm(scratch_db)
    real = promoter.build_chain_observations
    rows = scratch_db.rows("select chain_id from chains order by promote_until desc, chain_id")

    def fail_first(chain: Any, *args: Any, **more: Any) -> Any:
        if chain.chain_id == rows[0][0]:
            raise ValueError
        return real(chain, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(promoter, "build_chain_observations", fail_first)
        totals = gateway.run_job("promoter")
    assert totals["extraction_failures"] == 1
    assert totals["chains_promoted"] == len(rows) - 1
    (job,) = gateway.call("GET", JOBS, query={"kind": "promote"}, key=key).body["jobs"]
    assert (job["state"], job["reason"]) == ("failed", "ValueError")
    assert job["ref"] == str(rows[0][0])
    gateway.run_job("promoter", "acme")
    (job,) = gateway.call("GET", JOBS, query={"kind": "promote"}, key=key).body["jobs"]
    assert job["state"] == "done"
    assert scratch_db.rows("select count(*) from chains where promoted_version = 0") == [(0,)]


def test_promoter_rebuilds_dropped_graph_from_decisions(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    gateway.run_job("promoter")
    before = scratch_db.rows(STATE)
    forget(scratch_db)
    nothing = GraphExtraction(entities=[], facts=[], decisions=[], relations=[])

    def extract(*_: object) -> GraphExtraction:
        return nothing

    monkeypatch.setattr(HeuristicModel, "extract", extract)
    gateway.run_job("promoter", "acme")
    assert scratch_db.rows(STATE) == before
    # Without the decisions it would not (planted).
    forget(scratch_db)
    scratch_db.rows("delete from decisions where kind = 'extracted'")
    gateway.run_job("promoter", "acme")
    assert scratch_db.rows(STATE) == []


def test_promoter_skips_chain_changed_meanwhile(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form(scratch_db, gateway, tell, gateway.key())

    def is_unchanged(*_: object) -> bool:
        return False

    monkeypatch.setattr(promoter.store, "lock_chain_if_unchanged", is_unchanged)
    assert "chains_promoted" not in gateway.run_job("promoter")
    assert scratch_db.rows(STATE) == []


def test_promoter_is_due_sooner_for_hot_chain(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    now = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)
    scratch_db.rows(
        "update chains set accessed_at = %s, promote_until = %s, importance = 0.5, density = 0.5",
        now,
        now + timedelta(hours=6),
    )

    def next_run() -> datetime | None:
        with closing(Database(scratch_db.url)) as database:
            return next_runs.find_next_run_times(
                database.connection(),
                space=None,
                heat=DEFAULTS.heat_time_parameters(),
                grace=timedelta(days=1),
                period=timedelta(hours=6),
                spacing=MIN_SPACING,
                now=now,
            ).get("promoter")

    assert next_run() == now + timedelta(minutes=22)
    scratch_db.rows("update chains set importance = 1, density = 0.9")
    assert next_run() == now + timedelta(minutes=1)
    scratch_db.rows("update tenants set tuning = '{\"promote_at_once\": 1}'")
    assert next_run() == now + timedelta(minutes=22)
    scratch_db.rows("update tenants set tuning = '{\"ltm_enabled\": false}'")
    assert next_run() is None
    scratch_db.rows("update tenants set tuning = '{}'")
    scratch_db.rows("update chains set promoted_version = version")
    assert next_run() is None


def test_promoter_counts_metrics(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form(scratch_db, gateway, tell, gateway.key())
    visible: dict[str, Any] = {}
    handler = importlib.import_module("strandline.jobs.worker_resources")

    def record(dimensions: Any, metrics: Any) -> dict[str, Any]:
        visible.update(metrics)
        return {}

    monkeypatch.setattr(handler, "make_emf_fields", record)
    gateway.run_job("promoter")
    assert visible["ChainsPromoted"] == visible["ChainsEvaluated"] == len(visible["ChainHeat"])
    assert visible["NodesWritten"] >= len(FACTS)
    assert len(visible["ExtractionMilliseconds"]) == len(visible["GraphWriteMilliseconds"])
    service: Resources = importlib.import_module("functions.promoter.handler").resources
    assert service.llm.model_name is None
