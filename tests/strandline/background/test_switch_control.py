"""When a tenant comes to read a new embedding space, and what an operator is told meanwhile."""

import pytest

from strandline.config import get_settings
from tests.strandline.background.switches import (
    ask,
    configure,
    embedder,
    found_by_meaning,
    key,
    new,
    read_space,
)
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    refuse_texts,
)
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "key", "new"]


def test_switch_waits_while_held(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = gateway.key("ops", rights=["operator"])
    path = "/api/v1/admin/tenants/acme"
    gateway.call("PATCH", path, {"embedding_switch": "held"}, key=operator)
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    assert read_space(scratch_db) == "words/64"
    state = gateway.call("GET", path, key=operator).body["embedding"]
    assert (state["reads"], state["configured"], state["held"]) == ("words/64", "other/96", True)
    assert state["model_reachable"]
    assert state["progress"]["events"] == state["progress"]["all_events"] == 5
    assert state["progress"]["missing"] == 0
    assert state["latest"]["questions"] == 2
    assert state["latest"]["compared_at"]
    assert state["latest"]["tokens"] > 10
    reply = gateway.call("PATCH", path, {"embedding_switch": None}, key=operator)
    assert reply.body["embedding_switch"] is None
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    state = gateway.call("GET", path, key=operator).body["embedding"]
    assert state["progress"] is None
    assert state["latest"]["switched"]
    refused = gateway.call("PATCH", path, {"embedding_switch": "later"}, key=operator)
    assert refused.status == 422
    assert "embedding_switch" in refused.text


def test_switch_held_by_setting_until_told(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRANDLINE_EMBEDDING_SWITCH", "held")
    get_settings.cache_clear()
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    assert read_space(scratch_db) == "words/64"
    operator = gateway.key("ops", rights=["operator"])
    gateway.call("PATCH", "/api/v1/admin/tenants/acme", {"embedding_switch": "auto"}, key=operator)
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"


def test_switch_without_former_model_is_told_by_health(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, new)
    new.before_embed = fail_texts("harbour")
    health = gateway.call("GET", "/api/v1/health", key=key).body
    assert health["status"] == "degraded"
    (warning,) = health["warnings"]
    assert "words/64" in warning
    assert "STRANDLINE_PREVIOUS_EMBEDDING_PROVIDER" in warning
    answer = ask(gateway, key, "mooring rope")
    assert answer["hits"], "by words"
    assert not found_by_meaning(answer)
    new.before_embed = lambda texts: None
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    assert scratch_db.rows("select questions from space_switches") == [(0,)]
    assert found_by_meaning(ask(gateway, key, "mooring rope"))
    assert gateway.call("GET", "/api/v1/health", key=key).body["warnings"] == []


def test_switch_waits_for_model_that_refuses_texts(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, new, embedder)
    new.before_embed = refuse_texts("nebula")
    gateway.sweep()
    assert read_space(scratch_db) == "words/64"
    (warning,) = gateway.call("GET", "/api/v1/health", key=key).body["warnings"]
    assert "refuses 1 texts of 5" in warning
    assert "POST /api/v1/admin/jobs/sweeper" in warning, "no work may be due that starts a sweep"
    operator = gateway.key("ops", rights=["operator"])
    gateway.call("PATCH", "/api/v1/admin/tenants/acme", {"embedding_switch": "auto"}, key=operator)
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
