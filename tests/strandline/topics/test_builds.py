"""Builds that fail, are interrupted, overtaken or repeated: what is published stays whole."""

import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.db.database import Caller, Database, TenantDb
from strandline.topics import build_limits, store_builds, store_publish
from strandline.topics.store_publish import NewSnapshot
from tests.strandline.topics.outline import build, read_tree
from tests.strandline.topics.world import OTHERS, ScopeWorld, fail_growth_of
from tests.support import Gateway, ScratchDatabase, begin_run

NOW = datetime.now(UTC)


@pytest.fixture
def worlds(scratch_db: ScratchDatabase) -> list[ScopeWorld]:
    """Two scopes of one tenant, with a published snapshot."""
    worlds = [ScopeWorld(scratch_db), ScopeWorld(scratch_db, members=OTHERS, seed=1)]
    for world in worlds:
        world.add(20)
    return worlds


TREES = (
    "select scope_id, root_id, cutoff, position, from_version from snapshot_scopes"
    " where to_version is null order by scope_id"
)


def test_build_failure_keeps_root_and_cutoff(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build(gateway)
    before = {row[0]: row for row in scratch_db.rows(TREES)}
    for world in worlds:
        world.add(5)
    fail_growth_of(monkeypatch, worlds[0], ValueError)
    totals = build(gateway)
    assert (totals["scopes_failed"], totals["snapshots_published"], totals["jobs_done"]) == (
        1,
        1,
        1,
    )
    after = {row[0]: row for row in scratch_db.rows(TREES)}
    assert after[worlds[0].scope_id] == before[worlds[0].scope_id]
    assert after[worlds[1].scope_id][2:] == (50, 25, 2)
    assert scratch_db.rows("select scopes_failed from snapshots where version = 2") == [
        ([{"scope_id": str(worlds[0].scope_id), "reason": "ValueError"}],)
    ]
    assert scratch_db.rows("select scope_id, waiting from topic_work") == [(worlds[0].scope_id, 5)]
    key = gateway.key("acme", rights=["admin"])
    state = gateway.call("GET", "/api/v1/admin/topics", key=key).body
    assert state["failed_scopes"] == [{"scope_id": str(worlds[0].scope_id), "reason": "ValueError"}]


def test_build_worker_crash_spares_other_scopes(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib

    from strandline.local.lambda_context import LambdaContext

    fail_growth_of(monkeypatch, worlds[0], KeyboardInterrupt)
    handler: Any = importlib.import_module("functions.builder.handler").lambda_handler
    run = str(uuid.uuid4())

    def step(verb: str, **more: object) -> Any:
        event = {"verb": verb, "run": run, "input": {**more, "job": "builder"}}
        return handler(event, LambdaContext("builder", 900))

    step("plan", tenant="acme")
    with pytest.raises(KeyboardInterrupt):  # as a kill
        step("shard", tenant="acme", shard=0)
    assert scratch_db.rows("select count(*) from snapshots") == [(0,)]
    step("shard", tenant="acme", shard=0)
    totals = step("finish")
    assert (totals["scopes_failed"], totals["scopes_grown"]) == (1, 1)
    assert scratch_db.rows("select scopes_failed #>> '{0,reason}' from snapshots") == [
        ("interrupted",)
    ]


BREAKS = {
    "not_one_root": "update topic_build_scopes set tree = jsonb_set(tree, '{scope,root_slot}',"
    " to_jsonb(gen_random_uuid()))",
    "slot_not_reached": "update topic_build_scopes set tree = jsonb_set(tree, '{rows}',"
    " (tree -> 'rows') || jsonb_build_array(jsonb_build_object('slot', s, 'parent_slot', s,"
    " 'node_id', n.node_id, 'is_leaf', false, 'chain_version', null)))"
    " from gen_random_uuid() s, (select node_id from topic_nodes where kind = 'inner' limit 1) n",
    "wrong_content": "update topic_nodes set chain_version = 7 where kind = 'leaf'",
    "mixed_scopes": "update topic_events set seq = seq + 1",
    "event_under_two_leaves": "insert into topic_events select o.tenant_id, o.chain_id, e.event_id,"
    " e.scope_id, e.participants, e.seq, 1 from topic_events e join topic_events o"
    " on o.chain_id <> e.chain_id and o.scope_id = e.scope_id limit 1",
    "event_under_no_leaf": "update topic_build_scopes set tree = jsonb_set(tree, '{scope,cutoff}',"
    " '1000')",
    "wrong_counts": "update topic_build_scopes set tree = jsonb_set(tree, '{scope,leaf_count}',"
    " '3')",
}


@pytest.mark.parametrize("reason", BREAKS)
def test_build_does_not_publish_invalid_tree(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    """Planted: what is staged of one scope is broken before the build publishes."""
    validate = store_publish.fail_invalid_trees
    wrong = worlds[0].scope_id

    def break_first(access: TenantDb, job_id: uuid.UUID) -> Any:
        statement = BREAKS[reason]
        if "update" in statement:
            where = " and scope_id = %s" if " where kind" in statement else " where scope_id = %s"
            if "from gen_random" in statement:
                where = " where topic_build_scopes.scope_id = %s"
            params = {"wrong": wrong}
            statement += where.replace("%s", "%(wrong)s")
        else:
            statement, params = (
                statement.replace("limit 1", "where e.scope_id = %(wrong)s limit 1"),
                {"wrong": wrong},
            )
        access._transaction_connection.execute("set local role none")  # type: ignore[union-attr]
        access.execute(statement, params)  # type: ignore[arg-type]
        return validate(access, job_id)

    scratch_db.rows("grant update on topic_nodes, topic_events to strandline_app")
    monkeypatch.setattr(store_publish, "fail_invalid_trees", break_first)
    assert build(gateway)["scopes_failed"] == 1
    assert scratch_db.rows("select scopes_failed from snapshots") == [
        ([{"scope_id": str(wrong), "reason": reason}],)
    ]
    assert scratch_db.rows("select scope_id from snapshot_scopes") == [(worlds[1].scope_id,)]


def test_build_race_of_fifty_publishes_one(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    """Fifty builds of one base race, three times over."""
    ScopeWorld(scratch_db).add(8)
    assert build(gateway)["snapshots_published"] == 1
    for generation in (1, 2, 3):
        published = race(scratch_db, generation, 50)
        assert published == [generation + 1]
        assert scratch_db.rows("select version from active_snapshot") == [(generation + 1,)]
    assert scratch_db.rows("select max(version), count(*) from snapshots") == [(4, 4)]


def race(base: ScratchDatabase, base_version: int, count: int) -> list[int]:
    """Publish that many versions of the same base at once; returns those that were."""
    barrier, published = threading.Barrier(count), list[int]()

    def publish() -> None:
        with closing(Database(base.url)) as database:
            access = database.connect_as(Caller.background("acme"))
            barrier.wait()
            with access.transaction():
                version = store_publish.activate_next_version(access, base_version)
                if version is not None:
                    store_publish.insert_snapshot(
                        access,
                        NewSnapshot(version, base_version, None, None, NOW, 0, [], {}),
                    )
                    published.append(version)

    threads = [threading.Thread(target=publish) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return published


def test_build_overtaken_changes_nothing(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build(gateway)
    before = read_tree(scratch_db)
    worlds[0].add(5)
    validate = store_publish.fail_invalid_trees
    overtakers = [1, 2, 3]

    def overtake(access: TenantDb, job_id: uuid.UUID) -> Any:
        if overtakers:
            assert race(scratch_db, overtakers.pop(0), 1)
        return validate(access, job_id)

    with monkeypatch.context() as patch:
        patch.setattr(store_publish, "fail_invalid_trees", overtake)
        build(gateway)
    assert scratch_db.rows(
        "select state, reason from jobs where kind = 'builder' order by created_at desc limit 1"
    ) == [("failed", "overtaken")]
    assert [row[:8] for row in read_tree(scratch_db)] == before
    assert scratch_db.rows("select waiting from topic_work") == [(5,)]
    assert build(gateway)["snapshots_published"] == 1


def test_build_divides_scopes_and_last_shard_publishes(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_limits, "SCOPES_PER_SHARD", 2)
    worlds = [ScopeWorld(scratch_db, members=(f"user:u{n}",), seed=n) for n in range(7)]
    for world in worlds:
        world.add(4)
    totals = build(gateway)
    assert (totals["scopes_grown"], totals["snapshots_published"]) == (7, 1)
    assert scratch_db.rows("select count(*) from job_shards where state = 'done'") == [(4,)]
    query = (
        "select count(*) from topic_tree t join topic_tree p on p.slot = t.parent_slot"
        " where p.scope_id <> t.scope_id"
    )
    assert scratch_db.rows(query) == [(0,)]
    assert scratch_db.rows("select count(*) from snapshot_scopes") == [(7,)]


def test_build_waits_one_day_for_vectors(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    world = ScopeWorld(scratch_db)
    world.add(6, embedded=False)
    scratch_db.rows(
        "delete from event_vectors where event_id in (select event_id from events where seq > 8)"
    )
    assert "snapshots_published" not in build(gateway)
    assert scratch_db.rows("select waiting from topic_work") == [(6,)]
    scratch_db.rows("update topic_work set oldest_at = now() - interval '25 hours'")
    assert build(gateway)["snapshots_published"] == 1
    given_up = scratch_db.rows("select count(*), min(kind) from decisions")
    assert given_up == [(4, "vector_given_up")]


def test_build_is_due_by_number_and_time(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    world = ScopeWorld(scratch_db)
    connection = gateway.database.connection()
    due: Callable[[datetime], list[Any]] = lambda at: store_builds.list_due_tenants(connection, at)  # noqa: E731
    now = datetime.now(UTC) + timedelta(minutes=1)
    world.add(19)
    assert due(now) == []
    assert [item.tenant_id for item in due(now + timedelta(minutes=16))] == ["acme"]
    world.add(1)
    assert [(item.tenant_id, item.scopes) for item in due(now)] == [("acme", 1)]
    assert build(gateway)["snapshots_published"] == 1
    assert due(now + timedelta(days=1)) == []


def test_build_lease_excludes_other_builds(
    scratch_db: ScratchDatabase, gateway: Gateway, worlds: list[ScopeWorld]
) -> None:
    assert begin_run(gateway.database, "builder", "another", 1, datetime.now(UTC))
    assert build(gateway) == {}
    assert scratch_db.rows("select count(*) from snapshots") == [(0,)]
    assert worlds[0].seq == 40
