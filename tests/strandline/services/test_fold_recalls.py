"""Recalls folded into warmth: each once, whatever is doubled, shuffled, late or done at once."""

import random
import threading
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline.chains import fold_recalls, store_recalls
from strandline.chains.fold_recalls import KEPT, due, fold, prune, rewarm
from strandline.chains.heat import State, Use, cold_at, promote_until, recalled
from strandline.db.database import Access, Asker, Database
from strandline.tenants import store as tenants_store
from strandline.tuning import DEFAULTS
from tests.strandline.services.laid_chains import MADE, lay_chains
from tests.support import Base

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = MADE + 30 * DAY
WARM = State(0.9, 0.5, 1.0, MADE)


@pytest.fixture
def database(base: Base) -> Iterator[Database]:
    """As the application."""
    opened = Database(base.url)
    yield opened
    opened.close()


@pytest.fixture
def acme(database: Database) -> Access:
    """Background work in one tenant."""
    return database.access(Asker.background("acme"))


def uses(base: Base, tenant: str = "acme") -> dict[UUID, Use]:
    """What recalls made of each chain so far."""
    found = base.rows(
        "select chain_id, strength, boosted_at, accessed_at from chains where tenant_id = %s",
        tenant,
    )
    return {chain_id: Use(*use) for chain_id, *use in found}


def moments(base: Base) -> list[tuple[datetime, datetime]]:
    """Each chain's cold_at and promote_until as stored, less what they ought to be by Python."""
    return base.rows("select cold_at, promote_until from chains order by chain_id")


def due_moments(base: Base, tuning: Any = DEFAULTS) -> list[tuple[datetime, datetime]]:
    """Each chain's cold_at and promote_until as Python says."""
    found = base.rows(
        "select importance, density, strength, accessed_at from chains order by chain_id"
    )
    states = [State(*row) for row in found]
    return [(cold_at(state, tuning), promote_until(state, tuning)) for state in states]


def test_a_recall_is_recorded_once(base: Base, acme: Access) -> None:
    chains = lay_chains(base, [WARM, WARM])
    recall_id = uuid.uuid4()
    assert store_recalls.record(acme, recall_id, chains, MADE) == 2
    assert store_recalls.record(acme, recall_id, [*chains, *chains], MADE + DAY) == 0
    assert store_recalls.record(acme, uuid.uuid4(), [], MADE) == 0
    assert base.rows("select count(*), max(recalled_at) from recalls") == [(2, MADE)]


def test_a_recall_makes_a_chain_warmer_and_moves_its_moments(base: Base, acme: Access) -> None:
    ((chain_id, *_),) = chains = lay_chains(base, [WARM])
    ((cold_before, promote_before),) = moments(base)
    store_recalls.record(acme, uuid.uuid4(), chains, MADE + 6 * DAY)
    assert fold(acme, NOW, 10, DEFAULTS) == 1
    assert uses(base) == {chain_id: Use(1.5, MADE + 6 * DAY, MADE + 6 * DAY)}
    ((cold, promote),) = moments(base)
    assert moments(base) == due_moments(base)
    assert cold - cold_before == 6 * DAY  # seven days from now: heat is under 0.1 before
    assert promote > promote_before + 6 * DAY
    assert base.rows("select folded_at from recalls") == [(NOW,)]
    assert fold(acme, NOW, 10, DEFAULTS) == 0


@pytest.mark.parametrize("seed", range(10))
def test_deliveries_doubled_and_shuffled_give_the_same(base: Base, acme: Access, seed: int) -> None:
    """Recorded up to three times in any order, folded whenever: as Python makes of the set, if no
    fold came before an earlier recall was recorded."""
    chance = random.Random(seed)
    chains = lay_chains(base, [WARM._replace(importance=chance.random()) for _ in range(6)])
    asked = [
        (uuid.UUID(int=chance.getrandbits(128)), MADE + chance.randrange(14 * 24) * HOUR)
        for _ in range(40)
    ]
    given = {recall_id: chance.sample(chains, chance.randint(1, 4)) for recall_id, _ in asked}
    for week in (0, 1):  # of each week in any order, the weeks one after the other
        late = [one for one in asked if (one[1] - MADE).days // 7 == week]
        deliveries = [one for one in late for _ in range(chance.randint(1, 3))]
        chance.shuffle(deliveries)
        for recall_id, at in deliveries:
            store_recalls.record(acme, recall_id, given[recall_id], at)
        while fold(acme, NOW, chance.randint(1, 3), DEFAULTS):
            pass
    expected = {
        chain[0]: recalled(
            Use(1.0, None, MADE), [at for one, at in asked if chain in given[one]], DEFAULTS
        )
        for chain in chains
    }
    found = uses(base)
    assert {c: use[1:] for c, use in found.items()} == {c: use[1:] for c, use in expected.items()}
    for chain_id, use in expected.items():
        assert found[chain_id].strength == pytest.approx(use.strength, rel=1e-12)
    for (cold, promote), (our_cold, our_promote) in zip(
        moments(base), due_moments(base), strict=True
    ):
        assert abs(cold - our_cold) < HOUR / 10**6
        assert abs(promote - our_promote) < HOUR / 10**6


def test_many_at_once_fold_each_recall_once(base: Base, database: Database, acme: Access) -> None:
    chains = lay_chains(base, [WARM] * 30)
    folded: list[int] = []
    gate = threading.Barrier(4)

    def folder() -> None:
        access = database.access(Asker.background("acme"))
        gate.wait()
        while done := fold(access, NOW, 7, DEFAULTS):
            folded.append(done)

    for day in range(3):
        store_recalls.record(acme, uuid.uuid4(), chains, MADE + day * DAY)
    threads = [threading.Thread(target=folder) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {use.strength for use in uses(base).values()} == {1.5**3}
    assert sum(folded) == 30
    assert base.rows("select count(*) from recalls where folded_at is null") == [(0,)]


def second_folder_waits(base: Base, database: Database) -> float:
    """A fold begins while another is not committed yet, and a further recall came in between;
    gives the strength after both."""
    chains = lay_chains(base, [WARM])
    acme = database.access(Asker.background("acme"))
    store_recalls.record(acme, uuid.uuid4(), chains, MADE)

    def second() -> None:
        access = database.access(Asker.background("acme"))
        store_recalls.record(access, uuid.uuid4(), chains, MADE + DAY)
        fold(access, NOW, 10, DEFAULTS)

    with acme.transaction():
        store_recalls.fold(acme, store_recalls.hold_recalled(acme, 10), NOW, DEFAULTS)
        thread = threading.Thread(target=second)
        thread.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while base.rows(waiting) == [(0,)]:
            pass
    thread.join()
    ((strength,),) = base.rows("select strength from chains")
    return strength


def test_who_folds_second_goes_on_from_the_first(base: Base, database: Database) -> None:
    assert second_folder_waits(base, database) == 1.5**2


def test_without_the_chains_lock_strength_is_lost(
    base: Base, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teeth."""
    held = store_recalls.hold_recalled

    def unheld(access: Access, limit: int) -> list[UUID]:
        return [chain_id for (chain_id,) in base.rows("select chain_id from chains")]

    def fold_unheld(access: Access, now: datetime, limit: int, tuning: Any) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(store_recalls, "hold_recalled", unheld)
            return fold_recalls.fold(access, now, limit, tuning)

    monkeypatch.setitem(globals(), "fold", fold_unheld)
    assert second_folder_waits(base, database) == 1.5
    assert store_recalls.hold_recalled is held


def test_a_late_recall_counts_for_access_and_never_for_more(base: Base, acme: Access) -> None:
    chains = lay_chains(base, [WARM])
    for day in (5, 1, 3):
        store_recalls.record(acme, uuid.uuid4(), chains, MADE + day * DAY)
        fold(acme, NOW, 10, DEFAULTS)
    (use,) = uses(base).values()
    assert use == Use(1.5, MADE + 5 * DAY, MADE + 5 * DAY)


def test_another_tenants_recalls_are_left_alone(base: Base, database: Database) -> None:
    for tenant in ("acme", "globex"):
        access = database.access(Asker.background(tenant))
        store_recalls.record(access, uuid.uuid4(), lay_chains(base, [WARM], tenant), MADE)
    assert fold(database.access(Asker.background("acme")), NOW, 10, DEFAULTS) == 1
    assert [use.strength for use in uses(base).values()] == [1.5]
    assert [use.strength for use in uses(base, "globex").values()] == [1.0]


def test_folded_recalls_go_after_their_time(base: Base, acme: Access) -> None:
    chains = lay_chains(base, [WARM] * 3)
    for day in range(4):
        store_recalls.record(acme, uuid.uuid4(), chains, MADE + day * DAY)
        fold(acme, MADE + day * DAY, 10, DEFAULTS)
    store_recalls.record(acme, uuid.uuid4(), chains, MADE)  # waits: it stays, however old
    assert prune(acme, MADE + 2 * DAY, 4) == 4
    assert prune(acme, MADE + 2 * DAY, 4) == 2
    assert prune(acme, MADE + 2 * DAY, 4) == 0
    assert base.rows("select count(*), count(folded_at) from recalls") == [(9, 6)]
    assert {use.strength for use in uses(base).values()} == {1.5**4}


def test_recalls_of_a_chain_that_is_gone_wait_for_it_and_hold_up_none(
    base: Base, database: Database, acme: Access
) -> None:
    """A chain that is dropped comes back under its id when its scope is folded again."""
    there, gone = sorted(lay_chains(base, [WARM] * 2), reverse=True)
    rewarm(acme, 5, DEFAULTS)
    for at in (MADE, MADE + DAY):
        store_recalls.record(acme, uuid.uuid4(), [gone, there], at)
    base.rows(
        "with kept as (delete from chains where chain_id = %s)"
        " delete from chain_versions where chain_id = %s",
        gone[0],
        gone[0],
    )
    assert fold(acme, NOW, 1, DEFAULTS) == 1
    assert fold(acme, NOW, 1, DEFAULTS) == 0
    assert uses(base)[there[0]].strength == 1.5**2
    assert due(database.connection(), DEFAULTS, NOW) == []
    assert prune(acme, MADE + HOUR, 5) == 1
    assert base.rows("select chain_id from recalls where folded_at is null") == [(gone[0],)]


# Settings that change -----------------------------------------------------------------------------


def through(access: Access, limit: int, tuning: Any) -> list[int]:
    """Go through all chains; gives how many each time."""
    done = [rewarm(access, limit, tuning)]
    while done[-1] == limit:
        done.append(rewarm(access, limit, tuning))
    return done


def test_moments_follow_the_settings(base: Base, acme: Access) -> None:
    chance = random.Random(5)
    lay_chains(base, [State(chance.random(), chance.random(), 1.5, MADE) for _ in range(7)])
    before = moments(base)
    assert through(acme, 3, DEFAULTS) == [3, 3, 1]
    assert moments(base) == before
    assert through(acme, 3, DEFAULTS) == [0]
    slower = DEFAULTS.with_overrides({"heat_hours": 240.0, "archive_days": 1.0})
    assert through(acme, 7, slower) == [7, 0]
    assert moments(base) == due_moments(base, slower)
    assert moments(base) != before
    assert through(acme, 3, slower.with_overrides({"window_events": 5})) == [0]


def test_another_change_on_the_way_begins_again(base: Base, acme: Access) -> None:
    lay_chains(base, [WARM] * 6)
    slow, slower = (DEFAULTS.with_overrides({"heat_hours": hours}) for hours in (100.0, 200.0))
    assert rewarm(acme, 4, slow) == 4
    assert through(acme, 4, slower) == [4, 2]
    assert moments(base) == due_moments(base, slower)


def test_whoever_has_something_due_is_named(base: Base, database: Database, acme: Access) -> None:
    connection = database.connection()

    def named(now: datetime = NOW, deployment: Any = DEFAULTS) -> list[str]:
        return due(connection, deployment, now)

    lay_chains(base, [WARM], "globex")
    chains = lay_chains(base, [WARM])
    assert sorted(named()) == ["acme", "globex"]  # their settings were never gone by
    for tenant in ("acme", "globex"):
        through(database.access(Asker.background(tenant)), 5, DEFAULTS)
    assert named() == []
    store_recalls.record(acme, uuid.uuid4(), chains, MADE)
    assert named() == ["acme"]
    fold(acme, NOW, 5, DEFAULTS)
    assert named() == []
    assert named(NOW + KEPT + HOUR) == ["acme"]
    prune(acme, NOW + HOUR, 5)
    assert named(NOW + KEPT + HOUR) == []
    with acme.transaction():
        tenants_store.set_tuned(acme, {"window_events": 5})
    assert named() == []
    with acme.transaction():
        tenants_store.set_tuned(acme, {"heat_hours": 100.0, "window_events": 5})
    assert named() == ["acme"]
    through(acme, 5, tenants_store.tuning_of(acme, DEFAULTS))
    assert named() == []
    slower = DEFAULTS.with_overrides({"heat_hours": 50.0})
    assert named(deployment=slower) == ["globex"]  # acme has its own
    cooler = DEFAULTS.with_overrides({"freezing": 0.05})
    assert sorted(named(deployment=cooler)) == ["acme", "globex"]
