"""SQL for model calls: their limits, the state of each model, and the record of calls."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.cursors import Position
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class CallLeaseAndLimits:
    """The result of a lease, and the state that is checked before a model is called."""

    granted: int
    """Calls that the subject may make in the `seconds_left` of its minute."""
    seconds_left: float
    output_mode: str | None
    """The output mode that the model accepts; None: not known yet."""
    failures: int
    """Failures in a row since its last usable answer."""
    breaker_seconds: float
    """Seconds for which the breaker stays open."""
    is_probe: bool
    """The breaker was open, and this caller alone may probe the model now."""
    spent_usd: float
    """USD spent in this calendar month (UTC)."""
    usd_per_month: float | None
    """The tenant's budget; None: the deployment's default."""
    is_erasing: bool
    """Events of the tenant are out of view, and not yet erased."""
    failure: str | None
    """The kind of the last failure, as in the outcome of a call; None: its last answer was
    usable."""
    failure_text: str | None
    """What it was, in a sentence."""


@dataclass(frozen=True)
class _BooleanRow:
    is_set: bool


def is_scope_erasing(access: TenantDb, scope_id: UUID) -> bool:
    """Whether events of a scope are out of view, and not yet erased."""
    (row,) = access.fetch(
        _BooleanRow,
        """
        select exists (
            select from scopes s
            where s.tenant_id = current_tenant() and s.scope_id = %(scope_id)s
                and is_scope_marked(s.scope_id, s.participants)) as is_set
        """,
        {"scope_id": scope_id},
    )
    return row.is_set


def lease_calls_and_read_limits(
    access: TenantDb,
    model: str,
    subject: str,
    *,
    max_calls: int,
    limit: int,
    failures: int,
    may_probe: bool,
    probe_seconds: float,
) -> CallLeaseAndLimits:
    """Lease up to `max_calls` calls of a subject's `limit` per minute, and read the model's state
    and the budget; see `lease_model` in functions.sql. Runs in a transaction of its own, outside
    of any other."""
    (result,) = access.fetch(
        CallLeaseAndLimits,
        """
        select l.*, exists (
                select from erasure_marks m where m.tenant_id = current_tenant()) as is_erasing,
            s.failure, s.failure_text
        from lease_model(%(model)s, %(subject)s, %(max_calls)s, %(limit)s, %(failures)s,
            %(may_probe)s, %(probe_seconds)s) l
        left join model_states s on s.tenant_id = current_tenant() and s.model = %(model)s
        """,
        {
            "model": model,
            "subject": subject,
            "max_calls": max_calls,
            "limit": limit,
            "failures": failures,
            "may_probe": may_probe,
            "probe_seconds": probe_seconds,
        },
    )
    return result


@dataclass(frozen=True)
class BreakerState:
    """A model's state after a call: failures in a row, and seconds for which the breaker stays
    open."""

    failures: int
    breaker_seconds: float


def record_success(access: TenantDb, model: str, output_mode: str) -> None:
    """Record a usable answer in this output mode, and reset the failures."""
    access.fetch(
        BreakerState,
        """
        insert into model_states (tenant_id, model, output_mode)
            values (current_tenant(), %(model)s, %(output_mode)s)
        on conflict (tenant_id, model)
            do update set output_mode = excluded.output_mode, failures = 0,
                breaker_open_until = '-infinity', failure = null, failure_text = null,
                failed_at = null
        returning failures, 0::float8 as breaker_seconds
        """,
        {"model": model, "output_mode": output_mode},
    )


@dataclass(frozen=True)
class FailedAnswer:
    """Why a model gave no usable answer."""

    kind: str
    """As in `fell_back`."""
    text: str
    """What happened, in a sentence of at most 300 characters, without text of the provider."""
    is_final: bool = False
    """Whether no other request can succeed until the settings change."""
    counts: bool = True
    """Whether it is one of the failures in a row that open the breaker."""


def record_failure(
    access: TenantDb, model: str, failure: FailedAnswer, max_failures: int, pause_seconds: float
) -> BreakerState:
    """Record a failure; `max_failures` in a row, or one that is final, open the breaker for
    `pause_seconds`. The known output mode stays."""
    (state,) = access.fetch(
        BreakerState,
        """
        insert into model_states as s (tenant_id, model, failures, breaker_open_until, failure,
            failure_text, failed_at)
        values (current_tenant(), %(model)s, %(step)s,
            case when %(step)s >= %(failures)s then now() + make_interval(secs => %(seconds)s)
                else '-infinity' end, %(kind)s, %(text)s, now())
        on conflict (tenant_id, model) do update set
            failures = greatest(s.failures + %(added)s, excluded.failures),
            breaker_open_until = case
                when %(added)s > 0
                    and greatest(s.failures + %(added)s, excluded.failures) >= %(failures)s
                then now() + make_interval(secs => %(seconds)s) else s.breaker_open_until end,
            failure = excluded.failure, failure_text = excluded.failure_text,
            failed_at = excluded.failed_at
        returning s.failures, greatest(0, coalesce(extract(
            epoch from nullif(s.breaker_open_until, '-infinity') - now()),
                0))::float8 as breaker_seconds
        """,
        {
            "model": model,
            "kind": failure.kind,
            "text": failure.text,
            "step": max_failures if failure.is_final else int(failure.counts),
            "added": int(failure.counts),
            "failures": max_failures,
            "seconds": pause_seconds,
        },
    )
    return state


@dataclass(frozen=True)
class ModelAvailability:
    """Whether a model can be used now."""

    failure_text: str | None
    """What its last failure was; None: its last answer was usable, or it was never asked."""
    failed_at: datetime | None
    resting_until: datetime | None
    """Until when it is not called; None: it is called."""


def read_model_availability(access: TenantDb, model: str) -> ModelAvailability:
    """The state of a model for the caller's tenant."""
    rows = access.fetch(
        ModelAvailability,
        """
        select s.failure_text, s.failed_at,
            case when s.breaker_open_until > now() then s.breaker_open_until end as resting_until
        from model_states s where s.tenant_id = current_tenant() and s.model = %(model)s
        """,
        {"model": model},
    )
    return rows[0] if rows else ModelAvailability(None, None, None)


@dataclass(frozen=True)
class ModelCall:
    """One request to a provider."""

    call_id: UUID
    at: datetime
    task: str
    model: str
    prompt: str
    tokens_in: int
    tokens_out: int
    cost_usd: float
    milliseconds: float
    outcome: str
    scope_id: UUID | None
    job: str | None


@dataclass(frozen=True)
class _CallCount:
    calls: int


def insert_model_calls(access: TenantDb, calls: Sequence[ModelCall]) -> None:
    """Write calls of the caller's tenant and add them to the month's totals, in one statement. A
    call that is stored already is not counted again."""
    access.fetch(
        _CallCount,
        """
        with new_calls as (
            insert into model_calls (tenant_id, call_id, at, task, model, prompt, tokens_in,
                tokens_out, cost_usd, milliseconds, outcome, scope_id, job)
            select current_tenant(), c.*
            from jsonb_to_recordset(%(calls)s::jsonb) c (call_id uuid, at timestamptz, task text,
                model text, prompt text, tokens_in int, tokens_out int, cost_usd float8,
                milliseconds float8, outcome text, scope_id uuid, job text)
            on conflict do nothing
            returning at, tokens_in, tokens_out, cost_usd, outcome
        ), months as (
            insert into monthly_spend as m (tenant_id, month, calls, failures, tokens_in,
                tokens_out, cost_usd)
            select current_tenant(), date_trunc('month', at at time zone 'UTC')::date, count(*),
                count(*) filter (where outcome <> 'ok'), sum(tokens_in), sum(tokens_out),
                sum(cost_usd)
            from new_calls group by 2 order by 2
            on conflict (tenant_id, month) do update set
                calls = m.calls + excluded.calls, failures = m.failures + excluded.failures,
                tokens_in = m.tokens_in + excluded.tokens_in,
                tokens_out = m.tokens_out + excluded.tokens_out,
                cost_usd = m.cost_usd + excluded.cost_usd
            returning m.calls
        )
        select count(*) as calls from months
        """,
        {"calls": json.dumps([vars(call) for call in calls], default=str)},
    )


@dataclass(frozen=True)
class MonthlySpend:
    """A tenant's model calls in a calendar month (UTC)."""

    since: datetime
    calls: int
    failures: int
    """Calls without a usable answer, including those that were repeated."""
    tokens_in: int
    tokens_out: int
    cost_usd: float
    usd_per_month: float | None
    """The budget that an operator has set; None: the deployment's default."""
    resting_until: datetime | None
    """Until when the breaker of a model is open, over all processes; None: closed."""


def read_monthly_spend(access: TenantDb) -> MonthlySpend:
    """The caller's tenant's totals of this month so far."""
    (row,) = access.fetch(
        MonthlySpend,
        """
        select current_month.month::timestamp at time zone 'UTC' as since,
            coalesce(m.calls, 0) as calls,
            coalesce(m.failures, 0) as failures, coalesce(m.tokens_in, 0) as tokens_in,
            coalesce(m.tokens_out, 0) as tokens_out, coalesce(m.cost_usd, 0) as cost_usd,
            t.model_usd_per_month as usd_per_month,
            (select max(s.breaker_open_until) from model_states s
             where s.tenant_id = current_tenant() and s.breaker_open_until > now()) as resting_until
        from (select date_trunc('month', now() at time zone 'UTC')::date as month) current_month
        left join monthly_spend m on m.tenant_id = current_tenant()
            and m.month = current_month.month
        left join tenants t on t.tenant_id = current_tenant()
        """,
        {},
    )
    return row


@dataclass(frozen=True)
class ModelCallOnPage(ModelCall):
    """A call, and the database snapshot of the page it was read for."""

    pg_snapshot: str


def list_newest_model_calls(
    access: TenantDb, after: Position | None, limit: int
) -> Sequence[ModelCallOnPage]:
    """Calls of the caller's tenant, newest first. Later pages see the database snapshot of the
    first."""
    return access.fetch(
        ModelCallOnPage,
        """
        select c.call_id, c.at, c.task, c.model, c.prompt, c.tokens_in, c.tokens_out, c.cost_usd,
            c.milliseconds, c.outcome, c.scope_id, c.job,
            coalesce(%(pg_snapshot)s, pg_current_snapshot()::text) as pg_snapshot
        from model_calls c
        where (%(pg_snapshot)s::text is null or is_in_snapshot(c.xid, %(pg_snapshot)s::pg_snapshot))
            and (%(at)s::timestamptz is null or (c.at, c.call_id) < (%(at)s, %(id)s::uuid))
        order by c.at desc, c.call_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "id": after and after.row_id,
            "limit": limit,
        },
    )


def delete_old_calls_and_rates(access: TenantDb, before: datetime, limit: int) -> int:
    """Remove up to `limit` calls that began before `before`, oldest first, and the rate counters
    that were not used since; inside of a transaction. Monthly totals stay. Returns how many calls
    were removed."""
    access.execute(
        "delete from model_rates where (tenant_id, subject) in ("
        " select tenant_id, subject from model_rates where minute_started_at < %(before)s"
        " order by tenant_id, subject limit %(limit)s)",
        {"before": before, "limit": limit},
    )
    return access.execute(
        "delete from model_calls where (tenant_id, at, call_id) in ("
        " select tenant_id, at, call_id from model_calls where at < %(before)s"
        " order by at, call_id limit %(limit)s)",
        {"before": before, "limit": limit},
    )
