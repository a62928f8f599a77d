"""Limits per tenant: leased from the database in slices, spent here without asking anybody."""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.config import Settings
from strandline.db.database import Asker, Database
from strandline.errors import QuotaExceeded, StrandlineError, TooLarge, Unavailable, Unsure
from strandline.tenants import store_quotas
from strandline.tenants.store_quotas import Quota

_LAPSE_SECONDS = 60.0
"""Units not spent after this long are given up; a changed limit holds everywhere by then. The
database counts on it (`recent_period`)."""
_KEPT = 30_000


@dataclass
class _Slice:
    """What this process holds of one tenant's quota."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    units: int = 0
    lapses_at: float = 0.0
    refused: int = 0
    """So many units were refused,"""
    refused_until: float = 0.0
    """and until then nobody needs to ask again for as many. Both times in time.monotonic()."""
    limit: int = 0
    at_once: int = 0

    def left(self) -> int:
        """Units that may still be spent."""
        if time.monotonic() >= self.lapses_at:
            self.units = 0
        return self.units

    def refuses(self, need: int) -> bool:
        """The answer is known from before."""
        return need >= self.refused and time.monotonic() < self.refused_until


class Quotas:
    """What tenants may use: spends from slices that are leased from the database. Shared by
    threads, one to a process.

    What is leased over all processes never passes limit x time + burst (see `lease_quota` in the
    migrations), and a process holds at most one slice unspent, beside what its last requests gave
    back: limits are exact within one slice for each process. Only who runs out of a slice pays a
    round trip. A refusal is remembered until its time, so that a flood costs no connection.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self.defaults: Mapping[Quota, int] = {
            "requests": settings.tenant_requests_per_minute,
            "appends": settings.tenant_appends_per_minute,
            "stored_bytes": settings.tenant_stored_bytes,
        }
        """The limits of a tenant for which no operator set any."""
        self.burst_seconds = settings.tenant_burst_seconds
        self.model_usd_per_month = settings.llm_usd_per_month
        """The budget for language models of a tenant for which no operator set any; None is no
        limit. It is spent by `metering`."""
        self._database = database
        self._slices: dict[tuple[str, Quota], _Slice] = {}
        self._lock = threading.Lock()

    def spend(self, tenant: str, quota: Quota, units: int, deadline: float | None = None) -> None:
        """Use `units` of a tenant's quota, all or none; outside of any transaction.

        Raises QuotaExceeded, TooLarge for more than the quota ever gives at once, Unavailable.
        """
        if units <= 0:
            return
        held = self._held(tenant, quota)
        _acquire(held.lock, deadline)
        try:
            left = held.left()  # once: what lapses from here on is spent all the same
            need = units - left
            if need > 0 and not held.refuses(need):
                left += self._lease(held, tenant, quota, need, deadline)
            if units > left:
                raise _refusal(held, quota, units)
            held.units = left - units
        finally:
            held.lock.release()

    def give_back(self, tenant: str, quota: Quota, units: int) -> None:
        """Return units of a spend that came to nothing. Where their slice has lapsed they are
        lost: a rate grows again, and a level is counted anew."""
        held = self._held(tenant, quota)
        with held.lock:
            if time.monotonic() < held.lapses_at:
                held.units += max(0, units)

    def _held(self, tenant: str, quota: Quota) -> _Slice:
        if held := self._slices.get((tenant, quota)):
            return held
        with self._lock:
            if len(self._slices) >= _KEPT:
                self._slices.clear()
            return self._slices.setdefault((tenant, quota), _Slice())

    def _lease(
        self, held: _Slice, tenant: str, quota: Quota, need: int, deadline: float | None
    ) -> int:
        asked_at = time.monotonic()
        access = self._database.access(Asker.background(tenant), deadline)
        try:
            got = store_quotas.lease(access, quota, need, self.defaults[quota], self.burst_seconds)
        except Unsure as error:  # whatever became of the lease, nothing of the request was stored
            raise Unavailable from error
        held.limit, held.at_once = got.limit, got.at_once
        if got.granted:
            held.lapses_at = asked_at + _LAPSE_SECONDS
        else:
            held.refused, held.refused_until = need, time.monotonic() + got.retry_after
        return got.granted


def _acquire(lock: threading.Lock, deadline: float | None) -> None:
    """One thread leases, the others wait for its slice: no longer than they may."""
    left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
    if not lock.acquire(timeout=left):
        raise Unavailable


def _refusal(held: _Slice, quota: Quota, units: int) -> StrandlineError:
    retry_after = max(1, math.ceil(held.refused_until - time.monotonic()))
    if quota == "stored_bytes":
        allowed = f"{held.limit:,} bytes in all"
    else:
        allowed = f"{held.limit:,} a minute, {held.at_once:,} at once"
    said = f"{quota}: the tenant's quota is {allowed}"
    if units > held.at_once > 0:
        return TooLarge(
            f"{said}, and this request needs {units:,}. Waiting does not help: send less at once, "
            "or ask the operator for more.",
            quota=quota,
            limit=held.limit,
            at_once=held.at_once,
        )
    waiting_helps = held.at_once > 0 and quota != "stored_bytes"
    way_out = (
        f"try again in {retry_after} s, or ask the operator for more"
        if waiting_helps
        else "ask the operator for more"
    )
    refused = QuotaExceeded(
        f"{said}, and {units:,} more are not free now: {way_out}.",
        quota=quota,
        retry_after=retry_after,
        limit=held.limit,
        at_once=held.at_once,
    )
    refused.retryable = waiting_helps
    return refused
