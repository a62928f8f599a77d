"""Calibrated cosine thresholds for each embedding space."""

from collections.abc import Mapping
from typing import NamedTuple

from strandline.tuning import Tuning


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


ADA_002 = Thresholds(low=0.52, high=0.72, merge=0.85, descend=0.75)
"""The thresholds of source A, which were found with one model: text-embedding-ada-002."""

CALIBRATED_THRESHOLDS: Mapping[str, Thresholds] = {
    "minilm-l6-v2-int8/384": Thresholds(
        low=-1.0, high=0.91, merge=0.86, descend=0.3, conflict=0.63
    ),
    "openai:text-embedding-ada-002/1536": ADA_002,
}
"""By embedding space, from `make bench NAME=calibrate`; docs/chains.md has the criteria."""

UNCALIBRATED_THRESHOLDS = Thresholds(low=-1.0, high=1.0, merge=0.95)
"""For spaces without calibration: the model is always asked, and only identical summaries merge."""


def thresholds_for(space: str, tuning: Tuning) -> Thresholds:
    """A space's thresholds, with those that the tenant overrides."""
    defaults = CALIBRATED_THRESHOLDS.get(space, UNCALIBRATED_THRESHOLDS)
    return Thresholds(
        defaults.low if tuning.similarity_low is None else tuning.similarity_low,
        defaults.high if tuning.similarity_high is None else tuning.similarity_high,
        defaults.merge if tuning.similarity_merge is None else tuning.similarity_merge,
        defaults.descend,
        defaults.conflict,
    )
