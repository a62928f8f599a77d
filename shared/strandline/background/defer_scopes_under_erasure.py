"""Scopes with events that are being erased: their work is deferred, so that no model gets the
texts."""

from collections.abc import Sequence

from strandline.db.database import TenantDb
from strandline.jobs.worker_resources import WorkDeferred, WorkerResources
from strandline.log.store_erasure_marks import list_marked_scopes
from strandline.log.store_work import ScopeLease

_WAIT_SECONDS = 30
"""When such a scope is tried again."""


def defer_scopes_under_erasure(
    worker: WorkerResources, access: TenantDb, leases: Sequence[ScopeLease]
) -> list[ScopeLease]:
    """Defer those of these scopes that have events which are being erased. Returns the others."""
    erasing_scopes = list_marked_scopes(access, [lease.scope_id for lease in leases])
    worker.tally.deferrals |= {
        scope_id: WorkDeferred("erasing", _WAIT_SECONDS) for scope_id in erasing_scopes
    }
    return [lease for lease in leases if lease.scope_id not in erasing_scopes]
