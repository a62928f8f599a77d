"""Chains and topic trees through a switch of embedding spaces, and what an operator lists of it."""

import json
from typing import Any

import pytest

from strandline.chains import refold
from strandline.db.database import Caller
from strandline.tenants.store_audit import AuditContext
from tests.strandline.background.switches import (
    WHO,
    configure,
    embedder,
    key,
    new,
    process_due_work,
    read_space,
    say,
)
from tests.strandline.chains.fold_fixtures import dump_state, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "key", "new"]


def close_topics(gateway: Gateway, base: ScratchDatabase) -> None:
    """A sweep after the lanes have gone quiet."""
    base.rows("update lanes set idle_at = now() - interval '1 minute' returning 1")
    gateway.sweep()


def tree_spaces(base: ScratchDatabase) -> list[str]:
    rows = base.rows("select distinct space from snapshot_scopes where to_version is null")
    return [space for (space,) in rows]


def test_switch_replays_chains_of_both_spaces_the_same(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chains are formed before the switch, while the new space is filled, and after it; folded
    again from the log, with the decisions that were stored, they are what they were."""
    set_tuning(scratch_db)
    close_topics(gateway, scratch_db)
    configure(monkeypatch, new, embedder)
    say(gateway, key, "anchor chain windlass", "anchor winch", session="s-2")
    process_due_work(gateway)
    ((settings,),) = scratch_db.rows(
        "select body from decisions where kind = 'settings' order by at_seq desc limit 1"
    )
    assert settings["space"] == "words/64"
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    say(gateway, key, "lantern wick oil", "lantern glass", session="s-3")
    process_due_work(gateway)
    close_topics(gateway, scratch_db)
    ((settings,),) = scratch_db.rows(
        "select body from decisions where kind = 'settings' order by at_seq desc limit 1"
    )
    assert settings["space"] == "other/96"
    parts = ("chains", "versions", "links", "lanes", "decisions")
    before = dump_state(scratch_db, *parts)
    assert before["chains"]
    access = gateway.database.connect_as(Caller.background("acme"))
    refold.drop_chains_to_refold(access, AuditContext("test"), None)
    gateway.sweep()
    assert dump_state(scratch_db, *parts) == before


def test_switch_has_topic_trees_grown_again(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the switch they grow in the space that is read, and the next build after it is due
    without a new chain."""
    set_tuning(scratch_db)
    close_topics(gateway, scratch_db)
    gateway.run_job("builder", "acme")
    assert tree_spaces(scratch_db) == ["words/64"]
    operator = gateway.key("ops", rights=["operator"])
    tenant = "/api/v1/admin/tenants/acme"
    gateway.call("PATCH", tenant, {"embedding_switch": "held"}, key=operator)
    configure(monkeypatch, new, embedder)
    gateway.sweep()
    say(gateway, key, "anchor chain windlass", "anchor winch", session="s-2")
    process_due_work(gateway)
    close_topics(gateway, scratch_db)
    gateway.run_job("builder", "acme")
    assert tree_spaces(scratch_db) == ["words/64"]
    assert scratch_db.rows("select count(*) from topic_work") == [(0,)]
    gateway.call("PATCH", tenant, {"embedding_switch": "auto"}, key=operator)
    gateway.sweep()
    assert scratch_db.rows("select count(*) from topic_work") == [(1,)]
    configure(monkeypatch, new, embedder)
    body = {"query": "anchor windlass", "participants": WHO[:1]}
    answer = gateway.call("POST", "/api/v1/references/query", body, key=key)
    assert "windlass" in answer.text, "from the trees as they were published"
    gateway.run_job("builder", "acme")
    assert tree_spaces(scratch_db) == ["other/96"]
    assert scratch_db.rows("select count(*) from topic_work") == [(0,)]
    gateway.sweep()
    assert scratch_db.rows("select count(*) from topic_work") == [(0,)], "once is enough"
    assert "windlass" in gateway.call("POST", "/api/v1/references/query", body, key=key).text


def test_switch_is_listed_for_operator(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of all tenants by name, or one, with the configured model and without asking it."""
    from strandline.commands.main import main

    say(gateway, gateway.key("globex"), "anchor chain windlass")
    gateway.sweep()
    scratch_db.rows(
        "update tenants set reading_space = 'minilm-l6-v2-int8/384' where tenant_id = 'acme'"
    )
    assert main(["operate", "spaces"]) == 0
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in capsys.readouterr().out.splitlines()
    ]
    by_tenant = {line["tenant_id"]: line for line in lines}
    assert list(by_tenant) == sorted(by_tenant)
    acme, globex = by_tenant["acme"], by_tenant["globex"]
    assert acme["reads"] == "minilm-l6-v2-int8/384"
    assert acme["model_reachable"]
    assert acme["progress"]["missing"] >= 5
    assert (globex["reads"], globex["model_reachable"]) == ("words/64", False)
    assert main(["operate", "spaces", "--tenant", "globex"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["tenant_id"] == "globex"
    assert main(["operate", "spaces", "--tenant", "nobody"]) != 0
    assert "nobody" in capsys.readouterr().err
