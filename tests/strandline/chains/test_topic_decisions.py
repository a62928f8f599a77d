"""When topics are judged: a few events later, at a silence, or at once; also where one dies."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import fold as chains_fold
from strandline.chains import fold_writer, model_questions
from strandline.chains.fold_scope import close_idle_lanes
from strandline.chains.refold import drop_chains_of_scopes
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.db.database import Caller, Database, TenantDb
from strandline.jobs.worker_resources import WorkDeferred, WorkerResources
from strandline.llm.types import ModelResult, PromptEvent, TaskContext, TopicContinuation
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import EchoTasks, hashes, set_tuning
from tests.strandline.chains.scope_log import BREAD, HARBOUR, NOW, Log, fold
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
)
from tests.support import Gateway, ScratchDatabase

STARS, TAXES = "telescope nebula lens mirror", "tax invoice ledger audit"


@pytest.fixture
def worker(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), EchoTasks())
    database.close()


@pytest.fixture
def log(gateway: Gateway, scratch_db: ScratchDatabase) -> Log:
    """An empty log, whose every message is asked about."""
    return Log(gateway, scratch_db)


class Ahead(EchoTasks):
    """A model that says what it was shown: yes where what comes after speaks of bread."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[tuple[list[int], int, list[int]]] = []

    def continues(
        self,
        task: TaskContext,
        before: Sequence[PromptEvent],
        message: PromptEvent,
        after: Sequence[PromptEvent],
    ) -> ModelResult[TopicContinuation]:
        """Yes, if so."""
        seqs = [one.seq for one in before], message.seq, [one.seq for one in after]
        self.views.append(seqs)
        return self._make_result("continues", TopicContinuation(continues="bread" in str(after)))


def asked_ahead(worker: WorkerResources) -> tuple[WorkerResources, Ahead]:
    model = Ahead()
    return replace(worker, llm=model), model


def test_topic_decision_waits_for_later_messages(worker: WorkerResources, log: Log) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=2)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, "on with bread", HARBOUR):
        log.say(text)
        process_due(worker)
    assert model.views == [([1], 2, [3, 4])]
    log.say(HARBOUR)
    process_due(worker)
    log.say(HARBOUR)
    process_due(worker)
    assert model.views[1:] == [([1, 2], 3, [4, 5]), ([3], 4, [5, 6])]
    assert log.chains() == [("break", [1, 2]), ("break", [3])]
    assert log.decided("continues") == [
        ("continues", 2, 4),
        ("continues", 3, 5),
        ("continues", 4, 6),
    ]


def test_topic_decision_wait_ends_at_silence(worker: WorkerResources, log: Log) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=2)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS):
        log.say(text)
    log.say(TAXES, minutes=31)
    process_due(worker)
    assert model.views == [([1], 2, [3]), ([2], 3, [])]
    assert log.chains() == [("break", [1]), ("break", [2]), ("gap", [3])]


@pytest.mark.parametrize("deaths", range(6))
def test_topic_decision_survives_dying_worker(
    worker: WorkerResources, log: Log, deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last messages close several runs, each in a commit of its own; a replay does the same."""
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=3)
    worker, _ = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS, TAXES):
        log.say(text)
    process_due(worker)
    assert log.chains() == []
    commit, count = fold_writer.commit_fold_changes, 0

    def dying(*args: Any) -> None:
        nonlocal count
        count += 1
        if count == deaths:
            raise ZeroDivisionError
        commit(*args)

    with monkeypatch.context() as patch:
        patch.setattr(fold_writer, "commit_fold_changes", dying)
        close_idle_lanes(worker, "acme", NOW)
    close_idle_lanes(worker, "acme", NOW)
    expected = [("break", [1]), ("break", [2]), ("break", [3]), ("idle", [4])]
    assert log.chains() == expected
    before = hashes(log.base)
    other, model = asked_ahead(worker)
    access = worker.database.connect_as(Caller.background("acme"))
    set_tuning(log.base, ahead_events=0)
    drop_chains_of_scopes(access, [log.scope])
    fold(other, log, NOW)
    assert log.chains() == expected
    assert hashes(log.base) == before
    assert model.views == []


def test_topic_decision_is_made_when_lookahead_ends(worker: WorkerResources, log: Log) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=3)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS):
        log.say(text)
    process_due(worker)
    assert model.views == []
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=0)
    log.say(TAXES)
    process_due(worker)
    assert log.chains() == [("break", [1]), ("break", [2]), ("break", [3])]
    assert [seq for _, seq, _ in model.views] == [2, 3, 4]
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=3)
    log.say(HARBOUR)
    process_due(worker)
    assert [seq for _, seq, _ in model.views] == [2, 3, 4], "once each"
    before = hashes(log.base)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    fold(worker, log)
    assert hashes(log.base) == before


GRAY = {"similarity_low": -1, "similarity_high": 1}
"""Everything is asked."""


def waiting(nth: int, monkeypatch: pytest.MonkeyPatch, worker: WorkerResources) -> None:
    """A turn of the worker in which the model may not be asked about its nth run."""
    enrich, runs = chains_fold.decide_content_and_merge_target, 0

    def limit(*args: Any, **more: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == nth:
            raise WorkDeferred("rate_limited", 5)
        return enrich(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(chains_fold, "decide_content_and_merge_target", limit)
        process_due(worker)


def again(worker: WorkerResources, log: Log) -> None:
    """The worker's next turn, in which nothing fails."""
    log.base.rows("update scope_work set due_at = now(), leased_until = '-infinity' returning 1")
    before = worker.tally.failures
    process_due(worker)
    assert worker.tally.failures == before


def same_when_folded_again(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch, *batches: int
) -> None:
    """Dropped and folded again, in pieces, it is what it was, and nobody is asked."""
    expected, before = log.chains(), hashes(log.base)
    for batch in batches:
        other, model = asked_ahead(worker)
        monkeypatch.setattr("strandline.chains.fold_state._BATCH", batch)
        drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
        fold(other, log)
        assert log.chains() == expected
        assert hashes(log.base) == before
        assert model.views == []


def test_topic_decision_before_lookahead_is_not_repeated(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant, or a release, lets messages wait of which one is answered, and not folded yet."""
    set_tuning(log.base, **GRAY, ahead_events=0)
    worker, model = asked_ahead(worker)
    log.say(HARBOUR)
    process_due(worker)
    log.say(BREAD)
    waiting(1, monkeypatch, worker)
    assert [seq for _, seq, _ in model.views] == [2]
    set_tuning(log.base, **GRAY, ahead_events=3)
    for text in (STARS, TAXES, HARBOUR):
        again(worker, log)
        log.say(text)
    again(worker, log)
    assert log.chains() == [("break", [1])]
    assert [seq for _, seq, _ in model.views] == [2]
    same_when_folded_again(worker, log, monkeypatch, 1, 200)


def test_topic_decision_interrupted_is_completed(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_tuning(log.base, **GRAY, ahead_events=3)
    worker, _ = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS):
        log.say(text)
    process_due(worker)
    set_tuning(log.base, **GRAY, ahead_events=0)
    log.say(TAXES)
    waiting(2, monkeypatch, worker)
    assert log.chains() == [("break", [1])]
    again(worker, log)
    assert log.chains() == [("break", [1]), ("break", [2]), ("break", [3])]
    log.say(HARBOUR, session_id="other")
    again(worker, log)
    same_when_folded_again(worker, log, monkeypatch, 4, 200)


@pytest.mark.parametrize("gap", [600, 30])
def test_topic_decision_at_silence_keeps_settings(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch, gap: int
) -> None:
    """Half of what waited is judged, and a chain of it said again; then thresholds change."""
    set_tuning(log.base, **GRAY, ahead_events=3)
    worker, _ = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS):
        log.say(text)
    log.say(TAXES, minutes=31)
    waiting(2, monkeypatch, worker)
    ((chain,),) = log.base.rows("select chain_id from chains")
    with monkeypatch.context() as patch:
        patch.setattr(chains_fold, "decide_content_and_merge_target", _rate_limited)
        assert retry_enrichment(worker, "acme", chain, NOW) == 2
    set_tuning(log.base, **GRAY, ahead_events=3, gap_minutes=gap)
    for text in (HARBOUR, BREAD, STARS, TAXES):
        again(worker, log)
        log.say(text)
    again(worker, log)
    assert log.chains()[:3] == [("retry", [1]), ("break", [2]), ("gap", [3])]
    same_when_folded_again(worker, log, monkeypatch, 3, 200)


def _rate_limited(*_: object, **__: object) -> None:
    raise WorkDeferred("rate_limited", 5)


def test_topic_decision_stands_after_erasure(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_tuning(log.base, **GRAY, ahead_events=3)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS, TAXES, HARBOUR):
        log.say(text)
    process_due(worker)
    assert log.chains() == [("break", [1])]
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [log.scope])
    log.base.rows(
        "update events set erased_at = now(), content = null, cid = null where seq = 5 returning 1"
    )
    monkeypatch.setattr("strandline.chains.fold_state._BATCH", 1)
    fold(worker, log)
    log.say(BREAD)
    again(worker, log)
    assert log.chains() == [("break", [1])]
    assert [seq for _, seq, _ in model.views].count(2) == 1


def test_topic_decision_waiting_fold_records_no_settings(worker: WorkerResources, log: Log) -> None:
    """Not its settings either: the space that it waits for may be given up meanwhile."""
    set_tuning(log.base, **GRAY, ahead_events=0)
    worker, _ = asked_ahead(worker)
    log.say(HARBOUR)
    log.say(BREAD)
    process_due(worker)
    set_tuning(log.base, **GRAY, ahead_events=0, flush_events=19)
    away = WordEmbedder("words/64", 64)
    away.before_embed = fail_texts()
    log.say("nobody said this before")
    process_due(replace(worker, embedder=away))
    assert log.decided("settings") == [("settings", 1, 1)]
    other = replace(worker, embedder=WordEmbedder("words/16", 16))
    again(other, log)
    again(other, log)
    assert log.chains() == [("break", [1]), ("break", [2])]


def test_topic_decision_without_lookahead_keeps_format(worker: WorkerResources, log: Log) -> None:
    """Chains of earlier releases are the same again, to their content hashes: these name the
    settings, and the mark at which a chain was made."""
    set_tuning(log.base, **GRAY, ahead_events=0)
    worker, _ = asked_ahead(worker)
    log.say(HARBOUR)
    log.say(BREAD)
    log.say(STARS, minutes=31)
    process_due(worker)
    rows = log.base.rows(
        "select closed_by, created_at_seq, settings ? 'ahead_events' from chain_versions"
        " order by created_at_seq"
    )
    assert rows == [("break", 2, False), ("gap", 3, False)]
    assert log.decided("settings") == [("settings", 1, 1)], "they are as they were"


def count_text_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many unread and how many known texts each read of texts asks for, from now on."""
    reads: list[tuple[int, int]] = []
    read = model_questions.read_prompt_events

    def count(access: TenantDb, unread_ids: Sequence[UUID], cached_ids: Sequence[UUID]) -> Any:
        reads.append((len(unread_ids), len(cached_ids)))
        return read(access, unread_ids, cached_ids)

    monkeypatch.setattr(model_questions, "read_prompt_events", count)
    return reads


@pytest.mark.parametrize("has_model", [False, True])
def test_topic_decisions_read_texts_of_next_events_at_once(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch, has_model: bool
) -> None:
    """A model takes its time: whether a known text was erased meanwhile is looked at each time."""
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=1)
    worker, model = asked_ahead(worker)
    monkeypatch.setattr(model, "has_model", has_model)
    for word in ("jetty", "flour", "lens", "ledger", "oven", "berth"):
        log.say(f"on with bread and {word}")
    reads = count_text_reads(monkeypatch)
    process_due(worker)
    assert [view[1] for view in model.views] == [2, 3, 4, 5]
    assert reads == [(6, 0), *([(0, 4), (0, 5), (0, 6)] if has_model else [])]


def test_topic_decisions_read_payload_with_its_first_question(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies in S3: what no question needs in the end is not fetched for it."""
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=1)
    worker, model = asked_ahead(worker)
    for text in ("a jetty", "flour for bread", "bread oven", "bread " * 20_000, "bread, at last"):
        log.say(text)
    read, asked_before = model_questions.read_payload_text_head, list[list[int]]()

    def note(*arguments: Any) -> str | None:
        asked_before.append([message for _, message, _ in model.views])
        return read(*arguments)

    monkeypatch.setattr(model_questions, "read_payload_text_head", note)
    process_due(worker)
    assert log.base.rows("select seq from events where blob_cid is not null") == [(4,)]
    assert asked_before == [[2]], "the next question is about 3, given 4"


def erase(log: Log, seq: int) -> None:
    ((event_id,),) = log.base.rows("select event_id::text from events where seq = %s", seq)
    key = log.gateway.key(rights=("read", "write", "erase"))
    asked = log.gateway.call("POST", "/api/v1/erasures", {"event_ids": [event_id]}, key=key)
    assert asked.status == 202


def test_topic_decision_shows_no_text_erased_since_it_was_read(
    worker: WorkerResources, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1, ahead_events=1)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, "on with bread", "bread", "bread again", "bread at last"):
        log.say(text)
    ask, shown = model.continues, list[str]()

    def continues(task: TaskContext, before: Any, message: Any, after: Any) -> Any:
        shown.extend(one.text for one in (*before, message, *after))
        if message.seq == 2:
            erase(log, 4)
        return ask(task, before, message, after)

    monkeypatch.setattr(model, "continues", continues)
    process_due(worker)
    assert "bread at last" in shown
    assert "bread again" not in shown
