"""Whatever one event does to a model, a parser or a limit: its scope's fold goes on, somebody sees
it, and a retry says what it could not say then."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from strandline.aws.blobs import BlobStore
from strandline.background import process_events
from strandline.background.missing_vectors import retry_refused_vectors
from strandline.chains import decisions, enrichment, judging
from strandline.chains.refold import drop_chains_of_scopes
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.db.database import Caller, Database
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable, PayloadMissing, Unavailable
from strandline.jobs import store_runs
from strandline.jobs.worker_resources import ConcurrentUpdate, WorkDeferred, WorkerResources
from strandline.llm.heuristic import digest, names, topic_continuation
from strandline.llm.types import PromptEvent, RunSummary
from strandline.local.aws import LocalAws
from strandline.log import store_work
from strandline.permanent_failures import is_permanent_failure
from tests.strandline.chains.fold_fixtures import (
    ALICE,
    HELPER,
    EchoTasks,
    append,
    dump_state,
    set_tuning,
)
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import Gateway, ScratchDatabase

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)
LATER = datetime(2030, 1, 1, tzinfo=UTC)
QUIET = {
    "scopes_stuck": 0,
    "jobs_failed": 0,
    "turns_late": 0,
    "erasures_waiting": 0,
    "oldest_erasure_seconds": 0,
    "rows_unreadable": 0,
}
POISON = "poison"
LINK = "https://example.com/reset/" + "Zm9vYmFy" * 43
WIDE = {"similarity_low": -1.0, "similarity_high": 1.0}
"""Thresholds by which nobody's cosine decides: the model is asked at every user message."""


class Scope:
    """Alice's scope: every third minute somebody speaks, every tenth after half an hour."""

    def __init__(self, gateway: Gateway, base: ScratchDatabase) -> None:
        self.gateway, self.base = gateway, base
        self.key = gateway.key(rights=("read", "write", "admin"))
        self.user = gateway.key(user=ALICE)
        self.at, self.count, self.id = START, 0, UUID(int=0)
        set_tuning(base, **WIDE, flush_events=6)

    def say(self, *texts: str, **more: Any) -> None:
        events: list[dict[str, Any]] = []
        for text in texts:
            self.count += 1
            self.at += timedelta(minutes=3)
            role = ("user", "agent")[self.count % 2]
            event = {
                "participants": [ALICE, HELPER],
                "role": role,
                "speaker": ALICE if role == "user" else HELPER,
                "session_id": "s",
                "content": text,
                "occurred_at": self.at.isoformat(),
            }
            events.append(event | more)
        self.id = UUID(append(self.gateway, self.key, events)[0])

    def folded(self) -> tuple[int, int]:
        ((last, fold),) = self.base.rows("select last_seq, folded_seq from scopes")
        return last, fold

    def jobs(self) -> list[tuple[Any, ...]]:
        return self.base.rows("select kind, state, reason from jobs order by kind, job_id")

    def health(self) -> Any:
        return self.gateway.call("GET", "/api/v1/health", key=self.key).body


@pytest.fixture
def scope(gateway: Gateway, scratch_db: ScratchDatabase) -> Scope:
    """An empty scope."""
    return Scope(gateway, scratch_db)


@pytest.fixture
def worker(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[WorkerResources]:
    """With the heuristic model and quick vectors."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64))
    database.close()


def break_on_poison(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: type) -> None:
    """Have a rule of the heuristic model fail on every text that holds the word."""
    real = getattr(module, name)

    def fail(*args: Any) -> Any:
        if any(POISON in str(one) for one in args):
            raise error("broken")
        return real(*args)

    monkeypatch.setattr(module, name, fail)


TALK = [f"the mooring of berth {n} is free" for n in range(5)]


def test_fold_survives_long_unbroken_word(scope: Scope, worker: WorkerResources) -> None:
    scope.say(f"My link is {LINK}", "ok", *(f"and {LINK}{n}" for n in range(24)))
    topics = scope.gateway.call("GET", "/api/v1/sessions/s/analysis/topics", key=scope.user)
    assert topics.status == 200, topics.text
    assert process_due(worker) == 1
    assert scope.folded() == (26, 26)
    assert scope.jobs() == []
    assert worker.tally.counters["HeuristicFailures"] == 0, "mended at its cause"
    rows = scope.base.rows("select coalesce(length(topic), 0), length(summary) from chain_versions")
    assert rows, "chains are formed"
    assert all(topic <= 200 and summary <= 240 for topic, summary in rows)


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (digest, "choose_topic_phrase"),
        (digest, "choose_summary_sentence"),
        (digest, "score_importance"),
        (names, "extract_entities"),
    ],
)
@pytest.mark.parametrize("error", [ValueError, RecursionError, AssertionError, IndexError])
def test_fold_failure_of_heuristic_is_replaced_by_retry(
    scope: Scope,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    rule: str,
    error: type,
) -> None:
    with monkeypatch.context() as patch:
        break_on_poison(patch, module, rule, error)
        scope.say(*TALK, POISON, *TALK, *TALK)
        topics = scope.gateway.call("GET", "/api/v1/sessions/s/analysis/topics", key=scope.user)
        assert topics.status == 200, topics.text
        process_due(worker)
    assert scope.folded() == (16, 16)
    assert scope.jobs() == [("enrich", "failed", "heuristic_failed")]
    assert scope.health()["background"] == {**QUIET, "jobs_failed": 1}
    reply = scope.gateway.call(
        "GET", "/api/v1/admin/jobs", query={"state": "failed"}, key=scope.key
    )
    ((job,), chain) = reply.body["jobs"], UUID(reply.body["jobs"][0]["ref"])
    assert job["reason"] == "heuristic_failed"
    before = dump_state(scope.base, "versions", "chains")
    assert retry_enrichment(worker, "acme", chain, LATER) >= 2
    after = dump_state(scope.base, "versions", "chains", "links", "lanes")
    assert after["versions"] != before["versions"], "it is said again"
    assert [row for row in after["versions"] if '"fell_back": "heuristic_failed"' in row]
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [scope.id])
    process_due(worker)
    replay = dump_state(scope.base, "versions", "chains", "links", "lanes")
    assert replay == after, "a replay says what failed, and then what the retry said"


def test_fold_failure_of_judgement_continues_topic(
    scope: Scope, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_on_poison(patch, topic_continuation, "continues_topic", ValueError)
        scope.say("the mooring", "aye", "the berth", "aye", POISON, POISON, "aye", "aye")
        process_due(worker)
    assert scope.folded() == (8, 8)
    assert ("continues", "failed", "heuristic_failed") in scope.jobs()
    query = "select body ->> 'continues', body ->> 'model' from decisions where kind = 'continues'"
    assert ("true", "plain/2") in scope.base.rows(query)
    before = dump_state(scope.base)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [scope.id])
    process_due(worker)
    assert dump_state(scope.base) == before


def test_fold_failure_outside_models_is_decided(
    scope: Scope, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as faults:
        faults.setattr(judging, "compare_pending_with_last_user_message", fail)
        faults.setattr(enrichment.quality, "compute_density", fail)
        scope.say(*TALK, *TALK)
        process_due(worker)
    assert scope.folded() == (10, 10)
    kinds = {(kind, reason) for kind, _, reason in scope.jobs()}
    assert kinds == {("continues", "fold_failed"), ("enrich", "fold_failed")}
    ((chain, status),) = scope.base.rows(
        "select chain_id, status from chains order by chain_id limit 1"
    )
    assert status == "rejected", "nothing that nobody judged is listed"
    retry_enrichment(worker, "acme", chain, LATER)
    ((status, models),) = scope.base.rows(
        "select c.status, v.models from chains c join chain_versions v"
        " using (tenant_id, chain_id, version) where chain_id = %s",
        chain,
    )
    assert set(models) == {"summarise", "topic", "entities"}
    before = dump_state(scope.base)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [scope.id])
    process_due(worker)
    assert dump_state(scope.base) == before


class Unstorable(EchoTasks):
    """A model whose answers the database does not take."""

    def summarise(self, task: Any, events: Sequence[PromptEvent]) -> Any:
        """With a character that no text column holds."""
        if any(POISON in one.text for one in events):
            return self._make_result("summarise", RunSummary(summary="a\x00b", importance=0.9))
        return super().summarise(task, events)


def test_fold_failure_to_store_answer_rejects_run(scope: Scope, worker: WorkerResources) -> None:
    odd = make_worker(worker.database, worker.blobs, worker.embedder, Unstorable())
    scope.say(*TALK, POISON, *TALK)
    process_due(odd)
    assert scope.folded() == (11, 11)
    assert ("enrich", "failed", "fold_failed") in scope.jobs()
    query = "select count(*) from decisions where kind = 'formed' and body ->> 'rejected' = %s"
    assert scope.base.rows(query, "fold_failed") == [(1,)]


def test_fold_failure_of_embedder_can_be_retried(scope: Scope, worker: WorkerResources) -> None:
    def fail(texts: Sequence[str]) -> None:
        if any(POISON in text for text in texts):
            raise ValueError("broken")

    assert isinstance(worker.embedder, WordEmbedder)
    worker.embedder.before_embed = fail
    scope.say(*TALK, POISON, *TALK)
    process_due(worker)
    assert scope.folded() == (11, 11)
    assert ("embed", "failed", "embedding_refused") in scope.jobs()
    refusals = "select refusal from event_vectors where refusal is not null"
    assert scope.base.rows(refusals) == [("The embedding model failed: ValueError.",)]
    worker.embedder.before_embed = lambda texts: None
    chains = dump_state(scope.base, "chains", "versions", "links")
    assert retry_refused_vectors(worker, "acme", scope.id) == 1
    assert scope.base.rows(refusals) == []
    assert dump_state(scope.base, "chains", "versions", "links") == chains, "decided is decided"


@pytest.mark.parametrize(
    "failure", [EmbeddingRefused("HTTP 400"), ValueError("broken"), RuntimeError("broken")]
)
def test_fold_failure_of_embedder_for_all_refuses_none(
    scope: Scope, worker: WorkerResources, failure: Exception
) -> None:
    def away(texts: Sequence[str]) -> None:
        del texts
        raise failure

    assert isinstance(worker.embedder, WordEmbedder)
    worker.embedder.before_embed = away
    scope.say(*TALK)
    process_due(worker)
    refusals = "select count(*) from event_vectors where refusal is not null"
    assert scope.base.rows(refusals) == [(0,)]
    assert ("embed", "failed", "embedding_refused") not in scope.jobs()
    ((reason,),) = scope.base.rows("select last_error from scope_work")
    assert reason.startswith("embedding_unavailable: ")
    worker.embedder.before_embed = lambda texts: None
    check_stuck(worker, scope, 1)
    assert scope.folded() == (len(TALK), len(TALK))


@pytest.mark.parametrize("failure", [EmbeddingRefused("HTTP 400"), ValueError("broken")])
def test_fold_gives_up_summary_vector_after_probe_only(
    worker: WorkerResources, failure: Exception
) -> None:
    def fail(texts: Sequence[str]) -> None:
        if harmless.isdisjoint(texts):
            raise failure

    harmless: set[str] = set()
    assert isinstance(worker.embedder, WordEmbedder)
    worker.embedder.before_embed = fail
    placeholder_content = decisions.make_placeholder_content(START, 3, failure)
    placeholder_content = placeholder_content.model_copy(update={"rejected": None})
    with pytest.raises(EmbeddingUnavailable):
        enrichment.embed_summary(worker, placeholder_content, waits_for_model=True)
    assert enrichment.embed_summary(worker, placeholder_content, waits_for_model=False) is None
    harmless.add("probe")
    assert enrichment.embed_summary(worker, placeholder_content, waits_for_model=True) is None


def test_fold_uses_name_of_missing_payload(
    scope: Scope, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_gone(*_: object, **__: object) -> str:
        raise PayloadMissing

    monkeypatch.setattr(worker.blobs, "read_text_prefix", refuse_gone)
    scope.say("word " * 20_000, *TALK, *TALK)
    process_due(worker)
    assert scope.folded() == (11, 11)


def check_stuck(worker: WorkerResources, scope: Scope, tries: int) -> None:
    """So many tries, one after the other, without the pauses between them."""
    for _ in range(tries):
        scope.base.rows("update scope_work set due_at = now(), leased_until = now()")
        process_due(replace(worker))


def test_fold_failure_five_times_is_reported_until_fixed(
    scope: Scope, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise psycopg.errors.UndefinedColumn("ours")

    scope.say(*TALK, *TALK)
    with monkeypatch.context() as faults:
        faults.setattr(process_events, "fold_scope", fail)
        check_stuck(worker, scope, 4)
        assert scope.health()["background"] == QUIET
        check_stuck(worker, scope, 1)
        assert scope.jobs() == [("fold", "failed", "internal_error: UndefinedColumn")]
        health = scope.health()
        assert (health["status"], health["background"]["scopes_stuck"]) == ("degraded", 1)
        metrics = scope.gateway.call("GET", "/metrics", key=scope.key).text
        assert "\nstrandline_scopes_stuck 1\n" in metrics
        check_stuck(worker, scope, 1)
        assert len(scope.jobs()) == 1, "the same failure"
        assert max(due.stuck_scopes for due in worker.tally.due_work) == 1, (
            "what the alarm looks at"
        )
        with pytest.raises(Unavailable):
            process_events.embed_and_fold_scope_now(worker, "acme", scope.id).require_finished()
    process_events.embed_and_fold_scope_now(worker, "acme", scope.id).require_finished()
    assert scope.folded() == (10, 10)
    assert scope.jobs() == [("fold", "done", "")]
    assert scope.health()["background"] == QUIET


def test_fold_failure_of_killed_workers_is_reported(scope: Scope, worker: WorkerResources) -> None:
    scope.say("word")
    access = worker.database.connect_as(Caller.background("acme"))
    for _ in range(5):
        assert store_work.lease_due_scopes(access, None, 1), "taken, and never heard of again"
        scope.base.rows("update scope_work set leased_until = now()")
    assert scope.health()["background"]["scopes_stuck"] == 1
    assert store_work.lease_due_scopes(access, None, 1)[0].attempts == 5
    scope.base.rows("update scope_work set leased_until = now()")
    process_due(worker)
    assert scope.jobs() == [("fold", "done", "")], "said, and mended by this try"
    assert scope.base.rows("select advice from jobs") == [("",)]


def test_fold_retry_waits_for_lease_of_other_worker(scope: Scope, worker: WorkerResources) -> None:
    """A worker that was killed has it until its lease ends: nothing was tried."""
    scope.say(*TALK, *TALK)
    access = worker.database.connect_as(Caller.background("acme"))
    assert store_work.lease_due_scopes(access, [scope.id], 1)
    with pytest.raises(Unavailable, match="Another worker has this scope"):
        process_events.embed_and_fold_scope_now(worker, "acme", scope.id).require_finished()
    assert scope.folded() == (10, 0)
    scope.base.rows("update scope_work set leased_until = now()")
    process_events.embed_and_fold_scope_now(worker, "acme", scope.id).require_finished()
    assert scope.folded() == (10, 10)
    # There is none left.
    process_events.embed_and_fold_scope_now(worker, "acme", scope.id).require_finished()


def test_fold_retry_that_fails_counts_as_attempt(
    scope: Scope, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise psycopg.errors.UndefinedColumn("ours")

    scope.say(*TALK, *TALK)
    monkeypatch.setattr(process_events, "fold_scope", fail)
    check_stuck(worker, scope, 5)
    attempts = "select attempts, job_id, state, reason from jobs where kind = 'fold'"
    ((before, job_id, _, reason),) = scope.base.rows(attempts)
    access = worker.database.connect_as(Caller.background("acme"))
    with access.transaction():
        assert store_runs.requeue_failed_job(access, job_id, "run", START)
    with pytest.raises(Unavailable):
        process_events.embed_and_fold_scope_now(worker, "acme", scope.id).require_finished()
    assert scope.base.rows(attempts) == [(before + 1, job_id, "failed", reason)]
    check_stuck(worker, scope, 1)
    assert scope.base.rows(attempts) == [(before + 2, job_id, "failed", reason)]


class OnnxFailure(RuntimeError):
    """As its runtime's own, which say the same of a shortage and of a fault."""


OnnxFailure.__module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ValueError(), True),
        (RecursionError(), True),
        (psycopg.DataError(), True),
        (psycopg.errors.ProgramLimitExceeded(), True),
        (psycopg.errors.CheckViolation(), True),
        (psycopg.OperationalError(), False),
        (psycopg.errors.UniqueViolation(), False),
        (psycopg.errors.UndefinedColumn(), False),
        (Unavailable(), False),
        (WorkDeferred("rate_limited", 1), False),
        (ConcurrentUpdate(), False),
        (TimeoutError(), False),
        (ConnectionError(), False),
        (MemoryError(), False),
        (RuntimeError(), True),
        (RuntimeError("can't start new thread"), False),
        (OnnxFailure("out of memory"), False),
    ],
)
def test_fold_failure_of_passing_error_is_not_permanent(error: Exception, again: bool) -> None:
    assert is_permanent_failure(error) is again
