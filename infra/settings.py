"""What a deployment is told: a stage's object in cdk.json over the defaults here, all typed."""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from strandline.config import Settings as ServiceSettings
from strandline.deployment import Fn

type Arn = Annotated[str, StringConstraints(pattern=r"^arn:[\w-]+:")]
type Name = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9]*(-[a-z0-9]+)*)?$")]
"""As a database's identifier may be: no hyphen at its end, and no two together."""
type Plain = str | int | float | bool
_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653)


class Refused(ValueError):
    """The stack cannot be made of these settings; says which one, and the way out."""


def _one_of_cloudwatch_s(days: int) -> int:
    if days not in _DAYS:
        raise ValueError(f"CloudWatch keeps logs for one of {', '.join(map(str, _DAYS))} days")
    return days


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
    ownership_certificate_arn: Arn | None = None
    """With mutual TLS, and a certificate that was imported or is of a private authority: a public
    one of ACM's for the same name, which shows that it is yours."""
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

    stage: Name = Field(default="dev", min_length=1, max_length=30)
    """The stage's name in cdk.json."""
    name: Name = Field(default="", max_length=41)
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
    uses that. Otherwise AWS's, as always for the alarms' topic and what functions are told, which
    hold neither memory nor secrets."""

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
    {"llm_provider": "bedrock", "llm_model": "..."}. Secrets go into the secret (output Secrets).
    API keys are always a way in, since the operator's first key is one; others stand beside them,
    or are asked for as well (auth_require_all)."""
    restart: str = ""
    """Any word. Another one than before has every function begin anew at the next deployment, and
    so read the secret again."""
    profile_models: list[Arn] = []
    """Where llm_model is an application inference profile of Bedrock's: the models that it calls,
    and the profile that it was made from if it was."""
    reserved: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Reserved concurrency by function, instead of that of shared/strandline/deployment.py."""

    alarms: Alarms = Alarms()
    """When somebody is woken."""
    gateway_log_role: bool = True
    """The stack makes the role by which API Gateway writes logs, and sets it for the whole account
    and Region. false: the account has one already."""
    log_days: Annotated[int, AfterValidator(_one_of_cloudwatch_s)] = 30
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
        absent = {
            "database_url": "host=database",
            "bucket": "bucket",
            "key_secret": "k" * 64,
            "llm_api_key": "l",
        }
        if "jwt_issuer" in self.settings and "jwt_jwks" not in self.settings:
            of_keys = str(self.settings.get("jwt_algorithms", "HS256"))[:2] != "HS"
            absent |= {"jwt_jwks": '{"keys": [{}]}'} if of_keys else {"jwt_secret": "j" * 64}
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


def _plain(value: Plain) -> str:
    """A setting as an environment variable says it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
