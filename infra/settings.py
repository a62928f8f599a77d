"""Typed settings of a deployment: a stage's object in cdk.json over the defaults here."""

import hashlib
import math
import sys
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from infra.setting_types import AddressRange, Arn, LogDays, Name, Scalar
from strandline.config import ServiceSettings
from strandline.function_specs import FUNCTIONS, FunctionSpec

RECALLS_PER_UNIT = 28
"""Recalls a second that a capacity unit serves: a quarter of a core, at 8.3 ms of CPU each
(infra/database_figures.json, of a caller who sees a thousand events), with some room. Appends cost
less."""
_TENANT_REQUESTS_PER_MINUTE = 6000
"""The service's own default for a tenant (config_quotas.py): a larger stage gives no more."""


class SettingsError(ValueError):
    """The stack cannot be built from these settings. The message names setting and remedy."""


class _SettingsModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ExistingVpc(_SettingsModel):
    """An existing network. The stack neither looks anything up in it nor changes it."""

    vpc_id: str = Field(pattern="^vpc-[0-9a-f]+$")
    """The VPC."""
    availability_zones: list[str] = Field(min_length=2)
    """The zones of the subnets, one each: ["eu-west-1a", "eu-west-1b"]."""
    subnet_ids: list[str] = Field(min_length=2)
    """Private subnets for the functions and the database, in the order of the zones. They must
    reach S3, SQS and Secrets Manager, and Bedrock or the model's address where one is used."""
    security_group_ids: list[str] = []
    """Further security groups of the functions: those that the VPC's own endpoints accept."""

    @model_validator(mode="after")
    def _require_zone_of_each_subnet(self) -> Self:
        if len(self.subnet_ids) != len(self.availability_zones):
            raise ValueError("availability_zones must name the zone of each of subnet_ids")
        return self


class MutualTls(_SettingsModel):
    """Clients must present a certificate."""

    truststore_uri: str = Field(pattern=r"^s3://[^/]+/.+$")
    """The file of the authorities' certificates: s3://bucket/key, in the stack's Region."""
    truststore_version: str = Field(min_length=1)
    """The object's version. API Gateway reads the truststore only when this changes."""


class Domain(_SettingsModel):
    """A custom domain. Its DNS record is made in `hosted_zone_id`, or elsewhere for the output
    DomainTarget."""

    name: str = Field(pattern=r"^[a-z0-9.-]+\.[a-z]{2,}$")
    """The host name."""
    certificate_arn: Arn
    """A certificate for it in ACM, in the stack's Region."""
    ownership_certificate_arn: Arn | None = None
    """Needed with mutual TLS when the certificate was imported or comes from a private authority: a
    public ACM certificate for the same name, which proves ownership."""
    hosted_zone_id: str | None = Field(default=None, pattern="^Z[A-Z0-9]+$")
    """The zone of Route 53, in this account, in which the stack makes the name's record."""
    base_path: str = Field(default="", pattern=r"^[\w-]*$")
    """The first path segment under the domain; it is removed before the service sees the path."""
    mutual_tls: MutualTls | None = None
    """Requires client certificates. The default endpoint is then disabled."""


class Alarms(_SettingsModel):
    """Thresholds of the alarms and who is notified; docs/runbook.md has an entry for each."""

    topic_arn: Arn | None = None
    """SNS topic to notify. Without it and without `email`, alarms appear in the console only."""
    email: str | None = Field(default=None, pattern="@")
    """Address to notify, through a topic that the stack creates."""
    unembedded_seconds: int = Field(default=900, gt=0)
    """Age of the oldest event without a vector."""
    unfolded_seconds: int = Field(default=7200, gt=0)
    """Age of the oldest event that is due for folding into chains."""
    erasure_seconds: int = Field(default=21600, gt=0)
    """Age of the oldest erasure that is not complete: five vacuums may take five hours."""
    failed_runs: int = Field(default=1, gt=0)
    """Failed executions of the state machine within five minutes."""
    errors_percent: float = Field(default=1.0, gt=0, le=100)
    """Share of 5xx answers within five minutes."""
    p90_milliseconds: int = Field(default=2000, gt=0)
    """90th percentile of the API's latency in five minutes, three times in a row."""
    connections_percent: float = Field(default=80.0, gt=0, le=100)
    """Database connections in use, in percent of the maximum."""
    capacity_minutes: int = Field(default=15, ge=5)
    """How long the database may run at its maximum capacity."""
    read_usd_per_day: float = Field(default=10.0, gt=0)
    """Cost of pages that the database reads from storage, as an hour's reads would cost in a day;
    of `storage_type` aurora-iopt1, which has no price for them, none."""
    model_usd_per_day: float = Field(default=10.0, gt=0)
    """Cost of language models in a day, by the prices in settings.llm_usd_per_million_*."""
    usd_per_month: float | None = Field(default=None, gt=0)
    """Monthly budget for everything with the stack's tag; alarms at 80 % and by forecast."""


class StackSettings(_SettingsModel):
    """One deployment. A stage in cdk.json, or -c name=value, sets a field."""

    stage: Name = Field(default="dev", min_length=1, max_length=30)
    """The stage's name in cdk.json."""
    name: Name = Field(default="", max_length=41)
    """The stack's name, strandline-<stage> by default; unique within an account and Region."""

    network: Literal["endpoints", "nat", "existing"] = "endpoints"
    """`endpoints`: subnets without internet access, with the fewest VPC endpoints; `nat`: internet
    access through a NAT gateway; `existing`: the VPC that `vpc` names."""
    vpc: ExistingVpc | None = None
    """The VPC for `existing`."""
    cidr: AddressRange = "10.0.0.0/16"
    """Addresses of the VPC that the stack creates, from a /16 to a /22. Another range replaces the
    VPC, so it is fixed with the first deployment."""
    endpoint_zones: int = Field(default=1, ge=1, le=2)
    """In how many of the two zones interface endpoints are. One zone costs half, and the endpoints
    fail with it."""
    nat_gateways: int = Field(default=1, ge=1, le=2)
    """Number of NAT gateways for `nat`, with the same trade-off."""
    private: bool = False
    """The API can be reached from VPCs only, through the endpoints in `vpc_endpoint_ids`."""
    vpc_endpoint_ids: list[str] = []
    """The VPC endpoints (execute-api) through which a private API can be called."""

    engine_version: str = Field(default="18.4", pattern=r"^\d+\.\d+$")
    """Version of Aurora PostgreSQL 18. AWS does not raise it by itself: to upgrade, set a later
    minor version and deploy."""
    min_capacity: float = Field(default=0, ge=0, le=256, multiple_of=0.5)
    """Least number of Aurora capacity units (2 GiB each); 0 lets the database pause. CloudWatch
    Database Insights need 2 or more and are off below."""
    max_capacity: float = Field(default=4, ge=1, le=256, multiple_of=0.5)
    """Largest number of Aurora capacity units."""
    storage_type: Literal["aurora", "aurora-iopt1"] = "aurora"
    """`aurora`: each page read or written has a price; `aurora-iopt1` (I/O-Optimized): none has,
    capacity and storage cost more. AWS lets a cluster return to `aurora` at any time and change to
    aurora-iopt1 once in 30 days: change it in a deployment of its own, whose rollback may change it
    back."""
    pause_minutes: int = Field(default=5, ge=5, le=1440)
    """Minutes without a connection before the database pauses, where `min_capacity` is 0."""
    readers: int = Field(default=0, ge=0, le=15)
    """Instances beside the writer; one takes over when it fails. 0: a new one is created then."""
    max_connections: int | None = Field(default=None, ge=50, le=5000)
    """Largest number of database connections; when absent, Aurora's rule for `max_capacity`."""
    proxy: bool = False
    """RDS Proxy between the functions and the database. It keeps connections open, so the database
    never pauses. AWS's list of versions for RDS Proxy says whether it takes `engine_version`."""
    ca_bundle: str | None = None
    """File of the database's certificate authorities (PEM), instead of those that ship: AWS's
    global-bundle.pem, for a Region for which no root ships. The path is relative to the
    repository."""
    snapshot: Arn | None = None
    """Cluster snapshot that the database is restored from, into a new cluster. Once used, the
    setting must stay."""
    backup_days: int = Field(default=7, ge=1, le=35)
    """Days of point-in-time recovery."""
    deletion_protection: bool = True
    """The database refuses to be deleted."""
    key: bool | Arn = False
    """Customer-managed KMS key for database, bucket, queues, secrets and logs: true creates one, an
    ARN uses that one. Otherwise keys of AWS. The alarm topic and the functions' environment
    variables always use those; they hold neither memory nor secrets."""

    domain: Domain | None = None
    """A custom domain."""
    firewall: bool | Arn = False
    """Web ACL of AWS WAF in front of the API: true creates one that refuses addresses known to AWS
    for attacks and those over `firewall_rate`; an ARN uses that one, regional and of the stack's
    Region. AWS charges for the ACL, its rules and each request."""
    firewall_rate: float | None = Field(default=None, ge=1)
    """Requests a second that the created firewall accepts from one address, over a minute; when
    absent, a tenant's default limit. Raise it where one address (a NAT gateway, your own backend)
    stands for several tenants."""
    cors_origins: list[str] = []
    """Origins whose pages may call the API from a browser; none by default."""
    throttle_rate: float | None = Field(default=None, gt=0)
    """Requests a second that the API accepts from all callers together; when absent, 28 for each
    unit of `max_capacity`, which is what the database serves. A tenant's default limit is half of
    it, and 100 at most."""
    throttle_burst: int | None = Field(default=None, gt=0)
    """Requests that it accepts at once; when absent, those of a second, and no more than one
    function has instances to serve them. Methods of a function with fewer instances accept as many
    as these. A tenant may send those of a second at once, at most half of this."""

    settings: dict[str, Scalar] = {}
    """The service's settings that are not secret, by their names in lower case without STRANDLINE_,
    as {"llm_provider": "bedrock", "llm_model": "..."}. Secrets go into the secret (output
    Secrets). API keys are always enabled, since the operator's first key is one; other credentials
    can be enabled beside them, or required as well (auth_require_all)."""
    restart: str = ""
    """Any word. When it changes, the next deployment starts new instances of every function, which
    read the secret again."""
    profile_models: list[Arn] = []
    """For an application inference profile of Bedrock as llm_model: the models that it calls, and
    the profile that it was created from, if any."""
    reserved: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Reserved concurrency by function, instead of that of shared/strandline/function_specs.py."""
    account_concurrency: int | None = Field(default=None, ge=10, le=1000)
    """For a trial in an account with a low Lambda quota (a new account may have 10): the quota. No
    function reserves concurrency; all share the quota, which bounds the database's connections."""

    alarms: Alarms = Alarms()
    """Thresholds of the alarms and who is notified."""
    gateway_log_role: bool = True
    """The stack creates the role with which API Gateway writes logs, and sets it for the whole
    account and Region. false: the account already has one."""
    log_days: LogDays = 30
    """Days that logs are kept, but the API's access log."""
    access_log_days: LogDays = 30
    """Days that the API's access log is kept, which alone holds callers' addresses."""
    tracing: bool = False
    """X-Ray traces. When off, every log line still has the trace id."""
    tags: dict[str, str] = {}
    """Tags of every resource, in addition to `strandline:stack`."""
    permission_boundary: Arn | None = None
    """Policy that bounds every role (permissions boundary)."""

    @property
    def stack_name(self) -> str:
        """Prefix of every resource name that CloudFormation does not choose."""
        return self.name or f"strandline-{self.stage}"

    @property
    def cluster_identifier(self) -> str:
        """The database's name, known before it is created. A restored snapshot gets another one."""
        if self.snapshot is None:
            return self.stack_name
        return f"{self.stack_name}-{hashlib.sha256(self.snapshot.encode()).hexdigest()[:8]}"

    @property
    def service_settings(self) -> ServiceSettings:
        """The service's settings as its functions will read them, with placeholders for values
        that are secret or known only after deployment."""
        placeholders = {
            "database_url": "host=database",
            "bucket": "bucket",
            "key_secret": "k" * 64,
            "llm_api_key": "l",
        }
        if "jwt_issuer" in self.settings and "jwt_jwks" not in self.settings:
            uses_public_keys = str(self.settings.get("jwt_algorithms", "HS256"))[:2] != "HS"
            placeholders |= (
                {"jwt_jwks": '{"keys": [{}]}'} if uses_public_keys else {"jwt_secret": "j" * 64}
            )
        return ServiceSettings.model_validate(placeholders | self.service_environment)

    @property
    def service_environment(self) -> dict[str, str]:
        """The service's settings that are not secret, as values of environment variables."""
        # Half of what is accepted in a second, and of what is at once. A batch of the largest size
        # needs half a second's worth of its quota at once; a trial stage has few instances for it.
        at_once = self.request_burst / (2 if self.account_concurrency else 1)
        rate = min(_TENANT_REQUESTS_PER_MINUTE / 60, self.request_rate / 2, at_once)
        stack_values = {
            "tenant_requests_per_minute": str(int(rate * 60)),
            "tenant_burst_seconds": str(
                min(1.0, math.floor(500 * self.request_burst / rate) / 1000)
            ),
            "cors_origins": " ".join(self.cors_origins),
            "client_certificates": str(bool(self.domain and self.domain.mutual_tls)).lower(),
        }
        variables = {n: v for n, v in stack_values.items() if n in ServiceSettings.model_fields}
        return variables | {
            name: _format_environment_value(value) for name, value in self.settings.items()
        }

    def reserved_concurrency(self, fn: FunctionSpec) -> int:
        """Most concurrent instances of a function; 0: what the account has left."""
        if self.account_concurrency:
            return 0
        return self.reserved.get(fn.name, fn.reserved_concurrency)

    @property
    def request_rate(self) -> float:
        """Requests a second that the API accepts: `throttle_rate`, or what the database serves."""
        return self.throttle_rate or RECALLS_PER_UNIT * self.max_capacity

    @property
    def firewall_requests_a_second(self) -> float:
        """Requests a second from one address that a created firewall lets through."""
        return self.firewall_rate or self.service_settings.tenant_requests_per_minute / 60

    @property
    def request_burst(self) -> int:
        """Requests that the API accepts at once: `throttle_burst`, or those of a second."""
        burst = min(math.ceil(self.request_rate), self.max_request_instances or sys.maxsize)
        return self.throttle_burst or burst

    @property
    def max_request_instances(self) -> int:
        """Instances of the function with routes that may have most, or all that the account has; 0:
        what it has left."""
        if self.account_concurrency:
            return self.account_concurrency
        reserved = [self.reserved_concurrency(fn) for fn in FUNCTIONS if fn.routes]
        return max(reserved) if all(reserved) else 0

    @property
    def endpoint_services(self) -> tuple[str, ...]:
        """Services of the interface endpoints of `network=endpoints`. As few as possible: each
        costs by the hour in each zone."""
        service = self.service_settings
        providers = (
            *(service.llm_provider, service.embedding_provider),
            service.previous_embedding_provider,
        )
        models = ("bedrock-runtime",) if "bedrock" in providers else ()
        return ("sqs", "secretsmanager", *models)

    @property
    def can_pause(self) -> bool:
        """Whether the database may pause."""
        return self.min_capacity == 0

    @property
    def max_database_connections(self) -> int:
        """How many connections the database accepts: `max_connections`, or Aurora's default.

        Aurora derives it from the memory of the maximum capacity: 189 at 1 ACU, 823 at 4, 1,669 at
        8, 3,360 at 16, at most 5,000; at most 2,000 if the minimum is 0 or 0.5 (Aurora User Guide,
        "Maximum connections for Aurora Serverless v2"). The result is a line through that table
        which never exceeds it.
        """
        table = min(5000, int(211 * self.max_capacity) - 22)
        rule = self.max_connections or table
        return min(rule, 2000) if self.min_capacity < 1 else rule


def _format_environment_value(value: Scalar) -> str:
    """A setting as the value of an environment variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)
