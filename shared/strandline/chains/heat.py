"""A chain's heat: one formula, as a function of the chain's state and a moment.

Based on source A's use of the Ebbinghaus forgetting curve: heat = I·e^(-Δt/(τ·S)), with I = min(1,
w₁·importance + w₂·density) and Δt the hours since the last access. S starts at 1, and each recall
that counts raises it. functions.sql defines the same formula, for statements over many
chains; a test checks that the two agree.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import exp, log
from typing import NamedTuple

from strandline.tuning import Tuning

MAX_STRENGTH = 1e6
"""The upper bound of S. With the usual τ, such a chain is practically never forgotten, and no
number overflows."""
_MAX_TIME_CONSTANTS = 400.0
"""The exponent Δt/(τ·S) is capped here."""
_NEGLIGIBLE = 1e-50
"""A factor below this counts as 0 in a product: Postgres raises an error on underflow."""
_CENTURY_HOURS = 876_600.0
"""A century: the maximum distance of a computed moment from the last access."""


class HeatInputs(NamedTuple):
    """The inputs of heat; the chain's columns of the same names."""

    importance: float
    """0..1, as judged when the chain's version was formed."""
    density: float
    """0..1, as computed when the chain's version was formed."""
    strength: float
    """S, at least 1. Recalls raise it."""
    accessed_at: datetime
    """The latest of formation, merges and recalls, by the server's clock: an imported chain is warm
    on arrival, whatever the dates of its events."""


class HeatFactors(NamedTuple):
    """Heat at a moment, and every factor of it."""

    importance: float
    density: float
    weight_importance: float
    weight_density: float
    base: float
    """I, 0..1: the heat directly after an access."""
    tau_hours: float
    strength: float
    hours_since_access: float
    """Δt, at least 0, so that a clock that goes backwards never gives more heat than I."""
    retention: float
    """e^(-Δt/(τ·S)), 0..1."""
    heat: float
    """base · retention."""


class StrengthAndAccessTimes(NamedTuple):
    """The part of a chain's state that recalls change."""

    strength: float
    boosted_at: datetime | None
    """The last recall that raised the strength."""
    accessed_at: datetime


def compute_heat_with_factors(state: HeatInputs, now: datetime, tuning: Tuning) -> HeatFactors:
    """A chain's heat at `now`, with every factor."""
    initial = _compute_initial_heat(state, tuning)
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


def compute_heat(state: HeatInputs, now: datetime, tuning: Tuning) -> float:
    """A chain's heat at `now`, 0..1."""
    return compute_heat_with_factors(state, now, tuning).heat


def apply_recalls(
    state: StrengthAndAccessTimes, times: Iterable[datetime], tuning: Tuning
) -> StrengthAndAccessTimes:
    """Apply recalls at these times to a chain's state. A recall counts if it is at least one
    cooldown after the last one that counted.

    The result does not depend on the order of the times or on duplicates. Applying them in several
    batches gives the same result if no batch contains a time before the end of an earlier batch.
    Otherwise, no more recalls count than in order, which gives the maximum number of recalls that
    lie a cooldown apart.
    """
    strength, boosted_at, accessed_at = state
    cooldown = timedelta(hours=tuning.heat_cooldown_hours)
    for at in sorted(set(times)):
        accessed_at = max(accessed_at, at)
        if boosted_at is None or (at > boosted_at and at - boosted_at >= cooldown):
            strength, boosted_at = min(MAX_STRENGTH, strength * tuning.heat_growth), at
    return StrengthAndAccessTimes(strength, boosted_at, accessed_at)


def compute_cold_at(state: HeatInputs, tuning: Tuning) -> datetime:
    """The moment from which a chain that is not recalled before may be archived: not accessed for
    `archive_days`, and with heat below `freezing`.

    Both conditions are measured from the last access, which is never earlier than the chain's
    formation nor, by the server's clock, than its last event.
    """
    hours_warm = _compute_hours_heat_stays_above(state, tuning.freezing, tuning)
    return state.accessed_at + timedelta(hours=max(tuning.archive_days * 24, hours_warm))


def compute_promote_until(state: HeatInputs, tuning: Tuning) -> datetime:
    """The moment until which a chain that is not recalled is warm enough to be promoted: its heat
    is at least `promote` if and only if now ≤ this moment. It is a century before the last access
    for a chain that was never warm enough."""
    return state.accessed_at + timedelta(
        hours=_compute_hours_heat_stays_above(state, tuning.promote, tuning)
    )


def _compute_initial_heat(state: HeatInputs, tuning: Tuning) -> float:
    importance_term = _multiply_without_underflow(tuning.heat_importance, state.importance)
    return min(
        1.0, importance_term + _multiply_without_underflow(tuning.heat_density, state.density)
    )


def _multiply_without_underflow(weight: float, share: float) -> float:
    return 0.0 if min(weight, share) < _NEGLIGIBLE else weight * share


def _compute_hours_heat_stays_above(state: HeatInputs, threshold: float, tuning: Tuning) -> float:
    """How many hours after its last access a chain's heat stays at least `threshold`: the formula
    solved for Δt, τ·S·ln(I/threshold). Minus a century if it never is, a century at most."""
    initial = _compute_initial_heat(state, tuning)
    if initial < threshold:
        return -_CENTURY_HOURS
    return min(_CENTURY_HOURS, tuning.heat_hours * state.strength * log(initial / threshold))
