"""Limits on a tenant's model calls (rate, budget, circuit breaker), and the record of the calls.
Limits are leased from the database in blocks and cached for seconds, so that no call costs a round
trip. While events of a tenant are being erased, each call costs a round trip, to check whether its
text is among them."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.clock import read_uptime
from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database, TenantDb
from strandline.errors import Unavailable
from strandline.llm import store_calls
from strandline.llm.call_denials import (
    CallDenied,
    describe_pause,
    make_misconfigured_denial,
)
from strandline.llm.store_calls import FailedAnswer, ModelCall
from strandline.llm.types import TaskContext
from strandline.observability import logger

type Outcome = Literal[
    "ok", "invalid_output", "format_refused", "refused", "late", "unavailable", "misconfigured"
]

CACHE_SECONDS = 5.0
"""How long the cached state of a tenant's limits is used, in seconds."""
_LEASE_SIZE = 10
"""How many calls are leased at once."""
_FLUSH_SIZE = 50
"""With this many unwritten calls, the next request writes them first."""
MAX_UNWRITTEN = 500
"""With this many calls that could not be written, no more calls are made."""
_ERASING_SECONDS = 60.0
"""Seconds after which a call about a scope with events that are being erased may be tried again."""
_MAX_SUBJECTS = 10_000
"""With leases of this many subjects, all of a tenant's are dropped and leased again."""
_CALLS_PER_RUN = 4
"""The calls of a closed run and its merge. Where a minute allows fewer, waiting does not help."""


@dataclass
class _CallRateLease:
    """The calls that this process may still make for a subject until its minute ends."""

    units: int
    expires_at: float
    """An uptime."""
    minute_exhausted: bool
    """The minute allows no more calls."""


@dataclass
class _TenantLimitState:
    """The state of one tenant's limits in this process."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    refreshed_at: float = -CACHE_SECONDS
    """An uptime."""
    output_mode: str | None = None
    failures: int = 0
    failure: str | None = None
    """The kind of the last failure; None: the last answer was usable."""
    failure_text: str | None = None
    breaker_open_until: float = 0.0
    """An uptime."""
    spent_usd: float = 0.0
    """USD of all recorded calls of this month, of all processes."""
    budget_usd: float | None = None
    reserved_usd: float = 0.0
    """USD that calls in progress may cost."""
    unwritten_calls: list[ModelCall] = field(default_factory=list[ModelCall])
    """Calls that are not in the database yet."""
    is_erasing: bool = False
    """Events of the tenant are being erased."""
    leases: dict[str, _CallRateLease] = field(default_factory=dict[str, _CallRateLease])


class LlmBudget:
    """One per process; threads share it. Limits, breaker and budget are each tenant's own.

    The limit of calls per minute is exact over all processes. The budget is checked before each
    call against what the call may cost at most. Processes learn of each other's calls when these
    are written, so the budget is exceeded at most by what the others spend within 5 s. They learn
    of erasures with the same delay.
    """

    def __init__(self, database: Database, settings: ServiceSettings, model: str) -> None:
        self._database = database
        self._settings = settings
        self._model_name = model
        self._accounts: dict[str, _TenantLimitState] = {}
        self._lock = threading.Lock()
        self._refusal: tuple[float, str] | None = None
        """Until when, in uptime, no tenant's call is made, because the provider
        refuses the deployment's settings; and what it was."""

    def _get_tenant_limits(self, tenant: str) -> _TenantLimitState:
        with self._lock:
            return self._accounts.setdefault(tenant, _TenantLimitState())

    def require_closed_breaker(self, task: TaskContext) -> str | None:
        """Call before a task. Returns the output mode that the model is known to accept, or None.
        Raises CallDenied while the breaker is open; when it has been open long enough, one caller
        may probe the model, and the others wait for the time of one answer."""
        if self._refusal is not None and read_uptime() < self._refusal[0]:
            raise make_misconfigured_denial(self._refusal[1], self._refusal[0])
        account = self._get_tenant_limits(task.tenant)
        with account.lock:
            is_probe = (
                self._needs_refresh(account)
                and self._lease_calls_and_refresh_limits(account, task, 0, may_probe=True).is_probe
            )
            if account.failures >= self._settings.llm_breaker_failures and not is_probe:
                raise self._deny_by_breaker(account)
            return account.output_mode

    def _deny_by_breaker(self, account: _TenantLimitState) -> CallDenied:
        text = account.failure_text or "Its last answers were of no use."
        if account.failure == "misconfigured":
            self._refusal = account.breaker_open_until, text
            return make_misconfigured_denial(text, account.breaker_open_until)
        seconds = max(0.0, account.breaker_open_until - read_uptime())
        if account.failure == "rate_limited":
            return CallDenied(
                "rate_limited",
                max(1.0, seconds),
                f"{text} {describe_pause(seconds)}",
                tried_again_in=seconds,
            )
        # Without their number: refused settings count as many as open the breaker.
        text = f"Calls in a row failed, the last one so: {text}"
        return CallDenied(
            "breaker_open", None, f"{text} {describe_pause(seconds)}", tried_again_in=seconds
        )

    def _needs_refresh(self, account: _TenantLimitState) -> bool:
        """Whether the cached state is too old, or the breaker's pause is over."""
        now = read_uptime()
        breaker_expired = (
            account.failures >= self._settings.llm_breaker_failures
            and now >= account.breaker_open_until
        )
        return breaker_expired or now >= account.refreshed_at + CACHE_SECONDS

    @contextmanager
    def reserve(self, task: TaskContext, tokens_in: int) -> Generator[None]:
        """A context for one request with about `tokens_in` tokens: reserves its rate and its cost.
        Raises CallDenied, also while events of the task's scope are being erased: the model's input
        was read before the erasure."""
        account = self._get_tenant_limits(task.tenant)
        if account.is_erasing and self._is_scope_erasing(task):
            raise CallDenied("erasing", _ERASING_SECONDS)
        max_cost = self.cost(tokens_in, self._settings.llm_max_tokens)
        with account.lock:
            if len(account.unwritten_calls) >= _FLUSH_SIZE:
                self._write_unwritten_calls(account, self._connect(task))
            if len(account.unwritten_calls) >= MAX_UNWRITTEN:
                raise CallDenied("unavailable")
            unwritten_usd = sum(call.cost_usd for call in account.unwritten_calls)
            committed_usd = account.spent_usd + account.reserved_usd + unwritten_usd
            if account.budget_usd is not None and (
                account.budget_usd <= committed_usd or account.budget_usd < committed_usd + max_cost
            ):
                raise CallDenied("budget_spent")
            self._take_leased_call(account, task)
            account.reserved_usd += max_cost
        try:
            yield
        finally:
            with account.lock:
                account.reserved_usd -= max_cost

    def _is_scope_erasing(self, task: TaskContext) -> bool:
        return task.scope_id is not None and store_calls.is_scope_erasing(
            self._connect(task), UUID(task.scope_id)
        )

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """The cost of these tokens, in USD."""
        prices = self._settings.llm_usd_per_million_in, self._settings.llm_usd_per_million_out
        return (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6

    def _take_leased_call(self, account: _TenantLimitState, task: TaskContext) -> None:
        """Take one of the subject's calls of this minute. A denial is cached until the minute ends.
        Raises CallDenied."""
        now = read_uptime()
        lease = account.leases.get(task.subject)
        if (
            lease is None
            or now >= lease.expires_at
            or (lease.units == 0 and not lease.minute_exhausted)
        ):
            if len(account.leases) >= _MAX_SUBJECTS:
                account.leases.clear()
            grant = self._lease_calls_and_refresh_limits(account, task, _LEASE_SIZE)
            lease = _CallRateLease(
                grant.granted, now + grant.seconds_left, minute_exhausted=grant.granted == 0
            )
            account.leases[task.subject] = lease
        if lease.units == 0:
            waiting_helps = self._settings.llm_calls_per_minute >= _CALLS_PER_RUN
            raise CallDenied("rate_limited", lease.expires_at - now if waiting_helps else None)
        lease.units -= 1

    def _lease_calls_and_refresh_limits(
        self,
        account: _TenantLimitState,
        task: TaskContext,
        max_calls: int,
        *,
        may_probe: bool = False,
    ) -> store_calls.CallLeaseAndLimits:
        """Lease up to `max_calls` calls and read the current limits; write this process's calls
        first."""
        self._write_unwritten_calls(account, self._connect(task))
        settings = self._settings
        now = read_uptime()
        grant = store_calls.lease_calls_and_read_limits(
            self._connect(task),
            self._model_name,
            task.subject,
            max_calls=max_calls,
            limit=settings.llm_calls_per_minute,
            failures=settings.llm_breaker_failures,
            may_probe=may_probe,
            probe_seconds=max(settings.llm_seconds, settings.llm_summary_seconds),
        )
        budget_usd = (
            settings.llm_usd_per_month if grant.usd_per_month is None else grant.usd_per_month
        )
        account.output_mode, account.failures = grant.output_mode, grant.failures
        account.failure, account.failure_text = grant.failure, grant.failure_text
        account.is_erasing = grant.is_erasing
        account.breaker_open_until = now + grant.breaker_seconds
        account.spent_usd, account.budget_usd, account.refreshed_at = (
            grant.spent_usd,
            budget_usd,
            now,
        )
        return grant

    def record_success(self, task: TaskContext, output_mode: str) -> None:
        """Record that the model gave a usable answer in this output mode. Costs a round trip only
        where that changes the stored state."""
        account = self._get_tenant_limits(task.tenant)
        self._refusal = None
        with account.lock:
            if account.failures or account.failure or account.output_mode != output_mode:
                store_calls.record_success(self._connect(task), self._model_name, output_mode)
                account.failures, account.failure = 0, None
                account.output_mode, account.breaker_open_until = output_mode, 0.0

    def record_failure(self, task: TaskContext, failure: FailedAnswer) -> None:
        """Record that the model gave no usable answer; all processes share the count. Where the
        provider refuses the settings, no tenant of this process asks it again for a while."""
        account, settings = self._get_tenant_limits(task.tenant), self._settings
        if failure.is_final:
            self._refusal = read_uptime() + settings.llm_breaker_seconds, failure.text
        logger.warning(
            "model failed",
            extra={"model": self._model_name, "reason": failure.kind, "failure": failure.text},
        )
        with account.lock:
            state = store_calls.record_failure(
                self._connect(task),
                self._model_name,
                failure,
                settings.llm_breaker_failures,
                settings.llm_breaker_seconds,
            )
            account.failures = state.failures
            account.failure, account.failure_text = failure.kind, failure.text
            account.breaker_open_until = read_uptime() + state.breaker_seconds

    def record_call(
        self,
        task: TaskContext,
        *,
        verb: str,
        prompt: str,
        outcome: Outcome,
        tokens_in: int,
        tokens_out: int,
        seconds: float,
    ) -> None:
        """Add a request to the unwritten calls. It is logged as well, in case the process dies
        before it is written."""
        account = self._get_tenant_limits(task.tenant)
        call = ModelCall(
            call_id=uuid7(),
            at=datetime.now(UTC) - timedelta(seconds=seconds),
            task=verb,
            model=self._model_name,
            prompt=prompt,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_usd=self.cost(tokens_in, tokens_out),
            milliseconds=round(seconds * 1000, 1),
            outcome=outcome,
            scope_id=UUID(task.scope_id) if task.scope_id else None,
            job=task.job,
        )
        with account.lock:
            account.unwritten_calls.append(call)
        logger.info("model call", extra={"tenant": task.tenant, "call": vars(call)})

    def store_call_records(self, access: TenantDb) -> None:
        """Write the calls of the caller's tenant; outside of any transaction. If the database is
        unavailable they are kept for the next time, with a warning in the log."""
        account = self._get_tenant_limits(access.caller.tenant)
        with account.lock:
            self._write_unwritten_calls(account, access)

    def _write_unwritten_calls(self, account: _TenantLimitState, access: TenantDb) -> None:
        if not account.unwritten_calls:
            return
        try:
            store_calls.insert_model_calls(access, account.unwritten_calls)
        except Unavailable as error:
            # Also where the commit's outcome is unknown: a call written twice is stored once.
            logger.warning(
                "model calls not written yet",
                extra={"calls": len(account.unwritten_calls), "error": error.code},
            )
            return
        account.spent_usd += sum(call.cost_usd for call in account.unwritten_calls)
        account.unwritten_calls = []

    def _connect(self, task: TaskContext) -> TenantDb:
        return self._database.connect_as(Caller.background(task.tenant), task.deadline)
