"""A fold that may not ask, or has no time to, waits: no answer of the heuristic model's stands for
ever where a minute later the model's would."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.background.process_events import embed_and_fold_scopes
from strandline.chains import model_questions
from strandline.chains.fold_scope import close_idle_lanes, fold_scope
from strandline.chains.fold_state import FoldOutcome
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database
from strandline.errors import Unavailable
from strandline.jobs.worker_resources import WorkerResources
from strandline.llm.factory import make_provider
from strandline.llm.openai_chat import OpenAiChatModel
from strandline.llm.tasks import LlmTasks
from strandline.local.aws import LocalAws
from tests.model_server import ModelServer, Says, completion, serving, stay_silent
from tests.strandline.chains.fold_fixtures import EchoTasks, RandomTasks, set_tuning
from tests.strandline.chains.scope_log import BREAD, HARBOUR, NOW, Log, not_folded
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import KEY_SECRET, Gateway, ScratchDatabase

type Make = Callable[..., WorkerResources]
WORK = (
    "select attempts, last_error, due_at > now(), due_at <= now() + interval '1 minute'"
    " from scope_work"
)


@pytest.fixture
def log(gateway: Gateway, scratch_db: ScratchDatabase) -> Log:
    """Where every pair is gray: each user's message but the first is a question."""
    log = Log(gateway, scratch_db)
    set_tuning(scratch_db, similarity_low=-1, similarity_high=1)
    return log


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    with closing(Database(scratch_db.url)) as database:
        yield database


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        yield provider


@pytest.fixture
def make(database: Database, aws: LocalAws, provider: ModelServer) -> Iterator[Make]:
    """Workers with a model that may be asked so often in a minute."""
    clients: list[OpenAiChatModel] = []

    def make(calls: int, seconds: float = 110, **options: Any) -> WorkerResources:
        settings = ServiceSettings.model_validate(
            {
                "database_url": "",
                "bucket": "",
                "key_secret": KEY_SECRET,
                "llm_provider": "openai",
                "llm_base_url": provider.url,
                "llm_model": "tiny",
                "llm_calls_per_minute": calls,
                **options,
            }
        )
        model = make_provider(settings)
        assert isinstance(model, OpenAiChatModel)
        clients.append(model)
        llm_tasks = LlmTasks(database, settings, model)
        embedder = WordEmbedder("words/64", 64)
        return make_worker(database, BlobStore(aws.bucket), embedder, llm_tasks, seconds=seconds)

    yield make
    for model in clients:
        model.close()


def next_minute(base: ScratchDatabase) -> None:
    base.rows("update model_rates set minute_started_at = minute_started_at - interval '1 minute'")
    base.rows("update scope_work set due_at = now()")


def by(log: Log) -> set[str]:
    """Who said what was decided."""
    return {
        who
        for (who,) in log.base.rows(
            "select body ->> 'model' from decisions where kind = 'continues' union all"
            " select m.value ->> 'model' from decisions,"
            " jsonb_each(body -> 'models') m where kind = 'formed'"
        )
    }


def fold(log: Log) -> int:
    return log.base.rows("select folded_seq from scopes")[0][0]


def test_deferral_burst_is_folded_at_model_rate_limit(
    log: Log, make: Make, provider: ModelServer
) -> None:
    """Nine messages and a silence are eight questions and a run of three: at five a minute, three
    minutes, in which nothing is asked twice but what belongs together."""
    for n in range(9):
        log.say((HARBOUR, BREAD)[n % 2])
    log.say(BREAD, "agent", minutes=31)
    reached: list[int] = []
    for _ in range(3):
        worker = make(5)
        process_due(worker)
        reached.append(fold(log))
        assert worker.tally.failures == 0
        if log.base.rows("select from scope_work"):
            assert log.base.rows(WORK) == [(0, "rate_limited", True, True)]
        next_minute(log.base)
    assert reached == [6, 9, 10]
    assert log.chains() == [("gap", list(range(1, 10)))]
    assert by(log) == {"openai:tiny"}
    assert log.base.rows("select from jobs") == []
    rows = log.base.rows("select count(*) from model_calls where task = 'continues'")
    assert rows == [(8,)]
    assert len(provider.requests) == 8 + 2 + 3


def test_deferral_keeps_model_answers_received_before(
    log: Log, make: Make, provider: ModelServer
) -> None:
    for n in range(5):
        log.say((HARBOUR, BREAD)[n % 2])
    provider.script = [completion('{"continues": true}')] * 3
    provider.script += [completion('{"continues": false}')]
    process_due(make(4))
    assert fold(log) == 4
    assert [seq for _, seq, _ in log.decided("continues")] == [2, 3, 4, 5]
    assert log.chains() == []
    next_minute(log.base)
    process_due(make(4))
    assert log.chains() == [("break", [1, 2, 3, 4])]
    assert len(provider.requests) == 4 + 3
    assert by(log) == {"openai:tiny"}


def test_deferral_completes_message_and_sends_another(log: Log, make: Make) -> None:
    """It would be delivered again and again, and end among the dead."""
    for n in range(6):
        log.say((HARBOUR, BREAD)[n % 2])
    worker = make(4)
    outcome = embed_and_fold_scopes(worker, "acme", [log.scope])
    assert outcome.failed_count == 0
    assert log.base.rows(WORK) == [(0, "rate_limited", True, True)]
    assert 0 < outcome.retry_delays[log.scope] <= 60, "and another is sent for when it may go on"


def test_deferral_ends_in_heuristic_after_patience(log: Log, make: Make) -> None:
    for n in range(7):
        log.say((HARBOUR, BREAD)[n % 2])
    worker = make(4)
    process_due(worker)
    access = worker.database.connect_as(Caller.background("acme"))
    now = datetime.now(UTC)
    assert not fold_scope(worker, access, log.scope, now + timedelta(minutes=59)).is_finished
    assert fold(log) == 5
    assert fold_scope(worker, access, log.scope, now + timedelta(minutes=61)).is_finished
    assert by(log) == {"openai:tiny", "heuristic/4"}
    assert log.base.rows("select kind, reason from jobs") == [("continues", "rate_limited")]


def test_deferral_patience_is_set_per_tenant(log: Log, make: Make) -> None:
    set_tuning(log.base, similarity_low=-1, similarity_high=1, model_patience_minutes=0)
    for n in range(7):
        log.say((HARBOUR, BREAD)[n % 2])
    process_due(make(4))
    assert fold(log) == 7


def test_deferral_is_skipped_if_limit_is_below_one_run(log: Log, make: Make) -> None:
    for n in range(5):
        log.say((HARBOUR, BREAD)[n % 2])
    process_due(make(3))
    assert fold(log) == 5


def test_deferral_of_retry_writes_nothing(log: Log, make: Make) -> None:
    log.say(HARBOUR)
    log.say(BREAD, "agent", minutes=31)
    worker = make(4)
    process_due(worker)
    ((chain,),) = log.base.rows("select chain_id from chains")
    with pytest.raises(Unavailable, match="rate_limited"):
        retry_enrichment(worker, "acme", chain, NOW)
    assert log.base.rows("select max(version) from chain_versions") == [(1,)]
    next_minute(log.base)
    assert retry_enrichment(make(4), "acme", chain, NOW) == 2
    jobs = log.base.rows("select job, count(*) from model_calls group by 1 order by 1")
    assert jobs == [("fold", 3), ("retry", 4)]


# --- our own time


def test_deferral_starts_no_run_without_enough_time(
    log: Log, make: Make, provider: ModelServer
) -> None:
    log.say(HARBOUR)
    log.say(BREAD, "agent", minutes=31)
    hurried = make(50, seconds=40)
    outcome = embed_and_fold_scopes(hurried, "acme", [log.scope])
    assert outcome.failed_count == 1, "the message is to come again"
    assert (fold(log), log.decided("formed"), provider.requests) == (1, [], [])
    assert log.base.rows(WORK) == [(0, "out_of_time", True, True)]
    assert hurried.tally.failures == 0
    assert outcome.retry_delays == {}, "its own message comes again"
    log.base.rows("update scope_work set due_at = now()")
    process_due(make(50))
    assert log.chains() == [("gap", [1])]
    assert by(log) == {"openai:tiny"}


def test_deferral_out_of_time_decides_nothing(
    log: Log, make: Make, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is asked and does not answer in what is left; however old the message."""
    log.say(HARBOUR)
    log.say(BREAD)
    provider.script = [Says(b"", hold=stay_silent)]
    monkeypatch.setattr(model_questions, "_MARGIN_SECONDS", 16.5)
    worker = make(50, seconds=18)
    access = worker.database.connect_as(Caller.background("acme"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.background.process_events.fold_scope", not_folded)
        process_due(worker)
    deferral = fold_scope(worker, access, log.scope, NOW).deferral
    assert len(provider.requests) == 1
    assert (fold(log), log.decided("continues")) == (1, [])
    assert deferral is not None
    assert deferral.is_out_of_time
    provider.let_go.set()
    monkeypatch.undo()
    patient = make(50)
    assert fold_scope(patient, access, log.scope, NOW) == FoldOutcome("finished")
    assert by(log) == {"openai:tiny"}


def test_deferral_leaves_idle_lanes_until_there_is_time(
    log: Log, database: Database, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes decided idle by a worker that died are closed by one that has time for it."""
    words, blobs = WordEmbedder("words/64", 64), BlobStore(aws.bucket)
    for name in ("s-1", "s-2", "s-3"):
        log.say(HARBOUR, session_id=name)
    worker = make_worker(database, blobs, words, EchoTasks())
    process_due(worker)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.chains.fold.decide_content_and_merge_target", _die)
        close_idle_lanes(worker, "acme", NOW)
    assert len(log.decided("idle")) == 3
    access = database.connect_as(Caller.background("acme"))
    hurried = make_worker(database, blobs, words, EchoTasks(), seconds=10)
    deferral = fold_scope(hurried, access, log.scope, NOW).deferral
    assert log.chains() == []
    assert deferral is not None
    assert deferral.is_out_of_time
    assert fold_scope(worker, access, log.scope, NOW).is_finished
    assert len(log.base.rows("select from chain_events")) == 3
    assert log.base.rows("select from lanes") == []


def _die(*_: object, **__: object) -> None:
    raise MemoryError  # which says nothing of the text


def test_deferral_is_skipped_for_slow_model(log: Log, make: Make, provider: ModelServer) -> None:
    """Missing, slow or broken costs quality and no time."""
    log.say(HARBOUR)
    log.say(BREAD)
    provider.script = [Says(b"", hold=stay_silent)]
    started = time.monotonic()
    process_due(make(50, llm_seconds=0.6))
    assert time.monotonic() - started < 30
    assert fold(log) == 2
    assert log.base.rows("select kind, reason from jobs") == [("continues", "late")]


def test_deferral_reserves_no_time_without_provider(
    log: Log, database: Database, aws: LocalAws
) -> None:
    log.say(HARBOUR)
    log.say(BREAD, "agent", minutes=31)
    process_due(
        make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), seconds=20)
    )
    assert log.chains() == [("gap", [1])]
    assert RandomTasks.max_run_seconds == 0
