"""Erasure races everybody: nothing dangles, and nothing is brought back."""

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from strandline.erasure import erase_events, eraser, store
from strandline.local.aws import LocalAws
from tests.prove.erasure_race import Race
from tests.prove.erasure_stores import empty_bucket
from tests.support import Gateway, ScratchDatabase

SEEDS, SAMPLE_SEEDS = 300, 1
REVEALING = 3
"""A seed that always runs: an erasure meets a fold."""


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs beside the last runs of the job."""
    for wait in ("_REQUEST_WAIT", "_VACUUM_SPACING"):
        monkeypatch.setattr(eraser, wait, timedelta(0))


def test_erasure_race_leaves_nothing_dangling(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    proof_size: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erase_events, "EVENTS_AT_ONCE", 3)
    seeds = SEEDS if proof_size(SEEDS) == SEEDS else SAMPLE_SEEDS
    for seed in range(REVEALING, REVEALING + seeds):
        assert Race(plenty, scratch_db, aws, seed).race() == [], seed
        print(f"seed {seed}", flush=True)
        empty_bucket(aws)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_erasure_race_drops_decisions_of_waiting_scope(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    is_forgotten: bool,
) -> None:
    """Teeth: where the decisions of a scope that waits stay, the same steps bring its text back."""

    def forget(*_: object) -> store.DroppedChainDecisions:
        return store.DroppedChainDecisions(0, [])

    if is_forgotten:
        monkeypatch.setattr(store, "delete_decisions_of_unfolded_chains", forget)
    race, dice = Race(gateway, scratch_db, aws, 1), random.Random(1)
    for n in range(1, 5):
        race.append(dice, n)
    race.fold_and_drop()
    query = "select 1 from decisions where event_id <> %s and strpos(body::text, %s) > 0"
    n = next(n for n, id_ in race.ids.items() if scratch_db.rows(query, id_, race.word(n)))
    race.erase(n)
    assert race.settle() == ([f"{n} is back"] if is_forgotten else [])
