"""What a tenant uses of what it may."""

import math
from datetime import UTC, datetime, timedelta

from strandline.admin.schemas_tenants import ModelUse, QuotaUse, Stored, Usage
from strandline.auth.principals import Principal
from strandline.cursors import Cursors, Position
from strandline.db.database import Access
from strandline.errors import Forbidden
from strandline.llm import store as llm_store
from strandline.llm.schemas import ModelCallOut, ModelCallPage
from strandline.tenants import store_quotas
from strandline.tenants.quotas import Quotas


def require_tenants_own(principal: Principal) -> None:
    """Raises Forbidden for a bound user, who is told nothing of what the others do."""
    if principal.user is not None and "admin" not in principal.rights:
        raise Forbidden(
            "usage: is the whole tenant's, and this credential is bound to a user. Use one bound "
            "to no user, or an admin's.",
            reason="bound_user",
        )


def usage(access: Access, limits: Quotas) -> Usage:
    """Each quota's limit and use now, what lay in the log when it was last counted, and what models
    cost this month."""
    used = store_quotas.usage(access, limits.defaults, limits.burst_seconds)
    counted = next(use for use in used if use.quota == "stored_bytes")
    stored = counted.measured_at and Stored(
        bytes=counted.measured or 0,
        scopes=counted.measured_scopes or 0,
        events=counted.measured_events or 0,
        measured_at=counted.measured_at,
    )
    spent = llm_store.spend(access)
    return Usage(quotas=[_told(use) for use in used], stored=stored, models=_costs(spent, limits))


def _costs(spent: llm_store.Spend, limits: Quotas) -> ModelUse:
    own = spent.usd_per_month
    budget = limits.model_usd_per_month if own is None else own
    return ModelUse(
        since=spent.since,
        calls=spent.calls,
        failures=spent.failures,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        cost_usd=spent.cost_usd,
        budget_usd=budget,
        remaining_usd=None if budget is None else max(0.0, budget - spent.cost_usd),
        resting_until=spent.resting_until,
    )


def list_model_calls(access: Access, limit: int, cursor: str | None) -> ModelCallPage:
    """Calls of language models for the asker's tenant, newest first."""
    of = Cursors(access.sealer, access.asker.tenant, "model calls")
    rows = llm_store.newest(access, of.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.mark, last.at, last.call_id)
    return ModelCallPage(
        calls=[ModelCallOut.model_validate(vars(row)) for row in rows],
        next_cursor=after and of.encode(after),
    )


def _told(use: store_quotas.Use) -> QuotaUse:
    level = use.quota == "stored_bytes"
    full_at = None if level else datetime.now(UTC) + timedelta(seconds=use.refill_seconds)
    remaining = max(0, use.at_once - use.taken)
    wait = 60 if level or not use.limit else math.ceil(60 / use.limit)
    return QuotaUse(
        name=use.quota,
        limit=use.limit,
        per="total" if level else "minute",
        at_once=use.at_once,
        used=use.taken,
        remaining=remaining,
        retry_after=0 if remaining else wait,
        resets_at=full_at,
        leased=use.leased,
    )
