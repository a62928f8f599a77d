"""Calibrations of relevance, by embedding space, from `make fit-relevance`."""

from collections.abc import Mapping

from strandline.recall.cosine_scale import CosineScale
from strandline.recall.features import Features
from strandline.recall.relevance import Calibration, LogisticCurve

_BY_SPACE: Mapping[str, Calibration] = {
    "minilm-l6-v2-int8/384": Calibration(
        features=Features(
            cosine=1.0,
            words=2.12,
            words_nearby=2.99,
            cosine_before=0.377,
            cosine_after=0.171,
            cosine_nearby=0.559,
            other_speaker=-1.58,
            question_share=-3.41,
            date=1.76,
            length=1.45,
            by_agent=-1.0,
            by_tool=-1.0,
        ),
        usual=CosineScale(0.15, 0.12),
        cosine_by_words=4.0,
        known=LogisticCurve(-2.519, (-0.6745, 14.1, -0.2577, 2.082, 1.102, -0.7006, 3.014)),
        relevance=LogisticCurve(-1.908, (-8.47, 0.5279)),
        min_known=0.0955,
    ),
}
WITHOUT_VECTOR = Calibration(
    features=Features(
        cosine=0.0,
        words=0.2613,
        words_nearby=0.3515,
        cosine_before=0.0,
        cosine_after=0.0,
        cosine_nearby=0.0,
        other_speaker=-0.1228,
        question_share=-0.2493,
        date=0.1262,
        length=0.0665,
        by_agent=-0.06,
        by_tool=-0.06,
    ),
    usual=CosineScale(0.0, 1.0),
    cosine_by_words=0.0,
    known=LogisticCurve(-0.2655, (-0.6933, 0, -1.24, 4.584, 2.424, -0.2351, 2.213)),
    relevance=LogisticCurve(-2.225, (-17.55, 0.719)),
    min_known=0.0,
)
"""For questions without a vector. They always return their hits by default."""


def calibration_for(space: str | None) -> Calibration:
    """The calibration of an embedding space; None stands for a question without a vector."""
    if space is None:
        return WITHOUT_VECTOR
    return _BY_SPACE.get(space, UNCALIBRATED)


UNCALIBRATED = _BY_SPACE["minilm-l6-v2-int8/384"]._replace(min_known=0.0, is_calibrated=False)
"""For other embedding spaces. It ranks in the same way, and leaves no hits out."""
