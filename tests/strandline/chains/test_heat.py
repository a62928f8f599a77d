"""Heat against its source's formula, and SQL against Python: of one state the same."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import Connection

from strandline.chains.heat import (
    MAX_STRENGTH,
    HeatInputs,
    StrengthAndAccessTimes,
    apply_recalls,
    compute_cold_at,
    compute_heat,
    compute_heat_with_factors,
    compute_promote_until,
)
from strandline.tuning import DEFAULTS, Tuning
from tests.support import ScratchDatabase

T0 = datetime(2026, 5, 8, 12, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)

shares = st.floats(0, 1)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
states = st.builds(
    HeatInputs,
    importance=shares,
    density=shares,
    strength=st.floats(1, MAX_STRENGTH) | st.just(1.0) | st.sampled_from([1.5, 2.25]),
    accessed_at=moments,
)
tunings = st.just(DEFAULTS) | st.builds(
    Tuning,
    heat_importance=shares,
    heat_density=shares,
    heat_hours=st.floats(0.01, 10_000),
    heat_growth=st.floats(1, 10),
    heat_cooldown_hours=st.floats(0, 1000),
    promote=st.floats(0.001, 1),
    freezing=st.floats(0.001, 1),
    archive_days=st.floats(0, 3650),
)
gaps = st.floats(0, 2000)
"""Hours since the last access."""


def warm(**more: Any) -> HeatInputs:
    """A chain of importance and density 1, accessed at T0."""
    heat_state = HeatInputs(importance=1.0, density=1.0, strength=1.0, accessed_at=T0)
    return heat_state._replace(**more)


# The formula, with the source's numbers -----------------------------------------------------------


@given(shares, shares, st.floats(1, 100), gaps)
def test_heat_equals_formula(
    importance: float, density: float, strength: float, hours: float
) -> None:
    now = T0 + timedelta(hours=hours)
    hours = (now - T0).total_seconds() / 3600
    expected = min(1.0, 0.7 * importance + 0.3 * density) * math.exp(-hours / (24 * strength))
    state = HeatInputs(importance, density, strength, T0)
    assert compute_heat(state, now, DEFAULTS) == pytest.approx(expected, rel=1e-12, abs=1e-50)


@pytest.mark.parametrize(
    ("state", "hours", "expected"),
    [
        (warm(), 0, 1.0),
        (warm(), 24, math.exp(-1)),
        (warm(strength=1.5), 36, math.exp(-1)),
        (warm(importance=0.5, density=0.0), 0, 0.35),
        (warm(importance=0.0, density=0.5), 0, 0.15),
        (warm(importance=0.0, density=0.0), 5, 0.0),
    ],
)
def test_heat_equals_values_computed_by_hand(
    state: HeatInputs, hours: float, expected: float
) -> None:
    assert compute_heat(state, T0 + hours * HOUR, DEFAULTS) == pytest.approx(expected, rel=1e-12)


def test_heat_caps_weights_over_one() -> None:
    tuning = DEFAULTS.with_overrides({"heat_importance": 1.0, "heat_density": 1.0})
    assert compute_heat_with_factors(warm(), T0, tuning).base == 1.0


@given(states, moments, tunings)
def test_heat_factors_multiply_to_heat(state: HeatInputs, now: datetime, tuning: Tuning) -> None:
    factors = compute_heat_with_factors(state, now, tuning)
    assert factors.heat == compute_heat(state, now, tuning) == factors.base * factors.retention
    assert factors[:4] == (
        state.importance,
        state.density,
        tuning.heat_importance,
        tuning.heat_density,
    )
    assert (factors.tau_hours, factors.strength) == (tuning.heat_hours, state.strength)
    assert factors.hours_since_access >= 0
    assert 0 <= factors.heat <= factors.base <= 1


@given(states, moments, tunings)
def test_heat_before_last_access_equals_base(
    state: HeatInputs, now: datetime, tuning: Tuning
) -> None:
    if now <= state.accessed_at:
        assert (
            compute_heat(state, now, tuning) == compute_heat_with_factors(state, now, tuning).base
        )


@given(states, moments, st.floats(0, 10_000), tunings)
def test_heat_never_rises_over_time(
    state: HeatInputs, now: datetime, hours: float, tuning: Tuning
) -> None:
    assert compute_heat(state, now + timedelta(hours=hours), tuning) <= compute_heat(
        state, now, tuning
    )


@given(states, st.floats(1, MAX_STRENGTH), gaps, tunings)
def test_heat_never_falls_with_strength(
    state: HeatInputs, strength: float, hours: float, tuning: Tuning
) -> None:
    now = state.accessed_at + timedelta(hours=hours)
    weak, strong = sorted((state.strength, strength))
    assert compute_heat(state._replace(strength=weak), now, tuning) <= compute_heat(
        state._replace(strength=strong), now, tuning
    )


@given(states, shares, shares, gaps, tunings)
def test_heat_never_falls_with_importance_or_density(
    state: HeatInputs, importance: float, density: float, hours: float, tuning: Tuning
) -> None:
    now = state.accessed_at + timedelta(hours=hours)
    more = state._replace(
        importance=max(state.importance, importance), density=max(state.density, density)
    )
    assert compute_heat(state, now, tuning) <= compute_heat(more, now, tuning)


# Moments ------------------------------------------------------------------------------------------


@given(states, tunings)
def test_heat_cold_time_is_freezing_or_archive_days(state: HeatInputs, tuning: Tuning) -> None:
    at = compute_cold_at(state, tuning)
    days_over = state.accessed_at + timedelta(hours=tuning.archive_days * 24)  # rounded as there
    assert at >= days_over
    if at - state.accessed_at < timedelta(days=36_524):  # not cut at a century
        assert compute_heat(state, at, tuning) <= tuning.freezing * (1 + 1e-6)
        if at > days_over:
            assert compute_heat(state, at, tuning) == pytest.approx(tuning.freezing, rel=1e-6)
            sooner = at - (at - state.accessed_at) * 0.01 - timedelta(milliseconds=1)
            assert compute_heat(state, sooner, tuning) > tuning.freezing * (1 - 1e-9)


@given(states, moments, tunings)
def test_heat_promotable_while_above_threshold(
    state: HeatInputs, now: datetime, tuning: Tuning
) -> None:
    until, heat = compute_promote_until(state, tuning), compute_heat(state, now, tuning)
    if abs(heat - tuning.promote) > 1e-6 * tuning.promote:
        assert (now <= until) == (heat >= tuning.promote)


def test_heat_times_equal_values_computed_by_hand() -> None:
    assert compute_cold_at(warm(), DEFAULTS) == T0 + 7 * DAY  # 0.1 is crossed after 55 hours
    assert compute_cold_at(warm(strength=1.5**3), DEFAULTS) == T0 + timedelta(
        hours=24 * 1.5**3 * math.log(10)
    )
    assert compute_promote_until(warm(), DEFAULTS) == T0 + timedelta(hours=24 * math.log(1 / 0.3))
    assert compute_promote_until(warm(importance=0.1, density=0.1), DEFAULTS) < T0 - 36_500 * DAY


def test_heat_times_of_strongest_chain_are_valid() -> None:
    tuning = DEFAULTS.with_overrides({"heat_hours": 10_000.0, "freezing": 0.001, "promote": 0.001})
    state = warm(strength=MAX_STRENGTH)
    assert (
        compute_cold_at(state, tuning)
        == compute_promote_until(state, tuning)
        == T0 + timedelta(hours=876_600)
    )


# Recalls ------------------------------------------------------------------------------------------

times = st.lists(
    st.integers(0, 24 * 14 * 4).map(lambda quarter: T0 + quarter * HOUR / 4), max_size=40
)
fresh = StrengthAndAccessTimes(1.0, None, T0)


@given(times)
def test_heat_strength_grows_once_in_twelve_hours(at: list[datetime]) -> None:
    """As the issue says it: times 1.5 for each recall, at most once in 12 hours."""
    counts: list[datetime] = []
    for moment in sorted(at):
        if not counts or moment - counts[-1] >= 12 * HOUR:
            counts.append(moment)
    use = apply_recalls(fresh, at, DEFAULTS)
    assert use.strength == pytest.approx(1.5 ** len(counts), rel=1e-12)
    assert use.boosted_at == (counts[-1] if counts else None)
    assert use.accessed_at == max([T0, *at])


@given(times, st.randoms(use_true_random=False), tunings)
def test_heat_recalls_ignore_order_and_duplicates(
    at: list[datetime], chance: Any, tuning: Tuning
) -> None:
    again = [*at, *chance.choices(at, k=len(at))] if at else []
    chance.shuffle(again)
    assert apply_recalls(fresh, again, tuning) == apply_recalls(fresh, at, tuning)


@given(times, st.lists(st.integers(0, 40), max_size=5), tunings)
def test_heat_recalls_in_parts_equal_recalls_at_once(
    at: list[datetime], cuts: list[int], tuning: Tuning
) -> None:
    at, use, start = sorted(set(at)), fresh, 0
    for cut in [*sorted(cuts), len(at)]:
        use = apply_recalls(use, at[start:cut], tuning)
        start = max(start, cut)
    assert use == apply_recalls(fresh, at, tuning)


@given(times, times, tunings)
def test_heat_late_recalls_never_count_for_more(
    first: list[datetime], late: list[datetime], tuning: Tuning
) -> None:
    whole = apply_recalls(fresh, [*first, *late], tuning)
    parts = apply_recalls(apply_recalls(fresh, first, tuning), late, tuning)
    assert parts.strength <= whole.strength * (1 + 1e-12)
    assert parts.accessed_at == whole.accessed_at


@given(states, times, tunings)
def test_heat_recall_never_makes_chain_colder(
    state: HeatInputs, at: list[datetime], tuning: Tuning
) -> None:
    use = apply_recalls(StrengthAndAccessTimes(state.strength, None, state.accessed_at), at, tuning)
    after = state._replace(strength=use.strength, accessed_at=use.accessed_at)
    for days in (0, 1, 7, 30):
        now = use.accessed_at + days * DAY
        assert compute_heat(after, now, tuning) >= compute_heat(state, now, tuning)
    assert compute_cold_at(after, tuning) >= compute_cold_at(state, tuning)
    assert compute_promote_until(after, tuning) >= compute_promote_until(state, tuning) or (
        compute_promote_until(state, tuning) < state.accessed_at
    )


def test_heat_strength_has_maximum() -> None:
    years = [T0 + n * DAY for n in range(3650)]
    use = apply_recalls(fresh, years, DEFAULTS.with_overrides({"heat_growth": 10.0}))
    assert use.strength == MAX_STRENGTH
    assert 0 < compute_heat(warm(strength=use.strength), T0 + 10 * 365 * DAY, DEFAULTS) < 1


# SQL ----------------------------------------------------------------------------------------------


@pytest.fixture
def app(scratch_db: ScratchDatabase) -> Iterator[Connection[Any]]:
    """The application role."""
    with psycopg.connect(scratch_db.url, autocommit=True) as connection:
        yield connection


_SAME = """
    select heat(importance, density, s.strength, accessed_at, now, tuning) as heat,
        cold_at(importance, density, s.strength, accessed_at, tuning) as cold_at,
        promote_until(importance, density, s.strength, accessed_at, tuning) as promote_until,
        made.*
    from (select %(importance)s::float8 as importance, %(density)s::float8 as density,
        %(strength)s::float8 as strength, %(accessed_at)s::timestamptz as accessed_at,
        %(now)s::timestamptz as now, %(boosted_at)s::timestamptz as boosted_at,
        %(times)s::timestamptz[] as times, %(tuning)s::jsonb as tuning) s,
        apply_recalls(s.strength, s.boosted_at, s.times, s.tuning) made
"""


def differs(
    app: Connection[Any],
    state: HeatInputs,
    now: datetime,
    tuning: Tuning,
    at: Sequence[datetime] = (),
    boosted_at: datetime | None = None,
) -> list[str]:
    """In what SQL says other things than Python does."""
    params = {
        **state._asdict(),
        "now": now,
        "times": list(at),
        "boosted_at": boosted_at,
        "tuning": tuning.model_dump_json(),
    }
    row = app.execute(_SAME, params).fetchone()
    assert row is not None
    strength_before, cold, promotable, strength, boosted = row
    use = apply_recalls(
        StrengthAndAccessTimes(state.strength, boosted_at, state.accessed_at), at, tuning
    )

    def near(ours: datetime, theirs: datetime) -> bool:
        span = abs(ours - state.accessed_at)
        return abs(ours - theirs) <= timedelta(microseconds=1) + span * 1e-12

    same = {
        "heat": strength_before
        == pytest.approx(compute_heat(state, now, tuning), rel=1e-12, abs=0),
        "strength": strength == pytest.approx(use.strength, rel=1e-12),
        "boosted_at": boosted == use.boosted_at,
        "cold_at": near(compute_cold_at(state, tuning), cold),
        "promote_until": near(compute_promote_until(state, tuning), promotable),
    }
    return [name for name, agrees in same.items() if not agrees]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states, moments, tunings, times, st.none() | moments)
@example(warm(importance=0.0, density=0.0), T0 + 9999 * DAY, DEFAULTS, [], None)
@example(warm(), T0 - 9999 * DAY, DEFAULTS, [T0, T0], T0)
@example(warm(importance=5e-324, density=1e-50), T0 + 9999 * DAY, DEFAULTS, [], None)
def test_heat_in_sql_equals_python(
    app: Connection[Any],
    state: HeatInputs,
    now: datetime,
    tuning: Tuning,
    at: list[datetime],
    boosted_at: datetime | None,
) -> None:
    assert differs(app, state, now, tuning, at, boosted_at) == []


@pytest.mark.parametrize(
    ("function", "right", "wrong", "shows"),
    [
        ("initial_heat", "LEAST((1)", "LEAST((2)", "heat"),
        ("heat", "3600", "3601", "heat"),
        ("heat", "400", "1", "heat"),
        ("cold_at", "freezing", "promote", "cold_at"),
        ("promote_until", "promote'", "freezing'", "promote_until"),
        ("hours_above_heat", "ln(", "log(", "promote_until"),
        ("apply_recalls", ">= cooldown", "> cooldown", "boosted_at"),
        ("apply_recalls", "1e6", "2e6", "strength"),
        ("apply_recalls", "order by t", "order by t desc", "strength"),
    ],
)
def test_heat_fault_in_sql_is_noticed(
    scratch_db: ScratchDatabase,
    app: Connection[Any],
    function: str,
    right: str,
    wrong: str,
    shows: str,
) -> None:
    """Teeth: the comparison sees what it is there to see."""
    tuning = DEFAULTS.with_overrides({"heat_importance": 1.0, "heat_density": 1.0})
    state = warm(strength=MAX_STRENGTH / 1.4)
    at = [T0, T0 + 12 * HOUR, T0 + 13 * HOUR]

    def due_chains() -> set[str]:
        hot = differs(app, state, T0 + 40 * DAY, tuning, at)
        cool = differs(app, warm(density=0.5), T0 + 2 * DAY, DEFAULTS, at)
        strong = differs(app, warm(strength=5.0), T0 + DAY, DEFAULTS, at)
        return {*hot, *cool, *strong}

    assert due_chains() == set()
    ((body,),) = scratch_db.rows("select pg_get_functiondef(%s::regproc)", function)
    assert right in body, body
    scratch_db.rows(body.replace(right, wrong, 1))
    assert shows in due_chains()
