"""Requests that wait for something to come. A request that sleeps occupies an instance of its
function, so each holds a lease, and the leases of a tenant and of a function are limited. Each
statement on a lease is a transaction of its own, which does not wait for the disk."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID

from strandline.config import ServiceSettings
from strandline.db.database import TenantDb
from strandline.errors import OutcomeUnknown, Unavailable
from strandline.observability import logger

RETRY_SECONDS = 5
"""Seconds after which a request that may not wait should be sent again."""
_LEASE_MARGIN_SECONDS = 2.0
"""How much longer than its request's wait a lease is valid: for the read that ends the wait."""

leave_worker: ContextVar[Callable[[], AbstractContextManager[object]]] = ContextVar(
    "leave_worker", default=nullcontext
)
"""Leaves the caller's place among those who serve requests to another request, as long as the
context lasts. A Lambda instance has no other request; the one-machine runtime sets it."""


def sleep_without_wait_lease(seconds: float) -> None:
    """Sleep without a place among those who serve requests."""
    with leave_worker.get()():
        time.sleep(seconds)


class WaitLimits:
    """Leases waits in the database. One instance per process; thread-safe."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._tenant_limit = settings.tenant_waits
        self._function_limit = settings.function_waits

    @contextmanager
    def lease_wait(self, access: TenantDb, function: str, seconds: float) -> Generator[bool]:
        """Whether a request of the caller's tenant that this function serves may wait for up to
        `seconds`; the lease is given back at the end of the context. No transaction is open
        meanwhile. A lease that cannot be given back expires."""
        wait_id = begin_wait(
            access,
            function,
            self._tenant_limit,
            self._function_limit,
            seconds + _LEASE_MARGIN_SECONDS,
        )
        try:
            yield wait_id is not None
        finally:
            if wait_id is not None:
                try:
                    end_wait(access, wait_id)
                except (OutcomeUnknown, Unavailable) as error:
                    logger.warning("a wait's lease is left to expire", extra={"error": error.code})


@dataclass(frozen=True)
class _WaitLeaseRow:
    wait_id: UUID | None


@dataclass(frozen=True)
class _WaitEndedRow:
    is_ended: bool


def begin_wait(
    access: TenantDb, function: str, tenant_limit: int, function_limit: int, seconds: float
) -> UUID | None:
    """Lease a wait of at most `seconds` for the caller's tenant. None if as many requests of the
    tenant, or of the function, wait already as the limits allow."""
    (lease,) = access.fetch(
        _WaitLeaseRow,
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
    access.fetch(_WaitEndedRow, "select end_wait(%(wait_id)s) as is_ended", {"wait_id": wait_id})
