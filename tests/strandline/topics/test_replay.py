"""Chains dropped and folded again: trees stay, and grown again they are the same."""

import pytest

from strandline.chains.refold import drop_chains_of_scopes
from strandline.db.database import Caller
from tests.strandline.topics.outline import build, drop_index, fold_all, read_tree, say_corpus
from tests.support import Gateway, ScratchDatabase

HASHES = "select chain_id, version, position, content_hash from chain_versions order by 1, 2"


@pytest.mark.proof
@pytest.mark.parametrize("corpus", ["vet", "band"])
def test_topic_replay_gives_same_trees(
    scratch_db: ScratchDatabase, gateway: Gateway, corpus: str
) -> None:
    key = gateway.key()
    say_corpus(gateway, key, corpus, limit=40)
    fold_all(gateway, scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    say_corpus(gateway, key, corpus, limit=30)
    fold_all(gateway, scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    tree, hashes = read_tree(scratch_db), scratch_db.rows(HASHES)
    scope_ids = [row[0] for row in scratch_db.rows("select scope_id from scopes")]
    access = gateway.database.connect_as(Caller.background("acme"))

    drop_chains_of_scopes(access, scope_ids)
    assert "snapshots_published" not in build(gateway), "what is published stays"
    assert read_tree(scratch_db) == tree
    fold_all(gateway, scratch_db)
    assert scratch_db.rows(HASHES) == hashes
    assert "snapshots_published" not in build(gateway), "equal versions are found equal"
    assert scratch_db.rows("select count(*) from topic_work") == [(0,)]

    drop_chains_of_scopes(access, scope_ids)
    fold_all(gateway, scratch_db)
    drop_index(scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    assert read_tree(scratch_db) == tree


@pytest.mark.proof
def test_topic_replay_of_other_chains_gives_other_tree(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    """A fold that gives other content (planted) is noticed, though its positions are the same."""
    key = gateway.key()
    say_corpus(gateway, key, "vet", limit=40)
    fold_all(gateway, scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    scratch_db.rows("update chain_versions set content_hash = sha256(content_hash)")
    scratch_db.rows(
        "insert into topic_work select tenant_id, scope_id, participants, 1, now(), now(),"
        " max(position) from chain_versions group by tenant_id, scope_id, participants"
    )
    assert build(gateway)["snapshots_published"] == 1
    assert scratch_db.rows(
        "select count(*) from topic_tree t join topic_nodes n using (tenant_id, node_id)"
        " join chain_versions v on v.chain_id = t.slot and v.version = t.chain_version"
        " where t.to_version is null and n.chain_hash <> v.content_hash"
    ) == [(0,)]
