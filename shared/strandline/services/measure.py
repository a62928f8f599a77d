"""Count what tenants store, so that the level of their quota is the truth again."""

import time

from strandline.db import Asker, Database
from strandline.observability import logger
from strandline.store import quotas

EVERY_SECONDS = 600
"""A tenant that stores is counted this often at most."""
_TENANTS = 100
"""Counted in a tick at most, longest ago first."""
_COUNTING_SECONDS = 5.0
"""What a count may need: a sum over a tenant's scopes."""


def measure_due(database: Database, deadline: float) -> int:
    """Count for the tenants whose turn it is, until time.monotonic() nears the deadline; gives how
    many were counted. One tenant's failure holds up no other."""
    counted = 0
    for tenant in quotas.due(database.connection(deadline), EVERY_SECONDS, _TENANTS):
        if time.monotonic() > deadline - _COUNTING_SECONDS:
            break
        try:
            access = database.access(Asker.background(tenant), deadline)
            with access.transaction():
                quotas.measure(access)
            counted += 1
        except Exception as error:
            logger.warning(
                "tenant not measured", extra={"tenant": tenant, "error": type(error).__name__}
            )
    return counted
