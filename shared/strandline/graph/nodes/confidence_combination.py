"""The rule that combines the confidences of several sources for one node or edge."""

from strandline.config import get_settings


def combines_by_halving_by_default() -> bool:
    """Whether the deployment combines confidences by halving. A tenant's own setting takes
    precedence."""
    return get_settings().tuning.edge_confidence == "halving"
