"""Keep warmth up: recalls made strength, in the background, and moments that follow settings."""

from datetime import datetime, timedelta

from strandline.chains import store_recalls
from strandline.db.database import Connection, TenantDb
from strandline.tuning import Tuning

RETENTION = timedelta(days=30)
"""How long a recall stays after it was folded."""


def list_due_tenants(connection: Connection, deployment: Tuning, now: datetime) -> list[str]:
    """Tenants for which there is something to fold, to go through or to remove."""
    return store_recalls.list_tenants(connection, deployment.heat_parameters(), now - RETENTION)


def fold(access: TenantDb, now: datetime, limit: int, tuning: Tuning) -> int:
    """Fold the recalls of at most `limit` chains of the asker's tenant, in one transaction, into
    their strength and what follows from it. Gives how many chains: 0 where none waited.

    A recall is folded once, however many fold at once: they lock its chain first, and a recall
    stored twice is one row.
    """
    with access.transaction():
        chain_ids = store_recalls.lock_recalled_chains(access, limit)
        return store_recalls.fold_recalls(access, chain_ids, now, tuning) if chain_ids else 0


def recompute_heat_times(access: TenantDb, limit: int, tuning: Tuning) -> int:
    """Where the tenant's heat settings are no longer those that its chains' `cold_at` and
    `promote_until` go by: set these anew, for the next `limit` chains, in one transaction. Gives
    how many; fewer than `limit` where that was all. Another change begins again."""
    settings = tuning.heat_parameters()
    with access.transaction():
        progress = store_recalls.lock_heat_progress(access, settings)
        if progress is None:
            return 0
        chain_ids = store_recalls.lock_chains_after(access, progress.after, limit)
        store_recalls.recompute_heat_times(access, chain_ids, tuning)
        store_recalls.set_heat_progress(
            access, settings, chain_ids[-1] if len(chain_ids) == limit else None
        )
        return len(chain_ids)


def prune(access: TenantDb, before: datetime, limit: int) -> int:
    """Remove recalls of the asker's tenant that were folded before this moment (now - KEPT), and
    older ones whose chain is gone: at most `limit` of either. What they made stays. Gives how many.
    """
    with access.transaction():
        return store_recalls.prune_recalls(access, before, limit)
