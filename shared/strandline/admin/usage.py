"""A tenant's usage: quotas, stored data, model calls."""

import math
from datetime import UTC, datetime, timedelta

from strandline.admin.schemas import MonthlyModelUse, QuotaUse, StoredDataCounts, TenantUsage
from strandline.auth.principals import Principal
from strandline.config_quotas import QUOTA_BY_NAME
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Forbidden
from strandline.llm import store_calls
from strandline.llm.schemas_model_calls import ModelCallOut, ModelCallPage
from strandline.tenants import store_quotas
from strandline.tenants.quotas import QuotaManager


def require_unbound_or_admin(principal: Principal) -> None:
    """Raise Forbidden for a bound user without the right `admin`: it may not see what others
    use."""
    if principal.user is not None and "admin" not in principal.rights:
        raise Forbidden(
            "usage: covers the whole tenant, but this credential is bound to a user. Use a "
            "credential that is bound to no user or has the right admin.",
            reason="bound_user",
        )


def read_tenant_usage(access: TenantDb, quota_service: QuotaManager) -> TenantUsage:
    """Read each quota's limit and current use, what was stored at the last count, and the cost of
    models this month in USD."""
    quota_uses = store_quotas.read_quota_usage(
        access, quota_service.defaults, quota_service.burst_seconds
    )
    stored_bytes = next(use for use in quota_uses if use.quota == "stored_bytes")
    storage = stored_bytes.measured_at and StoredDataCounts(
        bytes=stored_bytes.measured or 0,
        scopes=stored_bytes.measured_scopes or 0,
        events=stored_bytes.measured_events or 0,
        measured_at=stored_bytes.measured_at,
    )
    spend = store_calls.read_monthly_spend(access)
    return TenantUsage(
        quotas=[_to_quota_use(use) for use in quota_uses],
        stored=storage,
        models=_compare_spend_with_budget(spend, quota_service),
    )


def _compare_spend_with_budget(
    spend: store_calls.MonthlySpend, quota_service: QuotaManager
) -> MonthlyModelUse:
    """This month's use of models, and what is left of the tenant's budget or the default one."""
    tenant_budget = spend.usd_per_month
    budget = quota_service.model_usd_per_month if tenant_budget is None else tenant_budget
    return MonthlyModelUse(
        since=spend.since,
        calls=spend.calls,
        failures=spend.failures,
        tokens_in=spend.tokens_in,
        tokens_out=spend.tokens_out,
        cost_usd=spend.cost_usd,
        budget_usd=budget,
        remaining_usd=None if budget is None else max(0.0, budget - spend.cost_usd),
        resting_until=spend.resting_until,
    )


def list_model_calls(access: TenantDb, limit: int, cursor: str | None) -> ModelCallPage:
    """List the tenant's calls of language models, newest first. Raises Malformed for an invalid
    cursor."""
    cursors = Cursors(access.sealer, access.caller.tenant, "model calls")
    rows = store_calls.list_newest_model_calls(access, cursors.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.pg_snapshot, last.at, last.call_id)
    return ModelCallPage(
        calls=[ModelCallOut.model_validate(vars(row)) for row in rows],
        next_cursor=after and cursors.encode(after),
    )


def _to_quota_use(use: store_quotas.QuotaUsage) -> QuotaUse:
    spec = QUOTA_BY_NAME[use.quota]
    refill_time = timedelta(seconds=use.refill_seconds)
    remaining = max(0, use.at_once - use.used)
    retry_after = math.ceil(60 / use.limit) if spec.is_rate and use.limit else 60
    return QuotaUse(
        name=use.quota,
        limit=use.limit,
        per=spec.per,
        at_once=use.at_once,
        used=use.used,
        remaining=remaining,
        retry_after=0 if remaining else retry_after,
        resets_at=datetime.now(UTC) + refill_time if spec.is_rate else None,
        leased=use.leased,
    )
