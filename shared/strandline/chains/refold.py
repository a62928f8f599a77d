"""Refold a tenant's chains from the log and the stored decisions."""

from collections.abc import Sequence
from uuid import UUID

from strandline.chains import store_chain_dropping
from strandline.db.database import TenantDb
from strandline.errors import NotFound
from strandline.log import store_scopes
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

_SCOPES_PER_TRANSACTION = 50
"""How many scopes one transaction drops. Appends to them wait until it ends."""


def refold(access: TenantDb, audit_context: AuditContext, scope_id: UUID | None) -> int:
    """Drop all folded rows of the caller's tenant, or of one scope of it. Returns the number of
    scopes. The scopes become due, and the next sweep folds them again; until then their chains are
    missing. Nothing is lost, even if this is interrupted. Raises NotFound for an unknown scope."""
    if scope_id is not None and store_scopes.get_scope(access, scope_id) is None:
        raise NotFound("There is no scope with this scope_id in this tenant.")
    store_audit.add_entry(
        access, audit_context, {} if scope_id is None else {"scope_id": str(scope_id)}
    )
    dropped_count = 0
    page = (
        [scope_id]
        if scope_id
        else store_scopes.list_ids_after(access, None, _SCOPES_PER_TRANSACTION)
    )
    while page:
        drop_chains(access, page)
        dropped_count += len(page)
        page = (
            []
            if scope_id
            else store_scopes.list_ids_after(access, page[-1], _SCOPES_PER_TRANSACTION)
        )
    return dropped_count


def drop_chains(access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    """Delete the folded rows of these scopes and have them refolded. The refold produces the same
    chains, because decisions are kept, with the same strength and heat, because the effect of
    recalls is kept."""
    with access.transaction():
        store_chain_dropping.drop_chains(access, scope_ids)
