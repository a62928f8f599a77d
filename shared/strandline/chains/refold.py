"""Have a tenant's chains folded again from the log and what was decided."""

from uuid import UUID

from strandline.chains.form import drop
from strandline.db.database import Access
from strandline.errors import NotFound
from strandline.log import store_scopes
from strandline.tenants import store_audit
from strandline.tenants.store_audit import Act

_SCOPES = 50
"""Dropped in one transaction: appends to them wait for its end."""


def refold(access: Access, act: Act, scope_id: UUID | None) -> int:
    """Drop what was folded in the asker's tenant, or in one scope of it; gives in how many scopes.
    They are due then: the next sweep folds them again, and until then their chains are missing.
    Nothing is lost by it, nor if it is broken off. Raises NotFound.
    """
    if scope_id is not None and store_scopes.get(access, scope_id) is None:
        raise NotFound("There is no scope of this id in this tenant.")
    store_audit.add(access, act, {} if scope_id is None else {"scope_id": str(scope_id)})
    dropped = 0
    page = [scope_id] if scope_id else store_scopes.after(access, None, _SCOPES)
    while page:
        drop(access, page)
        dropped += len(page)
        page = [] if scope_id else store_scopes.after(access, page[-1], _SCOPES)
    return dropped
