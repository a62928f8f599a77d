"""The functions of the table, each with its own role, log group and alias."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.database import APP, MASTER, NAME, OWNER, PORT, Database
from infra.jobs import ALIAS, Jobs, make_function_prefix
from infra.log_group_factory import create_log_group
from infra.nag_suppressions import acknowledge_nag_findings
from infra.network import Network
from infra.permissions import ResourceArns, list_bedrock_model_arns, make_policy_statements
from infra.role_factory import create_service_role, make_allow_statement
from infra.settings import SettingsError, StackSettings
from infra.storage_and_queues import Storage
from strandline.config import ServiceSettings
from strandline.embeddings.reachable import read_previous_settings
from strandline.function_specs import FUNCTIONS, FunctionSpec, Layer

UNZIPPED_LIMIT = 250 * 2**20
"""Largest size in bytes of a function's layers and asset together, unzipped (AWS Lambda quotas)."""
_ARM = lambda_.Architecture.ARM_64
_PYTHON = lambda_.Runtime.PYTHON_3_13
# Lambda makes no new version for it, so it must not be in the version's logical id: a change of it
# alone would ask for a version that is there already, and fail.
lambda_.Function.classify_version_property("RecursiveLoop", locked=False)
_BATCH_SIZE = 10
_LEAST_PER_QUEUE = 2
"""The least `max_concurrency` that Lambda accepts for a queue."""


_WILDCARDS = {
    "Resource::.*/": "Objects of one bucket, or schedules of one group, each with its own name.",
    ":log-group:": "The streams of the function's log group.",
    ":foundation-model": "An inference profile calls its model in several Regions.",
    r"::\*$": "Lambda's network interfaces (and traces) take no resource; the function's code is "
    "denied the interfaces (infra/permissions.py).",
}
"""Why a function's role may have a wildcard. tests/infra shows that every grant is used."""


class DeployableAssets(Protocol):
    """What is deployed: built directories and their unzipped sizes."""

    @property
    def handler(self) -> str:
        """The handler of every function, within its asset."""
        ...

    @property
    def certificates(self) -> str:
        """Path at which a function finds the certificate authorities of the database."""
        ...

    @property
    def certificates_layer(self) -> Path | None:
        """The directory of a layer that has them; None: the layer `deps` has them."""
        ...

    def layer_directory(self, name: Layer) -> Path:
        """The directory of a layer."""
        ...

    def function_directory(self, name: str) -> Path:
        """The directory of a function's asset."""
        ...

    def unzipped_size(self, directory: Path) -> int:
        """Unzipped size in bytes of such a directory."""
        ...


@dataclass(frozen=True)
class StackParts:
    """The parts of the stack that the functions use."""

    network: Network
    storage: Storage
    database: Database
    jobs: Jobs


class Compute(Construct):
    """Every function of the table: `functions` by name, and `aliases`, which callers use. An alias
    moves to a release's version once the database is ready for it."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        settings: StackSettings,
        parts: StackParts,
        assets: DeployableAssets,
    ) -> None:
        super().__init__(scope, id)
        self._settings, self._parts, self._assets = settings, parts, assets
        self._resources = _collect_resource_arns(self, settings, parts)
        layers: set[Layer] = {name for fn in FUNCTIONS for name in fn.layers}
        self._layers = {
            name: self._create_layer(name, assets.layer_directory(name)) for name in sorted(layers)
        }
        own = assets.certificates_layer
        self._certificates = [self._create_layer("certificates", own)] if own else []
        self.functions = {fn.name: self._create_function(fn) for fn in FUNCTIONS}
        self.aliases = {
            name: function.add_alias(ALIAS) for name, function in self.functions.items()
        }
        for fn in FUNCTIONS:
            if fn.queue:
                self._attach_queue_to_function(fn)

    def _create_layer(self, name: str, directory: Path) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            f"{name.capitalize()}Layer",
            code=lambda_.Code.from_asset(str(directory)),
            compatible_architectures=[_ARM],
            compatible_runtimes=[_PYTHON],
        )

    def _create_function(self, fn: FunctionSpec) -> lambda_.Function:
        self._require_unzipped_size(fn)
        settings, parts = self._settings, self._parts
        name = make_function_prefix(settings) + fn.name
        title = fn.name.capitalize()
        in_vpc = bool(fn.needs & {"database", "owner"})
        function = lambda_.Function(
            self,
            title,
            function_name=name,
            runtime=_PYTHON,
            architecture=_ARM,
            handler=self._assets.handler,
            code=lambda_.Code.from_asset(str(self._assets.function_directory(fn.name))),
            layers=[
                *(self._layers[layer] for layer in fn.layers),
                *(self._certificates if in_vpc else ()),
            ],
            memory_size=fn.memory,
            timeout=Duration.seconds(fn.timeout),
            reserved_concurrent_executions=settings.reserved_concurrency(fn) or None,
            role=self._create_function_role(fn),
            log_group=create_log_group(
                self, f"{title}Logs", settings, parts.storage.key, f"/aws/lambda/{name}"
            ),
            environment=build_function_environment(fn, settings, parts, self._assets.certificates),
            tracing=lambda_.Tracing.ACTIVE if settings.tracing else None,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if fn.feeds_itself else None,
            vpc=parts.network.vpc if in_vpc else None,
            vpc_subnets=parts.network.subnets if in_vpc else None,
            security_groups=parts.network.security_groups if in_vpc else None,
            # A rollback points the alias at an earlier version, which must still exist. The
            # version of a failed deployment is removed: it could not be created a second time.
            current_version_options={"removal_policy": RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE},
        )
        acknowledge_nag_findings(
            function, {"L1": "One Python version everywhere: the one that was tested."}
        )
        return function

    def _require_unzipped_size(self, fn: FunctionSpec) -> None:
        assets = self._assets
        directories = [
            *(assets.layer_directory(name) for name in fn.layers),
            assets.function_directory(fn.name),
        ]
        if assets.certificates_layer:
            directories.append(assets.certificates_layer)
        size = sum(assets.unzipped_size(directory) for directory in directories)
        if size > UNZIPPED_LIMIT:
            raise SettingsError(
                f"{fn.name}: its layers ({', '.join(fn.layers)}) and code are {size >> 20} MiB "
                f"unzipped, over Lambda's {UNZIPPED_LIMIT >> 20}: take a dependency out of "
                "pyproject.toml, or a layer from its row in shared/strandline/function_specs.py"
            )

    def _create_function_role(self, fn: FunctionSpec) -> iam.IRole:
        allowed = make_policy_statements(fn, self._resources)
        if self._settings.tracing:
            allowed.append(
                make_allow_statement(["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*")
            )
        name = f"{fn.name.capitalize()}Role"
        return create_service_role(self, name, "lambda", allowed, wildcards=_WILDCARDS)

    def _attach_queue_to_function(self, fn: FunctionSpec) -> None:
        """Feed a function from its queue. Only the messages that failed are delivered again."""
        storage = self._parts.storage
        queue = {"work_queue": storage.work_queue, "job_queue": storage.job_queue}[fn.queue]
        instances = self._settings.reserved_concurrency(fn)
        # In a trial the queues leave most of the account's instances to requests.
        trial_limit = _LEAST_PER_QUEUE if self._settings.account_concurrency else None
        self.aliases[fn.name].add_event_source_mapping(
            "QueueEvents",
            event_source_arn=queue.queue_arn,
            batch_size=_BATCH_SIZE,
            report_batch_item_failures=True,
            # More would be throttled by the function's limit, and would count as received.
            max_concurrency=max(_LEAST_PER_QUEUE, instances) if instances else trial_limit,
        )


def build_function_environment(
    fn: FunctionSpec, settings: StackSettings, parts: StackParts, certificates: str
) -> Mapping[str, str]:
    """A function's environment variables. They hold no secrets, only the ARNs of secrets."""
    variables = settings.service_environment
    storage, database, jobs = parts.storage, parts.database, parts.jobs
    tls = f"sslmode=verify-full sslrootcert={certificates}"

    def url(host: str, user: str) -> str:
        return f"host={host} port={PORT} dbname={NAME} user={user} {tls}"

    if settings.restart:
        variables["restart"] = settings.restart
    if fn.needs & {"database", "owner"}:
        variables |= {"database_auth": "iam", "secrets": storage.secrets.secret_arn}
        # No code reads this variable. Lambda publishes a new version only if the text of the
        # variables differs, and the host of a restored cluster is the same text. With this
        # variable the aliases move to a version that uses the new cluster.
        variables["cluster"] = database.identifier
    if "database" in fn.needs:
        variables |= {
            "database_url": url(database.service_host, APP),
            "bucket": storage.bucket.bucket_name,
            "work_queue_url": storage.work_queue.queue_url,
        }
    if "owner" in fn.needs:
        variables |= {
            "owner_database_url": url(database.migration_host, OWNER),
            "administrator_database_url": url(database.migration_host, MASTER),
            "administrator_secret": database.master_secret_arn,
            "first_key_secret": storage.first_key.secret_arn,
        }
    instances = settings.account_concurrency or settings.reserved_concurrency(fn)
    if fn.waits and instances:
        own_limit = settings.service_settings.function_waits
        variables["function_waits"] = str(min(own_limit, instances // 10))
    variables |= {name: str(getattr(settings, name)) for name in fn.stack_settings}
    if "job_queue" in fn.needs:
        variables["job_queue_url"] = storage.job_queue.queue_url
    if "state_machine" in fn.needs:
        variables["state_machine"] = jobs.arn
    if "schedules" in fn.needs:
        variables |= {"schedule_group": jobs.group, "scheduler_role": jobs.scheduler_role.role_arn}
    return {f"STRANDLINE_{name.upper()}": value for name, value in sorted(variables.items())}


def _embedding_models(stack: Stack, service: ServiceSettings | None) -> tuple[str, ...]:
    """What embedding with these settings calls; nothing without Bedrock."""
    if service is None or service.embedding_provider != "bedrock" or not service.embedding_model:
        return ()
    region = service.embedding_region or stack.region
    return list_bedrock_model_arns(service.embedding_model, stack.partition, region, stack.account)


def _collect_resource_arns(
    scope: Construct, settings: StackSettings, parts: StackParts
) -> ResourceArns:
    stack, service = Stack.of(scope), settings.service_settings
    models = (
        (
            *list_bedrock_model_arns(
                service.llm_model, stack.partition, stack.region, stack.account
            ),
            *settings.profile_models,
        )
        if service.llm_provider == "bedrock"
        else ()
    )
    return ResourceArns(
        bucket=parts.storage.bucket.bucket_arn,
        work_queue=parts.storage.work_queue.queue_arn,
        job_queue=parts.storage.job_queue.queue_arn,
        settings_secret=parts.storage.secrets.secret_arn,
        administrator_secret=parts.database.master_secret_arn,
        first_key_secret=parts.storage.first_key.secret_arn,
        database_user=parts.database.app_user_arn,
        proxy_user=parts.database.proxy_user_arn,
        owner_user=parts.database.owner_user_arn,
        state_machine=parts.jobs.arn,
        schedule_group=parts.jobs.group,
        scheduler_role=parts.jobs.scheduler_role.role_arn,
        function_prefix=make_function_prefix(settings),
        region=stack.region,
        account=stack.account,
        partition=stack.partition,
        models=models,
        embedding_models=(
            *_embedding_models(stack, service),
            *_embedding_models(stack, read_previous_settings(service)),
        ),
        key=parts.storage.key.key_arn if parts.storage.key else None,
    )
