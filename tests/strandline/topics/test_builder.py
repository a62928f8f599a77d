"""Builds end to end: from events to a published tree."""

import itertools

import pytest

from strandline.jobs.runner import Lease
from tests.strandline.topics.outline import build, fold_all, read_tree, say_corpus
from tests.support import Gateway, ScratchDatabase

TRUST = ("document", "tool", "agent", "user", "system")
"""From the least trusted on."""


def test_builder_builds_tree_from_conversation(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    key = gateway.key()
    count = say_corpus(gateway, key, "vet", limit=60)
    fold_all(gateway, scratch_db)
    totals = build(gateway)
    assert (totals["jobs_done"], totals["snapshots_published"]) == (1, 1)
    snapshot = scratch_db.rows("select version, leaf_count, event_count from snapshots")
    chains = scratch_db.rows("select count(*) from chains")[0][0]
    assert snapshot == [(1, chains, count)]
    trees = scratch_db.rows("select cutoff, position, event_count, leaf_count from snapshot_scopes")
    assert len(trees) == 3
    assert [(cutoff, position) for cutoff, position, *_ in trees] == [
        (events, leaves) for *_, events, leaves in trees
    ]
    assert scratch_db.rows("select count(*) from topic_work") == [(0,)]
    before = read_tree(scratch_db)
    assert "snapshots_published" not in build(gateway)
    assert read_tree(scratch_db) == before


def test_builder_postpones_scopes_when_out_of_time(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_corpus(gateway, gateway.key(), "vet", limit=60)
    fold_all(gateway, scratch_db)
    looks = itertools.chain([False], itertools.repeat(True))

    def is_out_of_time(_: Lease) -> bool:
        return next(looks)

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "is_out_of_time", is_out_of_time)
        totals = build(gateway)
    assert (totals["snapshots_published"], totals["scopes_postponed"]) == (1, 2)
    trees = "select count(*) from snapshot_scopes where to_version is null"
    assert scratch_db.rows(trees) == [(1,)]
    assert "scopes_postponed" not in build(gateway)
    assert scratch_db.rows(trees) == [(3,)]


def test_builder_node_shows_least_trust_below_it(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    say_corpus(gateway, gateway.key(), "vet", limit=60)
    fold_all(gateway, scratch_db)
    scratch_db.rows(
        "update chain_versions set trust = 'tool' where chain_id in (select chain_id from chains"
        " where scope_id = (select scope_id from chains group by 1 order by count(*) desc limit 1)"
        " order by chain_id limit 1)"
    )
    build(gateway)
    nodes = {
        slot: (parent, is_leaf, trust)
        for slot, parent, is_leaf, trust in scratch_db.rows(
            "select t.slot, t.parent_slot, t.is_leaf, n.trust from topic_tree t"
            " join topic_nodes n using (tenant_id, node_id) where t.to_version is null"
        )
    }
    leaves = scratch_db.rows(
        "select chain_id, trust from chain_versions v join chains c using (tenant_id, chain_id)"
        " where v.version = c.version"
    )
    assert {slot: trust for slot, (_, is_leaf, trust) in nodes.items() if is_leaf} == dict(leaves)
    for slot, (_, is_leaf, trust) in nodes.items():
        below = [other for parent, _, other in nodes.values() if parent == slot]
        assert is_leaf or trust == min(below, key=TRUST.index)
    inner = [trust for _, is_leaf, trust in nodes.values() if not is_leaf]
    assert inner.count("tool") < len(inner)
    assert "tool" in inner
