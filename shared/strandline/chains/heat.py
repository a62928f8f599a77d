"""How warm a chain is: the one formula, as a function of its state and a moment.

Source A's reading of Ebbinghaus: heat = I·e^(-Δt/(τ·S)), with I = min(1, w₁·importance +
w₂·density) and Δt the hours since the last access; S starts at 1 and each recall that counts makes
it stronger. The migration 0016_create_heat.sql says the same in SQL, for statements over many
chains; a test holds the two equal.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import exp, log
from typing import NamedTuple

from strandline.tuning import Tuning

MAX_STRENGTH = 1e6
"""Where S stops: with the usual τ as good as never forgotten, and no number overflows."""
_MAX_TIME_CONSTANTS = 400.0
"""Time constants after which a chain gets no colder, and"""
_NEGLIGIBLE = 1e-50
"""what is as good as 0 in a product: Postgres refuses one that is too small for a number."""
_CENTURY_HOURS = 876_600.0
"""A century: no moment computed here is further from the last access."""


class HeatState(NamedTuple):
    """What heat is a function of; a chain's columns of the same names."""

    importance: float
    """0..1, as it was judged when the chain's version was made."""
    density: float
    """0..1, likewise."""
    strength: float
    """S, from 1: what recalls made of it."""
    accessed_at: datetime
    """Of formation, merge and recalls the last, by our clock: an import is warm on arrival,
    whatever its events' own dates."""


class HeatFactors(NamedTuple):
    """Heat at a moment, and all that it is made of."""

    importance: float
    density: float
    weight_importance: float
    weight_density: float
    base: float
    """I, 0..1: the heat of a chain accessed just now."""
    tau_hours: float
    strength: float
    hours_since_access: float
    """Δt, from 0: a clock that went backwards makes nothing warmer than I."""
    retention: float
    """e^(-Δt/(τ·S)), 0..1."""
    heat: float
    """base · retention."""


class AccessState(NamedTuple):
    """What recalls change of a chain."""

    strength: float
    boosted_at: datetime | None
    """The last recall that made it stronger."""
    accessed_at: datetime


def compute_factors(state: HeatState, now: datetime, tuning: Tuning) -> HeatFactors:
    """A chain's heat at `now`, taken apart."""
    initial = _initial_heat(state, tuning)
    hours = max(0.0, (now - state.accessed_at) / timedelta(hours=1))
    retention = exp(-min(_MAX_TIME_CONSTANTS, hours / (tuning.heat_hours * state.strength)))
    return HeatFactors(
        importance=state.importance,
        density=state.density,
        weight_importance=tuning.heat_importance,
        weight_density=tuning.heat_density,
        base=initial,
        tau_hours=tuning.heat_hours,
        strength=state.strength,
        hours_since_access=hours,
        retention=retention,
        heat=initial * retention,
    )


def compute_heat(state: HeatState, now: datetime, tuning: Tuning) -> float:
    """A chain's heat at `now`, 0..1."""
    return compute_factors(state, now, tuning).heat


def apply_recalls(state: AccessState, times: Iterable[datetime], tuning: Tuning) -> AccessState:
    """What recalls at these times make of a chain: a recall counts if it is a cooldown later than
    the last that counted.

    In any order, and doubled, the same times give the same. So they do folded in several parts, if
    no part reaches back before an earlier one; where one does, never more than in order, which
    counts as many as can be that far apart.
    """
    strength, boosted_at, accessed_at = state
    cooldown = timedelta(hours=tuning.heat_cooldown_hours)
    for at in sorted(set(times)):
        accessed_at = max(accessed_at, at)
        if boosted_at is None or (at > boosted_at and at - boosted_at >= cooldown):
            strength, boosted_at = min(MAX_STRENGTH, strength * tuning.heat_growth), at
    return AccessState(strength, boosted_at, accessed_at)


def compute_cold_at(state: HeatState, tuning: Tuning) -> datetime:
    """From when the archiver may take a chain that nobody recalls before: untouched for
    `archive_days`, and colder than freezing.

    Both count from the last access: it is never earlier than the chain's making, nor, by our
    clock, than its last event.
    """
    hours_warm = _hours_above(state, tuning.freezing, tuning)
    return state.accessed_at + timedelta(hours=max(tuning.archive_days * 24, hours_warm))


def compute_promote_until(state: HeatState, tuning: Tuning) -> datetime:
    """Until when a chain that nobody recalls is warm enough to be promoted: its heat is at least
    `promote` just as long as now ≤ this, which lies far back for one that never was."""
    return state.accessed_at + timedelta(hours=_hours_above(state, tuning.promote, tuning))


def _initial_heat(state: HeatState, tuning: Tuning) -> float:
    importance_term = _weighted(tuning.heat_importance, state.importance)
    return min(1.0, importance_term + _weighted(tuning.heat_density, state.density))


def _weighted(weight: float, share: float) -> float:
    return 0.0 if min(weight, share) < _NEGLIGIBLE else weight * share


def _hours_above(state: HeatState, threshold: float, tuning: Tuning) -> float:
    """For how many hours after its last access a chain's heat is at least `threshold`: the formula
    solved for Δt, τ·S·ln(I/threshold). A century back if it never is, a century at most."""
    initial = _initial_heat(state, tuning)
    if initial < threshold:
        return -_CENTURY_HOURS
    return min(_CENTURY_HOURS, tuning.heat_hours * state.strength * log(initial / threshold))
