"""Snapshots as admins see them: lists, differences, an older one made active again, collection."""

from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.topics import build_limits, snapshot_admin
from tests.strandline.topics.outline import build, read_tree
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

SNAPSHOTS, TOPICS = "/api/v1/admin/snapshots", "/api/v1/admin/topics"


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key("acme", rights=["admin"])


@pytest.fixture
def world(scratch_db: ScratchDatabase, gateway: Gateway, key: str) -> ScopeWorld:
    """A scope with three published versions of its tree."""
    assert key
    world = ScopeWorld(scratch_db)
    for _ in range(3):
        world.add(12, merges=0.3)
        assert build(gateway)["snapshots_published"] == 1
    return world


def test_snapshots_are_listed_newest_first(gateway: Gateway, key: str, world: ScopeWorld) -> None:
    first = gateway.call("GET", SNAPSHOTS, key=key, query={"limit": 2}).body
    assert [item["version"] for item in first["snapshots"]] == [3, 2]
    assert [item["active"] for item in first["snapshots"]] == [True, False]
    assert first["snapshots"][0]["event_count"] == world.seq
    rest = gateway.call("GET", SNAPSHOTS, key=key, query={"cursor": first["next_cursor"]}).body
    assert [item["version"] for item in rest["snapshots"]] == [1]
    assert rest["next_cursor"] is None
    one = gateway.call("GET", f"{SNAPSHOTS}/2", key=key).body
    assert one["stored_bytes"] > 1000
    for unknown in ("4", "0", "x", "-1", "9" * 30):
        assert gateway.call("GET", f"{SNAPSHOTS}/{unknown}", key=key).status == 404
    other = gateway.key("globex", rights=["admin"])
    assert gateway.call("GET", f"{SNAPSHOTS}/2", key=other).status == 404
    assert gateway.call("GET", SNAPSHOTS, key=other).body["snapshots"] == []
    assert gateway.call("GET", SNAPSHOTS, key=gateway.key("acme", rights=["read"])).status == 403


def test_snapshots_difference_matches_rows(
    scratch_db: ScratchDatabase, gateway: Gateway, key: str, world: ScopeWorld
) -> None:
    trees = {v: {row[2]: row[3:5] for row in read_tree(scratch_db, v)} for v in (1, 3)}
    for before, after in ((1, 3), (3, 1)):
        expected = {
            str(slot): "gone"
            if slot not in trees[after]
            else "added"
            if slot not in trees[before]
            else "changed"
            for slot in trees[1].keys() | trees[3].keys()
            if trees[1].get(slot) != trees[3].get(slot)
        }
        changes: dict[str, str] = {}
        query: dict[str, object] = {"from": before, "limit": 7}
        while True:
            page = gateway.call("GET", f"{SNAPSHOTS}/{after}/difference", key=key, query=query).body
            changes |= {item["slot_id"]: item["change"] for item in page["changes"]}
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert changes == expected
        assert page["added"] + page["gone"] + page["changed"] == len(expected)
        assert page["same_configuration"] is True
    same = gateway.call("GET", f"{SNAPSHOTS}/2/difference", key=key, query={"from": 2}).body
    assert (same["changes"], same["scopes"]) == ([], 0)
    missing = gateway.call("GET", f"{SNAPSHOTS}/2/difference", key=key, query={"from": 9})
    assert missing.status == 404
    for wrong in ({}, {"from": 0}, {"from": 10**18}, {"from": 2**63 - 1}, {"from": "x"}):
        reply = gateway.call("GET", f"{SNAPSHOTS}/2/difference", key=key, query=wrong)
        assert (reply.status, reply.error["details"]["field"]) == (422, "from")
    last = gateway.call("GET", f"{SNAPSHOTS}/2/difference", key=key, query={"from": 10**18 - 1})
    assert last.status == 404
    assert world.seq == 72


def test_snapshots_older_one_is_reactivated(
    scratch_db: ScratchDatabase, gateway: Gateway, key: str, world: ScopeWorld
) -> None:
    trees = {version: read_tree(scratch_db, version) for version in (1, 2, 3)}
    reply = gateway.call("POST", f"{SNAPSHOTS}/1/activate", key=key)
    assert (reply.status, reply.body["version"], reply.body["repeats_version"]) == (201, 4, 1)
    assert read_tree(scratch_db) == trees[1]
    for version, tree in trees.items():
        assert read_tree(scratch_db, version) == tree, "no version changes"
    again = gateway.call("POST", f"{SNAPSHOTS}/4/activate", key=key)
    assert (again.status, again.error["code"]) == (409, "state_conflict")
    assert gateway.call("POST", f"{SNAPSHOTS}/9/activate", key=key).status == 404
    entries = "select target from audit_log where route like %s and outcome = 'done'"
    assert scratch_db.rows(entries, "POST%activate") == [({"version": "1", "new_version": "4"},)]
    # The next build goes on from there: the same tree as if nothing had been.
    world.add(1)
    assert build(gateway)["versions_taken"] == 25
    assert len([row for row in read_tree(scratch_db) if row[5]]) == len(world.chain_ids)


def test_snapshots_old_ones_are_collected(
    scratch_db: ScratchDatabase, gateway: Gateway, key: str, world: ScopeWorld
) -> None:
    trees = {version: read_tree(scratch_db, version) for version in (2, 3)}
    gateway.run_job("archiver", "acme")
    assert scratch_db.rows("select count(*) from snapshots") == [(3,)]
    scratch_db.rows(
        "update snapshots set published_at = now() - interval '31 days' where version = 1"
    )
    totals = gateway.run_job("archiver")
    assert totals.get("snapshots_removed") == 1, (
        totals,
        scratch_db.rows("select kind, state, reason, totals from jobs"),
    )
    for version, tree in trees.items():
        assert read_tree(scratch_db, version) == tree
    query = (
        "select count(*) from topic_nodes n where not exists"
        " (select from topic_tree t where t.node_id = n.node_id)"
    )
    assert scratch_db.rows(query) == [(0,)]
    scratch_db.rows("update snapshots set published_at = now() - interval '90 days'")
    assert gateway.run_job("archiver", "acme")["snapshots_removed"] == 1
    assert scratch_db.rows("select version from snapshots") == [(3,)], "never the active one"
    assert read_tree(scratch_db) == trees[3]
    assert scratch_db.rows(
        "select count(*) from jobs where kind = 'builder' and run like 'collect-%%'"
    ) == [(0,)]
    links = scratch_db.rows("select count(*) from topic_events")
    assert links == [(world.seq,)]
    assert gateway.call("GET", f"{SNAPSHOTS}/2", key=key).status == 404


def test_snapshots_leftovers_of_failed_build_are_collected(
    scratch_db: ScratchDatabase, gateway: Gateway, world: ScopeWorld, monkeypatch: Any
) -> None:
    from strandline.topics import store_publish

    before = scratch_db.rows("select count(*) from topic_nodes")
    world.add(9)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(store_publish, "fail_invalid_trees", fail)
        build(gateway)
    assert scratch_db.rows("select count(*) from topic_nodes") > before
    assert gateway.run_job("archiver")["builds_collected"] == 1
    assert scratch_db.rows("select count(*) from topic_nodes") == before
    assert gateway.run_job("archiver") == {}, "nothing is due"
    assert build(gateway)["versions_taken"] == 9


def test_snapshots_build_trigger_shows_state(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    key: str,
    world: ScopeWorld,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = gateway.call("GET", TOPICS, key=key).body
    assert (idle["active_version"], idle["waiting_scopes"], idle["due_at"]) == (3, 0, None)
    world.add(5)
    state = gateway.call("GET", TOPICS, key=key).body
    assert (state["waiting_scopes"], state["waiting_versions"]) == (1, 5)
    assert state["next_build"] == {"shards": 1, "scopes": 1, "versions": 5}
    access = gateway.database.connect_as(Caller.background("acme"))
    with monkeypatch.context() as bounds:
        bounds.setattr(build_limits, "MAX_VERSIONS_WITH_MODEL", 2)
        now = datetime.now(UTC)
        assert (
            snapshot_admin.describe_index_state(access, now, has_model=True).next_build.versions
            == 2
        )
        assert (
            snapshot_admin.describe_index_state(access, now, has_model=False).next_build.versions
            == 5
        )
    assert state["scopes"][0]["scope_id"] == str(world.scope_id)
    assert state["scopes"][0]["position"] == 36
    started = gateway.call("POST", "/api/v1/admin/jobs/builder", key=key)
    assert started.status == 202
    running = gateway.call("GET", TOPICS, key=key).body["running_job_id"]
    assert running == started.body["job_id"]
    assert scratch_db.rows("select count(*) from snapshots") == [(3,)]
