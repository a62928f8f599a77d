"""Requests and answers about tenants, their limits and their usage."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    create_model,
)

from strandline.schemas import TENANT_PATTERN, RequestModel, ResponseModel
from strandline.tuning import Tuning

type Limit = Annotated[int, Field(ge=0, strict=True)]


class LimitsIn(RequestModel):
    """A tenant's limits. What is left out stays as it is, null is the deployment's default, 0
    allows nothing. They hold everywhere after a minute."""

    requests_per_minute: Limit | None = Field(default=None, le=10**9)
    appends_per_minute: Limit | None = Field(default=None, le=10**9)
    """Events, in batches or not."""
    stored_bytes: Limit | None = Field(default=None, le=2**62)
    """Bytes of events and payloads."""
    model_usd_per_month: Annotated[float, Field(ge=0, le=10**9, strict=True)] | None = None
    """What language models may cost in a calendar month (UTC), in USD. Once that is spent the
    deterministic twin does their work."""


def _make_nullable[Base: BaseModel](base: type[Base]) -> type[Base]:
    """Tuning with null for what is not the tenant's own."""
    fields: dict[str, Any] = {
        name: Annotated[
            field.annotation | None,
            *field.metadata,
            Field(default=None, description=field.description),
        ]
        for name, field in Tuning.model_fields.items()
    }
    return create_model("Nullable", __base__=base, **fields)


class TuningIn(_make_nullable(RequestModel)):
    """A tenant's thresholds. What is left out stays as it is, null is the deployment's."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class TuningOut(_make_nullable(ResponseModel)):
    """What an operator set of a tenant's thresholds; null is the deployment's."""


class TenantChange(LimitsIn):
    """What an operator may change of a tenant: limits, and the thresholds of memory's formation."""

    tuning: TuningIn | None = None
    """Null: none of its own any more. Holds for what is formed from now on; for heat at once, but
    when chains get cold is put right in the background."""


class TenantIn(TenantChange):
    """A tenant to be made."""

    tenant_id: str = Field(pattern=TENANT_PATTERN)


class QuotaUse(ResponseModel):
    """A quota of the tenant. What an instance leased counts as used until it is spent or lapses."""

    name: Literal["requests", "appends", "stored_bytes"]
    """`appends` counts events, `stored_bytes` their bytes and their payloads'."""
    limit: int
    per: Literal["minute", "total"]
    at_once: int
    """The most that one request can be granted, after a rest."""
    used: int
    """Of `at_once`, now."""
    remaining: int
    retry_after: int
    """Seconds until one more is free, 0 when one is. Stored bytes do not get free by waiting."""
    resets_at: datetime | None
    """Of a rate: when all is free again, if nothing more is used."""
    leased: int
    """Leased to the service's instances since ever: what was used, and what lapsed unspent."""


class Stored(ResponseModel):
    """What the tenant stores, as it was counted in the background."""

    bytes: int
    scopes: int
    events: int
    measured_at: datetime


class ModelUse(ResponseModel):
    """What language models did for the tenant in this calendar month (UTC). Calls are added when
    the work that they were made for is done."""

    since: datetime
    calls: int
    """Requests to the provider."""
    failures: int
    """Of these, those without an answer of use."""
    tokens_in: int
    tokens_out: int
    cost_usd: float
    """By the prices that the deployment sets; 0 where it sets none."""
    budget_usd: float | None
    """Null: no limit."""
    remaining_usd: float | None
    resting_until: datetime | None
    """Until when no model is asked for the tenant, because it failed too often in a row: as all
    processes know it. Null: it is asked."""


class Usage(ResponseModel):
    """What the tenant uses of what it may."""

    quotas: list[QuotaUse]
    stored: Stored | None
    """Absent until it was counted for the first time."""
    models: ModelUse


class TenantOut(ResponseModel):
    """A tenant, and since when it is."""

    tenant_id: str
    created_at: datetime


class TenantLimits(ResponseModel):
    """What an operator set for a tenant; null is the deployment's default."""

    requests_per_minute: int | None
    appends_per_minute: int | None
    stored_bytes: int | None
    model_usd_per_month: float | None


class TenantDetails(TenantOut):
    """A tenant, what it may use and what it uses."""

    limits: TenantLimits
    tuning: TuningOut
    usage: Usage


class TenantPage(ResponseModel):
    """Tenants, by name."""

    tenants: list[TenantOut]
    next_cursor: str | None
