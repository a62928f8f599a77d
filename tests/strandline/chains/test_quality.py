"""Density, coherence and the three gates."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.chains import quality
from strandline.chains.quality import (
    DENSITY_WEIGHTS,
    GATES,
    EventDensityTraits,
    Mode,
    compute_coherence,
    compute_density,
    judge_quality,
)

MESSAGE = EventDensityTraits("message", "user", 120, 0, False)
SHARE = st.floats(0, 1)
MODES: list[Mode] = ["strict", "balanced", "permissive"]
TRAITS = st.builds(
    EventDensityTraits,
    st.sampled_from(["message", "thought", "action"]),
    st.sampled_from(["user", "agent"]),
    st.integers(0, 10**7),
    st.integers(0, 50),
    st.booleans(),
)


def test_quality_weights_sum_to_one() -> None:
    assert math.isclose(sum(DENSITY_WEIGHTS), 1)
    shares = quality.IMPORTANCE_SHARE, quality.DENSITY_SHARE, quality.COHERENCE_SHARE
    assert math.isclose(sum(shares), 1)


@given(st.lists(TRAITS, max_size=30))
def test_quality_density_is_between_zero_and_one(traits: list[EventDensityTraits]) -> None:
    assert 0 <= compute_density(traits) <= 1


def test_quality_density_of_no_events_is_zero() -> None:
    assert compute_density([]) == 0


@pytest.mark.parametrize(
    "richer",
    [
        MESSAGE._replace(type="action", role="agent"),
        MESSAGE._replace(chars=400),
        MESSAGE._replace(metadata_keys=2),
        MESSAGE._replace(has_payload=True),
    ],
    ids=["kinds", "text", "metadata", "payload"],
)
def test_quality_density_rises_with_each_richness(richer: EventDensityTraits) -> None:
    assert compute_density([MESSAGE, richer]) > compute_density([MESSAGE, MESSAGE])


def test_quality_density_caps_characters_per_event() -> None:
    log = MESSAGE._replace(chars=10**6)
    assert compute_density([MESSAGE, log]) == compute_density(
        [MESSAGE, log._replace(chars=quality.MAX_EVENT_CHARACTERS)]
    )


def test_quality_density_of_richest_events_is_one() -> None:
    kinds = [("message", "user"), ("message", "agent"), ("action", "agent"), ("upload", "user")]
    assert math.isclose(
        compute_density([EventDensityTraits(t, r, 500, 2, True) for t, r in kinds]), 1
    )


@pytest.mark.parametrize(
    ("vectors", "expected"),
    [
        ([], None),
        ([[1.0, 0.0]], None),
        ([[0.0, 0.0], [1.0, 0.0]], None),
        ([[1.0, 0.0], [3.0, 0.0]], 1.0),
        ([[1.0, 0.0], [0.0, 1.0]], math.sqrt(0.5)),
        ([[1.0, 0.0], [-1.0, 0.0]], 0.0),
    ],
)
def test_quality_coherence_of_vectors(vectors: list[list[float]], expected: float | None) -> None:
    assert compute_coherence(vectors) == (None if expected is None else pytest.approx(expected))


@given(SHARE, SHARE | st.none(), SHARE, st.integers(1, 50))
def test_quality_gates_are_ordered_by_strictness(
    dense: float, coherent: float | None, important: float, events: int
) -> None:
    rejections = [
        judge_quality(
            mode, density=dense, coherence=coherent, importance=important, events=events
        ).rejection_reason
        is not None
        for mode in MODES
    ]
    assert rejections == sorted(rejections, reverse=True)


@pytest.mark.parametrize("mode", MODES)
def test_quality_gate_passes_at_its_thresholds_only(mode: Mode) -> None:
    gate = GATES[mode]
    at = judge_quality(mode, density=1, coherence=1, importance=1, events=gate.events)
    assert at == (1, None)
    slight = gate.min_importance - 0.01
    level = max((gate.quality - 0.4 * slight) / 0.6, gate.density) + 1e-9
    passes = judge_quality(
        mode, density=level, coherence=level, importance=slight, events=gate.events
    )
    below = level - 0.01
    fails = judge_quality(
        mode, density=below, coherence=below, importance=slight, events=gate.events
    )
    assert passes.rejection_reason is None
    assert fails.rejection_reason is not None


@pytest.mark.parametrize("mode", MODES)
def test_quality_gate_passes_short_important_chain(mode: Mode) -> None:
    important = GATES[mode].min_importance
    assert (
        judge_quality(
            mode, density=0, coherence=None, importance=important, events=1
        ).rejection_reason
        is None
    )
    less = judge_quality(mode, density=0, coherence=0, importance=important - 0.01, events=1)
    assert less.rejection_reason is not None


def test_quality_rejection_names_every_shortfall() -> None:
    judgement = judge_quality("strict", density=0.1, coherence=None, importance=0.2, events=1)
    assert judgement.rejection_reason == (
        "strict: quality 0.15 is below 0.4, density 0.10 is below 0.3, 1 events are fewer than 2"
    )


def test_quality_unknown_coherence_is_neutral() -> None:
    unknown = judge_quality("balanced", density=0.5, coherence=None, importance=0.5, events=3)
    judgement = judge_quality("balanced", density=0.5, coherence=0.5, importance=0.5, events=3)
    assert unknown.quality == pytest.approx(judgement.quality)
