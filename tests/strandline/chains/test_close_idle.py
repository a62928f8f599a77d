"""Closing lanes in which nobody speaks: one scope's failure holds up no other."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import fold_scope as chains_fold_scope
from strandline.chains import store_fold_progress
from strandline.db.database import Caller, Database, TenantDb
from strandline.jobs import store_sweeps
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import ALICE, EchoTasks, append, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import Gateway, ScratchDatabase

LATER = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture
def worker(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), EchoTasks())
    database.close()


def speak(
    gateway: Gateway, base: ScratchDatabase, worker: WorkerResources, *agents: str
) -> list[UUID]:
    """A scope with one open lane for each agent, folded to its end."""
    key = gateway.key()
    set_tuning(base)
    scopes = [
        UUID(
            append(
                gateway,
                key,
                [
                    {
                        "participants": [ALICE, agent],
                        "role": "user",
                        "speaker": ALICE,
                        "content": "harbour mooring berth jetty",
                    }
                ],
            )[0]
        )
        for agent in agents
    ]
    process_due(worker)
    return scopes


def crowd(base: ScratchDatabase, scope: UUID, count: int) -> None:
    """So many lanes more, idle for longer than any other."""
    base.rows(
        "insert into lanes (tenant_id, scope_id, session_id, participants, folded_seq, open,"
        " idle_at) select tenant_id, scope_id, 'lane ' || n, participants, last_seq,"
        " jsonb_build_object('after', 0, 'user', null), '2020-01-01'"
        " from scopes, generate_series(1, %s) n where scope_id = %s",
        count,
        scope,
    )


def test_close_idle_failing_scope_starves_no_other(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad, good = speak(gateway, scratch_db, worker, "agent:bad", "agent:good")
    crowd(scratch_db, bad, 1500)
    attempts: list[UUID] = []
    real = chains_fold_scope.fold_scope

    def form(worker: WorkerResources, access: TenantDb, scope_id: UUID, now: datetime) -> Any:
        attempts.append(scope_id)
        if scope_id == bad:
            raise RuntimeError("the words of a memory")
        return real(worker, access, scope_id, now)

    monkeypatch.setattr(chains_fold_scope, "fold_scope", form)
    assert chains_fold_scope.close_idle_lanes(worker, "acme", LATER) == 1
    assert scratch_db.rows("select scope_id from chains") == [(good,)]
    assert attempts.count(bad) == 1, "what failed is tried once a sweep, whatever waits in it"
    assert worker.tally.failures == 1


def test_close_idle_closes_several_pages_in_one_sweep(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (scope,) = speak(gateway, scratch_db, worker, "agent:one")
    monkeypatch.setattr(chains_fold_scope, "_IDLE_LANES_PER_PAGE", 7)
    monkeypatch.setattr(chains_fold_scope, "_LANES_PER_SCOPE", 2)
    key = gateway.key()
    events = [
        {
            "participants": [ALICE, "agent:one"],
            "role": "user",
            "speaker": ALICE,
            "content": "harbour mooring",
            "session_id": f"s-{n}",
        }
        for n in range(30)
    ]
    append(gateway, key, events)
    process_due(worker)
    assert chains_fold_scope.close_idle_lanes(worker, "acme", LATER) == 31
    assert scratch_db.rows("select count(*) from lanes") == [(0,)]
    assert scratch_db.rows("select count(*), count(distinct event_id) from chain_events") == [
        (31, 31)
    ]
    assert scope


def test_close_idle_alternates_between_scopes(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page holds many lanes of one scope and one of another's: that one comes second."""
    many, other = speak(gateway, scratch_db, worker, "agent:many", "agent:other")
    crowd(scratch_db, many, 100)
    turns: list[UUID] = []

    def closed(worker: WorkerResources, access: TenantDb, scope_id: UUID, *_: object) -> int:
        turns.append(scope_id)
        return 0

    monkeypatch.setattr(chains_fold_scope, "_close_idle_lanes_of_scope", closed)
    chains_fold_scope.close_idle_lanes(worker, "acme", LATER)
    assert turns[:2] == [many, other]
    assert turns.count(many) == 6  # of 20 at most, of 101


def test_close_idle_skips_scopes_not_fully_folded(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    """Nor do they make a tenant one to be swept."""
    (scope,) = speak(gateway, scratch_db, worker, "agent:one")
    access = worker.database.connect_as(Caller.background("acme"))
    space = worker.embedder.space
    scratch_db.rows("update tenants set swept_space = %s, swept_at = %s", space, LATER)
    idle = store_fold_progress.list_idle_lanes(access, LATER, None, [], 9)
    assert [lane.scope_id for lane in idle] == [scope]
    assert store_fold_progress.list_idle_lanes(access, LATER, idle[0], [], 9) == []
    assert store_fold_progress.list_idle_lanes(access, LATER, None, [scope], 9) == []
    assert store_sweeps.list_tenants_to_sweep(worker.database.connection(), space, LATER) == [
        "acme"
    ]
    scratch_db.rows("update scopes set last_seq = last_seq + 1")
    assert store_fold_progress.list_idle_lanes(access, LATER, None, [], 9) == []
    assert store_sweeps.list_tenants_to_sweep(worker.database.connection(), space, LATER) == []
