"""The stack of one stage, composed of its parts."""

from aws_cdk import CfnOutput, Stack, Tags
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.api import Api
from infra.compute import Compute, DeployableAssets, StackParts
from infra.database import Database
from infra.jobs import Jobs, make_function_prefix
from infra.metrics import MonitoredResources
from infra.monitoring import Monitoring
from infra.network import Network
from infra.release import MigrationStep
from infra.settings import StackSettings
from infra.storage_and_queues import Storage


class StrandlineStack(Stack):
    """One stage of the service. The command line of the CDK chooses account and Region."""

    def __init__(self, scope: Construct, settings: StackSettings, assets: DeployableAssets) -> None:
        super().__init__(
            scope,
            settings.stack_name,
            description=f"Strandline, memory for agents: stage {settings.stage}",
            termination_protection=settings.deletion_protection,
        )
        storage = Storage(self, "Storage", settings)
        network = Network(self, "Network", settings, storage)
        database = Database(self, "Database", settings, network, storage.key)
        jobs = Jobs(self, "Jobs", settings, storage)
        parts = StackParts(network, storage, database, jobs)
        compute = Compute(self, "Compute", settings, parts, assets)
        release = MigrationStep(self, "Release", settings, parts, compute)
        api = Api(self, "Api", settings, compute.aliases, key=storage.key)
        monitoring = Monitoring(
            self,
            "Monitoring",
            settings,
            _collect_monitored_resources(api, parts, make_function_prefix(settings)),
        )
        monitoring.node.add_dependency(release.resource)  # see the alarm `missing-sweep`
        self._apply_tags_and_permissions_boundary(settings)
        outputs = {
            "FirstKeySecret": storage.first_key.secret_arn,
            "Secrets": storage.secrets.secret_arn,
            "Payloads": storage.bucket.bucket_name,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _apply_tags_and_permissions_boundary(self, settings: StackSettings) -> None:
        """Tags every resource, and sets the permissions boundary of every role."""
        for name, value in {"strandline:stack": settings.stack_name, **settings.tags}.items():
            # CloudFormation does not support tags on target groups.
            untaggable_types = ["AWS::RDS::DBProxyTargetGroup"]
            Tags.of(self).add(name, value, exclude_resource_types=untaggable_types)
        if settings.permission_boundary:
            policy = iam.ManagedPolicy.from_managed_policy_arn(
                self, "Boundary", settings.permission_boundary
            )
            iam.PermissionsBoundary.of(self).apply(policy)


def _collect_monitored_resources(api: Api, parts: StackParts, prefix: str) -> MonitoredResources:
    storage, jobs = parts.storage, parts.jobs
    return MonitoredResources(
        api=api.metric_dimensions,
        queues={
            "work-queue": (storage.work_queue, storage.work_dead_letters),
            "job-queue": (storage.job_queue, storage.job_dead_letters),
        },
        cluster=parts.database.cluster,
        machine=jobs.arn,
        shards=jobs.shards_arn,
        schedules=jobs.group,
        prefix=prefix,
    )
