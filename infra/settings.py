"""What a deployment is told: a stage's object in cdk.json over the defaults here, all typed."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from infra.functions import FUNCTIONS, Fn
from strandline.config import Settings as ServiceSettings

type Arn = Annotated[str, StringConstraints(pattern=r"^arn:[\w-]+:")]
type Plain = str | int | float | bool
type Days = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653]

_MADE_BY_THE_STACK = (
    *("database_url", "database_auth", "owner_database_url", "administrator_database_url"),
    *("secrets", "administrator_secret", "first_key_secret", "bucket", "queue_url", "runs_url"),
    *("state_machine", "wakeup_group", "wakeup_role", "cors_origins", "client_certificates"),
)


class Refused(ValueError):
    """The stack cannot be made of these settings; says which one, and the way out."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ExistingVpc(_Part):
    """A network that is there already; nothing in it is looked up or changed."""

    vpc_id: str = Field(pattern="^vpc-[0-9a-f]+$")
    """The VPC."""
    availability_zones: list[str] = Field(min_length=2)
    """The zones of the subnets, one each: ["eu-west-1a", "eu-west-1b"]."""
    subnet_ids: list[str] = Field(min_length=2)
    """Private subnets for the functions and the database, in the zones' order. They need a way to
    S3, SQS and Secrets Manager (and to Bedrock or the model's address)."""
    security_group_ids: list[str] = []
    """Further groups of the functions: those that the VPC's own endpoints let in."""

    @model_validator(mode="after")
    def _one_zone_each(self) -> Self:
        if len(self.subnet_ids) != len(self.availability_zones):
            raise ValueError("availability_zones must name the zone of each of subnet_ids")
        return self


class MutualTls(_Part):
    """Clients show a certificate."""

    truststore_uri: str = Field(pattern=r"^s3://[^/]+/.+$")
    """Where the authorities' certificates lie: s3://bucket/key, in the stack's Region."""
    truststore_version: str = Field(min_length=1)
    """The object's version. API Gateway reads the truststore only when this changes."""


class Domain(_Part):
    """A name of one's own; its DNS record is made elsewhere, for the output DomainTarget."""

    name: str = Field(pattern=r"^[a-z0-9.-]+\.[a-z]{2,}$")
    """The host's name."""
    certificate_arn: Arn
    """A certificate for it in ACM, in the stack's Region."""
    base_path: str = Field(default="", pattern=r"^[\w-]*$")
    """Its first path segment; requests come without it to the service."""
    mutual_tls: MutualTls | None = None
    """Ask clients for a certificate. The default endpoint is then off."""


class Alarms(_Part):
    """When somebody is woken; docs/runbook.md has a line for each."""

    topic_arn: Arn | None = None
    """An SNS topic to tell. Without one and without `email` alarms show in the console only."""
    email: str | None = Field(default=None, pattern="@")
    """An address to tell, by a topic of the stack's own."""
    unembedded_seconds: int = Field(default=900, gt=0)
    """The age of the oldest event without its vector."""
    unbuilt_seconds: int = Field(default=7200, gt=0)
    """The age of the oldest event in no chain although one was due."""
    failed_builds: int = Field(default=1, gt=0)
    """Runs of the state machine that failed, in five minutes."""
    errors_percent: float = Field(default=1.0, gt=0, le=100)
    """Answers 5xx, of all, in five minutes."""
    p95_milliseconds: int = Field(default=2000, gt=0)
    """The API's latency, 95th percentile of five minutes."""
    connections_percent: float = Field(default=80.0, gt=0, le=100)
    """Connections to the database, of those it takes."""
    capacity_minutes: int = Field(default=15, ge=5)
    """How long the database may run at its maximum capacity."""
    model_usd_per_day: float = Field(default=10.0, gt=0)
    """What language models may cost in a day, by the prices in settings.llm_usd_per_million_*."""
    usd_per_month: float | None = Field(default=None, gt=0)
    """A budget for what the stack's tags gather; an alarm at 80 % and at what is forecast."""


class StackSettings(_Part):
    """One deployment. A stage in cdk.json, or -c name=value, sets a field."""

    stage: str = Field(default="dev", pattern="^[a-z][a-z0-9-]*$")
    """The stage's name in cdk.json."""
    name: str = Field(default="", pattern="^([a-z][a-z0-9-]{0,40})?$")
    """The stack's name, strandline-<stage> by default. Several in one account differ in it."""

    network: Literal["endpoints", "nat", "existing"] = "endpoints"
    """`endpoints`: subnets without a way out, and the fewest VPC endpoints; `nat`: a way out by a
    NAT gateway; `existing`: the VPC that `vpc` names."""
    vpc: ExistingVpc | None = None
    """The network of `existing`."""
    endpoint_zones: int = Field(default=1, ge=1, le=2)
    """Zones of two that interface endpoints stand in. One costs half and is away with its zone."""
    nat_gateways: int = Field(default=1, ge=1, le=2)
    """NAT gateways of `nat`, as above."""
    private: bool = False
    """Reachable from VPCs only, through the endpoints in `vpc_endpoint_ids`."""
    vpc_endpoint_ids: list[str] = []
    """The VPC endpoints (execute-api) that a private API answers to."""

    engine_version: str = Field(default="18.4", pattern=r"^1[78]\.\d+$")
    """Aurora PostgreSQL's version, 17 or 18."""
    min_capacity: float = Field(default=0, ge=0, le=256, multiple_of=0.5)
    """Aurora capacity units (2 GiB each) while idle; 0 lets the database pause."""
    max_capacity: float = Field(default=4, ge=1, le=256, multiple_of=0.5)
    """Aurora capacity units at most."""
    pause_minutes: int = Field(default=5, ge=5, le=1440)
    """Minutes without a connection before the database pauses, where `min_capacity` is 0."""
    readers: int = Field(default=0, ge=0, le=15)
    """Instances beside the writer; one takes over when it fails. 0: a new one is made then."""
    max_connections: int | None = Field(default=None, ge=50, le=5000)
    """Connections the database takes; Aurora's own rule for `max_capacity` when absent."""
    proxy: bool = False
    """RDS Proxy between the functions and the database. It keeps connections open, so that the
    database never pauses."""
    snapshot: Arn | None = None
    """A snapshot of the cluster that the database is restored from, into a new cluster. Once used
    it must stay."""
    backup_days: int = Field(default=7, ge=1, le=35)
    """Days that the database can be restored to any second of."""
    deletion_protection: bool = True
    """The database refuses to be deleted."""
    key: bool | Arn = False
    """A KMS key of one's own for database, bucket, queues, secrets and logs: true makes one, an ARN
    uses that. Otherwise AWS's."""

    domain: Domain | None = None
    """A name of one's own."""
    cors_origins: list[str] = []
    """Origins whose pages may call the API from a browser; none by default."""
    throttle_rate: float = Field(default=200, gt=0)
    """Requests a second that the API takes from all together,"""
    throttle_burst: int = Field(default=400, gt=0)
    """and at once."""

    settings: dict[str, Plain] = {}
    """The service's own plain settings, by their names in lower case without STRANDLINE_, as
    {"llm_provider": "bedrock", "llm_model": "..."}. Secrets go into the secret (output Secrets)."""
    reserved: dict[str, int] = {}
    """Reserved concurrency by function, instead of that of infra/functions.py."""

    alarms: Alarms = Alarms()
    """When somebody is woken."""
    log_days: Days = 30
    """Days that logs are kept."""
    tracing: bool = False
    """X-Ray traces. Off, the trace id is still in every log line."""
    tags: dict[str, str] = {}
    """Tags of every resource, beside `strandline:stack`."""
    permission_boundary: Arn | None = None
    """A policy that every role is bounded by."""

    @property
    def stack_name(self) -> str:
        """What every name of a resource begins with, where CloudFormation does not name it."""
        return self.name or f"strandline-{self.stage}"

    @property
    def service(self) -> ServiceSettings:
        """The service's settings as its functions will read them, with something in place of what
        is secret, or known only once the stack stands."""
        absent = {"database_url": "host=database", "bucket": "bucket", "key_secret": "k" * 64}
        if "jwt_issuer" in self.settings and "jwt_jwks" not in self.settings:
            absent["jwt_secret"] = "j" * 64
        return ServiceSettings.model_validate(absent | self.plain_settings)

    @property
    def plain_settings(self) -> dict[str, str]:
        """The service's settings that no secret is among, as environment variables say them."""
        ours = {
            "cors_origins": " ".join(self.cors_origins),
            "client_certificates": str(bool(self.domain and self.domain.mutual_tls)).lower(),
        }
        known = {n: v for n, v in ours.items() if n in ServiceSettings.model_fields}
        return known | {name: _plain(value) for name, value in self.settings.items()}

    def reserved_for(self, fn: Fn) -> int:
        """Instances of a function at once, at most; 0: what the account has left."""
        return self.reserved.get(fn.name, fn.reserved)

    @property
    def pauses(self) -> bool:
        """Whether the database may pause."""
        return self.min_capacity == 0

    @property
    def database_connections(self) -> int:
        """How many connections the database takes: `max_connections`, or Aurora's own default.

        Aurora derives it from the memory of the maximum capacity: 189 at 1 ACU, 823 at 4, 1,669 at
        8, 3,360 at 16, at most 5,000; at most 2,000 where the minimum is 0 or 0.5 (Aurora User
        Guide, "Maximum connections for Aurora Serverless v2"). The line through the table, which it
        never exceeds.
        """
        table = min(5000, int(211 * self.max_capacity) - 22)
        rule = self.max_connections or table
        return min(rule, 2000) if self.min_capacity < 1 else rule

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for refuse in _REFUSALS:
            refusal = refuse(self)
            if refusal:
                raise ValueError(refusal)
        return self


def _service(s: StackSettings) -> str | None:
    secret = [n for n in s.settings if is_secret(n)]
    if secret:
        return (
            f"settings.{secret[0]} is a secret and would stand in the template: put it into the "
            "secret that the stack makes (output Secrets), and leave it out here"
        )
    ours = [n for n in s.settings if n in _MADE_BY_THE_STACK]
    if ours:
        return f"settings.{ours[0]} is set by the stack itself: leave it out"
    unknown = [n for n in s.settings if n not in ServiceSettings.model_fields]
    if unknown:
        return f"settings.{unknown[0]} is no setting of the service: README, Settings, has them all"
    return None


def _network(s: StackSettings) -> str | None:
    if (s.network == "existing") != (s.vpc is not None):
        return "network is existing if and only if vpc names the network: set both or neither"
    if s.private and not s.vpc_endpoint_ids:
        return "private needs vpc_endpoint_ids, the execute-api endpoints that may call the API"
    return None


def _mutual_tls(s: StackSettings) -> str | None:
    if s.private and s.domain:
        what = "mutual TLS" if s.domain.mutual_tls else "a custom domain of a regional API"
        return (
            f"private and domain: a private API cannot have {what}; "
            "set private to false, or leave out domain"
        )
    return None


def _proxy(s: StackSettings) -> str | None:
    if s.proxy and s.pauses:
        return (
            "proxy and min_capacity 0: a proxy keeps connections open, so the database would never "
            "pause; set min_capacity to 0.5 or more, or proxy to false"
        )
    return None


def _capacity(s: StackSettings) -> str | None:
    if s.min_capacity > s.max_capacity:
        return "min_capacity is over max_capacity: raise max_capacity"
    if s.min_capacity < 1 and (s.max_connections or 0) > 2000:
        return "max_connections is at most 2000 where min_capacity is under 1: raise min_capacity"
    return None


def _way_out(s: StackSettings) -> str | None:
    """What the functions call outside AWS, or in it without an endpoint of ours."""
    if s.network != "endpoints":
        return None
    outside = [
        f"settings.{n}"
        for n, v in s.settings.items()
        if n.endswith(("base_url", "jwks", "jwks_url")) and str(v).startswith("http")
    ]
    for name in ("llm_provider", "embedding_provider"):
        if s.settings.get(name) in ("openai", "azure"):
            outside.append(f"settings.{name}={s.settings[name]}")
    if outside:
        return (
            f"network=endpoints has no way out for {outside[0]}: set network to nat (or existing), "
            "or choose bedrock"
        )
    return None


_CONNECTIONS_USED = 0.6
"""The part of the database's connections that functions may hold; the rest is for migrations,
people, and instances that are being replaced."""


def _connections(s: StackSettings) -> str | None:
    """Every instance of a function may hold its connection, pinned if there is a proxy."""
    names = {fn.name for fn in FUNCTIONS}
    strange = sorted(set(s.reserved) - names)
    if strange:
        return f"reserved.{strange[0]} is no function: there are {', '.join(sorted(names))}"
    needed = {fn.name: s.reserved_for(fn) for fn in FUNCTIONS if fn.needs & {"database", "owner"}}
    unbounded = [name for name, instances in needed.items() if instances < 1]
    if unbounded:
        return (
            f"reserved.{unbounded[0]} must be 1 or more: without it the function could take all of "
            "the database's connections"
        )
    allowed = int(_CONNECTIONS_USED * s.database_connections)
    if sum(needed.values()) > allowed:
        return (
            f"reserved: the functions with a database may hold {sum(needed.values())} connections, "
            f"over {_CONNECTIONS_USED:.0%} of the {s.database_connections} that it takes at "
            f"max_capacity {s.max_capacity:g}: reserve at most {allowed} together, or raise "
            "max_capacity (or max_connections)"
        )
    return None


type _Refusal = Callable[[StackSettings], str | None]
_REFUSALS: tuple[_Refusal, ...] = (
    *(_service, _network, _mutual_tls, _proxy, _capacity, _way_out, _connections),
)


def is_secret(name: str) -> bool:
    """Whether a setting of the service is a secret, by its name."""
    return name.endswith(("_secret", "_api_key", "_password", "_token"))


def _plain(value: Plain) -> str:
    """A setting as an environment variable says it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(context: Callable[[str], Any]) -> StackSettings:
    """The settings of the stage that the context names. Raises Refused, saying what is wrong.

    A stage is an object under "stages" in cdk.json's context; a field given by itself (`-c
    network=nat`, objects as JSON) goes before it.
    """
    stages: Mapping[str, Mapping[str, Any]] = context("stages") or {}
    stage = context("stage") or "dev"
    if stage not in stages:
        known = ", ".join(sorted(stages))
        raise Refused(f"stage {stage} is not in cdk.json (there are: {known}). Add it to stages.")
    alone = {n: context(n) for n in StackSettings.model_fields}
    given = {n: _parsed(v) for n, v in alone.items() if v is not None}
    return made({**stages[stage], **given, "stage": stage})


def made(given: Mapping[str, Any]) -> StackSettings:
    """Settings of these values. Raises Refused naming every field that is wrong."""
    try:
        settings = StackSettings.model_validate(given)
        _ = settings.service
    except ValidationError as error:
        within = ("settings",) if error.title == ServiceSettings.__name__ else ()
        wrong = [
            ": ".join(filter(None, (".".join(map(str, (*within, *e["loc"]))), _said(e["msg"]))))
            for e in error.errors(include_url=False, include_input=False)
        ]
        raise Refused(f"The stack cannot be made. {'; '.join(wrong)}.") from None
    return settings


def _said(message: str) -> str:
    """pydantic's sentence, without its own words before ours."""
    return message.removeprefix("Value error, ")


def _parsed(value: Any) -> Any:
    """A value of the command line: objects, lists and yes or no come as JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.loads(value)
    return value
