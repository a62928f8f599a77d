"""The quality of a closed run: density, coherence, and the gate that a run must pass to be listed
as a chain.

The weights and thresholds are Strandline's (docs/chains.md has them in one table, with what they
reject on two corpora). The two measures and the three gates come from source A.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

type Mode = Literal["strict", "balanced", "permissive"]


class EventDensityTraits(NamedTuple):
    """The properties of an event that density uses: its form, not its words."""

    type: str
    role: str
    chars: int
    """The number of characters of its text; for a payload, of bytes."""
    metadata_keys: int
    has_payload: bool


class QualityVerdict(NamedTuple):
    """A run's quality, from 0 to 1, and the reason of its rejection; None if it passes."""

    quality: float
    rejection_reason: str | None


class QualityGate(NamedTuple):
    """The minimum values that a mode requires."""

    quality: float
    density: float
    events: int
    min_importance: float
    """A run of at least this importance passes, however short it is: a fact can be a single
    line."""


class DensityWeights(NamedTuple):
    """The weights of density's parts; they add up to 1."""

    kinds: float
    text: float
    metadata: float
    payloads: float


DENSITY_WEIGHTS = DensityWeights(kinds=0.3, text=0.45, metadata=0.15, payloads=0.1)
FULL_KINDS = 4
"""This many distinct pairs of role and type give the full score for variety."""
FULL_CHARACTERS = 1500
"""This many characters of text in a run give the full score for text."""
MAX_EVENT_CHARACTERS = 500
"""At most this many characters of one event count: a log file is not a conversation."""
FULL_METADATA_KEYS = 2
"""This many metadata keys per event, on average, give the full score for metadata."""

IMPORTANCE_SHARE, DENSITY_SHARE, COHERENCE_SHARE = 0.4, 0.35, 0.25
"""Weights of the quality's parts. A run whose coherence is unknown is judged by the other two."""

GATES: Mapping[Mode, QualityGate] = {
    "strict": QualityGate(quality=0.4, density=0.3, events=2, min_importance=0.4),
    "balanced": QualityGate(quality=0.25, density=0.15, events=1, min_importance=0.2),
    "permissive": QualityGate(quality=0.1, density=0.0, events=1, min_importance=0.1),
}


def compute_density(traits: Sequence[EventDensityTraits]) -> float:
    """How rich a run is in kinds of events, text, metadata and payloads, from 0 to 1; 0 for no
    events."""
    if not traits:
        return 0.0
    kinds = (len({(trait.role, trait.type) for trait in traits}) - 1) / (FULL_KINDS - 1)
    chars = sum(min(trait.chars, MAX_EVENT_CHARACTERS) for trait in traits)
    keys = sum(trait.metadata_keys for trait in traits) / len(traits)
    shares = (
        min(1.0, kinds),
        # Logarithmic: the first sentences say more than the twentieth.
        min(1.0, math.log1p(chars / 100) / math.log1p(FULL_CHARACTERS / 100)),
        min(1.0, keys / FULL_METADATA_KEYS),
        float(any(trait.has_payload for trait in traits)),
    )
    return math.sumprod(DENSITY_WEIGHTS, shares)


def compute_coherence(vectors: Sequence[Sequence[float]]) -> float | None:
    """The mean cosine similarity of a run's vectors to their centroid, from 0 to 1. None for fewer
    than two vectors of non-zero length: a single vector cannot be compared."""
    units = [unit for vector in vectors if (unit := _scale_to_unit_length(vector))]
    if len(units) < 2:
        return None
    centre = _scale_to_unit_length([sum(values) for values in zip(*units, strict=True)])
    if not centre:
        return 0.0
    return min(1.0, max(0.0, sum(math.sumprod(unit, centre) for unit in units) / len(units)))


def judge_quality(
    mode: Mode,
    *,
    density: float,
    coherence: float | None,
    importance: float,
    events: int,
    bears_change: bool = False,
) -> QualityVerdict:
    """Judge a run by its tenant's gate. The rejection reason names each shortfall with the actual
    value and the minimum. A run that bears a change passes: it tells what no longer holds."""
    parts = [(IMPORTANCE_SHARE, importance), (DENSITY_SHARE, density)]
    if coherence is not None:
        parts.append((COHERENCE_SHARE, coherence))
    quality = sum(share * value for share, value in parts) / sum(share for share, _ in parts)
    gate = GATES[mode]
    if importance >= gate.min_importance or bears_change:
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


def _scale_to_unit_length(vector: Sequence[float]) -> list[float]:
    """The vector scaled to length 1; empty for a vector of length 0."""
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else []
