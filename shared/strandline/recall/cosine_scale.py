"""The scale on which the cosines of a question mean the same in any embedding space."""

import math
from collections.abc import Sequence
from typing import NamedTuple

SAMPLED_EVENTS = 80
"""The maximum number of events in view whose cosines are sampled."""
_ENOUGH_EVENTS = 30
"""A sample of so many events stands for itself."""
_NO_VARIANCE = 1e-9
"""So little is an error of numbers of half precision."""


class CosineDistribution(NamedTuple):
    """The mean and the standard deviation of a question's cosines with the events in view."""

    mean: float
    deviation: float

    def standardize(self, cosine: float) -> float:
        """How many deviations a cosine is above the mean."""
        return (cosine - self.mean) / self.deviation


def estimate_cosine_distribution(
    sample: Sequence[float], usual: CosineDistribution
) -> CosineDistribution:
    """The scale of a question from its cosines with a sample of the view. A sample of less than 30
    events is mixed with the embedding space's usual scale, in proportion; one without any deviation
    is not used."""
    count = len(sample)
    mean = math.fsum(sample) / count if count else 0.0
    variance = math.fsum((cosine - mean) ** 2 for cosine in sample) / count if count else 0.0
    if variance <= _NO_VARIANCE:
        return usual
    share = min(count / _ENOUGH_EVENTS, 1.0)
    return CosineDistribution(
        usual.mean + share * (mean - usual.mean),
        math.sqrt(usual.deviation**2 + share * (variance - usual.deviation**2)),
    )
