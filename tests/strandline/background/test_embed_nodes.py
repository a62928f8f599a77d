"""Nodes of the graph get their vectors from the worker: what is new, what changed, a new space."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.background.embed_scopes import embed_new_graph_nodes
from strandline.db.database import Caller, Database
from strandline.errors import EmbeddingUnavailable
from strandline.graph.nodes import store_missing_vectors
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
    refuse_texts,
)
from tests.support import Gateway, ScratchDatabase

WHO = ["user:ada"]


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
    yield make_worker(database, BlobStore(aws.bucket), embedder)
    database.close()


def store(gateway: Gateway, *names: str, **fields: object) -> None:
    nodes = [{"type": "topic", "name": name, **fields} for name in names]
    body = {"participants": WHO, "nodes": nodes}
    reply = gateway.call("POST", "/api/v1/graph/nodes", body, key=gateway.key())
    assert reply.status == 201, reply.text


def vectors(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    return base.rows("select name, space, embedding is not null from graph_nodes order by name")


def test_embed_nodes_embeds_new_and_changed_nodes(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, embedder: WordEmbedder
) -> None:
    store(gateway, "harbour", "nebula")
    assert process_due(worker) == 1
    assert vectors(scratch_db) == [("harbour", "words/64", True), ("nebula", "words/64", True)]
    assert worker.tally.counters["NodesEmbedded"] == 2
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]
    store(gateway, "harbour")
    assert vectors(scratch_db)[0] == ("harbour", "words/64", True), "said again it is the same"
    store(gateway, "harbour", description="Where the boats lie.")
    assert vectors(scratch_db)[0] == ("harbour", None, False)
    embedder.embedded_texts.clear()
    process_due(worker)
    assert "harbour. Where the boats lie." in embedder.embedded_texts
    assert vectors(scratch_db)[0] == ("harbour", "words/64", True)


def test_embed_nodes_scope_stays_due_without_vector(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, embedder: WordEmbedder
) -> None:
    store(gateway, "harbour")
    process_due(worker)
    scratch_db.rows("update graph_nodes set space = null, embedding = null")
    access = worker.database.connect_as(Caller.background("acme"))
    (scope_id,) = scratch_db.rows("select scope_id from scopes")[0]
    with access.transaction():
        store_missing_vectors.make_scope_work_due(access, [scope_id])
    embedder.before_embed = fail_texts()
    assert process_due(worker) == 0
    assert scratch_db.rows("select last_error from scope_work")[0][0].startswith(
        "embedding_unavailable"
    )
    with pytest.raises(EmbeddingUnavailable):
        embed_new_graph_nodes(worker, access, [scope_id])
    embedder.before_embed = lambda texts: None
    scratch_db.rows("update scope_work set due_at = now()")
    assert process_due(worker) == 1
    assert vectors(scratch_db) == [("harbour", "words/64", True)]


def test_embed_nodes_refused_text_blocks_no_other(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, embedder: WordEmbedder
) -> None:
    store(gateway, "harbour", "nebula")
    embedder.before_embed = refuse_texts("nebula")
    assert process_due(worker) == 1
    assert vectors(scratch_db) == [("harbour", "words/64", True), ("nebula", "words/64", False)]
    assert process_due(worker) == 0


def test_embed_nodes_repeats_for_changed_node(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, embedder: WordEmbedder
) -> None:
    store(gateway, "harbour")
    process_due(worker)
    access = worker.database.connect_as(Caller.background("acme"))
    (scope_id,) = scratch_db.rows("select scope_id from scopes")[0]
    scratch_db.rows("update graph_nodes set space = null, embedding = null")

    def change(texts: object) -> None:
        embedder.before_embed = lambda texts: None
        scratch_db.rows("""update graph_nodes set properties = '{"description": "quiet"}'""")

    embedder.before_embed = change
    assert embed_new_graph_nodes(worker, access, [scope_id]).embedded_count == 0
    assert vectors(scratch_db) == [("harbour", None, False)]
    assert embed_new_graph_nodes(worker, access, [scope_id]).embedded_count == 1


def test_embed_nodes_sweep_fills_new_space(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(gateway, "harbour", "nebula")
    gateway.sweep()
    assert {space for _, space, _ in vectors(scratch_db)} == {"words/64"}
    other: Any = WordEmbedder("other/16", 16)
    sweeper: Any = importlib.import_module("functions.sweeper.handler")
    monkeypatch.setitem(sweeper.resources.__dict__, "embedder", other)
    gateway.sweep()
    assert vectors(scratch_db) == [("harbour", "other/16", True), ("nebula", "other/16", True)]
    assert scratch_db.rows("select swept_space from tenants") == [("other/16",)]
