"""Leases of requests that wait. Each statement is a transaction of its own, which does not wait for
the disk."""

from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class _Lease:
    wait_id: UUID | None


@dataclass(frozen=True)
class _Ended:
    is_ended: bool


def begin_wait(
    access: TenantDb, function: str, tenant_limit: int, function_limit: int, seconds: float
) -> UUID | None:
    """Lease a wait of at most `seconds` for the caller's tenant. None if as many requests of the
    tenant, or of the function, wait already as the limits allow."""
    (lease,) = access.fetch(
        _Lease,
        "select begin_wait(%(function)s, %(tenant_limit)s, %(function_limit)s, %(seconds)s::float8)"
        " as wait_id",
        {
            "function": function,
            "tenant_limit": tenant_limit,
            "function_limit": function_limit,
            "seconds": seconds,
        },
    )
    return lease.wait_id


def end_wait(access: TenantDb, wait_id: UUID) -> None:
    """Give a lease back. One that has expired may be gone already."""
    access.fetch(_Ended, "select end_wait(%(wait_id)s) as is_ended", {"wait_id": wait_id})
