"""Embedding: everything once, whatever fails, races or is done twice."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from strandline.aws.blobs import BlobStore
from strandline.background import compute_event_vectors
from strandline.background.process_events import embed_and_fold_scopes
from strandline.db.database import Caller, Database
from strandline.errors import Unavailable
from strandline.jobs.worker_resources import EMBED_SECONDS, WorkerResources
from strandline.local.aws import LocalAws
from strandline.log import store_work
from strandline.log.passage_spans import MAX_PASSAGES
from tests.query_plans import Explainer, nodes, rows_read
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
    refuse_texts,
)
from tests.support import Gateway, ScratchDatabase, user_message

ALICE = "user:alice"
UNEMBEDDED = (
    "select count(*) from events e where not exists (select from event_vectors v"
    " where v.tenant_id = e.tenant_id and v.event_id = e.event_id and v.space = %s)"
)


@pytest.fixture
def words() -> WordEmbedder:
    """A quick embedder that counts."""
    return WordEmbedder()


@pytest.fixture
def worker(
    scratch_db: ScratchDatabase, aws: LocalAws, words: WordEmbedder
) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), words, seconds=60)
    database.close()


def tell(gateway: Gateway, text: str, *who: str, tenant: str = "acme", **more: Any) -> Any:
    key = gateway.key(tenant)
    event = user_message(text, *(who or (ALICE,)), **more)
    reply = gateway.call("POST", "/api/v1/events", event, key=key)
    assert reply.status == 201, reply.text
    return reply.body


def missing(base: ScratchDatabase, space: str = "words/16") -> int:
    """Events without a row in event_vectors."""
    return base.rows(UNEMBEDDED, space)[0][0]


def test_embed_covers_every_tenant_and_scope(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for tenant in ("acme", "globex"):
        for n in range(5):
            tell(gateway, f"turn {n} of {tenant}", ALICE, f"agent:{n % 3}", tenant=tenant)
    tell(gateway, "a long log line " * 6000, ALICE)
    agents: dict[str, Any] = {"role": "agent", "speaker": "agent:helper"}
    tell(gateway, "Aye.", ALICE, "agent:helper", occurred_at="2026-05-08T13:56:00Z", **agents)
    assert process_due(worker) == 8
    assert missing(scratch_db) == 0
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]
    assert "[8 May 2026] helper: Aye." in words.embedded_texts
    assert max(map(len, words.embedded_texts)) < 5000, "of a large payload only the beginning"
    wrong = "select count(*) from scopes s join embedding_progress p using (tenant_id, scope_id)"
    assert scratch_db.rows(wrong + " where p.embedded_seq <> s.last_seq") == [(0,)]


def test_embed_repeated_changes_nothing(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for n in range(4):
        tell(gateway, f"turn {n}")
    process_due(worker)
    table = "select md5(string_agg(v::text, '' order by event_id)) from event_vectors v"
    before, request_count = scratch_db.rows(table), len(words.embedded_texts)
    assert process_due(worker) == 0
    scratch_db.rows("update embedding_progress set embedded_seq = 0 returning 1")
    assert process_due(worker) == 1
    assert (scratch_db.rows(table), len(words.embedded_texts)) == (before, request_count)


def test_embed_by_two_workers_is_done_once(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for n in range(24):
        tell(gateway, f"turn {n}", ALICE, f"agent:{n % 12}")
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait()
        process_due(worker)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing(scratch_db) == 0
    assert len(words.embedded_texts) == 24, "a lease belongs to one of them"


def test_embed_same_text_is_embedded_once_per_tenant(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    day: dict[str, Any] = {"occurred_at": "2026-05-08T13:56:00Z", "speaker": ALICE}
    for n in range(6):
        tell(gateway, "Ahoy!", ALICE, f"agent:{n % 3}", **day)
    process_due(worker)
    assert words.embedded_texts == ["[8 May 2026] alice: Ahoy!"]
    assert missing(scratch_db) == 0
    tell(gateway, "Ahoy!", ALICE, tenant="globex", **day)
    process_due(worker)
    assert len(words.embedded_texts) == 2, "a cache is a tenant's own"


def test_embed_message_covers_only_its_scope(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    scope = UUID(tell(gateway, "here", ALICE)["scope_id"])
    tell(gateway, "there", ALICE, "agent:helper")
    for tenant, scope_id in (("acme", uuid4()), ("nobody", scope), ("globex", scope)):
        embed_and_fold_scopes(worker, tenant, [scope_id])
    assert missing(scratch_db) == 2
    embed_and_fold_scopes(worker, "acme", [scope])
    assert missing(scratch_db) == 1
    embed_and_fold_scopes(worker, "acme", [scope])


def test_embed_refused_text_blocks_no_other(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for text in ("before", "the kraken", "after"):
        tell(gateway, text)
    words.before_embed = refuse_texts("kraken")
    assert process_due(worker) == 1
    rows = scratch_db.rows(
        "select e.content, v.refusal, v.embedding is null from event_vectors v"
        " join events e using (tenant_id, event_id) order by e.seq"
    )
    assert rows == [
        ("before", None, False),
        ("the kraken", "the model does not take this text", True),
        ("after", None, False),
    ]
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]
    request_count = len(words.embedded_texts)
    process_due(worker)
    assert len(words.embedded_texts) == request_count, "a refusal is not asked for again"


def test_embed_failure_waits_and_blocks_no_other(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for who in ("agent:a", "agent:lost", "agent:z"):
        tell(gateway, f"of {who}", ALICE, who)
    words.before_embed = fail_texts("agent:lost")
    due = "select attempts, last_error, due_at > now(), leased_until <= now() from scope_work"
    assert process_due(worker) == 2
    reason = "embedding_unavailable: the endpoint does not answer"
    assert scratch_db.rows(due) == [(1, reason, True, True)]
    assert missing(scratch_db) == 1
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    assert process_due(worker) == 0
    assert scratch_db.rows("select attempts from scope_work") == [(2,)]
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    words.before_embed = lambda texts: None
    assert process_due(worker) == 1
    assert (missing(scratch_db), scratch_db.rows("select count(*) from scope_work")) == (0, [(0,)])


def test_embed_unreadable_payload_keeps_its_work(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, aws: LocalAws
) -> None:
    tell(gateway, "a long log line " * 6000, ALICE)
    copy = replace(worker, blobs=BlobStore("no-such-bucket"))
    assert process_due(copy) == 0
    assert scratch_db.rows("select attempts, last_error like 'unavailable:%%' from scope_work") == [
        (1, True)
    ]
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    assert process_due(worker) == 1
    assert aws.bucket


def test_embed_lease_of_dead_worker_expires(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    tell(gateway, "turn")
    scratch_db.rows("update scope_work set leased_until = now() + interval '1 minute' returning 1")
    assert process_due(worker) == 0
    scratch_db.rows("update scope_work set leased_until = now() - interval '1 second' returning 1")
    assert process_due(worker) == 1
    assert missing(scratch_db) == 0


def test_embed_out_of_time_leaves_rest_due(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strandline.background.embed_scopes.BATCH", 2)
    for n in range(5):
        tell(gateway, f"turn {n}")
    copy = replace(worker, deadline=time.monotonic() + 0.01)
    scope = scratch_db.rows("select scope_id from scopes")[0][0]
    assert copy.is_out_of_time()
    assert copy.deadline < time.monotonic() + EMBED_SECONDS
    embed_and_fold_scopes(copy, "acme", [scope])
    assert missing(scratch_db) == 3
    assert process_due(worker) == 1
    assert missing(scratch_db) == 0


def test_embed_finds_events_without_queued_work(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    for n in range(3):
        tell(gateway, f"turn {n}", ALICE, f"agent:{n}", tenant=("acme", "globex")[n % 2])
    scratch_db.rows("delete from scope_work returning 1")
    assert process_due(worker) == 3
    assert missing(scratch_db) == 0


def test_embed_fills_new_space_beside_old_one(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    for n in range(4):
        tell(gateway, f"turn {n}", ALICE, f"agent:{n % 2}")
    process_due(worker)
    other = WordEmbedder("other/24", 24)
    assert process_due(replace(worker, embedder=other)) == 2
    spaces = (
        "select space, vector_dims(embedding::vector), count(*) from event_vectors group by 1, 2"
    )
    assert sorted(scratch_db.rows(spaces)) == [("other/24", 24, 4), ("words/16", 16, 4)]
    tell(gateway, "turn 4", ALICE)
    assert process_due(worker) == 1
    assert (missing(scratch_db), missing(scratch_db, "other/24")) == (0, 1)
    assert process_due(replace(worker, embedder=other)) == 1


@pytest.mark.own_database
def test_embed_reads_the_next_events_of_a_long_scope_alone(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """However long its log is, and where statistics know of no other scope. Teeth: where the policy
    keeps a condition from the index, the whole log is read for a batch."""
    for first in range(0, 1000, 100):
        events = [user_message(f"Berth {n} is free.") for n in range(first, first + 100)]
        reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=gateway.key())
        assert reply.status == 200
    scratch_db.rows(
        "insert into embedding_progress (tenant_id, scope_id, space, participants, embedded_seq)"
        " select tenant_id, scope_id, 'words/2', participants, 500 from scopes"
    )
    scratch_db.rows("analyze events, embedding_progress")
    ((scope_id,),) = scratch_db.rows("select scope_id from scopes")
    explainer = Explainer(scratch_db)
    access = explainer.database.connect_as(Caller.background("acme"))

    def count_read() -> float:
        plans = explainer.plans(
            lambda: store_work.list_unembedded_events(access, [scope_id], "words/2", 5)
        )
        return sum(rows_read(node) for plan in plans for node in nodes(plan["Plan"]))

    with closing(explainer.database):
        events = store_work.list_unembedded_events(access, [scope_id], "words/2", 5)
        assert [event.seq for event in events] == [501, 502, 503, 504, 505]
        assert 5 <= count_read() < 15
        scratch_db.rows("update embedding_progress set embedded_seq = 0")
        assert 5 <= count_read() < 15


def test_embed_skips_erased_events(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for n in range(3):
        tell(gateway, f"turn {n}")
    tell(gateway, "of others", ALICE, "agent:helper")
    scratch_db.rows(
        "update events set erased_at = now(), content = null, cid = null"
        " where content in ('turn 1', 'turn 2') returning 1"
    )
    started = time.monotonic()
    assert process_due(worker) == 2
    assert time.monotonic() - started < 5
    assert missing(scratch_db) == 2, "the erased ones have no vector"
    assert len(words.embedded_texts) == 2
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]


def test_embed_retries_without_event_erased_meanwhile(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, words: WordEmbedder
) -> None:
    for n in range(2):
        tell(gateway, f"turn {n}")
    erase = (
        "update events set erased_at = now(), content = null, cid = null"
        " where content = 'turn 0' returning 1"
    )

    def erase_first(texts: Sequence[str]) -> None:
        if not words.embedded_texts:
            assert scratch_db.rows(erase) == [(1,)]

    words.before_embed = erase_first
    assert process_due(worker) == 0
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    assert process_due(worker) == 1
    assert missing(scratch_db) == 1


def test_embed_never_loses_append_at_lease_end(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    """A hundred rounds of append against settle: in the end one sweep leaves nothing behind, even
    one that goes by the named work alone."""
    key = gateway.key(user=ALICE)
    finish_signal = threading.Event()

    def sweep() -> None:
        while not finish_signal.is_set():
            process_due(worker)

    thread = threading.Thread(target=sweep)
    thread.start()
    for n in range(100):
        reply = gateway.call("POST", "/api/v1/events", user_message(f"turn {n}", ALICE), key=key)
        assert reply.status == 201
        rows = scratch_db.rows(
            "select count(*) from scopes s join embedding_progress p using (tenant_id, scope_id)"
            " where s.last_seq > p.embedded_seq and not exists (select from scope_work w"
            " where w.tenant_id = s.tenant_id and w.scope_id = s.scope_id)"
        )
        assert rows == [(0,)], "events past the last vector, and no work names them"
    finish_signal.set()
    thread.join()
    process_due(worker)
    assert missing(scratch_db) == 0
    assert scratch_db.rows("select count(*) from events") == [(100,)]


def test_embed_includes_append_during_last_step(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No message names it: the scope's work was waiting still."""
    scope = UUID(tell(gateway, "turn 0", ALICE)["scope_id"])
    settle = store_work.release_scope_leases

    def late(access: Any, scope_ids: Sequence[UUID], space: str, **more: Any) -> int:
        if missing(scratch_db) == 0 and scratch_db.rows("select count(*) from events") == [(1,)]:
            tell(gateway, "turn 1", ALICE)
        return settle(access, scope_ids, space, **more)

    monkeypatch.setattr(store_work, "release_scope_leases", late)
    assert embed_and_fold_scopes(worker, "acme", [scope]).failed_count == 0
    assert scratch_db.rows("select count(*) from events") == [(2,)]
    assert missing(scratch_db) == 0


def test_embed_failure_of_tenant_stops_no_other(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for tenant in ("acme", "zebra"):
        tell(gateway, "turn", tenant=tenant)
    name = store_work.enqueue_unfinished_scopes

    def trouble(access: Any, space: str) -> int:
        if access.caller.tenant == "acme":
            raise Unavailable
        return name(access, space)

    monkeypatch.setattr(store_work, "enqueue_unfinished_scopes", trouble)
    assert process_due(worker) == 1
    assert missing(scratch_db) == 1


def read_passage_counts(base: ScratchDatabase) -> list[int | None]:
    """How many passages of each event have vectors, in the order of the log."""
    rows = base.rows(
        "select cardinality(v.passages) from events e"
        " join event_vectors v using (tenant_id, event_id) order by e.seq"
    )
    return [count for (count,) in rows]


def make_long_text(passages: int, word: str) -> str:
    """A text of so many passages, each of one sentence."""
    return " ".join(f"{word} {'and on ' * 30}to {n}." for n in range(passages))


def test_embed_passages_of_long_texts(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    words: WordEmbedder,
) -> None:
    texts = ["short", make_long_text(3, "tide"), make_long_text(90, "ebb")]
    texts += [f"{make_long_text(25, 'flow')} A word is forbidden, far from the beginning."]
    for text in texts:
        tell(gateway, text, occurred_at="2026-05-08T13:56:00Z")
    words.before_embed = refuse_texts("forbidden")
    process_due(worker)
    assert read_passage_counts(scratch_db) == [None, 3, MAX_PASSAGES, None]
    assert scratch_db.rows("select count(*) from event_vectors where refusal is null") == [(4,)]
    assert scratch_db.rows(
        "select count(*) from event_vectors a join event_vectors b on a.event_id < b.event_id"
        " where a.passages::text[] && b.passages::text[]"
    ) == [(0,)], "each event has its own"
    passages = [text for text in words.embedded_texts if text.endswith("to 1.")]
    assert passages == [f"[8 May 2026] alice: {texts[n].split('. ')[1]}." for n in (1, 2, 3)]
    assert max(map(len, words.embedded_texts)) < 4200


def test_embed_passages_in_bounded_batches(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    words: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the texts are, a commit comes every few passages, and nothing is left out."""
    monkeypatch.setattr(compute_event_vectors, "_MAX_PASSAGES", 7)
    stored_counts: list[int] = []
    store = store_work.store_event_vectors

    def count_and_store(access: Any, space: str, vectors: Any, events: Any) -> None:
        stored_counts.append(sum(len(vector.passages or ()) for vector in vectors))
        store(access, space, vectors, events)

    monkeypatch.setattr(store_work, "store_event_vectors", count_and_store)
    for n in (3, 3, 3, 20, 2, 2):
        tell(gateway, make_long_text(n, f"tide{n}"))
    process_due(worker)
    assert stored_counts == [6, 3, 20, 4]
    assert read_passage_counts(scratch_db) == [3, 3, 3, 20, 2, 2]
    assert missing(scratch_db) == 0
