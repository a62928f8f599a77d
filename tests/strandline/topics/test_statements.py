"""Statements are under no leaf and in no tail; cutoffs pass them."""

from collections.abc import Sequence
from contextlib import closing

import pytest

from strandline.chains.refold import drop_chains_of_scopes
from strandline.db.database import Caller, Database, TenantDb
from strandline.topics import store_tail
from tests.statements import make_statement, state
from tests.strandline.topics import exactly_once
from tests.strandline.topics.outline import build, drop_index, fold_all, read_tree
from tests.strandline.topics.talks import converse
from tests.strandline.topics.world import MEMBERS, ScopeWorld
from tests.support import Gateway, ScratchDatabase

CUTOFF = "select cutoff, event_count from snapshot_scopes where to_version is null"
HASHES = "select chain_id, version, position, content_hash from chain_versions order by 1, 2"


@pytest.fixture
def access(gateway: Gateway) -> TenantDb:
    """Background work in one tenant."""
    return gateway.database.connect_as(Caller.background("acme"))


def state_in(world: ScopeWorld, base: ScratchDatabase, count: int) -> None:
    """State so many things next in a scope, and have them folded."""
    base.rows(
        "insert into events (tenant_id, event_id, scope_id, seq, participants, channel, role, type,"
        " origin, writer, content, recorded_at, cid) select %s, gen_random_uuid(), %s, %s + n, %s,"
        " 'http', 'user', 'statement', 'user', '*', 'It rains.', now(), 'cid-s' || n"
        " from generate_series(1, %s) n",
        world.tenant,
        world.scope_id,
        world.seq,
        list(world.members),
        count,
    )
    world.seq += count
    base.rows(
        "update scopes set last_seq = %s, folded_seq = %s, max_folded_seq = %s,"
        " last_recorded_at = now() where scope_id = %s",
        *(world.seq, world.seq, world.seq, world.scope_id),
    )


@pytest.mark.parametrize(
    ("steps", "cutoff", "events"),
    [
        ((3, "s"), 7, 6),
        (("s", 3), 7, 6),
        ((3, "s", "s", 2, "s"), 13, 10),
        (("s" * 40, 1), 42, 2),
    ],
)
def test_topic_statements_are_passed_by_cutoff(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    access: TenantDb,
    steps: Sequence[int | str],
    cutoff: int,
    events: int,
) -> None:
    world = ScopeWorld(scratch_db)
    for step in steps:
        if isinstance(step, int):
            world.add(step)
        else:
            state_in(world, scratch_db, len(step))
    assert build(gateway)["snapshots_published"] == 1
    assert scratch_db.rows(CUTOFF) == [(cutoff, events)]
    assert exactly_once.find_faults(access) == []


def test_topic_statements_do_not_stop_builds(
    scratch_db: ScratchDatabase, gateway: Gateway, access: TenantDb
) -> None:
    world = ScopeWorld(scratch_db)
    for turn in range(1, 4):
        state_in(world, scratch_db, 5)
        world.add(4)
        state_in(world, scratch_db, 3)
        assert build(gateway)["snapshots_published"] == 1
        assert scratch_db.rows(CUTOFF) == [(16 * turn, 8 * turn)]
        assert exactly_once.find_faults(access) == []


def test_topic_statements_cutoff_stops_at_event_without_leaf(
    scratch_db: ScratchDatabase, gateway: Gateway, access: TenantDb
) -> None:
    """Of three messages among statements, which are folded and still open."""
    world = ScopeWorld(scratch_db)
    world.add(3)
    state_in(world, scratch_db, 6)
    scratch_db.rows("update events set type = 'message' where seq in (9, 10, 12)")
    assert build(gateway)["snapshots_published"] == 1
    assert scratch_db.rows(CUTOFF) == [(8, 6)]
    tail = store_tail.list_fresh_tail(access, 1, [(world.scope_id, 8, 12)], 100)
    assert [event.seq for event in tail] == [12, 10, 9]
    assert exactly_once.find_faults(access) == []


def test_topic_statements_mistaken_message_is_not_published(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation counts for itself. Planted: a growth that passes whatever it meets."""
    world = ScopeWorld(scratch_db)
    world.add(3)
    state_in(world, scratch_db, 2)
    scratch_db.rows("update events set type = 'message' where seq = 8")

    def find_nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(store_tail, "find_uncovered_seq", find_nothing)
    totals = build(gateway)
    assert (totals["scopes_failed"], totals.get("snapshots_published")) == (1, None)
    assert scratch_db.rows("select reason from topic_build_scopes") == [("event_under_no_leaf",)]


def test_topic_statements_by_thousands_pass_in_one_build(
    scratch_db: ScratchDatabase, gateway: Gateway, access: TenantDb
) -> None:
    world = ScopeWorld(scratch_db)
    world.add(3)
    state_in(world, scratch_db, 4000)
    world.add(3)
    state_in(world, scratch_db, 4000)
    assert build(gateway)["snapshots_published"] == 1
    assert scratch_db.rows(CUTOFF) == [(8012, 12)]
    state_in(world, scratch_db, 4000)
    assert store_tail.list_fresh_tail(access, 1, [(world.scope_id, 8012, world.seq)], 100) == []


def test_topic_statements_replay_gives_same_trees(
    scratch_db: ScratchDatabase, gateway: Gateway, access: TenantDb
) -> None:
    key = gateway.key(user="user:alice")
    with closing(Database(scratch_db.url)) as database:
        for n in range(4):
            state(database, [make_statement(f"Before topic {n} it rains.", *MEMBERS)])
            converse(gateway, key, MEMBERS, first=n, count=1)
            state(database, [make_statement(f"On day {n} it rains, no. {i}.") for i in range(3)])
            gateway.sweep()
    fold_all(gateway, scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    assert exactly_once.find_faults(access) == []
    tree, hashes, cutoff = read_tree(scratch_db), scratch_db.rows(HASHES), scratch_db.rows(CUTOFF)
    assert (len(hashes) > 2, cutoff[0][0]) == (True, 32)
    scope_ids = [row[0] for row in scratch_db.rows("select scope_id from scopes")]
    drop_chains_of_scopes(access, scope_ids)
    fold_all(gateway, scratch_db)
    drop_index(scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    assert scratch_db.rows(HASHES) == hashes
    assert (read_tree(scratch_db), scratch_db.rows(CUTOFF)) == (tree, cutoff)
