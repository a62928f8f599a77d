"""Which calls leave a row in the audit trail, in whose, and what the row names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline.db.database import NOBODY, Asker
from strandline.errors import Forbidden, QuotaExceeded, StrandlineError
from strandline.resources import Service
from strandline.tenants import store_audit
from strandline.tenants.store_audit import Act

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A tenant's name, a key's id, a UUID, a CID; shorter than a token, and without its underscore."""


@dataclass(frozen=True)
class Call:
    """A call that somebody with a right over a tenant made."""

    act: Act
    caller: str
    """The credential's tenant."""
    acts_on: str | None
    """The tenant that the call is about, if it is not the caller's own."""
    named: Mapping[str, str]
    """The parts of its path by name, decoded; whatever a caller wrote there."""


def leave(
    service: Service, call: Call, deadline: float, error: StrandlineError | None = None
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
            service.quotas.spend(call.caller, "requests", 1, deadline)
        except QuotaExceeded:
            return  # the row is left out, and the answer stays as it is
    tenant = call.acts_on if call.acts_on and error is None else call.caller
    access = service.database.access(Asker(tenant, (NOBODY,)), deadline)
    store_audit.add(access, call.act, _ids(call), outcome=error.code if error else "done")


def _ids(call: Call) -> dict[str, str]:
    """What the call names, if it looks like ids: anything else that stands there is not for the
    trail, least of all a token."""
    named = {**call.named, "tenant": call.acts_on} if call.acts_on else call.named
    return {name: value for name, value in named.items() if _ID.fullmatch(value)}
