"""A tenant reads the embedding space that it has while that of a new model is filled beside it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from strandline.background import switch_spaces
from strandline.db.database import Caller
from strandline.erasure import erase_events
from strandline.graph.search.read_for_recall import read_relevant_knowledge
from tests.strandline.background.switches import (
    TEXTS,
    WHO,
    ask,
    configure,
    count_vectors,
    embedder,
    found_by_meaning,
    found_by_vector,
    key,
    make_filler,
    new,
    process_due_work,
    read_space,
    say,
)
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
)
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "key", "new"]


def do_nothing(*args: object) -> None:
    """In place of a step."""


def test_switch_fills_compares_and_reads_new_space(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = ask(gateway, key, "mooring rope")
    assert found_by_meaning(before)
    assert read_space(scratch_db) == "words/64"
    configure(monkeypatch, new, embedder)
    during = ask(gateway, key, "mooring rope")
    assert during["hits"] == before["hits"]
    assert not new.embedded_texts
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    assert count_vectors(scratch_db) == {"words/64": 5, "other/96": 5}
    ((texts, characters, questions, overlap, same_first, switched),) = scratch_db.rows(
        "select texts, characters, questions, overlap, same_first, switched from space_switches"
    )
    assert (texts, questions, switched) == (5, 2, True)
    assert characters > sum(map(len, TEXTS))
    assert 0 < overlap <= 1
    assert 0 < same_first <= 1
    configure(monkeypatch, new, embedder)
    embedder.embedded_texts.clear()
    after = ask(gateway, key, "mooring rope")
    assert found_by_meaning(after)[0] == found_by_meaning(before)[0]
    assert not embedder.embedded_texts, "the model before is asked for nothing more"


def test_switch_waits_for_model_that_fails(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, new, embedder)
    new.before_embed = fail_texts()
    for _ in range(2):
        gateway.sweep()
        (newest,) = say(gateway, key, "anchor chain windlass")
        gateway.sweep()
        answer = ask(gateway, key, "anchor windlass")
        assert newest in found_by_vector(answer)
        assert answer["degraded"] == []
        assert answer["not_yet_embedded"] == 0
    assert read_space(scratch_db) == "words/64"
    assert scratch_db.rows("select failure, ended_at from space_switches") == [
        ("the endpoint does not answer", None)
    ]
    assert scratch_db.rows("select count(*) from jobs where state = 'failed'") == [(0,)]
    new.before_embed = lambda texts: None
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    assert scratch_db.rows("select failure from space_switches") == [(None,)]


def test_switch_of_one_tenant_leaves_another(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other_key = gateway.key("globex")
    say(gateway, other_key, "anchor chain windlass")
    gateway.sweep()
    configure(monkeypatch, new, embedder)
    new.before_embed = fail_texts("windlass")
    gateway.sweep()
    assert (read_space(scratch_db), read_space(scratch_db, "globex")) == ("other/96", "words/64")
    configure(monkeypatch, new, embedder)
    assert found_by_meaning(ask(gateway, key, "mooring rope"))
    (answer,) = [ask(gateway, other_key, "anchor windlass")]
    assert answer["degraded"] == []
    assert found_by_meaning(answer)
    assert embedder.embedded_texts[-1] == "anchor windlass"


def test_switch_leaves_no_vector_of_erased_event(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is erased while the new model computes its vector."""
    configure(monkeypatch, new, embedder)
    ((event_id,),) = scratch_db.rows("select event_id from events where content like 'nebula%%'")
    eraser_key = gateway.key(rights=["read", "erase"])

    def erase(texts: Sequence[str]) -> None:
        if any("nebula" in text for text in texts):
            new.before_embed = lambda texts: None
            body = {"event_ids": [str(event_id)]}
            reply = gateway.call("POST", "/api/v1/erasures", body, key=eraser_key)
            assert reply.status in (200, 201, 202), reply.text

    new.before_embed = erase
    gateway.sweep()
    assert read_space(scratch_db) == "words/64", "it waits for the erasure"
    gateway.run_job("eraser")
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    assert count_vectors(scratch_db) == {"words/64": 4, "other/96": 4}
    assert scratch_db.rows(
        "select count(*) from embedding_cache where event_id = %s", event_id
    ) == [(0,)]


def test_switch_shows_new_model_no_text_that_is_being_erased(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An erasure of so much that its mark hides the events until the job comes to them."""
    monkeypatch.setattr(erase_events, "EVENTS_AT_ONCE", 2)
    body = {"participant": WHO[0]}
    eraser_key = gateway.key(rights=["read", "erase"])
    assert gateway.call("POST", "/api/v1/erasures", body, key=eraser_key).status == 202
    assert scratch_db.rows("select count(*) from erasure_marks") == [(1,)]
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    assert new.embedded_texts == []
    assert read_space(scratch_db) == "words/64"


def test_switch_removes_vectors_of_space_that_was_left(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    worker = make_filler(gateway, new)
    now = datetime.now(UTC)
    switch_spaces.advance(worker, "acme", now + timedelta(hours=23))
    assert count_vectors(scratch_db) == {"words/64": 5, "other/96": 5}
    switch_spaces.advance(worker, "acme", now + timedelta(hours=25))
    assert count_vectors(scratch_db) == {"other/96": 5}
    for table in ("embedding_cache", "embedding_progress", "chain_vectors", "sona_centroids"):
        assert scratch_db.rows(f"select from {table} where space = 'words/64'") == []
    assert scratch_db.rows("select removed_at is not null from space_switches") == [(True,)]
    configure(monkeypatch, new)
    assert found_by_meaning(ask(gateway, key, "mooring rope"))


def test_switch_is_undone_by_former_model(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a day its vectors are still there: only what came since is computed."""
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    say(gateway, key, "anchor chain windlass")
    process_due_work(gateway)
    embedder.embedded_texts.clear()
    configure(monkeypatch, embedder, new)
    gateway.sweep()
    assert read_space(scratch_db) == "words/64"
    texts = [text for text in embedder.embedded_texts if not text.endswith("?")]
    assert len(texts) == 1
    assert "windlass" in texts[0]


def test_switch_takes_nodes_of_graph_along(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node whose text changes while its new vector stands beside the old one loses both."""
    operator = gateway.key("ops", rights=["operator"])
    path = "/api/v1/admin/tenants/acme"
    nodes = [{"type": "topic", "name": name} for name in ("mooring", "starter")]
    body = {"participants": WHO[:1], "nodes": nodes}
    assert gateway.call("POST", "/api/v1/graph/nodes", body, key=key).status == 201
    gateway.sweep()
    gateway.call("PATCH", path, {"embedding_switch": "held"}, key=operator)
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    held = "select name, space, next_space from graph_nodes where type = 'topic' order by name"
    assert scratch_db.rows(held) == [
        ("mooring", "words/64", "other/96"),
        ("starter", "words/64", "other/96"),
    ]
    changed = [{"type": "topic", "name": "starter", "description": "fed with flour"}]
    gateway.call("POST", "/api/v1/graph/nodes", {**body, "nodes": changed}, key=key)
    assert scratch_db.rows(held)[1] == ("starter", None, None)
    gateway.sweep()
    settle_nodes = switch_spaces._settle_nodes  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(switch_spaces, "_settle_nodes", do_nothing)
    gateway.call("PATCH", path, {"embedding_switch": "auto"}, key=operator)
    gateway.sweep()
    assert scratch_db.rows(held)[0] == ("mooring", "words/64", "other/96"), "not in its place yet"
    configure(monkeypatch, new, embedder)
    monkeypatch.setattr(switch_spaces, "_settle_nodes", settle_nodes)
    search = {"query": "mooring", "participants": WHO[:1]}
    found = gateway.call("POST", "/api/v1/graph/search", search, key=key)
    similarity = {node["name"]: node["similarity"] for node in found.body["nodes"]}
    assert similarity["mooring"] == pytest.approx(1, abs=0.01)
    assert similarity["starter"] is not None
    reader = gateway.database.connect_as(Caller("acme", (WHO[0],)))
    (vector,) = new.embed(["mooring"], timeout=1.0)
    (node,) = read_relevant_knowledge(reader, "mooring", vector, new.space).nodes
    assert node.similarity == pytest.approx(1, abs=0.01)
    gateway.sweep()
    assert scratch_db.rows(held) == [
        ("mooring", "other/96", None),
        ("starter", "other/96", None),
    ]
    again = gateway.call("POST", "/api/v1/graph/search", search, key=key)
    assert again.body["nodes"] == found.body["nodes"]
