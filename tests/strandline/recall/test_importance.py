"""Recency and importance as functions of stored use."""

import math
import random
from datetime import timedelta

import pytest

from strandline.recall.importance import (
    WINDOW_DAYS,
    compute_importance_from_daily_use,
    compute_recency,
)

DAY = timedelta(days=1)


def test_importance_is_moving_average_of_daily_use() -> None:
    assert compute_importance_from_daily_use([]) == 0
    assert compute_importance_from_daily_use(
        [(n, 1.0) for n in range(WINDOW_DAYS)]
    ) == pytest.approx(1.0)
    today = compute_importance_from_daily_use([(0, 1.0)])
    assert today == pytest.approx(0.1 / (1 - 0.9**30))
    assert compute_importance_from_daily_use([(1, 1.0)]) == pytest.approx(0.9 * today)
    assert compute_importance_from_daily_use([(0, 0.5)]) == pytest.approx(0.5 * today)
    # as the recurrence of an EWMA: a day's use, and what was before, decayed
    average, uses = 0.0, [0.2, 0.0, 1.0, 0.7]
    for use in uses:
        average = 0.9 * average + 0.1 * use
    days_ago = [(len(uses) - 1 - n, use) for n, use in enumerate(uses)]
    assert compute_importance_from_daily_use(days_ago) == pytest.approx(average / (1 - 0.9**30))


def test_importance_never_falls_with_more_use() -> None:
    chance = random.Random(1)
    for _ in range(200):
        uses = [(day, chance.random()) for day in chance.sample(range(WINDOW_DAYS), 12)]
        value = compute_importance_from_daily_use(uses)
        assert 0 <= compute_importance_from_daily_use(uses[:-1]) < value <= 1
        chance.shuffle(uses)
        assert compute_importance_from_daily_use(uses) == pytest.approx(value, abs=1e-12)


def test_importance_slows_recency_decay() -> None:
    assert compute_recency(timedelta(0), 0.0) == 1.0
    assert compute_recency(-3 * DAY, 0.0) == 1.0, "what is yet to happen counts as now"
    assert compute_recency(30 * DAY, 0.0) == pytest.approx(1 / math.e)
    assert compute_recency(300 * DAY, 1.0) == pytest.approx(1 / math.e)
    ages = [compute_recency(n * 10 * DAY, 0.2) for n in range(12)]
    assert ages == sorted(ages, reverse=True)
    assert len(set(ages)) == len(ages)
    for importance in (0.1, 0.5, 1.0):
        assert compute_recency(9 * DAY, importance) > compute_recency(9 * DAY, importance - 0.1)
