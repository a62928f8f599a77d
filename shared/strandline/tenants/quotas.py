"""Limits per tenant. Units are leased from the database in slices, and spent in the process without
a query. What a tenant stores is counted again from time to time."""

import math
import threading
import time
from dataclasses import dataclass, field

from strandline.clock import read_uptime
from strandline.config import ServiceSettings
from strandline.config_quotas import QUOTA_BY_NAME, Quota
from strandline.db.connection import Connection
from strandline.db.database import Caller, Database, TenantDb
from strandline.errors import OutcomeUnknown, QuotaExceeded, StrandlineError, TooLarge, Unavailable
from strandline.tenants import store_quotas

_SLICE_TTL_SECONDS = 60.0
"""Seconds after which the unspent units of a slice expire, and a changed limit is in force in all
processes. The database relies on this value (`in_flight_period`)."""
_MAX_SLICES = 30_000


@dataclass
class _LocalBalance:
    """One process's share of one tenant's quota."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    units: int = 0
    expires_at: float = 0.0
    refused_units: int = 0
    """The number of units that was refused last,"""
    refused_until: float = 0.0
    """and the uptime until which a request for as many is refused without a query."""
    limit: int = 0
    at_once: int = 0

    def remaining_units(self) -> int:
        """Units that may still be spent."""
        if read_uptime() >= self.expires_at:
            self.units = 0
        return self.units

    def is_refused(self, units: int) -> bool:
        """Whether a recent refusal also applies to this request."""
        return units >= self.refused_units and read_uptime() < self.refused_until


class QuotaManager:
    """Spends tenants' quotas from slices that are leased from the database. Thread-safe; one
    instance per process.

    The units leased by all processes never exceed limit x time + burst (see `lease_quota` in
    functions.sql). A process holds at most one unspent slice, plus the units that its last requests
    returned, so limits are exact to within one slice per process. Only a request that uses up a
    slice needs a round trip. A refusal is remembered until it expires, so that a flood of requests
    uses no connections.
    """

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self.defaults = settings.quota_defaults
        """The limits of a tenant for which no operator has set any."""
        self.burst_seconds = settings.tenant_burst_seconds
        self.model_usd_per_month = settings.llm_usd_per_month
        """The monthly budget for language models, in USD, of a tenant for which no operator has set
        one; None is no limit. `llm.budget` spends it."""
        self._database = database
        self._balances: dict[tuple[str, Quota], _LocalBalance] = {}
        self._lock = threading.Lock()

    def spend(self, tenant: str, quota: Quota, units: int, deadline: float | None = None) -> None:
        """Spend `units` of a tenant's quota, all or none. Must be called outside of any
        transaction. Raises QuotaExceeded; TooLarge for more than the quota ever grants at once;
        Unavailable."""
        if units <= 0:
            return
        balance = self._get_local_balance(tenant, quota)
        _acquire_lock_until(balance.lock, deadline)
        try:
            # Once: units that expire after this check are spent nonetheless.
            available = balance.remaining_units()
            need = units - available
            if need > 0 and not balance.is_refused(need):
                available += self._lease_units(balance, tenant, quota, need, deadline)
            if units > available:
                raise _make_quota_error(balance, quota, units)
            balance.units = available - units
        finally:
            balance.lock.release()

    def refund(self, tenant: str, quota: Quota, units: int) -> None:
        """Return the units of a spend whose work was not done. If their slice has expired, they are
        lost, which is harmless: a rate refills, and a level is recounted."""
        balance = self._get_local_balance(tenant, quota)
        with balance.lock:
            if read_uptime() < balance.expires_at:
                balance.units += max(0, units)

    def _get_local_balance(self, tenant: str, quota: Quota) -> _LocalBalance:
        if balance := self._balances.get((tenant, quota)):
            return balance
        with self._lock:
            if len(self._balances) >= _MAX_SLICES:
                self._balances.clear()
            return self._balances.setdefault((tenant, quota), _LocalBalance())

    def _lease_units(
        self, balance: _LocalBalance, tenant: str, quota: Quota, need: int, deadline: float | None
    ) -> int:
        requested_at = read_uptime()
        access = self._database.connect_as(Caller.background(tenant), deadline)
        try:
            grant = store_quotas.lease_quota_units(
                access, quota, need, self.defaults[quota], self.burst_seconds
            )
        except OutcomeUnknown as error:  # whatever became of the lease, the request stored nothing
            raise Unavailable from error
        balance.limit, balance.at_once = grant.limit, grant.at_once
        if grant.granted:
            balance.expires_at = requested_at + _SLICE_TTL_SECONDS
        else:
            balance.refused_units, balance.refused_until = (
                need,
                read_uptime() + grant.retry_after,
            )
        return grant.granted


def _acquire_lock_until(lock: threading.Lock, deadline: float | None) -> None:
    """Acquire the lock, so that one thread leases while the others wait for its slice, until
    `deadline` at the latest. Raises Unavailable."""
    timeout = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
    if not lock.acquire(timeout=timeout):
        raise Unavailable


def _make_quota_error(balance: _LocalBalance, quota: Quota, units: int) -> StrandlineError:
    retry_after = max(1, math.ceil(balance.refused_until - read_uptime()))
    spec = QUOTA_BY_NAME[quota]
    limit_text = spec.refusal.format(limit=balance.limit, at_once=balance.at_once)
    summary = f"{quota}: the tenant's quota is {limit_text}"
    if units > balance.at_once > 0:
        return TooLarge(
            f"{summary}, and this request needs {units:,}. Waiting does not help: send less at "
            "once, or ask the operator for more.",
            quota=quota,
            limit=balance.limit,
            at_once=balance.at_once,
        )
    waiting_helps = balance.at_once > 0 and spec.is_rate
    advice = (
        f"try again in {retry_after} s, or ask the operator for more"
        if waiting_helps
        else "ask the operator for more"
    )
    error = QuotaExceeded(
        f"{summary}, and {units:,} more are not free now: {advice}.",
        quota=quota,
        retry_after=retry_after,
        limit=balance.limit,
        at_once=balance.at_once,
    )
    error.retryable = waiting_helps
    return error


RECOUNT_SECONDS = 600
"""The minimum interval between counts of a tenant. A tenant is counted only if its storage
changed."""
_MAX_RECOUNTS = 100
"""The maximum number of tenants counted per sweep; those counted longest ago come first."""


def list_tenants_to_recount(connection: Connection) -> list[str]:
    """List the tenants that are due for a count."""
    return store_quotas.list_tenants_to_recount(connection, RECOUNT_SECONDS, _MAX_RECOUNTS)


def recount_stored_usage_if_due(access: TenantDb) -> int:
    """Recount the caller's tenant if it is due: a sum over its scopes. Returns 1 if it was counted,
    else 0."""
    if not store_quotas.is_recount_due(access, RECOUNT_SECONDS):
        return 0
    with access.transaction():
        store_quotas.recount_stored_usage(access)
    return 1
