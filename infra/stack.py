"""The whole of a deployment, put together."""

from aws_cdk import CfnOutput, Stack, Tags
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.api import Api
from infra.compute import Assets, Compute, Parts
from infra.database import Database
from infra.jobs import Jobs, function_prefix
from infra.monitoring import Watch, Watched
from infra.network import Network
from infra.release import Release
from infra.settings import StackSettings
from infra.storage import Storage


class StrandlineStack(Stack):
    """One stage of the service. Where it is deployed to is the CDK's command line's to say."""

    def __init__(self, scope: Construct, settings: StackSettings, assets: Assets) -> None:
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
        parts = Parts(network, storage, database, jobs)
        compute = Compute(self, "Compute", settings, parts, assets)
        Release(self, "Release", settings, parts, compute)
        api = Api(self, "Api", settings, compute.aliases, key=storage.key)
        Watch(self, "Watch", settings, _watched(api, parts, function_prefix(settings)))
        self._bound(settings)
        outputs = {
            "FirstKeySecret": storage.first_key.secret_arn,
            "Secrets": storage.secrets.secret_arn,
            "Payloads": storage.bucket.bucket_name,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _bound(self, settings: StackSettings) -> None:
        """Tags on everything, and the boundary on every role."""
        for name, value in {"strandline:stack": settings.stack_name, **settings.tags}.items():
            # CloudFormation's own description of a target group knows no tags.
            untagged = ["AWS::RDS::DBProxyTargetGroup"]
            Tags.of(self).add(name, value, exclude_resource_types=untagged)
        if settings.permission_boundary:
            policy = iam.ManagedPolicy.from_managed_policy_arn(
                self, "Boundary", settings.permission_boundary
            )
            iam.PermissionsBoundary.of(self).apply(policy)


def _watched(api: Api, parts: Parts, prefix: str) -> Watched:
    storage, jobs = parts.storage, parts.jobs
    return Watched(
        api=api.dimensions,
        queues={
            "hints": (storage.hints, storage.dead_hints),
            "runs": (storage.runs, storage.dead_runs),
        },
        cluster=parts.database.cluster,
        machine=jobs.arn,
        schedules=jobs.group,
        prefix=prefix,
    )
