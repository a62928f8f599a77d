"""Which calls leave a row in the audit trail, in which tenant's trail, and which ids the row
names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline.db.database import NOBODY, Caller
from strandline.errors import Forbidden, QuotaExceeded, StrandlineError
from strandline.resources import Resources
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A tenant's name, a key's id, a UUID or a CID. A token never matches: it is longer and holds an
underscore."""
_TEXTS = frozenset({"field", "file", "path", "session_id"})
"""Parameters whose values callers choose: memory, which an erasure of the trail could not reach."""


@dataclass(frozen=True)
class AuditedCall:
    """A call by a credential that has rights over a tenant."""

    context: AuditContext
    caller_tenant: str
    """The credential's tenant."""
    target_tenant: str | None
    """The tenant that the call is about, if it is not the caller's own."""
    path_parameters: Mapping[str, str]
    """The path's parameters by name, decoded; a caller may have written anything there."""


def record_call(
    resources: Resources, call: AuditedCall, deadline: float, error: StrandlineError | None = None
) -> None:
    """Add a call to the audit trail of the tenant it was about. A refused call changed nothing
    there, so its row goes into the caller's own trail.

    A call that a quota refused leaves no row. A call that the credential does not allow spends
    quota for its row and leaves none once the quota is used up, so that nobody can flood a trail
    with forbidden calls. Raises Unavailable when the row cannot be written.
    """
    if isinstance(error, QuotaExceeded):
        return
    if isinstance(error, Forbidden):
        try:
            resources.quotas.spend(call.caller_tenant, "requests", 1, deadline)
        except QuotaExceeded:
            return  # no row; the answer stays as it is
    tenant = call.target_tenant if call.target_tenant and error is None else call.caller_tenant
    access = resources.database.connect_as(Caller(tenant, (NOBODY,)), deadline)
    store_audit.add_entry(
        access, call.context, _target_ids(call), outcome=error.code if error else "done"
    )


def _target_ids(call: AuditedCall) -> dict[str, str]:
    """The path's parameters that are ids and look like ids. Any other text is kept out of the
    trail, above all a token."""
    parameters = (
        {**call.path_parameters, "tenant": call.target_tenant}
        if call.target_tenant
        else call.path_parameters
    )
    return {
        name: value
        for name, value in parameters.items()
        if name not in _TEXTS and _ID.fullmatch(value)
    }
