"""What a cosine means: thresholds for each embedding space, as they were calibrated."""

from collections.abc import Mapping
from typing import NamedTuple

from strandline.tuning import Tuning


class Thresholds(NamedTuple):
    """Cosines: of a lane's two latest user messages, and of two chains' summaries."""

    low: float
    """Below it the topic breaks."""
    high: float
    """From here it goes on; in between the model is asked."""
    merge: float
    """From here a run joins an earlier chain."""
    min_relevance: float = -1.0
    """Cosine of a question and what answers it from which the answer counts as one: it is warmed.
    Where nobody calibrated it, every answer counts."""


ADA_002 = Thresholds(low=0.52, high=0.72, merge=0.85)
"""Source A's, which were found with one model: text-embedding-ada-002."""

CALIBRATED_THRESHOLDS: Mapping[str, Thresholds] = {
    "minilm-l6-v2-int8/384": Thresholds(low=-1.0, high=0.91, merge=0.86, min_relevance=0.3),
    "openai:text-embedding-ada-002/1536": ADA_002,
}
"""By embedding space, from `make calibrate`; docs/chains.md has the criteria."""

UNCALIBRATED = Thresholds(low=-1.0, high=1.0, merge=0.95)
"""Of a space nobody calibrated: everything is asked, and only what says the same merges."""


def thresholds_for(space: str, tuning: Tuning) -> Thresholds:
    """A space's thresholds, but for those that the tenant tunes."""
    defaults = CALIBRATED_THRESHOLDS.get(space, UNCALIBRATED)
    return Thresholds(
        defaults.low if tuning.similarity_low is None else tuning.similarity_low,
        defaults.high if tuning.similarity_high is None else tuning.similarity_high,
        defaults.merge if tuning.similarity_merge is None else tuning.similarity_merge,
        defaults.min_relevance,
    )
