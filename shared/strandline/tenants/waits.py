"""Requests that wait for something to come. A request that sleeps occupies an instance of its
function, so each holds a lease, and the leases of a tenant and of a function are limited."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from strandline.config import ServiceSettings
from strandline.db.database import TenantDb
from strandline.errors import OutcomeUnknown, Unavailable
from strandline.observability import logger
from strandline.tenants import store_waits

RETRY_SECONDS = 5
"""Seconds after which a request that may not wait should be sent again."""
_LEASE_MARGIN_SECONDS = 2.0
"""How much longer than its request's wait a lease is valid: for the read that ends the wait."""

leave_worker: ContextVar[Callable[[], AbstractContextManager[object]]] = ContextVar(
    "leave_worker", default=nullcontext
)
"""Leaves the caller's place among those who serve requests to another request, as long as the
context lasts. A Lambda instance has no other request; the one-machine runtime sets it."""


def sleep(seconds: float) -> None:
    """Sleep without a place among those who serve requests."""
    with leave_worker.get()():
        time.sleep(seconds)


class WaitLimits:
    """Leases waits in the database. One instance per process; thread-safe."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._tenant_limit = settings.tenant_waits
        self._function_limit = settings.function_waits

    @contextmanager
    def lease(self, access: TenantDb, function: str, seconds: float) -> Generator[bool]:
        """Whether a request of the caller's tenant that this function serves may wait for up to
        `seconds`; the lease is given back at the end of the context. No transaction is open
        meanwhile. A lease that cannot be given back expires."""
        wait_id = store_waits.begin_wait(
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
                    store_waits.end_wait(access, wait_id)
                except (OutcomeUnknown, Unavailable) as error:
                    logger.warning("a wait's lease is left to expire", extra={"error": error.code})
