"""The table of quotas, and their settings. A new quota is a row with its setting, a column of
`tenants` in SQL, and a test; limits, usage, refusals and the API's types derive from the row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from typing_extensions import LiteralString, TypeAliasType

from strandline.config_auth import AuthSettings

Quota = TypeAliasType("Quota", Literal["requests", "appends", "stored_bytes"])
"""The names of QUOTAS, for types on the wire."""


@dataclass(frozen=True)
class QuotaSpec:
    """A limit on what a tenant uses: a rate, or a total."""

    name: Quota
    limit: LiteralString
    """The name under which operators set it for a tenant. `tenant_<limit>` is the setting of the
    deployment's default."""
    column: LiteralString
    """The column of `tenants` that holds a tenant's own limit."""
    maximum: int
    """The highest limit."""
    per: Literal["minute", "total"]
    refusal: str
    """What a refusal says about the limit: a format of `limit` and `at_once`, in the quota's
    unit."""
    description: str | None = None
    """What the API's document says about the limit."""

    @property
    def setting(self) -> str:
        """The setting of the deployment's default."""
        return f"tenant_{self.limit}"

    @property
    def is_rate(self) -> bool:
        """Whether units become free by waiting."""
        return self.per != "total"


_RATE = "{limit:,} a minute, {at_once:,} at once"

QUOTAS = (
    QuotaSpec("requests", "requests_per_minute", "requests_per_minute", 10**9, "minute", _RATE),
    QuotaSpec(
        name="appends",
        limit="appends_per_minute",
        column="appends_per_minute",
        maximum=10**9,
        per="minute",
        refusal=_RATE,
        description="Events per minute, whether sent in batches or singly.",
    ),
    QuotaSpec(
        name="stored_bytes",
        limit="stored_bytes",
        column="stored_bytes_limit",
        maximum=2**62,
        per="total",
        refusal="{limit:,} bytes in all",
        description="Bytes of events and payloads.",
    ),
)
QUOTA_BY_NAME: Mapping[Quota, QuotaSpec] = {quota.name: quota for quota in QUOTAS}


class QuotaSettings(AuthSettings):
    """The limits of a tenant for which no operator set any."""

    tenant_requests_per_minute: int = Field(default=6000, ge=0, le=10**9)
    """Requests per minute of a tenant, unless an operator set another limit for it; 0 allows
    nothing. 6,000 are 100 a second: at 100 ms each they occupy ten Lambda instances, of the 1,000
    that an account begins with."""
    tenant_appends_per_minute: int = Field(default=60_000, ge=0, le=10**9)
    """Events per minute that a tenant may append, unless an operator set another limit. 60,000 are
    ten for each request it may make."""
    tenant_stored_bytes: int = Field(default=100 * 2**30, ge=0, le=2**62)
    """Bytes of events and payloads that a tenant may store, unless an operator set another limit;
    100 GiB."""
    tenant_burst_seconds: float = Field(default=10.0, ge=0, le=3600)
    """How many seconds' worth of a rate a tenant may use at once, and at least one unit. In any
    minute it can use a minute's worth plus this. A minute's worth at once would be felt by its
    neighbours on the same database."""

    tenant_waits: int = Field(default=2, ge=0, le=1000)
    """Requests of a tenant that may wait at once for something to come, such as the next act. One
    more is answered at once."""
    function_waits: int = Field(default=10, ge=0, le=1000)
    """Requests of one function that may wait at once, of all tenants. The stack sets at most a
    tenth of the function's instances."""

    @property
    def quota_defaults(self) -> Mapping[Quota, int]:
        """The default limit of each quota, in the order of QUOTAS."""
        return {quota.name: getattr(self, quota.setting) for quota in QUOTAS}
