"""Design 6 and 8: what is folded is a function of the log and its decisions, and of nothing else.

Messages shuffled, doubled, lost and late, handlers killed between any two calls of theirs, two
workers on one scope: the final state is the orderly run's. All of it dropped and folded again:
the same.
"""

import importlib
import json
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.errors import UniqueViolation

from strandline.aws.blobs import BlobStore
from strandline.chains import (
    fold,
    fold_recalls_into_heat,
    store_archiving,
    store_fold_progress,
    store_recalls,
)
from strandline.chains.fold_scope import close_idle_lanes, fold_scope
from strandline.chains.fold_state import FoldOutcome, FoldState
from strandline.chains.refold import drop_chains_of_scopes
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.chains.segmentation import LaneEvent
from strandline.db.database import Caller, Database, TenantDb
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.event_sources import QueuePoller
from strandline.local.lambda_context import LambdaContext
from strandline.tuning import DEFAULTS
from tests.strandline.chains.fold_fixtures import (
    EventGenerator,
    RandomTasks,
    append,
    dump_state,
    hashes,
    replace_ids,
    set_tuning,
)
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
    refuse_texts,
)
from tests.support import KEY_SECRET, TEMPLATE, Gateway, ScratchDatabase, unique_name, wire_handlers

SCOPES = 4
LATER = datetime(2040, 1, 1, tzinfo=UTC)


EMPTY = (
    "truncate chains, chain_versions, chain_events, chain_vectors, recalls, lanes, decisions,"
    " event_vectors, embedding_cache, event_search, event_keys, memory_edges, scope_work,"
    " embedding_progress, scope_members, sessions, jobs, events, scopes cascade"
)
"""A log without a past."""


DECIDED = ("scopes", "chains", "use", "versions", "links", "lanes", "decisions")
"""What a replay gives again, with what use had made of each chain. A summary's vector serves
search: where the model was away at first, a replay has one more."""


class Kill(BaseException):
    """SIGKILL, as far as Python goes: nothing of ours catches it."""


@contextmanager
def killing(after: int) -> Generator[None]:
    """The process dies before its `after`-th call to the database, wherever that is; open
    transactions are undone, as the server undoes them when the connection is gone."""
    steps_left = [after]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fetch", "execute"):
            original: Callable[..., Any] = getattr(TenantDb, name)

            def call(self: TenantDb, *args: Any, original: Any = original) -> Any:
                steps_left[0] -= 1
                if steps_left[0] < 0:
                    raise Kill
                return original(self, *args)

            patch.setattr(TenantDb, name, call)
        yield


@pytest.fixture
def embedder() -> WordEmbedder:
    """For the gateway and every worker."""
    return WordEmbedder("words/64", 64)


class Town:
    """A database, the real handlers in front of it, and a scripted model behind them."""

    def __init__(self, base: ScratchDatabase, gateway: Gateway, model: RandomTasks) -> None:
        self.base, self.gateway, self.key = base, gateway, gateway.key()
        self.handler = importlib.import_module("functions.worker.handler")
        self.handler.resources.__dict__["llm"] = model
        set_tuning(base, ahead_events=3)

    def deliver(self, scopes: list[str]) -> list[str]:
        """One message, as SQS gives it; gives it back if it was not done."""
        body = json.dumps({"tenant": "acme", "scopes": scopes})
        records = {"Records": [{"messageId": "m", "body": body}]}
        answer = self.handler.lambda_handler(records, LambdaContext("worker", 120))
        return [failed["itemIdentifier"] for failed in answer["batchItemFailures"]]

    def time_passes(self) -> None:
        """Leases of the dead run out, and what was put off is due."""
        self.base.rows(
            "update scope_work set leased_until = '-infinity', due_at = now() returning 1"
        )


@contextmanager
def town(server: Any, aws: LocalAws, embedder: WordEmbedder, model: RandomTasks) -> Generator[Town]:
    name = unique_name()
    server.clone_database(TEMPLATE, name)
    base = ScratchDatabase(server, name)
    with pytest.MonkeyPatch.context() as patch:
        services = wire_handlers(
            {
                "STRANDLINE_DATABASE_URL": base.url,
                "STRANDLINE_BUCKET": aws.bucket,
                "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
                "STRANDLINE_KEY_SECRET": KEY_SECRET,
            },
            patch,
            embedder,
        )
        gateway = Gateway(base.url)
        try:
            yield Town(base, gateway, model)
        finally:
            for database in [gateway.database, *(service.database for service in services)]:
                database.close()
    server.drop_database(name)


def orderly(place: Town, batches: list[list[dict[str, Any]]]) -> dict[str, list[str]]:
    """Every batch appended and its messages delivered, in order, once."""
    for batch in batches:
        for scope in dict.fromkeys(append(place.gateway, place.key, batch)):
            assert place.deliver([scope]) == []
    return replace_ids(place.base, dump_state(place.base))


@dataclass
class Deaths:
    """What became of the messages of a disorderly run."""

    delivered: int = 0
    kills: int = 0
    at_work: int = 0
    """Of the killed those that had taken a lease."""


def disorderly(
    place: Town, batches: list[list[dict[str, Any]]], dice: random.Random
) -> tuple[dict[str, list[str]], Deaths]:
    """The same batches, but their messages late, shuffled, doubled up to five times, and a fifth of
    the handlers killed; what is left over is found by a sweep."""
    waiting: list[str] = []
    deaths = Deaths()

    def one() -> None:
        scope = waiting.pop(dice.randrange(len(waiting)))
        deaths.delivered += 1
        if dice.random() < 0.3:
            place.time_passes()
        if dice.random() >= 0.2:
            place.deliver([scope])
            return
        limit = 60
        while True:  # who had less to do than that is called again, and dies earlier
            after = dice.randrange(limit)
            try:
                with killing(after):
                    place.deliver([scope])
            except Kill:
                deaths.kills += 1
                deaths.at_work += after > 0
                return
            limit = max(1, limit // 2)

    for batch in batches:
        for scope in dict.fromkeys(append(place.gateway, place.key, batch)):
            waiting += [scope] * dice.randint(1, 5)
        while waiting and dice.random() < 0.8:
            one()
    while waiting:
        one()
    place.time_passes()
    service = place.handler.resources
    process_due(make_worker(service.database, service.blobs, service.embedder, service.llm))
    return replace_ids(place.base, dump_state(place.base)), deaths


@pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.proof), pytest.param(3, marks=pytest.mark.proof)],
)
def test_fold_ignores_order_number_and_death_of_messages(
    server: Any,
    aws: LocalAws,
    embedder: WordEmbedder,
    proof_size: Callable[[int], int],
    seed: int,
) -> None:
    """300 deliveries in the orderly run, up to five times as many in the other."""
    chat, dice = EventGenerator(seed), random.Random(seed)
    batches = [chat.generate(SCOPES, dice.randint(1, 12)) for _ in range(max(12, proof_size(100)))]
    with town(server, aws, embedder, RandomTasks()) as place:
        expected = orderly(place, batches)
    with town(server, aws, embedder, RandomTasks()) as place:
        result, deaths = disorderly(place, batches, dice)
    print(
        f"\n{sum(map(len, batches))} events, {deaths.delivered} deliveries,"
        f" {deaths.kills} killed, {deaths.at_work} of them at work:"
        f" {len(result['chains'])} chains in {len(result['versions'])} versions"
    )
    assert deaths.kills > deaths.delivered / 8
    assert deaths.at_work
    assert len(result["chains"]) > len(batches) / 4
    for part in expected:
        assert result[part] == expected[part], part


@pytest.mark.proof
def test_fold_of_interleaved_sessions_equals_each_alone(
    server: Any, aws: LocalAws, embedder: WordEmbedder
) -> None:
    """Each session's runs are those of the same session in a scope where nobody else speaks."""
    together = EventGenerator(5).generate(1, 240)
    cuts: list[list[Any]] = []
    for alone in (False, True):
        with town(server, aws, embedder, RandomTasks()) as place:
            # Asked by nobody: what a model is shown has seqs in it, which differ.
            alike = {"similarity_low": 0.7, "similarity_high": 0.7}
            set_tuning(place.base, **alike, merged_events=2, ahead_events=3)
            events = [
                {**e, "participants": [*e["participants"], f"agent:of-{e.get('session_id', '')}"]}
                if alone
                else e
                for e in together
            ]
            for scope in dict.fromkeys(append(place.gateway, place.key, events)):
                place.deliver([scope])
            cuts.append(
                place.base.rows(
                    "select v.closed_by, array_agg(k.source_event_key order by k.source_event_key)"
                    " from chain_versions v join chain_events l using (tenant_id, chain_id)"
                    " join event_keys k using (tenant_id, event_id)"
                    " where l.since_version = v.version"
                    " group by v.chain_id, v.version, v.closed_by order by 2"
                )
            )
    assert len(cuts[0]) > 20
    assert cuts[0] == cuts[1]


@pytest.fixture
def worker(
    scratch_db: ScratchDatabase, aws: LocalAws, embedder: WordEmbedder
) -> Iterator[WorkerResources]:
    """With a model that never says the same twice."""
    database = Database(scratch_db.url)
    yield make_worker(
        database, BlobStore(aws.bucket), embedder, RandomTasks(is_unrepeatable=True), seconds=300
    )
    database.close()


def live(
    gateway: Gateway, base: ScratchDatabase, worker: WorkerResources, seed: int, events: int
) -> list[UUID]:
    """A life with all that is decided: idle closings, vectors given up and refused, a moody model,
    chains said again, thresholds that change."""
    embedder = worker.embedder
    assert isinstance(embedder, WordEmbedder)
    dice, chat, key = random.Random(seed), EventGenerator(seed), gateway.key()
    scopes: set[UUID] = set()
    set_tuning(base, ahead_events=dice.choice((0, 3)))
    while len(chat.events) < events:
        scopes |= {UUID(s) for s in append(gateway, key, chat.generate(2, dice.randint(1, 25)))}
        hindrance = dice.random()
        if hindrance < 0.15:
            embedder.before_embed = refuse_texts(dice.choice(("mooring", "oven", "lens", "ledger")))
        elif hindrance < 0.3:
            embedder.before_embed = fail_texts("alice")
        process_due(worker)
        if dice.random() < 0.3:  # a day later, still without some vectors
            access = worker.database.connect_as(Caller.background("acme"))
            for scope in sorted(scopes):
                fold_scope(worker, access, scope, LATER)
        embedder.before_embed = lambda texts: None
        base.rows("update scope_work set due_at = now() returning 1")
        process_due(worker)
        if dice.random() < 0.25:
            close_idle_lanes(worker, "acme", LATER)
        chains = base.rows("select chain_id from chains order by 1")
        if chains and dice.random() < 0.2:
            retry_enrichment(worker, "acme", dice.choice(chains)[0], LATER)
        use(base, worker, random.Random(len(chat.events)))
        if dice.random() < 0.15:
            flush, low = dice.choice((6, 12, 20)), dice.random() * 0.8
            ahead = dice.choice((0, 1, 3, 3, 9))
            set_tuning(base, flush_events=flush, similarity_low=low, ahead_events=ahead)
    return sorted(scopes)


def use(base: ScratchDatabase, worker: WorkerResources, dice: random.Random) -> None:
    """Some chains are recalled, and some that are cold archived: those may be said again after."""
    access = worker.database.connect_as(Caller.background("acme"))
    for number in range(dice.randrange(3)):
        rows = base.rows("select chain_id, scope_id, participants from chains order by 1")
        sample = dice.sample(rows, min(len(rows), 3))
        at = datetime.now(UTC) + timedelta(days=dice.randrange(40))
        recall_id = UUID(int=dice.getrandbits(120) + number)
        store_recalls.record_recalled_chains(
            access, recall_id, [(c, s, who) for c, s, who in sample], at
        )
    fold_recalls_into_heat.fold_tenant_recalls_into_heat(access, LATER, 1000, DEFAULTS)
    if dice.random() < 0.5:
        with access.transaction():
            store_archiving.archive_cold_chains(access, datetime.now(UTC) + timedelta(days=30), 2)


def replay(
    base: ScratchDatabase, worker: WorkerResources, scopes: list[UUID], dice: random.Random
) -> None:
    """All chains dropped and folded again: under other thresholds, by another model, in pieces."""
    set_tuning(base, flush_events=8, gap_minutes=5, quality="strict", ahead_events=5)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), scopes)
    assert hashes(base) == []
    other = replace(worker, llm=make_worker(*_parts(worker), RandomTasks(is_unrepeatable=True)).llm)
    base.rows("update scope_work set due_at = now() returning 1")
    for scope in scopes:  # dropped once more, on half the way
        with suppress(Kill), killing(dice.randrange(20, 200)):
            fold_scope(other, worker.database.connect_as(Caller.background("acme")), scope, LATER)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), scopes)
    while base.rows("select from scopes where folded_seq < last_seq"):
        access = worker.database.connect_as(Caller.background("acme"))
        for scope in scopes:
            with suppress(Kill), killing(dice.randrange(20, 400)):
                fold_scope(other, access, scope, LATER)
    # A worker that died on the last event left the scope due, with what was to happen after it.
    access = worker.database.connect_as(Caller.background("acme"))
    for scope in scopes:
        assert fold_scope(other, access, scope, LATER).is_finished


def _parts(worker: WorkerResources) -> tuple[Database, BlobStore, WordEmbedder]:
    assert isinstance(worker.embedder, WordEmbedder)
    return worker.database, worker.blobs, worker.embedder


@pytest.mark.proof
def test_fold_replay_gives_same_chains(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    proof_size: Callable[[int], int],
) -> None:
    """20 seeds, one after the other in tenants of their own scopes: content hashes and all."""
    kinds: set[str] = set()
    uses = 0, 0
    for seed in range(proof_size(20) if proof_size(20) == 20 else 1):
        scratch_db.rows(EMPTY)
        scopes = live(gateway, scratch_db, worker, seed, 150)
        kinds |= {kind for (kind,) in scratch_db.rows("select distinct kind from decisions")}
        before, message = dump_state(scratch_db, *DECIDED), hashes(scratch_db)
        replay(scratch_db, worker, scopes, random.Random(seed))
        assert hashes(scratch_db) == message, f"seed {seed}"
        assert dump_state(scratch_db, *DECIDED) == before, f"seed {seed}"
        assert scratch_db.rows("select count(*) from dropped_chain_state") == [(0,)]
        assert scratch_db.rows(
            "select count(*) from chains c join chain_vectors v using (tenant_id, chain_id)"
            " where c.status = 'archived'"
        ) == [(0,)]
        ((archived, recall_reply),) = scratch_db.rows(
            "select count(archived_at)::int, count(boosted_at)::int from chains"
        )
        uses = uses[0] + archived, uses[1] + recall_reply
        print(
            f"seed {seed}: {len(message)} versions, {len(before['decisions'])} decisions,"
            f" {archived} chains archived, {recall_reply} recalled"
        )
    assert min(uses) > 0
    assert kinds == {"settings", "continues", "vector_given_up", "formed", "idle", "reformed"}


@pytest.mark.parametrize(
    "kind",
    [
        "continues",
        *(
            pytest.param(kind, marks=pytest.mark.proof)
            for kind in ("formed", "idle", "reformed", "settings")
        ),
    ],
)
def test_fold_test_detects_unstored_decision(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, kind: str
) -> None:
    """Teeth: without decisions of a kind the replay of some life is another. (A vector given up is
    on record; what came of it is that no break was decided.)"""
    for seed in range(100, 106):
        scopes = live(gateway, scratch_db, worker, seed, 100)
        before = hashes(scratch_db)
        scratch_db.rows("delete from decisions where kind = %s returning 1", kind)
        try:
            replay(scratch_db, worker, scopes, random.Random(seed))
        except (UniqueViolation, AssertionError):
            return  # it decides again what is decided for another place, or finds nothing to go by
        if hashes(scratch_db) != before:
            return
        scratch_db.rows(EMPTY)
    pytest.fail("nobody noticed")


def race(base: ScratchDatabase, worker: WorkerResources, scope: UUID) -> list[str]:
    """Four workers fold one scope at once; gives what they met."""
    barrier = threading.Barrier(4)
    matches: list[str] = []

    def run() -> None:
        access = worker.database.connect_as(Caller.background("acme"))
        barrier.wait()
        try:
            fold_scope(worker, access, scope, LATER)
        except Exception as error:
            matches.append(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with suppress(Exception):
        fold_scope(worker, worker.database.connect_as(Caller.background("acme")), scope, LATER)
    return matches


def _not_yet(*_: object) -> FoldOutcome:
    return FoldOutcome("waits_for_vector")


def prepare_run(
    gateway: Gateway,
    base: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> UUID:
    """A scope whose vectors are there and whose fold is not."""
    set_tuning(base, ahead_events=3)
    scope = UUID(append(gateway, gateway.key(), EventGenerator(11).generate(1, 150))[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.background.process_events.fold_scope", _not_yet)
        process_due(worker)
    assert base.rows("select folded_seq from scopes") == [(0,)]
    return scope


def test_fold_by_concurrent_workers_leaves_one_history(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scope = prepare_run(gateway, scratch_db, worker, monkeypatch)
    match = race(scratch_db, worker, scope)
    assert set(match) <= {"Unavailable"}, "no constraint is ever met: the mark is swapped first"
    assert scratch_db.rows("select folded_seq = last_seq from scopes") == [(True,)]
    before = hashes(scratch_db)
    assert len(before) > 8
    replay(scratch_db, worker, [scope], random.Random(0))
    assert hashes(scratch_db) == before


@pytest.mark.proof
def test_fold_test_detects_missing_compare_and_swap(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Teeth."""
    scope = prepare_run(gateway, scratch_db, worker, monkeypatch)

    def move(access: TenantDb, scope_id: UUID, fold_no: int, folded_seq: int) -> bool:
        del fold_no
        access.execute(
            "update scopes set fold_no = fold_no + 1, folded_seq = %(seq)s,"
            " max_folded_seq = greatest(max_folded_seq, %(seq)s) where scope_id = %(scope)s",
            {"seq": folded_seq, "scope": scope_id},
        )
        return True

    monkeypatch.setattr(store_fold_progress, "try_advance_folded_seq", move)
    assert set(race(scratch_db, worker, scope)) - {"Unavailable"}


@pytest.mark.proof
def test_fold_test_detects_topics_compared_across_lanes(
    server: Any, aws: LocalAws, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teeth: the proof of interleaved sessions fails where a scope is one lane."""
    turn = fold.to_lane_event

    def in_one_lane(log_turn: store_fold_progress.EventToFold) -> LaneEvent:
        return replace(turn(log_turn), session_id="")

    monkeypatch.setattr(fold, "to_lane_event", in_one_lane)
    original = fold.__dict__["_fold_event_into_lane"]

    def take(state: FoldState, log_turn: store_fold_progress.EventToFold) -> bool:
        return original(state, replace(log_turn, session_id=""))

    monkeypatch.setattr(fold, "_fold_event_into_lane", take)
    with pytest.raises(AssertionError):
        test_fold_of_interleaved_sessions_equals_each_alone(server, aws, embedder)


def test_fold_poison_message_goes_to_dead_letter_queue(
    server: Any, aws: LocalAws, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine messages and what is none in one batch off the real queue; one of the nine names a scope
    whose fold has a fault of ours, which stays visible as work with a reason."""
    with town(server, aws, embedder, RandomTasks()) as place:
        scopes = sorted(set(append(place.gateway, place.key, EventGenerator(8).generate(9, 200))))
        assert len(scopes) == 9
        sqs = make_local_client("sqs")
        sqs.purge_queue(QueueUrl=aws.work_queue_url)
        bodies = [json.dumps({"tenant": "acme", "scopes": [scope]}) for scope in scopes]
        bodies.insert(4, "poison")
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        sqs.send_message_batch(QueueUrl=aws.work_queue_url, Entries=entries)
        original = fold.fold_and_commit_events

        def go(state: FoldState, turns: Any) -> FoldOutcome | None:
            if str(state.scope.scope_id) == scopes[0]:
                raise ZeroDivisionError
            return original(state, turns)

        monkeypatch.setattr("strandline.chains.fold_scope.fold_and_commit_events", go)
        poller = QueuePoller(aws.work_queue_url, place.handler.lambda_handler)
        poller.start()
        dead: list[str] = []
        until = time.monotonic() + 30
        while not dead and time.monotonic() < until:
            result = sqs.receive_message(QueueUrl=aws.work_dead_letter_url, WaitTimeSeconds=1)
            dead = [message["Body"] for message in result.get("Messages", [])]
        poller.stop()
        sqs.close()
        assert dead == ["poison"]
        events = [text for text in embedder.embedded_texts if text.startswith("[")]
        assert len(events) == len(set(events)), "nothing was embedded twice"
        rows = place.base.rows("select scope_id::text from scopes where folded_seq = last_seq")
        assert {scope for (scope,) in rows} == set(scopes[1:])
        result_rows = place.base.rows("select scope_id::text, last_error from scope_work")
        assert result_rows == [(scopes[0], "internal_error: ZeroDivisionError")]
        once = place.base.rows("select count(*), count(distinct event_id) from chain_events")
        assert once[0][0] == once[0][1] > 0
