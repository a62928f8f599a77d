"""Keep warmth up: recalls made strength, in the background, and moments that follow settings."""

from datetime import datetime, timedelta

from strandline.chains import store_recalls
from strandline.db.database import Access, Connection
from strandline.tuning import Tuning

KEPT = timedelta(days=30)
"""How long a recall stays after it was folded."""


def due(connection: Connection, deployment: Tuning, now: datetime) -> list[str]:
    """Tenants for which there is something to fold, to go through or to remove."""
    return store_recalls.tenants(connection, deployment.of_heat(), now - KEPT)


def fold(access: Access, now: datetime, limit: int, tuning: Tuning) -> int:
    """Fold the recalls of at most `limit` chains of the asker's tenant, in one transaction, into
    their strength and what follows from it. Gives how many chains: 0 where none waited.

    A recall is folded once, however many fold at once: they lock its chain first, and a recall
    stored twice is one row.
    """
    with access.transaction():
        held = store_recalls.hold_recalled(access, limit)
        return store_recalls.fold(access, held, now, tuning) if held else 0


def rewarm(access: Access, limit: int, tuning: Tuning) -> int:
    """Where the tenant's heat settings are no longer those that its chains' `cold_at` and
    `promote_until` go by: set these anew, for the next `limit` chains, in one transaction. Gives
    how many; fewer than `limit` where that was all. Another change begins again."""
    settings = tuning.of_heat()
    with access.transaction():
        warming = store_recalls.hold_warming(access, settings)
        if warming is None:
            return 0
        held = store_recalls.hold_after(access, warming.after, limit)
        store_recalls.rewarm(access, held, tuning)
        store_recalls.set_warming(access, settings, held[-1] if len(held) == limit else None)
        return len(held)


def prune(access: Access, before: datetime, limit: int) -> int:
    """Remove recalls of the asker's tenant that were folded before this moment (now - KEPT), and
    older ones whose chain is gone: at most `limit` of either. What they made stays. Gives how many.
    """
    with access.transaction():
        return store_recalls.prune(access, before, limit)
