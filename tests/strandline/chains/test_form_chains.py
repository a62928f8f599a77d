"""Folding: chains as the log and the decisions say, by any worker, however often, and again."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import fold_scope as chains_fold_scope
from strandline.chains import store as chains_store
from strandline.chains.fold_scope import close_idle_lanes, fold_scope
from strandline.chains.fold_state import FoldOutcome, FoldState
from strandline.chains.refold import drop_chains_of_scopes
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.db.database import Caller, Database, TenantDb
from strandline.errors import EmbeddingUnavailable, NotFound, Unavailable
from strandline.jobs.worker_resources import ConcurrentUpdate, WorkerResources
from strandline.llm.heuristic.model import HeuristicModel
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import (
    ALICE,
    HELPER,
    START,
    EchoTasks,
    EventGenerator,
    RandomTasks,
    append,
    dump_state,
    hashes,
    set_tuning,
)
from tests.strandline.chains.scope_log import BREAD, HARBOUR, NOW, Log, fold, not_folded
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
    refuse_texts,
)
from tests.support import Gateway, ScratchDatabase


@pytest.fixture
def words() -> WordEmbedder:
    """A quick embedder that counts."""
    return WordEmbedder("words/64", 64)


@pytest.fixture
def worker(
    scratch_db: ScratchDatabase, aws: LocalAws, words: WordEmbedder
) -> Iterator[WorkerResources]:
    """With a minute to work, and a model that finds everything worth keeping."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), words, EchoTasks())
    database.close()


@pytest.fixture
def log(gateway: Gateway, scratch_db: ScratchDatabase) -> Log:
    """An empty log."""
    return Log(gateway, scratch_db)


def test_form_chains_new_topic_closes_chain(log: Log, worker: WorkerResources) -> None:
    log.say(HARBOUR)
    log.say("aye", "agent")
    log.say(HARBOUR)
    log.say(BREAD)
    log.say("flour first", "agent")
    assert process_due(worker) == 1
    assert log.chains() == [("break", [1, 2, 3])]
    assert log.base.rows("select count(*) from scope_work") == [(0,)]
    ((rest,),) = log.base.rows("select to_jsonb(v) from chain_versions v")
    assert (rest["first_seq"], rest["last_seq"], rest["event_count"]) == (1, 3, 3)
    assert rest["created_at_seq"] == 4
    assert rest["settings"]["low"] == 0.6
    assert rest["settings"]["space"] == "words/64"
    assert set(rest["models"]) == {"summarise", "topic", "entities"}
    assert log.decided("continues", "formed") == [("continues", 4, 4), ("formed", 3, 4)]
    assert log.base.rows("select session_id, folded_seq, open ->> 'after' from lanes") == [
        ("", 5, "3")
    ]
    counts = worker.tally.counters
    assert (counts["ChainsFormed"], counts["TopicBreaks"], counts["TopicContinuations"]) == (
        1,
        1,
        1,
    )
    assert counts["EventsFolded"] == 5


def test_form_chains_keeps_interleaved_sessions_apart(log: Log, worker: WorkerResources) -> None:
    for _ in range(4):
        log.say(HARBOUR, session_id="s-1")
        log.say(BREAD, session_id="s-2")
    process_due(worker)
    assert log.chains() == []
    log.say(BREAD, session_id="s-1")
    process_due(worker)
    assert log.chains() == [("break", [1, 3, 5, 7])]


def test_form_chains_closes_older_half_of_twenty(log: Log, worker: WorkerResources) -> None:
    for _ in range(19):
        log.say("at work", "agent", type="action")
    process_due(worker)
    assert log.chains() == []
    log.say("at work", "agent", type="action")
    process_due(worker)
    assert log.chains() == [("force", list(range(1, 11)))]


def test_form_chains_silence_closes_lane(log: Log, worker: WorkerResources) -> None:
    log.say(HARBOUR)
    log.say(HARBOUR, minutes=-300)
    log.say(HARBOUR, minutes=30)
    log.say(HARBOUR, minutes=30.1)
    process_due(worker)
    assert log.chains() == [("gap", [1, 2, 3])]


def test_form_chains_idle_lane_is_closed_by_decision(log: Log, worker: WorkerResources) -> None:
    log.say(HARBOUR, session_id="s-1")
    log.say(BREAD, session_id="s-2")
    process_due(worker)
    assert close_idle_lanes(worker, "acme", datetime.now(UTC) + timedelta(minutes=29)) == 0
    assert close_idle_lanes(worker, "acme", datetime.now(UTC) + timedelta(minutes=31)) == 2
    assert log.chains() == [("idle", [1]), ("idle", [2])]
    assert log.decided("idle") == [("idle", 1, 2), ("idle", 2, 2)]
    assert log.base.rows("select count(*) from lanes") == [(0,)]
    assert close_idle_lanes(worker, "acme", NOW) == 0
    log.say(BREAD, session_id="s-1")
    process_due(worker)
    assert log.decided("continues") == [], "after the silence nothing is compared"


def test_form_chains_unfolded_event_keeps_lane_open(log: Log, worker: WorkerResources) -> None:
    """An event that nobody folded yet may be what was said: the lane waits for it."""
    log.say(HARBOUR)
    process_due(worker)
    log.say(HARBOUR)
    word_embedder = WordEmbedder("words/64", 64)
    word_embedder.before_embed = fail_texts()
    assert close_idle_lanes(replace(worker, embedder=word_embedder), "acme", datetime.now(UTC)) == 0
    assert log.chains() == []


def test_form_chains_closes_idle_lane_of_dead_worker(
    log: Log, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.say(HARBOUR)
    process_due(worker)
    with monkeypatch.context() as patch:
        patch.setattr("strandline.chains.fold.decide_content_and_merge_target", _raise)
        close_idle_lanes(worker, "acme", NOW)
    assert (log.chains(), log.decided("idle")) == ([], [("idle", 1, 1)])
    log.say(BREAD)
    process_due(worker)
    assert log.chains() == [("idle", [1])]


def _raise(*_: object, **__: object) -> None:
    raise MemoryError  # which says nothing of the text


def test_form_chains_never_cuts_workflows(log: Log, worker: WorkerResources) -> None:
    log.say(HARBOUR, metadata={"workflow_id": "wf"})
    log.say(BREAD, metadata={"workflow_id": "wf", "execution_id": 7})
    log.say(HARBOUR, metadata={"execution_id": 7})
    log.say(BREAD, metadata={"execution_id": 8})
    process_due(worker)
    assert log.chains() == [("break", [1, 2, 3])]


def test_form_chains_waits_for_missing_not_refused_vector(
    log: Log, worker: WorkerResources, words: WordEmbedder
) -> None:
    log.say(HARBOUR)
    words.before_embed = refuse_texts("kraken")
    log.say("the kraken")
    log.say(BREAD)
    process_due(worker)
    assert log.chains() == []
    assert log.decided("vector_given_up") == [("vector_given_up", 2, 2)]
    words.before_embed = fail_texts()
    log.say("nobody has said this before")
    process_due(worker)
    assert log.base.rows("select folded_seq, last_seq from scopes") == [(3, 4)]
    assert not fold(worker, log, datetime.now(UTC) + timedelta(hours=23))
    assert fold(worker, log, datetime.now(UTC) + timedelta(hours=25))
    assert log.decided("vector_given_up")[1:] == [("vector_given_up", 4, 4)]
    words.before_embed = lambda texts: None
    log.base.rows("update scope_work set due_at = now() returning 1")
    log.say(BREAD)
    process_due(worker)
    assert log.chains() == [], "a vector that comes later serves search and changes no chain"


def test_form_chains_asks_model_once_about_gray_pair(log: Log, worker: WorkerResources) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1)
    model = RandomTasks()
    asking_worker = make_worker(worker.database, worker.blobs, worker.embedder, model)
    for _ in range(6):
        log.say(HARBOUR)
        log.say(BREAD)
    process_due(asking_worker)
    assert model.calls.count("continues") == 11
    before = dump_state(log.base)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    assert hashes(log.base) == []
    process_due(asking_worker)
    assert model.calls.count("continues") == 11
    assert dump_state(log.base) == before


def test_form_chains_merges_similar_run(log: Log, worker: WorkerResources) -> None:
    for text in (HARBOUR, BREAD, HARBOUR, BREAD):
        log.say(text, occurred_at=START.isoformat())
    process_due(worker)
    assert log.chains() == [("break", [1, 3]), ("break", [2])]
    versions = log.base.rows(
        "select version, merged, event_count, last_seq, created_at_seq from chain_versions"
        " where first_seq = 1 order by version"
    )
    assert versions == [(1, False, 1, 1, 2), (2, True, 2, 3, 4)]
    assert log.base.rows(
        "select seq, since_version from chain_events where seq in (1, 3) order by seq"
    ) == [(1, 1), (3, 2)]
    assert log.base.rows("select count(*) from chain_vectors") == [(2,)]
    assert worker.tally.counters["ChainsMerged"] == 1


def test_form_chains_limits_size_of_merged_chain(log: Log, worker: WorkerResources) -> None:
    set_tuning(log.base, merged_events=2)
    for text in (HARBOUR, BREAD, HARBOUR, BREAD, HARBOUR, BREAD):
        log.say(text, occurred_at=START.isoformat())
    process_due(worker)
    assert log.chains() == [("break", [1, 3]), ("break", [2, 4]), ("break", [5])]


def test_form_chains_never_merges_across_scopes(log: Log, worker: WorkerResources) -> None:
    for who in (HELPER, "agent:other"):
        for text in (HARBOUR, BREAD):
            log.say(text, participants=[ALICE, who], occurred_at=START.isoformat())
    process_due(worker)
    assert log.base.rows("select count(*) from chains where version = 1") == [(2,)]


def test_form_chains_rejected_run_stays_recallable(
    log: Log, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strandline.chains import quality

    def reject(*_: object, **__: object) -> quality.QualityVerdict:
        return quality.QualityVerdict(0.1, "too thin")

    monkeypatch.setattr(quality, "judge_quality", reject)
    for text in (HARBOUR, BREAD, HARBOUR, BREAD):
        log.say(text, occurred_at=START.isoformat())
    process_due(worker)
    assert (
        log.base.rows(
            "select c.status, v.rejected, v.quality from chains c join chain_versions v"
            " using (tenant_id, chain_id)"
        )
        == [("rejected", "too thin", 0.1)] * 3
    )
    assert log.base.rows("select count(*) from chain_vectors") == [(0,)]
    assert worker.tally.counters["ChainsRejected"] == 3
    reply = log.gateway.call(
        "POST",
        "/api/v1/recall",
        {"query": "mooring", "include": "full", "min_relevance": 0},  # or equal texts share a place
        key=log.gateway.key(user=ALICE),
    )
    assert {hit["event"]["seq"] for hit in reply.body["hits"]} >= {1, 3}


def test_form_chains_model_failure_leaves_failed_job(log: Log, worker: WorkerResources) -> None:
    failing = make_worker(
        worker.database, worker.blobs, worker.embedder, RandomTasks(fallback_reason="breaker_open")
    )
    log.say(HARBOUR)
    log.say(BREAD, minutes=31)
    process_due(failing)
    jobs = "select kind, state, reason, ref = (select chain_id::text from chains) from jobs"
    assert log.base.rows(jobs) == [("enrich", "failed", "breaker_open", True)]
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    process_due(failing)
    assert log.base.rows("select attempts from jobs") == [(1,)], "a replay fails at nothing"


def test_form_chains_replay_repeats_retried_enrichment(log: Log, worker: WorkerResources) -> None:
    log.say(HARBOUR)
    log.say(BREAD)
    process_due(worker)
    ((chain,),) = log.base.rows("select chain_id from chains")
    moody = make_worker(
        worker.database, worker.blobs, worker.embedder, RandomTasks(is_unrepeatable=True)
    )
    assert retry_enrichment(moody, "acme", chain, NOW) == 2
    assert retry_enrichment(moody, "acme", chain, NOW) == 3
    log.say(HARBOUR)
    log.say(BREAD)
    process_due(moody)
    before = hashes(log.base)
    assert [version for name, version, _ in before if name == str(chain)][:3] == [1, 2, 3]
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    process_due(moody)
    assert hashes(log.base) == before
    with pytest.raises(NotFound):
        retry_enrichment(moody, "acme", UUID(int=7), NOW)


def test_form_chains_replay_includes_merge_during_retry(
    log: Log, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain got its next version just after it was looked at."""
    for text in (HARBOUR, BREAD):
        log.say(text, occurred_at=START.isoformat())
    process_due(worker)
    ((chain,),) = log.base.rows("select chain_id from chains")
    real, looks = chains_store.read_chain_head, list[UUID]()

    def head(access: TenantDb, chain_id: UUID) -> chains_store.ChainHead | None:
        result = real(access, chain_id)
        looks.append(chain_id)
        if len(looks) == 2:
            for text in (HARBOUR, BREAD):
                log.say(text, occurred_at=START.isoformat())
            process_due(replace(worker))
        return result

    monkeypatch.setattr(chains_store, "read_chain_head", head)
    assert retry_enrichment(worker, "acme", chain, NOW) == 3
    before = hashes(log.base)
    assert [version for name, version, _ in before if name == str(chain)] == [1, 2, 3]
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    process_due(worker)
    assert hashes(log.base) == before


def test_form_chains_overtaken_fold_continues(
    log: Log, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(12):
        log.say("at work", "agent")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.background.process_events.fold_scope", not_folded)
        process_due(worker)
    go = chains_fold_scope.fold_and_commit_events

    def overtaken(state: FoldState, turns: Any) -> FoldOutcome | None:
        outcome = go(state, turns[:1])
        if len(turns) > 1:
            raise ConcurrentUpdate
        return outcome

    monkeypatch.setattr(chains_fold_scope, "fold_and_commit_events", overtaken)
    assert fold(worker, log)
    monkeypatch.setattr(chains_fold_scope, "fold_and_commit_events", _overtaken)
    log.say("at work", "agent")
    with pytest.raises(Unavailable):
        fold(worker, log)


def _overtaken(*_: object) -> bool:
    raise ConcurrentUpdate


def test_form_chains_asks_heuristic_in_same_thread(
    log: Log, worker: WorkerResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads are for waiting."""
    real, threads = HeuristicModel.summarise, list[str]()

    def summarise(self: HeuristicModel, message: Any) -> Any:
        threads.append(threading.current_thread().name)
        return real(self, message)

    monkeypatch.setattr(HeuristicModel, "summarise", summarise)
    log.say(HARBOUR)
    log.say(BREAD, minutes=31)
    process_due(make_worker(worker.database, worker.blobs, worker.embedder))
    assert threads == [threading.current_thread().name]


def test_form_chains_failed_questions_are_one_job(log: Log, worker: WorkerResources) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1)
    failing = make_worker(
        worker.database, worker.blobs, worker.embedder, RandomTasks(fallback_reason="budget_spent")
    )
    for text in (HARBOUR, BREAD, HARBOUR, BREAD):
        log.say(text)
    process_due(failing)
    rows = "select kind, state, reason, ref, scope_id, attempts from jobs where kind = 'continues'"
    expected = [("continues", "failed", "budget_spent", str(log.scope), log.scope, 3)]
    assert log.base.rows(rows) == expected
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    process_due(failing)
    assert log.base.rows(rows) == expected, "a replay fails at nothing"


def test_form_chains_waits_one_day_for_summary_vector(
    log: Log, worker: WorkerResources, words: WordEmbedder
) -> None:
    log.say(HARBOUR)
    log.say(HARBOUR)
    process_due(worker)
    words.before_embed = fail_texts()
    log.say("at work", "agent", minutes=31)
    access = worker.database.connect_as(Caller.background("acme"))
    with pytest.raises(EmbeddingUnavailable):
        fold_scope(worker, access, log.scope, datetime.now(UTC))
    assert log.chains() == []
    outcome = fold_scope(worker, access, log.scope, datetime.now(UTC) + timedelta(hours=25))
    assert outcome.is_finished
    assert log.chains() == [("gap", [1, 2])]
    assert log.base.rows("select reason from jobs") == [("no_vector",)]
    words.before_embed = lambda texts: None
    ((chain,),) = log.base.rows("select chain_id from chains")
    retry_enrichment(worker, "acme", chain, NOW)
    assert log.base.rows("select count(*) from chain_vectors") == [(1,)]


def test_form_chains_imported_history_starts_warm(log: Log, worker: WorkerResources) -> None:
    old = datetime(2024, 1, 1, tzinfo=UTC)
    log.say(HARBOUR, occurred_at=old.isoformat())
    log.say(BREAD, occurred_at=(old + timedelta(minutes=1)).isoformat())
    process_due(worker)
    assert log.base.rows(
        "select last_event_at < '2024-02-01', created_at > now() - interval '1 hour',"
        " cold_at > now() + interval '6 days' from chains"
    ) == [(True, True, True)]


def test_form_chains_applies_changed_tuning_from_then_on(log: Log, worker: WorkerResources) -> None:
    set_tuning(log.base, flush_events=4, merged_events=2)
    for _ in range(6):
        log.say("at work", "agent")
    process_due(worker)
    set_tuning(log.base, flush_events=8, merged_events=2)
    for _ in range(8):
        log.say("at work", "agent")
    process_due(worker)
    before = dump_state(log.base)
    assert log.decided("settings") == [("settings", 1, 1), ("settings", 7, 7)]
    assert [contents for _, contents in log.chains()] == [[1, 2], [3, 4], [5, 6, 7, 8]]
    set_tuning(log.base, flush_events=20)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    process_due(worker)
    assert dump_state(log.base) == before


def test_form_chains_two_workers_on_one_scope_agree(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    key = gateway.key()
    set_tuning(scratch_db)
    scopes = append(gateway, key, EventGenerator(3).generate(1, 120))
    embed = WordEmbedder("words/64", 64)
    moody = RandomTasks(is_unrepeatable=True)
    workers = [make_worker(worker.database, worker.blobs, embed, moody) for _ in range(2)]
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    process_due(make_worker(worker.database, worker.blobs, embed, moody))
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [UUID(scopes[0])])
    scratch_db.rows("delete from decisions returning 1")
    scratch_db.rows("update scopes set max_folded_seq = 0 returning 1")
    barrier, failures = threading.Barrier(2), list[BaseException]()

    def run(mine: WorkerResources) -> None:
        access = mine.database.connect_as(Caller.background("acme"))
        barrier.wait()
        try:
            fold_scope(mine, access, UUID(scopes[0]), datetime.now(UTC))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(mine,)) for mine in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fold_scope(
        workers[0], worker.database.connect_as(Caller.background("acme")), UUID(scopes[0]), NOW
    )
    before = hashes(scratch_db)
    assert len(before) > 5
    assert scratch_db.rows("select folded_seq = last_seq from scopes") == [(True,)]
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [UUID(scopes[0])])
    fold_scope(
        workers[0], worker.database.connect_as(Caller.background("acme")), UUID(scopes[0]), NOW
    )
    assert hashes(scratch_db) == before
    assert json.dumps(before)
