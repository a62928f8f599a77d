"""Calibrations of relevance, by embedding space, from `make fit-relevance`."""

from collections.abc import Mapping

from strandline.recall.cosine_scale import CosineScale
from strandline.recall.features import Features
from strandline.recall.relevance import Calibration, LogisticCurve

_WEIGHTS = Features(
    cosine=1.0,
    words=3.294,
    words_nearby=2.416,
    cosine_before=0.336,
    cosine_after=0.152,
    cosine_nearby=0.193,
    other_speaker=-1.012,
    question_share=-2.265,
    date=1.701,
    length=1.448,
    by_agent=-1.0,
    by_tool=-1.0,
)
"""For every embedding space."""
_BY_SPACE: Mapping[str, Calibration] = {
    "minilm-l6-v2-int8/384": Calibration(
        features=_WEIGHTS,
        usual=CosineScale(0.167, 0.092),
        cosine_by_words=4.4,
        known=LogisticCurve(-1.109, (0.3235, 1.285, 0.2625, 1.159, 0.654, -0.7393, -0.02494)),
        relevance=LogisticCurve(-2.119, (-0.7828, 0.486)),
        min_known=0.0611,
    ),
}
WITHOUT_VECTOR = Calibration(
    features=Features(
        cosine=0.0,
        words=3.2117,
        words_nearby=1.8983,
        cosine_before=0.0,
        cosine_after=0.0,
        cosine_nearby=0.0,
        other_speaker=-0.673,
        question_share=-0.8448,
        date=0.7202,
        length=0.4174,
        by_agent=-0.8368,
        by_tool=-0.8368,
    ),
    usual=CosineScale(0.0, 1.0),
    cosine_by_words=0.0,
    known=LogisticCurve(0.2115, (0.8613, 0, -1.949, 1.842, -0.4961, -0.2478, 0.05203)),
    relevance=LogisticCurve(-2.358, (-1.473, 0.7011)),
    min_known=0.0,
)
"""For questions without a vector. They always return their hits by default."""


def calibration_for(space: str | None) -> Calibration:
    """The calibration of an embedding space; None stands for a question without a vector."""
    if space is None:
        return WITHOUT_VECTOR
    return _BY_SPACE.get(space, UNCALIBRATED)


UNCALIBRATED = _BY_SPACE["minilm-l6-v2-int8/384"]._replace(
    usual=CosineScale(0.4, 0.08), min_known=0.0, is_calibrated=False
)
"""For other embedding spaces. It ranks in the same way, and leaves no hits out. Its usual scale is
between those of models whose cosines are all high and of those whose cosines are not."""
