"""Count what a tenant stores, so that the level of its quota is the truth again."""

from strandline.db.database import Access, Connection
from strandline.tenants import store_quotas

EVERY_SECONDS = 600
"""A tenant that stores is counted this often at most."""
_TENANTS = 100
"""Counted in a sweep at most, longest ago first."""


def due(connection: Connection) -> list[str]:
    """The tenants whose turn it is."""
    return store_quotas.due(connection, EVERY_SECONDS, _TENANTS)


def measure(access: Access) -> int:
    """Count for the asker's tenant, if it is its turn: a sum over its scopes. Gives 1 if it was."""
    if not store_quotas.is_due(access, EVERY_SECONDS):
        return 0
    with access.transaction():
        store_quotas.measure(access)
    return 1
