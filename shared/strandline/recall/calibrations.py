"""The calibration of relevance for all embedding spaces, from `make bench NAME=fit-relevance`, and
the one of a question."""

from collections.abc import Mapping

from strandline.db.database import TenantDb
from strandline.embeddings.embedder import (
    ENGLISH_DIMENSIONS,
    ENGLISH_MODEL,
    LOCAL_DIMENSIONS,
    LOCAL_MODEL,
)
from strandline.embeddings.space_figures import SHIPPED_FIGURES, SpaceFigures
from strandline.embeddings.store_space_figures import parse_figures, read_figures
from strandline.languages import detect_language
from strandline.recall.cosine_scale import CosineDistribution
from strandline.recall.features import EventScoreFeatures
from strandline.recall.relevance import Calibration, LogisticCurve
from strandline.recall.store import CandidateRow

_WEIGHTS = EventScoreFeatures(
    cosine=1.0,
    words=2.828,
    words_nearby=3.675,
    cosine_before=0.346,
    cosine_after=0.178,
    cosine_nearby=0.36,
    other_speaker=-1.296,
    question_share=-4.44,
    date=2.093,
    length=1.484,
    by_agent=-1.0,
    by_tool=-1.0,
    says_nothing=-20.0,
    newness=0.6,
)
"""For every embedding space: fitted to four of them together."""
CALIBRATION = Calibration(
    features=_WEIGHTS,
    usual=CosineDistribution(0.0, 1.0),
    cosine_by_words=4.4,
    known=LogisticCurve(-2.032, (0.7576, 0.292, 2.006, 2.827, -0.4679)),
    relevance=LogisticCurve(-1.965, (-0.69, 0.3932)),
    min_known=0.0219,
)
"""For every embedding space with figures, on whose usual scale the curves are."""
_MIN_KNOWN: Mapping[tuple[str, bool], float] = {
    (f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}", True): 0.0659,
    (f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}", False): 0.0659,
    (f"{ENGLISH_MODEL}/{ENGLISH_DIMENSIONS}", True): 0.0659,
}
"""By embedding space and whether the question is in English, where the questions there allow a
higher threshold than those of all spaces."""
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


UNCALIBRATED = CALIBRATION._replace(
    usual=CosineDistribution(0.4, 0.08), min_known=0.0, is_calibrated=False
)
"""For embedding spaces without figures. It ranks in the same way, and leaves no hits out. Its usual
scale is between those of models whose cosines are all high and of those whose cosines are not."""


def calibration_for(space: str, figures: SpaceFigures | None, question: str) -> Calibration:
    """The calibration of an embedding space for a question with a vector. What is usual there
    depends on the question's language: few models know all of them alike."""
    if figures is None or not figures.is_usable:
        return UNCALIBRATED
    is_english = detect_language(question) == "en"
    pairs = figures.questions if is_english else figures.other_questions
    return CALIBRATION._replace(
        usual=CosineDistribution(pairs.mean, pairs.deviation),
        min_known=_MIN_KNOWN.get((space, is_english), CALIBRATION.min_known),
    )


def read_calibration(
    access: TenantDb, space: str | None, question: str, head: CandidateRow | None
) -> Calibration:
    """The calibration of an embedding space for a question; None stands for a question without a
    vector. The figures come with the candidates; without any, they are looked up."""
    if space is None:
        return WITHOUT_VECTOR
    return calibration_for(space, _read_space_figures(access, space, head), question)


def _read_space_figures(
    access: TenantDb, space: str, head: CandidateRow | None
) -> SpaceFigures | None:
    if head is None or space in SHIPPED_FIGURES:
        return read_figures(access, space)
    return parse_figures(head.space_figures) if head.space_figures else None


def choose_min_known(
    head: CandidateRow | None, min_known: float | None, calibration: Calibration
) -> float:
    """The threshold of `known`: the tenant's, else the deployment's, else the embedding space's."""
    if not calibration.is_calibrated:
        return 0.0
    thresholds = (head.min_known if head else None, min_known, calibration.min_known)
    return next(value for value in thresholds if value is not None)
