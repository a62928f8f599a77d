"""Promotion by a language model: validated, interrupted, retried; and while it is away."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from strandline.graph.promotion import promoter
from strandline.resources import Resources
from tests.chains import warm
from tests.model_server import ModelServer, completion, error, serving
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.strandline.graph.promotions import FACTS, JOBS, TALK, failures, names, say
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase, Tell


@pytest.fixture
def embedder() -> WordEmbedder:
    """Of a space without calibration."""
    return WordEmbedder("words/16", 16)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """In the settings of every function; comes before them."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        settings = {"PROVIDER": "openai", "BASE_URL": provider.url, "MODEL": "tiny"}
        for name, value in settings.items():
            monkeypatch.setenv(f"STRANDLINE_LLM_{name}", value)
        yield provider


@pytest.fixture
def key(
    provider: ModelServer, scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> Iterator[str]:
    """An admin's key; a conversation is one warm chain by the heuristic model, and the model asked
    of nothing yet."""
    uses: list[Any] = []
    for name in ("sweeper", "worker", "promoter"):
        service: Resources = importlib.import_module(f"functions.{name}.handler").resources
        uses.append(service.llm.__dict__["_provider"])
        if name != "promoter":
            service.llm.__dict__["_provider"] = None
            service.llm.max_run_seconds = 0.0
    key = gateway.key(rights=("read", "write", "admin"))
    for text in TALK:
        tell(key, text, session_id="s-1", metadata={"workflow_id": "one"})
    fold_all(gateway, scratch_db)
    warm(scratch_db)
    assert scratch_db.rows("select count(*) from chains") == [(1,)]
    provider.requests.clear()
    yield key
    for client in uses:
        client.close()


def fact(content: str, *events: int) -> dict[str, object]:
    more = {"category": "personal", "about": ["Alice"], "confidence": 0.9}
    return {"content": content, "events": list(events), **more}


def test_promoter_model_answer_is_checked_against_events(
    scratch_db: ScratchDatabase, gateway: Gateway, provider: ModelServer, key: str
) -> None:
    provider.script = [
        say(
            facts=[
                fact("Alice lives in Lisbon near the river.", 1),
                fact("Alice commands a fleet of submarines.", 2),
                fact("Alice is allergic to penicillin.", 2, 77),
            ],
            relations=[
                {
                    "source": "Alice",
                    "relation": "adores",
                    "target": "Linnea",
                    "nuance": None,
                    "confidence": 0.9,
                    "events": [3],
                }
            ],
            entities=[{"name": "Linnea", "kind": "person"}, {"name": "Nobody", "kind": "person"}],
        )
    ]
    totals = gateway.run_job("promoter")
    assert names(scratch_db, "fact") == [
        "Alice is allergic to penicillin.",
        "Alice lives in Lisbon near the river.",
    ]
    assert names(scratch_db, "entity") == ["Alice", "Linnea"]
    assert (totals["statements_dropped"], totals["edges_corrected"]) == (1, 1)
    assert '"number": 4' in provider.prompt_text()
    assert scratch_db.rows(
        "select body #>> '{models,model}', body #>> '{models,prompt}' from decisions"
        " where kind = 'extracted'"
    ) == [("openai:tiny", "extract/1")]
    calls = gateway.call("GET", "/api/v1/model-calls", key=key).body["calls"]
    assert [(call["task"], call["outcome"]) for call in calls] == [("extract", "ok")]
    assert failures(gateway, key) == []


def test_promoter_model_unsure_relation_is_opt_in(
    scratch_db: ScratchDatabase, gateway: Gateway, provider: ModelServer, key: str
) -> None:
    def relation(confidence: float, target: str, event: int) -> dict[str, object]:
        ends = {"source": "Alice", "relation": "USES", "target": target, "nuance": None}
        return {**ends, "confidence": confidence, "events": [event]}

    entities = [{"name": name, "kind": "place"} for name in ("Lisbon", "penicillin")]
    relations = [relation(0.2, "penicillin", 2), relation(0.7, "Lisbon", 1)]
    provider.script = [say(entities=entities, relations=relations)]
    gateway.run_job("promoter")
    assert scratch_db.rows(
        "select round(confidence::numeric, 2)::text from graph_edges where type = 'USES' order by 1"
    ) == [("0.20",), ("0.70",)]
    (alice,) = scratch_db.rows("select node_id from graph_nodes where name = 'Alice'")

    def reach(**more: object) -> set[str]:
        body = {"node_id": f"ent:{alice[0]}", "traversal": "related_entities", **more}
        body["participants"] = ["user:alice"]
        answer = gateway.call("POST", "/api/v1/graph/traverse", body, key=key)
        return {node["name"] for node in answer.body["nodes"]} - {"Alice"}

    assert reach() == {"Lisbon"}
    assert reach(min_confidence=0.1) == {"Lisbon", "penicillin"}


def test_promoter_model_invalid_answer_is_repaired_once(
    scratch_db: ScratchDatabase, gateway: Gateway, provider: ModelServer, key: str
) -> None:
    provider.script = [completion('{"facts": 7}'), say(facts=[fact("Alice lives in Lisbon.", 1)])]
    gateway.run_job("promoter")
    assert names(scratch_db, "fact") == ["Alice lives in Lisbon."]
    assert failures(gateway, key) == []


def test_promoter_model_failure_uses_heuristic_until_retry(
    scratch_db: ScratchDatabase, gateway: Gateway, provider: ModelServer, key: str
) -> None:
    provider.script = [completion('{"facts": 7}'), completion('{"facts": 8}')]
    totals = gateway.run_job("promoter")
    assert totals["extraction_failures"] == 1
    assert names(scratch_db, "fact") == FACTS
    assert failures(gateway, key) == [("failed", "invalid_output")]

    (job,) = gateway.call("GET", JOBS, query={"kind": "promote"}, key=key).body["jobs"]
    reply = gateway.call("POST", f"{JOBS}/{job['job_id']}/retry", key=key)
    assert (reply.status, reply.body["state"]) == (202, "queued")
    provider.script = [say(facts=[fact("Alice lives in Lisbon.", 1)])]
    gateway.run_job("promoter")  # it is due again
    assert names(scratch_db, "fact") == ["Alice lives in Lisbon."], "and replaces what stood there"
    assert failures(gateway, key) == [("done", "")]
    assert scratch_db.rows(
        "select attempt from decisions where kind = 'extracted' order by attempt"
    ) == [(0,), (1,)]


@pytest.mark.usefixtures("key")
def test_promoter_model_rate_limit_is_waited_for(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its minute is used up: the chain stays due, and is promoted when an hour is over."""
    scratch_db.rows("update chains set accessed_at = now()")
    service: Resources = importlib.import_module("functions.promoter.handler").resources
    extract = service.llm.extract

    def come_later(*args: Any, **more: Any) -> Any:
        result = extract(*args, **{**more, "may_ask": False})
        return replace(result, fallback_reason="rate_limited", retry_after=30.0)

    monkeypatch.setattr(service.llm, "extract", come_later)
    assert gateway.run_job("promoter", "acme")["chains_postponed"] == 1
    assert names(scratch_db, "fact") == []
    scratch_db.rows("update chains set accessed_at = now() - interval '61 minutes'")
    gateway.run_job("promoter", "acme")
    assert names(scratch_db, "fact") == FACTS


def test_promoter_model_job_resumes_after_interruption(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    provider: ModelServer,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies with the model's answer in its hands: nothing is written, and the next run asks
    again."""

    class Kill(BaseException):
        pass

    def die(*_: object) -> None:
        raise Kill

    provider.script = [say(facts=[fact("Alice lives in Lisbon.", 1)])] * 2
    with monkeypatch.context() as patch:
        patch.setattr(promoter, "store_extraction_decision", die)
        with pytest.raises(Kill):
            gateway.run_job("promoter", "acme")
    assert names(scratch_db, "fact") == []
    scratch_db.rows("delete from jobs")  # its lease is over
    gateway.run_job("promoter", "acme")
    assert names(scratch_db, "fact") == ["Alice lives in Lisbon."]
    assert len(provider.requests) == 2


def test_promoter_model_switched_off_is_not_asked(
    scratch_db: ScratchDatabase, gateway: Gateway, provider: ModelServer, key: str
) -> None:
    scratch_db.rows("update tenants set tuning = '{\"ltm_kg_enabled\": false}'")
    provider.script = [error(500)]
    gateway.run_job("promoter")
    assert provider.requests == []
    assert names(scratch_db, "fact") == FACTS
    assert failures(gateway, key) == []
