"""Fold recalls into chains' heat, and recompute the times that depend on heat settings."""

from datetime import datetime, timedelta

from strandline.chains import store_recalls
from strandline.db.connection import Connection
from strandline.db.database import TenantDb
from strandline.tuning import Tuning

RETENTION = timedelta(days=30)
"""How long a recall is kept after it was folded."""


def list_due_tenants(connection: Connection, deployment: Tuning, now: datetime) -> list[str]:
    """Ids of the tenants with recalls to fold or to remove, or with chains whose heat times are out
    of date."""
    return store_recalls.list_due_tenants(
        connection, deployment.heat_time_parameters(), now - RETENTION
    )


def fold_tenant_recalls_into_heat(
    access: TenantDb, now: datetime, limit: int, tuning: Tuning
) -> int:
    """Fold the recalls of at most `limit` chains of the caller's tenant into the chains' strength
    and heat times, in one transaction. Returns how many chains changed: 0 if no recall was waiting.

    Each recall is folded once, even if several folds run at the same time: they lock its chain
    first, and a recall that is stored twice is one row.
    """
    with access.transaction():
        chain_ids = store_recalls.lock_chains_with_unfolded_recalls(access, limit)
        return (
            store_recalls.fold_recalls_into_chains(access, chain_ids, now, tuning)
            if chain_ids
            else 0
        )


def recompute_heat_times(access: TenantDb, limit: int, tuning: Tuning) -> int:
    """Recompute `cold_at` and `promote_until` of the next `limit` chains, in one transaction, if
    the tenant's heat settings have changed. Returns how many chains; fewer than `limit` means that
    all are done. Another change of the settings restarts the recomputation."""
    settings = tuning.heat_time_parameters()
    with access.transaction():
        progress = store_recalls.lock_heat_recompute_progress(access, settings)
        if progress is None:
            return 0
        chain_ids = store_recalls.lock_chains_after(access, progress.after, limit)
        store_recalls.recompute_heat_times(access, chain_ids, tuning)
        store_recalls.set_heat_recompute_progress(
            access, settings, chain_ids[-1] if len(chain_ids) == limit else None
        )
        return len(chain_ids)


def delete_old_recalls(access: TenantDb, before: datetime, limit: int) -> int:
    """Remove recalls of the caller's tenant that were folded before `before` (now - RETENTION),
    older recalls whose chain no longer exists, and older records of recalled events: at most
    `limit` of each. Their effect on the chains is kept. Returns how many were removed."""
    with access.transaction():
        recall_count = store_recalls.delete_old_recalls(access, before, limit)
        return recall_count + store_recalls.delete_old_recall_answers(access, before, limit)
