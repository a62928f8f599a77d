"""Builds end to end: from events to a published tree."""

from tests.strandline.topics.outline import build, fold_all, read_tree, say_corpus
from tests.support import Gateway, ScratchDatabase


def test_a_conversation_becomes_a_tree(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
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
