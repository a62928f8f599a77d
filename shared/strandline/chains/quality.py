"""What a closed run must hold to be listed as a chain: density, coherence and three gates.

The weights and thresholds are ours (docs/chains.md has them in one table, with what they reject on
two corpora); that the two measures and the three gates exist is source A's.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

type Mode = Literal["strict", "balanced", "permissive"]


class EventTraits(NamedTuple):
    """What density looks at in an event: its form, not its words."""

    type: str
    role: str
    chars: int
    """Of its text; of a payload as many as it has."""
    metadata_keys: int
    has_payload: bool


class QualityVerdict(NamedTuple):
    """A run's quality from 0 to 1, and why it is rejected, if it is."""

    quality: float
    rejection_reason: str | None


class Gate(NamedTuple):
    """What a mode asks for at least."""

    quality: float
    density: float
    events: int
    min_importance: float
    """From this importance on a run passes, however short: a fact can be one line."""


class Weights(NamedTuple):
    """Shares of a density; they add up to 1."""

    kinds: float
    text: float
    metadata: float
    payloads: float


DENSITY_WEIGHTS = Weights(kinds=0.3, text=0.45, metadata=0.15, payloads=0.1)
FULL_KINDS = 4
"""Different pairs of role and type from which a run is as varied as it can be."""
FULL_CHARACTERS = 1500
"""Of text in a run, from which it is as full as it can be."""
MAX_EVENT_CHARACTERS = 500
"""Of one event at most: a log file is not a conversation."""
FULL_METADATA_KEYS = 2
"""Of an event on average, from which there is as much metadata as can be."""

IMPORTANCE_SHARE, DENSITY_SHARE, COHERENCE_SHARE = 0.4, 0.35, 0.25
"""Of a quality. A run whose coherence is unknown is judged by the other two."""

GATES: Mapping[Mode, Gate] = {
    "strict": Gate(quality=0.4, density=0.3, events=2, min_importance=0.4),
    "balanced": Gate(quality=0.25, density=0.15, events=1, min_importance=0.2),
    "permissive": Gate(quality=0.1, density=0.0, events=1, min_importance=0.1),
}


def compute_density(traits: Sequence[EventTraits]) -> float:
    """How rich a run is in kinds of events, text, metadata and payloads, from 0 to 1; 0 of none."""
    if not traits:
        return 0.0
    kinds = (len({(trait.role, trait.type) for trait in traits}) - 1) / (FULL_KINDS - 1)
    chars = sum(min(trait.chars, MAX_EVENT_CHARACTERS) for trait in traits)
    keys = sum(trait.metadata_keys for trait in traits) / len(traits)
    shares = (
        min(1.0, kinds),
        # By its logarithm: the first sentences say more than the twentieth.
        min(1.0, math.log1p(chars / 100) / math.log1p(FULL_CHARACTERS / 100)),
        min(1.0, keys / FULL_METADATA_KEYS),
        float(any(trait.has_payload for trait in traits)),
    )
    return math.sumprod(DENSITY_WEIGHTS, shares)


def compute_coherence(vectors: Sequence[Sequence[float]]) -> float | None:
    """Mean cosine of a run's vectors to their centroid, from 0 to 1. None for fewer than two that
    have a length: nothing is compared with itself."""
    units = [unit for vector in vectors if (unit := _normalize(vector))]
    if len(units) < 2:
        return None
    centre = _normalize([sum(values) for values in zip(*units, strict=True)])
    if not centre:
        return 0.0
    return min(1.0, max(0.0, sum(math.sumprod(unit, centre) for unit in units) / len(units)))


def judge_quality(
    mode: Mode, *, density: float, coherence: float | None, importance: float, events: int
) -> QualityVerdict:
    """Does a run pass its tenant's gate? The reason names what it lacks, with both figures."""
    parts = [(IMPORTANCE_SHARE, importance), (DENSITY_SHARE, density)]
    if coherence is not None:
        parts.append((COHERENCE_SHARE, coherence))
    quality = sum(share * value for share, value in parts) / sum(share for share, _ in parts)
    gate = GATES[mode]
    if importance >= gate.min_importance:
        return QualityVerdict(quality, None)
    shortfalls = [
        f"{name} {actual:.2f} is below {minimum:g}"
        for name, actual, minimum in (
            ("quality", quality, gate.quality),
            ("density", density, gate.density),
        )
        if actual < minimum
    ]
    if events < gate.events:
        shortfalls.append(f"{events} events are fewer than {gate.events}")
    return QualityVerdict(quality, f"{mode}: {', '.join(shortfalls)}" if shortfalls else None)


def _normalize(vector: Sequence[float]) -> list[float]:
    """The vector at length 1; empty where it has no length."""
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else []
