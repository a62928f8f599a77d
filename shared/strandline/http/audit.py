"""Which calls leave a row in the audit trail, in whose, and what the row names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline.db.database import NOBODY, Caller
from strandline.errors import Forbidden, QuotaExceeded, StrandlineError
from strandline.resources import Resources
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A tenant's name, a key's id, a UUID, a CID; shorter than a token, and without its underscore."""


@dataclass(frozen=True)
class AuditedCall:
    """A call that somebody with a right over a tenant made."""

    context: AuditContext
    caller_tenant: str
    """The credential's tenant."""
    target_tenant: str | None
    """The tenant that the call is about, if it is not the caller's own."""
    path_parameters: Mapping[str, str]
    """The parts of its path by name, decoded; whatever a caller wrote there."""


def record_call(
    resources: Resources, call: AuditedCall, deadline: float, error: StrandlineError | None = None
) -> None:
    """Put a call into the trail of the tenant it was about, or, where it was refused and so did
    nothing there, of the caller's own.

    What a quota refused leaves no row, and what the credential does not allow leaves one for as
    long as there is quota: who may do nothing fills no trail with it either. Raises Unavailable.
    """
    if isinstance(error, QuotaExceeded):
        return
    if isinstance(error, Forbidden):
        try:
            resources.quotas.spend(call.caller_tenant, "requests", 1, deadline)
        except QuotaExceeded:
            return  # the row is left out, and the answer stays as it is
    tenant = call.target_tenant if call.target_tenant and error is None else call.caller_tenant
    access = resources.database.connect_as(Caller(tenant, (NOBODY,)), deadline)
    store_audit.add_entry(
        access, call.context, _target_ids(call), outcome=error.code if error else "done"
    )


def _target_ids(call: AuditedCall) -> dict[str, str]:
    """What the call names, if it looks like ids: anything else that stands there is not for the
    trail, least of all a token."""
    parameters = (
        {**call.path_parameters, "tenant": call.target_tenant}
        if call.target_tenant
        else call.path_parameters
    )
    return {name: value for name, value in parameters.items() if _ID.fullmatch(value)}
