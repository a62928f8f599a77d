"""The calibration of recall for a question, by the figures of its embedding space."""

from strandline.db.database import TenantDb
from strandline.embeddings.store_space_figures import read_figures
from strandline.recall.calibrations import WITHOUT_VECTOR, calibration_for
from strandline.recall.relevance import Calibration


def read_calibration(access: TenantDb, space: str | None, question: str) -> Calibration:
    """The calibration of an embedding space for a question; None stands for a question without a
    vector."""
    if space is None:
        return WITHOUT_VECTOR
    return calibration_for(space, read_figures(access, space), question)
