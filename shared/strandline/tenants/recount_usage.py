"""Count how much a tenant stores, and correct the level of its storage quota."""

from strandline.db.connection import Connection
from strandline.db.database import TenantDb
from strandline.tenants import store_quotas

INTERVAL_SECONDS = 600
"""The minimum interval between counts of a tenant. A tenant is counted only if its storage
changed."""
_MAX_TENANTS = 100
"""The maximum number of tenants counted per sweep; those counted longest ago come first."""


def list_due_tenants(connection: Connection) -> list[str]:
    """List the tenants that are due for a count."""
    return store_quotas.list_tenants_to_recount(connection, INTERVAL_SECONDS, _MAX_TENANTS)


def recount_usage(access: TenantDb) -> int:
    """Recount the caller's tenant if it is due: a sum over its scopes. Returns 1 if it was counted,
    else 0."""
    if not store_quotas.is_recount_due(access, INTERVAL_SECONDS):
        return 0
    with access.transaction():
        store_quotas.recount_usage(access)
    return 1
