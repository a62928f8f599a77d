"""Count what a tenant stores, so that the level of its quota is the truth again."""

from strandline.db.database import Connection, TenantDb
from strandline.tenants import store_quotas

INTERVAL_SECONDS = 600
"""A tenant that stores is counted this often at most."""
_MAX_TENANTS = 100
"""Counted in a sweep at most, longest ago first."""


def list_due_tenants(connection: Connection) -> list[str]:
    """The tenants whose turn it is."""
    return store_quotas.list_tenants_to_recount(connection, INTERVAL_SECONDS, _MAX_TENANTS)


def recount_usage(access: TenantDb) -> int:
    """Count for the asker's tenant, if it is its turn: a sum over its scopes. Gives 1 if it was."""
    if not store_quotas.is_recount_due(access, INTERVAL_SECONDS):
        return 0
    with access.transaction():
        store_quotas.recount_usage(access)
    return 1
