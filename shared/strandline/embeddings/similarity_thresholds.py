"""Cosine thresholds of an embedding space, from its usual cosines.

Each threshold lies at one position for all spaces, between the usual cosine of texts about
different matters and that of texts that belong together. `make bench NAME=calibrate` shows how good
they are in a space; docs/chains.md has the criteria.
"""

from typing import NamedTuple

from strandline.embeddings.space_figures import SpaceFigures
from strandline.tuning import Tuning

_HIGH = 1.3
_MERGE = 1.25
_CONFLICT = 0.88
_DESCEND = 0.5
"""In deviations above the mean of messages."""


class Thresholds(NamedTuple):
    """Cosine thresholds: for a lane's two latest user messages, for two chains' summaries, for a
    chain and a node of a topic tree, and for two facts of the graph."""

    low: float
    """Below it the topic ends."""
    high: float
    """From here on the topic continues; in between the model is asked."""
    merge: float
    """From here on a run of events joins an earlier chain."""
    descend: float = 0.0
    """From here on a new leaf of a topic tree goes below a child of the root."""
    conflict: float = 0.85
    """From here on two facts are near enough to be compared for a contradiction."""
    descend_step: float = 0.1
    """By so much `descend` rises at each level of the tree."""


ADA_002 = Thresholds(low=0.52, high=0.72, merge=0.85, descend=0.75)
"""The thresholds of source A, which were found with one model: text-embedding-ada-002."""
_ADA_002_SPACE = "openai:text-embedding-ada-002/1536"

UNCALIBRATED_THRESHOLDS = Thresholds(low=-1.0, high=1.0, merge=0.95)
"""For spaces without figures: the model is always asked, and only identical summaries merge."""


def derive_thresholds(figures: SpaceFigures | None) -> Thresholds:
    """A space's thresholds from its figures. What must be rare, that a topic goes on or chains
    merge for their cosine alone, holds for every language: the higher threshold counts."""
    if figures is None or not figures.is_usable:
        return UNCALIBRATED_THRESHOLDS
    english, other, messages = figures.statements, figures.other_statements, figures.messages
    return Thresholds(
        low=-1.0,
        high=_round(max(english.interpolate(_HIGH), other.interpolate(_HIGH))),
        merge=_round(max(english.interpolate(_MERGE), other.interpolate(_MERGE))),
        descend=_round(messages.mean + _DESCEND * messages.deviation),
        conflict=_round(english.interpolate(_CONFLICT)),
        descend_step=_round(messages.deviation),
    )


def thresholds_for(space: str, figures: SpaceFigures | None, tuning: Tuning) -> Thresholds:
    """A space's thresholds, with those that the tenant overrides."""
    defaults = ADA_002 if space == _ADA_002_SPACE else derive_thresholds(figures)
    overrides = {
        "low": tuning.similarity_low,
        "high": tuning.similarity_high,
        "merge": tuning.similarity_merge,
    }
    return defaults._replace(
        **{name: value for name, value in overrides.items() if value is not None}
    )


def _round(value: float) -> float:
    return round(value, 3)
