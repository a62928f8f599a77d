"""Which rule combines the confidences that sources give to one node or edge."""

from strandline.config import get_settings


def halves_by_default() -> bool:
    """Whether the deployment halves confidences; a tenant's own setting goes before it."""
    return get_settings().tuning.edge_confidence == "halving"
