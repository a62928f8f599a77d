"""Requests and responses about tenants, their limits and their usage, keys, client certificates,
and the audit trail."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    create_model,
)
from typing_extensions import TypeAliasType

from strandline.admin.schemas_embedding import EmbeddingState
from strandline.config_quotas import QUOTAS, Quota
from strandline.schemas import TENANT_PATTERN, Moment, Participant, RequestModel, ResponseModel
from strandline.tuning import Tuning

Base = TypeVar("Base", bound=BaseModel)

Limit = TypeAliasType("Limit", Annotated[int, Field(ge=0, strict=True)])


def _declare_limit_fields(base: type[Base], *, in_request: bool) -> type[Base]:
    """A field for the limit of each quota; null is the deployment's default."""
    fields: dict[str, Any] = {
        quota.limit: Annotated[
            Limit | None, Field(default=None, le=quota.maximum, description=quota.description)
        ]
        if in_request
        else int | None
        for quota in QUOTAS
    }
    return create_model("QuotaLimits", __base__=base, **fields)


class LimitsIn(_declare_limit_fields(RequestModel, in_request=True)):
    """A tenant's limits. A field that is left out stays as it is; null is the deployment's default;
    0 allows nothing. Changes apply everywhere within a minute."""

    model_usd_per_month: Annotated[float, Field(ge=0, le=10**9, strict=True)] | None = None
    """The maximum cost of language models per calendar month (UTC), in USD. Once it is spent, the
    deterministic heuristic model takes over."""


def _declare_tuning_fields(base: type[Base]) -> type[Base]:
    """The fields of Tuning, each nullable: null means that the tenant does not set it."""
    fields: dict[str, Any] = {
        name: Annotated[
            (
                field.annotation | None,
                *field.metadata,
                Field(default=None, description=field.description),
            )
        ]
        for name, field in Tuning.model_fields.items()
    }
    return create_model("Nullable", __base__=base, **fields)


class TuningIn(_declare_tuning_fields(RequestModel)):
    """A tenant's thresholds. A field that is left out stays as it is; null is the deployment's
    value."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class TuningOut(_declare_tuning_fields(ResponseModel)):
    """The thresholds that an operator set for a tenant; null is the deployment's value."""


class TenantChange(LimitsIn):
    """A change of a tenant: its limits, `agents_share`, its time zone, and thresholds of memory
    formation."""

    agents_share: Annotated[bool, Field(strict=True)] | None = None
    """Whether the tenant's agents count as software and not as listeners. If true, a read on behalf
    of users and agents is treated as a read on behalf of the users alone, so that each of a user's
    agents sees the memory of the others. It affects neither scopes nor writes. Null is false.
    Changes apply everywhere within a minute."""

    time_zone: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """The time zone of the days that a question names ("yesterday", "before 3 May"), as an IANA
    name such as `Europe/Berlin`. Null is `UTC`. Dates in answers are in UTC."""

    embedding_switch: Literal["auto", "held"] | None = None
    """When the tenant comes to read the vectors of a newly configured embedding model: `auto` as
    soon as all are there, `held` not before this is `auto`. Null is the deployment's setting."""

    tuning: TuningIn | None = None
    """Null removes all of the tenant's own thresholds. Changes apply to memory formed from now on,
    and to heat at once; the times at which chains become cold are recomputed in the background."""


class TenantIn(TenantChange):
    """A tenant to create."""

    tenant_id: str = Field(pattern=TENANT_PATTERN)


class QuotaUse(ResponseModel):
    """A quota of the tenant. An amount that a service instance leased counts as used until it is
    spent or the lease expires."""

    name: Literal[Quota]
    """`appends` counts events, `stored_bytes` the bytes of events and payloads."""
    limit: int
    per: Literal["minute", "total"]
    at_once: int
    """The maximum that one request can use at once, when nothing was used before."""
    used: int
    """How much of `at_once` is used now."""
    remaining: int
    retry_after: int
    """Seconds until one more unit is free; 0 if one is free now. Stored bytes do not become free by
    waiting."""
    resets_at: datetime | None
    """For a rate: when all of it is free again if nothing more is used. Null for `stored_bytes`."""
    leased: int
    """The total ever leased to the service's instances: what was used, and what expired unspent."""


class StoredDataCounts(ResponseModel):
    """What the tenant stores, as of the last count in the background."""

    bytes: int
    scopes: int
    events: int
    measured_at: datetime


class MonthlyModelUse(ResponseModel):
    """The use of language models in this calendar month (UTC). Calls are added once the work that
    needed them is done."""

    since: datetime
    calls: int
    """Requests to the provider."""
    failures: int
    """How many of the calls returned no usable answer."""
    tokens_in: int
    tokens_out: int
    cost_usd: float
    """The cost at the prices that the deployment configures; 0 where it configures none."""
    budget_usd: float | None
    """The monthly budget in USD. Null: no limit."""
    remaining_usd: float | None
    resting_until: datetime | None
    """Until when no model is called for the tenant, because too many calls in a row failed; shared
    by all processes. Null: models are called."""


class TenantUsage(ResponseModel):
    """The tenant's usage of its quotas, storage and models."""

    quotas: list[QuotaUse]
    stored: StoredDataCounts | None
    """Null before the first count."""
    models: MonthlyModelUse


class TenantOut(ResponseModel):
    """A tenant and its creation time."""

    tenant_id: str
    created_at: datetime


class TenantLimits(_declare_limit_fields(ResponseModel, in_request=False)):
    """The limits that an operator set for a tenant; null is the deployment's default."""

    model_usd_per_month: float | None


class TenantDetails(TenantOut):
    """A tenant with its limits, thresholds and usage."""

    agents_share: bool
    """Whether its agents count as software and not as listeners: see `TenantChange`."""
    time_zone: str
    """The time zone of the days that a question names."""
    embedding_switch: Literal["auto", "held"] | None
    """Its own setting: see `TenantChange`."""
    embedding: EmbeddingState
    limits: TenantLimits
    tuning: TuningOut
    usage: TenantUsage


class TenantPage(ResponseModel):
    """Tenants, by name."""

    tenants: list[TenantOut]
    next_cursor: str | None


KeyRight = TypeAliasType("KeyRight", Literal["read", "write", "admin", "operator", "erase"])


class KeyIn(RequestModel):
    """A key to make."""

    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=5)
    label: str = Field(default="", max_length=200)
    """What it is for. Lists show it, so do not put a secret here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: it does not expire."""


class KeyRotationIn(RequestModel):
    """How to rotate a key."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=30 * 86_400, strict=True)
    """How long both keys are valid, in seconds. The old one never lasts beyond its own expiry."""
    expires_at: Moment | None = None
    """The successor's expiry. Absent: it gets the lifetime that the old key was made with."""


class KeyOut(ResponseModel):
    """A key, without its secret."""

    key_id: str
    user: str | None
    """The participant that it is bound to; null if unbound."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The id of its successor."""


class NewKeyOut(KeyOut):
    """A new key, with its token."""

    token: str
    """The credential. It is shown only once and never stored."""


class RotatedKeys(ResponseModel):
    """A key's successor, and the old key, which ends at its `expires_at`."""

    key: NewKeyOut
    old: KeyOut


class KeyPage(ResponseModel):
    """A tenant's keys, newest first."""

    keys: list[KeyOut]
    next_cursor: str | None


class CertificateIn(RequestModel):
    """A subject to add: certificates with it authenticate a principal."""

    subject: str = Field(min_length=1, max_length=1024)
    """The distinguished name in RFC 4514 form, most specific part first, as printed by `openssl
    x509 -noout -subject -nameopt RFC2253`."""
    issuer: str | None = Field(default=None, min_length=1, max_length=1024)
    """The distinguished name of the certificate authority. Absent: any authority in the gateway's
    trust store."""
    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=5)
    label: str = Field(default="", max_length=200)
    """What it is for. Lists show it, so do not put a secret here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: the entry does not expire; certificates still do."""


class CertificateOut(ResponseModel):
    """A subject, and the principal that its certificates authenticate."""

    certificate_id: UUID
    subject: str
    """In canonical form."""
    issuer: str | None
    user: str | None
    """The participant that it is bound to; null if unbound."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class CertificatePage(ResponseModel):
    """A tenant's subjects, newest first."""

    certificates: list[CertificateOut]
    next_cursor: str | None


class AuditEntry(ResponseModel):
    """An action of an admin or operator, or a refused attempt."""

    audit_id: UUID
    at: datetime
    actor_tenant: str | None
    """The tenant of the credential; null at the operator's console."""
    actor_key_id: str | None
    actor_user: str | None
    route: str
    target: dict[str, str]
    """Ids of the objects that the action concerned."""
    details: dict[str, JsonValue]
    """What was created or changed. For a key: its `rights`, `user` and `expires_at`, and for a
    rotation `old_expires_at`. For a tenant: each limit in the request as `{"from", "to"}`, where
    null is the deployment's default."""
    outcome: str
    """`done`, or the code of the error that refused the action."""
    request_id: str


class AuditPage(ResponseModel):
    """A tenant's audit trail, newest first."""

    entries: list[AuditEntry]
    next_cursor: str | None
