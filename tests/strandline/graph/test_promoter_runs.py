"""Promotion by a scripted model through the state machine that is deployed: killed and resumed, and
an unusable answer that is counted, seen and retried. The graph is the same in the end."""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.local.aws import LocalAws
from strandline.local.state_machine import StateMachine
from strandline.resources import Resources
from tests.chains import warm
from tests.model_server import ModelServer, Says, completion, serving, stay_silent
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.strandline.graph.promotions import STATE, TALK, failures, forget, names, say
from tests.strandline.jobs.deployed_machine import (
    DEFINITION,
    JOBS,
    SECONDS,
    AtOnce,
    handlers,
    wait_for,
)
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase, Tell

PEOPLE = ("Alice", "Bob")
FACTS = [f"{name} lives in Lisbon." for name in PEOPLE]
SHARDS = (
    "select {} from job_shards s join jobs j using (tenant_id, job_id) where j.kind = 'promoter'"
)
STEP = """
import json, sys
from functions.promoter.handler import lambda_handler
from strandline.local.lambda_context import LambdaContext
lambda_handler(json.loads(sys.argv[1]), LambdaContext("promoter", 900))
"""
"""A function of its own, as Lambda starts one."""


@pytest.fixture
def embedder() -> WordEmbedder:
    """Of a space without calibration."""
    return WordEmbedder("words/16", 16)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """In the settings of every function; comes before them. It answers by who speaks."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        settings = {"PROVIDER": "openai", "BASE_URL": provider.url, "MODEL": "tiny"}
        for name, value in settings.items():
            monkeypatch.setenv(f"STRANDLINE_LLM_{name}", value)
        provider.otherwise = extract
        yield provider


def extract(request: dict[str, Any]) -> Says:
    """Where somebody lives, what was decided and a relation, and one thing that nobody said."""
    text = request["messages"][1]["content"].casefold()
    (name,) = (name for name in PEOPLE if name.casefold() in text)

    def fact(content: str, number: int) -> dict[str, object]:
        more = {"category": "personal", "about": [name], "confidence": 0.9}
        return {"content": content, "events": [number], **more}

    return say(
        entities=[{"name": name, "kind": "person"}, {"name": "Linnea", "kind": "person"}],
        facts=[fact(f"{name} lives in Lisbon.", 1), fact(f"{name} commands submarines.", 2)],
        decisions=[
            {
                "title": "Use Postgres",
                "rationale": "it is boring",
                "about": [name],
                "confidence": 0.9,
                "events": [4],
            }
        ],
        relations=[
            {
                "source": name,
                "relation": "RELATES_TO",
                "target": "Linnea",
                "nuance": "sister",
                "confidence": 0.9,
                "events": [3],
            }
        ],
    )


@pytest.fixture
def key(
    provider: ModelServer, scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> Iterator[str]:
    """An admin's key; two people's conversations are a warm chain each by the heuristic model, and
    the model is asked for extractions alone."""
    uses: list[Any] = []
    for name in ("sweeper", "worker", "promoter"):
        service: Resources = importlib.import_module(f"functions.{name}.handler").resources
        uses.append(service.llm.__dict__["_provider"])
        if name != "promoter":
            service.llm.__dict__["_provider"] = None
            service.llm.max_run_seconds = 0.0
    key = gateway.key(rights=("read", "write", "admin"))
    for name in PEOPLE:
        who = (f"user:{name.casefold()}", "agent:helper")
        for text in TALK:
            tell(key, text, *who, session_id=f"s-{name}", metadata={"workflow_id": name})
    fold_all(gateway, scratch_db)
    warm(scratch_db)
    assert scratch_db.rows("select count(*) from chains") == [(2,)]
    provider.requests.clear()
    yield key
    for client in uses:
        client.close()


@pytest.fixture
def machine(
    key: str, gateway: Gateway, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StateMachine]:
    """The definition that is deployed, with the real functions; the admin function knows it."""
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as running:
        running.add_handlers(handlers())
        service: Resources = importlib.import_module("functions.admin.handler").resources
        monkeypatch.setitem(service.__dict__, "job_queue", AtOnce(running.arn))
        yield running


def promote(gateway: Gateway, key: str) -> Any:
    """Start the job as an admin does, and wait for its end."""
    started = gateway.call("POST", f"{JOBS}/promoter", key=key)
    assert started.status == 202, started.text
    return wait_for(gateway, started.body["job_id"], key)


def promote_after_retry(gateway: Gateway, key: str) -> Any:
    """As `promote`. The retry has started a run by itself, which may not have ended."""
    started = gateway.call("POST", f"{JOBS}/promoter", key=key)
    if started.status == 409:
        assert wait_for(gateway, started.body["error"]["details"]["job_id"], key)["state"] == "done"
        return promote(gateway, key)
    return wait_for(gateway, started.body["job_id"], key)


def promote_again(
    scratch_db: ScratchDatabase, gateway: Gateway, key: str
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The graph as it is, and as one run without any trouble writes it."""
    before = scratch_db.rows(STATE)
    forget(scratch_db)
    scratch_db.rows("delete from decisions where kind = 'extracted'")
    assert promote(gateway, key)["state"] == "done"
    return sorted(before, key=str), sorted(scratch_db.rows(STATE), key=str)


def kill_first(
    provider: ModelServer, repository: Path, look: Callable[[], None]
) -> Callable[[Any, Any], Any]:
    """The promoter's function; the first that works on a shard is a process of its own, and is
    killed while it waits for the second answer of the model. `look` is called then."""
    real, kills = handlers()["promoter"], list[int]()

    def run(event: Any, context: Any) -> Any:
        if event["verb"] != "shard" or kills:
            return real(event, context)
        path = os.pathsep.join([str(repository / "shared"), str(repository)])
        program = subprocess.Popen(
            [sys.executable, "-c", STEP, json.dumps(event)],
            cwd=repository,
            env={**os.environ, "PYTHONPATH": path},
        )
        until = time.monotonic() + SECONDS
        while len(provider.requests) < 2:
            assert program.poll() is None, "it has ended by itself"
            assert time.monotonic() < until, "it does not ask"
            time.sleep(0.02)
        program.kill()
        kills.append(program.wait())
        look()
        raise RuntimeError("Runtime.ExitError")

    return run


@pytest.mark.proof
def test_promoter_run_resumes_after_kill(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    provider: ModelServer,
    key: str,
    machine: StateMachine,
    repository: Path,
) -> None:
    """What was committed stays, and is not asked for again."""
    half: list[str] = []
    machine.add_handlers(
        {
            "promoter": kill_first(
                provider, repository, lambda: half.extend(names(scratch_db, "fact"))
            )
        }
    )
    provider.script = [extract, Says({}, hold=stay_silent)]
    job = promote(gateway, key)
    assert (job["state"], job["reason"]) == ("done", "")
    assert len(half) == 1, "the first chain was written, the second was not"
    assert names(scratch_db, "fact") == FACTS
    assert names(scratch_db, "decision") == ["Use Postgres"] * 2
    assert len(provider.requests) == 3, "the killed one's second question, once more"
    assert scratch_db.rows(SHARDS.format("s.lease_no, s.state")) == [(2, "done")]
    provider.let_go.set()
    before, again = promote_again(scratch_db, gateway, key)
    assert before == again


def background(gateway: Gateway, key: str) -> int:
    """How many failed jobs health tells."""
    return gateway.call("GET", "/api/v1/health", key=key).body["background"]["jobs_failed"]


def test_promoter_run_counts_and_retries_unusable_answer(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    provider: ModelServer,
    key: str,
    machine: StateMachine,
) -> None:
    """The answer and its repair do not validate: the heuristic model stands in until the retry."""
    provider.script = [completion('{"facts": 7}'), completion("no JSON at all")]
    job = promote(gateway, key)
    assert job["state"] == "done", "one chain's failure does not fail the run"
    failed = "(s.totals->>'extraction_failures')::int"
    assert scratch_db.rows(SHARDS.format(failed)) == [(1,)]
    assert failures(gateway, key) == [("failed", "invalid_output")]
    assert background(gateway, key) == 1
    calls = gateway.call("GET", "/api/v1/model-calls", key=key).body["calls"]
    assert sorted(call["outcome"] for call in calls) == ["invalid_output", "invalid_output", "ok"]
    half = names(scratch_db, "fact")
    assert set(half) & set(FACTS), "the model's answer about the other chain"
    assert len(half) > len(FACTS), "and what the heuristic model found in this one"

    (failure,) = gateway.call("GET", JOBS, query={"kind": "promote"}, key=key).body["jobs"]
    assert gateway.call("POST", f"{JOBS}/{failure['job_id']}/retry", key=key).status == 202
    assert promote_after_retry(gateway, key)["state"] == "done"
    assert failures(gateway, key) == [("done", "")]
    assert background(gateway, key) == 0
    assert names(scratch_db, "fact") == FACTS
    before, again = promote_again(scratch_db, gateway, key)
    assert before == again
