"""Recalls folded into warmth: each once, whatever is doubled, shuffled, late or done at once."""

import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline.chains import fold_recalls_into_heat, store_recalls
from strandline.chains.fold_recalls_into_heat import (
    RETENTION,
    delete_old_recalls,
    fold_tenant_recalls_into_heat,
    list_due_tenants,
    recompute_heat_times,
)
from strandline.chains.heat import (
    HeatInputs,
    StrengthAndAccessTimes,
    apply_recalls,
    compute_cold_at,
    compute_promote_until,
)
from strandline.db.database import Caller, Database, TenantDb
from strandline.tenants import store_tuning
from strandline.tuning import DEFAULTS
from tests.strandline.chains.chain_rows import CREATED_AT, insert_chains
from tests.support import ScratchDatabase

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = CREATED_AT + 30 * DAY
WARM = HeatInputs(0.9, 0.5, 1.0, CREATED_AT)


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    """As the application."""
    connection = Database(scratch_db.url)
    yield connection
    connection.close()


@pytest.fixture
def acme(database: Database) -> TenantDb:
    """Background work in one tenant."""
    return database.connect_as(Caller.background("acme"))


def uses(base: ScratchDatabase, tenant: str = "acme") -> dict[UUID, StrengthAndAccessTimes]:
    """What recalls made of each chain so far."""
    rows = base.rows(
        "select chain_id, strength, boosted_at, accessed_at from chains where tenant_id = %s",
        tenant,
    )
    return {chain_id: StrengthAndAccessTimes(*use) for chain_id, *use in rows}


def moments(base: ScratchDatabase) -> list[tuple[datetime, datetime]]:
    """Each chain's cold_at and promote_until as stored, less what they ought to be by Python."""
    return base.rows("select cold_at, promote_until from chains order by chain_id")


def due_moments(base: ScratchDatabase, tuning: Any = DEFAULTS) -> list[tuple[datetime, datetime]]:
    """Each chain's cold_at and promote_until as Python says."""
    rows = base.rows(
        "select importance, density, strength, accessed_at from chains order by chain_id"
    )
    states = [HeatInputs(*row) for row in rows]
    return [
        (compute_cold_at(state, tuning), compute_promote_until(state, tuning)) for state in states
    ]


def test_fold_recalls_records_each_recall_once(scratch_db: ScratchDatabase, acme: TenantDb) -> None:
    chains = insert_chains(scratch_db, [WARM, WARM])
    recall_id = uuid.uuid4()
    assert store_recalls.record_recalled_chains(acme, recall_id, chains, CREATED_AT) == 2
    assert (
        store_recalls.record_recalled_chains(acme, recall_id, [*chains, *chains], CREATED_AT + DAY)
        == 0
    )
    assert store_recalls.record_recalled_chains(acme, uuid.uuid4(), [], CREATED_AT) == 0
    assert scratch_db.rows("select count(*), max(recalled_at) from recalls") == [(2, CREATED_AT)]


@pytest.mark.parametrize("way", ["chains", "events", "events beside what must last"])
def test_fold_recalls_records_with_asynchronous_commit(
    scratch_db: ScratchDatabase, database: Database, way: str
) -> None:
    """Unless a row that must not be lost is in its transaction."""
    chains = insert_chains(scratch_db, [WARM])
    alice = database.connect_as(Caller("acme", ("user:alice",)))
    with alice.transaction():
        alice.execute("set local synchronous_commit to on", {})
        if way == "chains":
            store_recalls.record_recalled_chains(alice, uuid.uuid4(), chains, CREATED_AT)
        elif way == "events":
            store_recalls.record_recalled_events(alice, uuid.uuid4(), [uuid.uuid4()], CREATED_AT)
        else:
            use = store_recalls.make_recalled_events_insert(
                alice, uuid.uuid4(), [uuid.uuid4()], CREATED_AT
            )
            alice.fetch(use.row_type, use.statement, use.params)
        (row,) = alice.fetch(
            _Setting, "select current_setting('synchronous_commit') as synchronous_commit", {}
        )
    assert row.synchronous_commit == ("off" if way in ("chains", "events") else "on")


@dataclass(frozen=True)
class _Setting:
    synchronous_commit: str


def test_fold_recalls_raises_heat_and_moves_due_times(
    scratch_db: ScratchDatabase, acme: TenantDb
) -> None:
    ((chain_id, *_),) = chains = insert_chains(scratch_db, [WARM])
    ((cold_before, promote_before),) = moments(scratch_db)
    store_recalls.record_recalled_chains(acme, uuid.uuid4(), chains, CREATED_AT + 6 * DAY)
    assert fold_tenant_recalls_into_heat(acme, NOW, 10, DEFAULTS) == 1
    assert uses(scratch_db) == {
        chain_id: StrengthAndAccessTimes(1.5, CREATED_AT + 6 * DAY, CREATED_AT + 6 * DAY)
    }
    ((cold, promote),) = moments(scratch_db)
    assert moments(scratch_db) == due_moments(scratch_db)
    assert cold - cold_before == 6 * DAY  # seven days from now: heat is under 0.1 before
    assert promote > promote_before + 6 * DAY
    assert scratch_db.rows("select folded_at from recalls") == [(NOW,)]
    assert fold_tenant_recalls_into_heat(acme, NOW, 10, DEFAULTS) == 0


@pytest.mark.parametrize("seed", range(10))
def test_fold_recalls_ignores_duplicates_and_order(
    scratch_db: ScratchDatabase, acme: TenantDb, seed: int
) -> None:
    """Recorded up to three times in any order, folded whenever: as Python makes of the set, if no
    fold came before an earlier recall was recorded."""
    chance = random.Random(seed)
    chains = insert_chains(
        scratch_db, [WARM._replace(importance=chance.random()) for _ in range(6)]
    )
    requests = [
        (uuid.UUID(int=chance.getrandbits(128)), CREATED_AT + chance.randrange(14 * 24) * HOUR)
        for _ in range(40)
    ]
    chains_of_recall = {
        recall_id: chance.sample(chains, chance.randint(1, 4)) for recall_id, _ in requests
    }
    for week in (0, 1):  # of each week in any order, the weeks one after the other
        late = [one for one in requests if (one[1] - CREATED_AT).days // 7 == week]
        deliveries = [one for one in late for _ in range(chance.randint(1, 3))]
        chance.shuffle(deliveries)
        for recall_id, at in deliveries:
            store_recalls.record_recalled_chains(acme, recall_id, chains_of_recall[recall_id], at)
        while fold_tenant_recalls_into_heat(acme, NOW, chance.randint(1, 3), DEFAULTS):
            pass
    expected = {
        chain[0]: apply_recalls(
            StrengthAndAccessTimes(1.0, None, CREATED_AT),
            [at for one, at in requests if chain in chains_of_recall[one]],
            DEFAULTS,
        )
        for chain in chains
    }
    result = uses(scratch_db)
    assert {c: use[1:] for c, use in result.items()} == {c: use[1:] for c, use in expected.items()}
    for chain_id, use in expected.items():
        assert result[chain_id].strength == pytest.approx(use.strength, rel=1e-12)
    for (cold, promote), (our_cold, our_promote) in zip(
        moments(scratch_db), due_moments(scratch_db), strict=True
    ):
        assert abs(cold - our_cold) < HOUR / 10**6
        assert abs(promote - our_promote) < HOUR / 10**6


def test_fold_recalls_concurrently_counts_each_once(
    scratch_db: ScratchDatabase, database: Database, acme: TenantDb
) -> None:
    chains = insert_chains(scratch_db, [WARM] * 30)
    folds: list[int] = []
    gate = threading.Barrier(4)

    def folder() -> None:
        access = database.connect_as(Caller.background("acme"))
        gate.wait()
        while result := fold_tenant_recalls_into_heat(access, NOW, 7, DEFAULTS):
            folds.append(result)

    for day in range(3):
        store_recalls.record_recalled_chains(acme, uuid.uuid4(), chains, CREATED_AT + day * DAY)
    threads = [threading.Thread(target=folder) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {use.strength for use in uses(scratch_db).values()} == {1.5**3}
    assert sum(folds) == 30
    assert scratch_db.rows("select count(*) from recalls where folded_at is null") == [(0,)]


def second_folder_waits(base: ScratchDatabase, database: Database) -> float:
    """A fold begins while another is not committed yet, and a further recall came in between;
    gives the strength after both."""
    chains = insert_chains(base, [WARM])
    acme = database.connect_as(Caller.background("acme"))
    store_recalls.record_recalled_chains(acme, uuid.uuid4(), chains, CREATED_AT)

    def second() -> None:
        access = database.connect_as(Caller.background("acme"))
        store_recalls.record_recalled_chains(access, uuid.uuid4(), chains, CREATED_AT + DAY)
        fold_tenant_recalls_into_heat(access, NOW, 10, DEFAULTS)

    with acme.transaction():
        store_recalls.fold_recalls_into_chains(
            acme, store_recalls.lock_chains_with_unfolded_recalls(acme, 10), NOW, DEFAULTS
        )
        thread = threading.Thread(target=second)
        thread.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while base.rows(waiting) == [(0,)]:
            pass
    thread.join()
    ((strength,),) = base.rows("select strength from chains")
    return strength


def test_fold_recalls_second_worker_continues_from_first(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    assert second_folder_waits(scratch_db, database) == 1.5**2


def test_fold_recalls_without_chain_lock_loses_strength(
    scratch_db: ScratchDatabase, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teeth."""
    contents = store_recalls.lock_chains_with_unfolded_recalls

    def unheld(access: TenantDb, limit: int) -> list[UUID]:
        return [chain_id for (chain_id,) in scratch_db.rows("select chain_id from chains")]

    def fold_unheld(access: TenantDb, now: datetime, limit: int, tuning: Any) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(store_recalls, "lock_chains_with_unfolded_recalls", unheld)
            return fold_recalls_into_heat.fold_tenant_recalls_into_heat(access, now, limit, tuning)

    monkeypatch.setitem(globals(), "fold_tenant_recalls_into_heat", fold_unheld)
    assert second_folder_waits(scratch_db, database) == 1.5
    assert store_recalls.lock_chains_with_unfolded_recalls is contents


def test_fold_recalls_late_recall_adds_no_strength(
    scratch_db: ScratchDatabase, acme: TenantDb
) -> None:
    chains = insert_chains(scratch_db, [WARM])
    for day in (5, 1, 3):
        store_recalls.record_recalled_chains(acme, uuid.uuid4(), chains, CREATED_AT + day * DAY)
        fold_tenant_recalls_into_heat(acme, NOW, 10, DEFAULTS)
    (use,) = uses(scratch_db).values()
    assert use == StrengthAndAccessTimes(1.5, CREATED_AT + 5 * DAY, CREATED_AT + 5 * DAY)


def test_fold_recalls_leaves_other_tenant_alone(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    for tenant in ("acme", "globex"):
        access = database.connect_as(Caller.background(tenant))
        store_recalls.record_recalled_chains(
            access, uuid.uuid4(), insert_chains(scratch_db, [WARM], tenant), CREATED_AT
        )
    assert (
        fold_tenant_recalls_into_heat(
            database.connect_as(Caller.background("acme")), NOW, 10, DEFAULTS
        )
        == 1
    )
    assert [use.strength for use in uses(scratch_db).values()] == [1.5]
    assert [use.strength for use in uses(scratch_db, "globex").values()] == [1.0]


def test_fold_recalls_prunes_after_retention(scratch_db: ScratchDatabase, acme: TenantDb) -> None:
    chains = insert_chains(scratch_db, [WARM] * 3)
    for day in range(4):
        store_recalls.record_recalled_chains(acme, uuid.uuid4(), chains, CREATED_AT + day * DAY)
        fold_tenant_recalls_into_heat(acme, CREATED_AT + day * DAY, 10, DEFAULTS)
    store_recalls.record_recalled_chains(
        acme, uuid.uuid4(), chains, CREATED_AT
    )  # waits: it stays, however old
    assert delete_old_recalls(acme, CREATED_AT + 2 * DAY, 4) == 4
    assert delete_old_recalls(acme, CREATED_AT + 2 * DAY, 4) == 2
    assert delete_old_recalls(acme, CREATED_AT + 2 * DAY, 4) == 0
    assert scratch_db.rows("select count(*), count(folded_at) from recalls") == [(9, 6)]
    assert {use.strength for use in uses(scratch_db).values()} == {1.5**4}


def test_fold_recalls_of_dropped_chain_block_no_other(
    scratch_db: ScratchDatabase, database: Database, acme: TenantDb
) -> None:
    """A chain that is dropped comes back under its id when its scope is folded again."""
    there, missing = sorted(insert_chains(scratch_db, [WARM] * 2), reverse=True)
    recompute_heat_times(acme, 5, DEFAULTS)
    for at in (CREATED_AT, CREATED_AT + DAY):
        store_recalls.record_recalled_chains(acme, uuid.uuid4(), [missing, there], at)
    scratch_db.rows(
        "with kept as (delete from chains where chain_id = %s)"
        " delete from chain_versions where chain_id = %s",
        missing[0],
        missing[0],
    )
    assert fold_tenant_recalls_into_heat(acme, NOW, 1, DEFAULTS) == 1
    assert fold_tenant_recalls_into_heat(acme, NOW, 1, DEFAULTS) == 0
    assert uses(scratch_db)[there[0]].strength == 1.5**2
    assert list_due_tenants(database.connection(), DEFAULTS, NOW) == []
    assert delete_old_recalls(acme, CREATED_AT + HOUR, 5) == 1
    assert scratch_db.rows("select chain_id from recalls where folded_at is null") == [
        (missing[0],)
    ]


# Settings that change -----------------------------------------------------------------------------


def through(access: TenantDb, limit: int, tuning: Any) -> list[int]:
    """Go through all chains; gives how many each time."""
    results = [recompute_heat_times(access, limit, tuning)]
    while results[-1] == limit:
        results.append(recompute_heat_times(access, limit, tuning))
    return results


def test_fold_recalls_moves_heat_times_with_tuning(
    scratch_db: ScratchDatabase, acme: TenantDb
) -> None:
    chance = random.Random(5)
    insert_chains(
        scratch_db,
        [HeatInputs(chance.random(), chance.random(), 1.5, CREATED_AT) for _ in range(7)],
    )
    before = moments(scratch_db)
    assert through(acme, 3, DEFAULTS) == [3, 3, 1]
    assert moments(scratch_db) == before
    assert through(acme, 3, DEFAULTS) == [0]
    slower = DEFAULTS.with_overrides({"heat_hours": 240.0, "archive_days": 1.0})
    assert through(acme, 7, slower) == [7, 0]
    assert moments(scratch_db) == due_moments(scratch_db, slower)
    assert moments(scratch_db) != before
    assert through(acme, 3, slower.with_overrides({"window_events": 5})) == [0]


def test_fold_recalls_restarts_heat_times_on_change(
    scratch_db: ScratchDatabase, acme: TenantDb
) -> None:
    insert_chains(scratch_db, [WARM] * 6)
    slow, slower = (DEFAULTS.with_overrides({"heat_hours": hours}) for hours in (100.0, 200.0))
    assert recompute_heat_times(acme, 4, slow) == 4
    assert through(acme, 4, slower) == [4, 2]
    assert moments(scratch_db) == due_moments(scratch_db, slower)


def test_fold_recalls_lists_due_tenants(
    scratch_db: ScratchDatabase, database: Database, acme: TenantDb
) -> None:
    connection = database.connection()

    def recall_names(now: datetime = NOW, deployment: Any = DEFAULTS) -> list[str]:
        return list_due_tenants(connection, deployment, now)

    insert_chains(scratch_db, [WARM], "globex")
    chains = insert_chains(scratch_db, [WARM])
    assert sorted(recall_names()) == ["acme", "globex"]  # their settings were never gone by
    for tenant in ("acme", "globex"):
        through(database.connect_as(Caller.background(tenant)), 5, DEFAULTS)
    assert recall_names() == []
    store_recalls.record_recalled_chains(acme, uuid.uuid4(), chains, CREATED_AT)
    assert recall_names() == ["acme"]
    fold_tenant_recalls_into_heat(acme, NOW, 5, DEFAULTS)
    assert recall_names() == []
    assert recall_names(NOW + RETENTION + HOUR) == ["acme"]
    delete_old_recalls(acme, NOW + HOUR, 5)
    assert recall_names(NOW + RETENTION + HOUR) == []
    with acme.transaction():
        store_tuning.set_tuning_overrides(acme, {"window_events": 5})
    assert recall_names() == []
    with acme.transaction():
        store_tuning.set_tuning_overrides(acme, {"heat_hours": 100.0, "window_events": 5})
    assert recall_names() == ["acme"]
    through(acme, 5, store_tuning.read_tuning(acme, DEFAULTS))
    assert recall_names() == []
    slower = DEFAULTS.with_overrides({"heat_hours": 50.0})
    assert recall_names(deployment=slower) == ["globex"]  # acme has its own
    cooler = DEFAULTS.with_overrides({"freezing": 0.05})
    assert sorted(recall_names(deployment=cooler)) == ["acme", "globex"]
