"""The calibration of recall for a question, by the figures of its embedding space."""

from strandline.db.database import TenantDb
from strandline.embeddings.space_figures import SHIPPED_FIGURES, SpaceFigures
from strandline.embeddings.store_space_figures import parse_figures, read_figures
from strandline.recall.calibrations import WITHOUT_VECTOR, calibration_for
from strandline.recall.relevance import Calibration
from strandline.recall.store import CandidateRow


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
