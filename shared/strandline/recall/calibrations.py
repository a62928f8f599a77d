"""Calibrations of relevance, by embedding space, from `make fit-relevance`."""

from collections.abc import Mapping

from strandline.recall.features import Features, MissingCosine
from strandline.recall.relevance import Calibration, Curve

_BY_SPACE: Mapping[str, Calibration] = {
    "minilm-l6-v2-int8/384": Calibration(
        features=Features(
            cosine=1.0,
            words=0.0106,
            words_nearby=0.0093,
            cosine_before=0.036,
            cosine_after=0.127,
            cosine_nearby=0.19,
            other_speaker=-0.16,
            is_question=-0.2035,
            date=0.17,
        ),
        missing_cosine=MissingCosine(without_words=0.15, rise=0.5),
        known=Curve(-2.247, (2.083, 10.55, -0.5931, 0.881, 1.047, -0.6714, 2.817)),
        relevance=Curve(-2.067, (-8.767, 0.5252)),
        min_known=0.0926,
    ),
}
WITHOUT_VECTOR = Calibration(
    features=Features(
        cosine=0.0,
        words=0.0106,
        words_nearby=0.0093,
        cosine_before=0.0,
        cosine_after=0.0,
        cosine_nearby=0.0,
        other_speaker=-0.16,
        is_question=-0.2035,
        date=0.17,
    ),
    missing_cosine=MissingCosine(0.0, 0.0),
    known=Curve(-0.3493, (3.889, 0, -1.488, 2.691, 2.113, -0.2054, 0.764)),
    relevance=Curve(-2.411, (-15.91, 0.6903)),
    min_known=0.0,
)
"""For questions without a vector, which are never refused by default."""


def calibration_for(space: str | None) -> Calibration:
    """The calibration of an embedding space; of none, for a question without a vector."""
    if space is None:
        return WITHOUT_VECTOR
    return _BY_SPACE.get(space, UNCALIBRATED)


UNCALIBRATED = _BY_SPACE["minilm-l6-v2-int8/384"]._replace(min_known=0.0, is_calibrated=False)
"""For other spaces: they rank likewise, and leave nothing out."""
