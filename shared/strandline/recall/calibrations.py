"""Calibrations of relevance, by embedding space, from `make bench NAME=fit-relevance`."""

from collections.abc import Mapping

from strandline.embeddings.embedder import LOCAL_DIMENSIONS, LOCAL_MODEL
from strandline.recall.cosine_scale import CosineDistribution
from strandline.recall.features import EventScoreFeatures
from strandline.recall.relevance import Calibration, LogisticCurve

_WEIGHTS = EventScoreFeatures(
    cosine=1.0,
    words=2.529,
    words_nearby=2.912,
    cosine_before=0.284,
    cosine_after=0.157,
    cosine_nearby=0.598,
    other_speaker=-1.337,
    question_share=-3.589,
    date=1.977,
    length=1.727,
    by_agent=-1.0,
    by_tool=-1.0,
    says_nothing=-20.0,
    newness=1.0,
)
"""For every embedding space."""
_BY_SPACE: Mapping[str, Calibration] = {
    f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}": Calibration(
        features=_WEIGHTS,
        usual=CosineDistribution(0.126, 0.072),
        cosine_by_words=4.4,
        known=LogisticCurve(-1.996, (1.207, 1.335, 2.166, 1.878, -0.4836)),
        relevance=LogisticCurve(-1.912, (-0.7352, 0.3904)),
        min_known=0.0627,
    ),
    "minilm-l6-v2-int8/384": Calibration(
        features=_WEIGHTS,
        usual=CosineDistribution(0.167, 0.092),
        cosine_by_words=4.4,
        known=LogisticCurve(-1.38, (1.44, 0.7053, 2.693, 1.018, -0.5646)),
        relevance=LogisticCurve(-2.137, (-0.6975, 0.4375)),
        min_known=0.0655,
    ),
}
WITHOUT_VECTOR = Calibration(
    features=EventScoreFeatures(
        cosine=0.0,
        words=3.604,
        words_nearby=2.796,
        cosine_before=0.0,
        cosine_after=0.0,
        cosine_nearby=0.0,
        other_speaker=-1.011,
        question_share=-1.447,
        date=1.126,
        length=0.537,
        by_agent=-0.713,
        by_tool=0.0,
        says_nothing=-20.0,
    ),
    usual=CosineDistribution(0.0, 1.0),
    cosine_by_words=0.0,
    known=LogisticCurve(0.3582, (0, -1.875, 4.495, 0.7987, -0.2298)),
    relevance=LogisticCurve(-2.428, (-1.177, 0.7301)),
    min_known=0.0,
)
"""For questions without a vector. They always return their hits by default."""


def calibration_for(space: str | None) -> Calibration:
    """The calibration of an embedding space; None stands for a question without a vector."""
    if space is None:
        return WITHOUT_VECTOR
    return _BY_SPACE.get(space, UNCALIBRATED)


UNCALIBRATED = _BY_SPACE["minilm-l6-v2-int8/384"]._replace(
    usual=CosineDistribution(0.4, 0.08), min_known=0.0, is_calibrated=False
)
"""For other embedding spaces. It ranks in the same way, and leaves no hits out. Its usual scale is
between those of models whose cosines are all high and of those whose cosines are not."""
