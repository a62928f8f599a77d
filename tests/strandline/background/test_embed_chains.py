"""Chains are found by meaning again in a new embedding space, and after the model was away."""

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.background.missing_vectors import embed_chain_summaries
from strandline.chains import store_summary_vectors
from strandline.chains.fold_scope import close_idle_lanes
from strandline.db.database import Caller, Database
from strandline.embeddings.vector_formats import pack_vector
from strandline.errors import EmbeddingUnavailable
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import ALICE, EchoTasks, append, set_tuning
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
    refuse_texts,
)
from tests.support import Gateway, ScratchDatabase

LATER = datetime(2040, 1, 1, tzinfo=UTC)
NOW = datetime.now(UTC)


@pytest.fixture
def embedder() -> WordEmbedder:
    """For the gateway and the worker."""
    return WordEmbedder("words/64", 64)


@pytest.fixture
def worker(
    scratch_db: ScratchDatabase, aws: LocalAws, embedder: WordEmbedder
) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), embedder, EchoTasks())
    database.close()


def form_chain(
    gateway: Gateway, base: ScratchDatabase, worker: WorkerResources, *texts: str
) -> None:
    """A chain of each of these."""
    key = gateway.key()
    set_tuning(base)
    for n, text in enumerate(texts):
        message = {"participants": [ALICE, "agent:a"], "role": "user", "speaker": ALICE}
        append(gateway, key, [{**message, "content": text, "session_id": f"s-{n}"}])
    process_due(worker)
    assert close_idle_lanes(worker, "acme", LATER) == len(texts)


def spaces(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    return base.rows("select space, count(*)::int from chain_vectors group by 1 order by 1")


def test_embed_chains_sweep_fills_new_space(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form_chain(gateway, scratch_db, worker, "harbour mooring", "sourdough flour", "nebula lens")
    scratch_db.rows(
        "update chains set status = 'archived', archived_at = now() where chain_id ="
        " (select min(chain_id::text)::uuid from chains)"
    )
    gateway.sweep()
    assert spaces(scratch_db) == [("words/64", 3)]
    other: Any = WordEmbedder("other/16", 16)
    sweeper: Any = importlib.import_module("functions.sweeper.handler")
    monkeypatch.setitem(sweeper.resources.__dict__, "embedder", other)
    gateway.sweep()
    assert spaces(scratch_db) == [("other/16", 2), ("words/64", 3)]
    assert scratch_db.rows("select swept_space from tenants") == [("other/16",)]
    assert scratch_db.rows(
        "select totals ->> 'chains_embedded' from jobs order by created_at desc"
    )[0] == ("2",)
    count = len(other.embedded_texts)
    gateway.sweep()
    assert len(other.embedded_texts) == count, "once is enough"
    for summary, vector in scratch_db.rows(
        "select n.summary, halfvec_send(v.embedding) from chain_vectors v"
        " join chains using (tenant_id, chain_id)"
        " join chain_versions n using (tenant_id, chain_id, version) where v.space = 'other/16'"
    ):
        assert vector == pack_vector(other.embed([summary], timeout=1.0)[0]), summary


def test_embed_chains_interrupted_sweep_stays_due(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form_chain(gateway, scratch_db, worker, "harbour mooring", "sourdough flour")
    other = WordEmbedder("other/16", 16)
    other.before_embed = fail_texts("sourdough")
    sweeper: Any = importlib.import_module("functions.sweeper.handler")
    monkeypatch.setitem(sweeper.resources.__dict__, "embedder", other)
    gateway.sweep()
    assert scratch_db.rows("select swept_space from tenants") != [("other/16",)]
    other.before_embed = lambda texts: None
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    gateway.sweep()
    assert spaces(scratch_db) == [("other/16", 2), ("words/64", 2)]
    assert scratch_db.rows("select swept_space from tenants") == [("other/16",)]


def test_embed_chains_adds_vectors_after_outage(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, embedder: WordEmbedder
) -> None:
    key = gateway.key()
    set_tuning(scratch_db)
    message = {"participants": [ALICE, "agent:a"], "role": "user", "speaker": ALICE}
    append(gateway, key, [{**message, "content": "harbour mooring"}])
    process_due(worker)
    embedder.before_embed = fail_texts()
    assert close_idle_lanes(worker, "acme", LATER) == 1
    assert scratch_db.rows("select state, reason from jobs where kind = 'enrich'") == [
        ("failed", "no_vector")
    ]
    with pytest.raises(EmbeddingUnavailable):
        embed_chain_summaries(worker, "acme", NOW)
    embedder.before_embed = lambda texts: None
    assert embed_chain_summaries(worker, "acme", NOW) == (1, True)
    assert spaces(scratch_db) == [("words/64", 1)]
    states = "select state, reason, advice from jobs where kind = 'enrich'"
    assert scratch_db.rows(states) == [("done", "", "")]


def test_embed_chains_refused_summary_blocks_no_other(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    form_chain(gateway, scratch_db, worker, "harbour mooring", "sourdough flour", "nebula lens")
    other = WordEmbedder("other/16", 16)
    other.before_embed = refuse_texts("sourdough")
    again = make_worker(worker.database, worker.blobs, other, EchoTasks())
    assert embed_chain_summaries(again, "acme", NOW) == (2, True)
    late = make_worker(worker.database, worker.blobs, other, EchoTasks(), seconds=1)
    assert embed_chain_summaries(late, "acme", NOW + timedelta(days=1)) == (0, False)


def test_embed_chains_stores_no_outdated_vector(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    form_chain(gateway, scratch_db, worker, "harbour mooring")
    access = worker.database.connect_as(Caller.background("acme"))
    (lacking,) = store_summary_vectors.list_chains_without_summary_vector(access, "other", None, 9)
    old = store_summary_vectors.SummaryVector(
        lacking.chain_id, lacking.version - 1, pack_vector([1.0])
    )
    with access.transaction():
        assert store_summary_vectors.insert_summary_vectors(access, "other", [old]) == 0
    scratch_db.rows("update chains set status = 'archived', archived_at = now()")
    summary_vector = store_summary_vectors.SummaryVector(
        lacking.chain_id, lacking.version, pack_vector([1.0])
    )
    with access.transaction():
        assert store_summary_vectors.insert_summary_vectors(access, "other", [summary_vector]) == 0
    assert spaces(scratch_db) == [("words/64", 1)]
