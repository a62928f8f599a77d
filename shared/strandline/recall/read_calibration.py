"""The calibration of recall for a question, by the figures of its embedding space."""

from strandline.db.database import TenantDb
from strandline.embeddings.store_space_figures import read_figures
from strandline.recall.calibrations import WITHOUT_VECTOR, calibration_for
from strandline.recall.relevance import Calibration
from strandline.recall.store import CandidateRow


def read_calibration(access: TenantDb, space: str | None, question: str) -> Calibration:
    """The calibration of an embedding space for a question; None stands for a question without a
    vector."""
    if space is None:
        return WITHOUT_VECTOR
    return calibration_for(space, read_figures(access, space), question)


def choose_min_known(
    head: CandidateRow | None, min_known: float | None, calibration: Calibration
) -> float:
    """The threshold of `known`: the tenant's, else the deployment's, else the embedding space's."""
    if not calibration.is_calibrated:
        return 0.0
    thresholds = (head.min_known if head else None, min_known, calibration.min_known)
    return next(value for value in thresholds if value is not None)
