"""The order of a release: first the database, then a ping of each version, then the aliases."""

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import CustomResource, Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.compute import Compute, StackParts
from infra.log_group_factory import create_log_group
from infra.nag_suppressions import acknowledge_nag_findings
from infra.role_factory import create_service_role, make_allow_statement
from infra.settings import StackSettings

_CALLER = Path(__file__).parent / "release_function.py"
_CALLER_SECONDS = 900
"""Lambda's limit: `migrate` may take all of its own time."""


class MigrationStep(Construct):
    """Runs `migrate` during every deployment that changes a function, and calls the new version of
    each other function. The aliases move only after that; if it fails they stay, and the deployment
    is rolled back. Nothing is called during a rollback. `resource` is the resource that stands for
    it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        settings: StackSettings,
        parts: StackParts,
        compute: Compute,
    ) -> None:
        super().__init__(scope, id)
        function = compute.functions["migrate"]
        caller = self._create_version_caller(settings, parts, compute)
        self.resource = CustomResource(
            self,
            "Schema",  # not as CDK's Trigger was called: a resource cannot change its type
            resource_type="Custom::Release",
            service_token=caller.function_arn,
            service_timeout=Duration.seconds(_CALLER_SECONDS + 60),
            properties={
                "Version": function.current_version.function_arn,
                "Others": [
                    other.current_version.function_arn
                    for name, other in compute.functions.items()
                    if name != "migrate"
                ],
            },
        )
        # The alias of `migrate` too: a long migration continues as a run of the state machine.
        for construct in (parts.network, parts.database, compute.aliases["migrate"], caller):
            self.resource.node.add_dependency(construct)
        # What starts runs: by then the roles that it needs are known everywhere, too.
        runs = (parts.jobs.machine, *parts.jobs.schedules)
        for construct in (*_list_aliases_but_migrate(compute.aliases), *runs):
            construct.node.add_dependency(self.resource)

    def _create_version_caller(
        self, settings: StackSettings, parts: StackParts, compute: Compute
    ) -> lambda_.Function:
        log_name = f"/aws/lambda/{settings.stack_name}-release"
        group = create_log_group(self, "CallerLogs", settings, parts.storage.key, log_name)
        versions = [f"{function.function_arn}:*" for function in compute.functions.values()]
        allowed = [
            make_allow_statement(["lambda:InvokeFunction"], *versions),
            make_allow_statement(
                ["lambda:GetFunctionConcurrency"],
                *(function.function_arn for function in compute.functions.values()),
            ),
            make_allow_statement(
                ["logs:CreateLogStream", "logs:PutLogEvents"], group.log_group_arn
            ),
        ]
        caller = lambda_.Function(
            self,
            "Caller",
            description=f"Runs migrate and pings the others when {settings.stack_name} is deployed",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler="index.handler",
            code=lambda_.Code.from_inline(_CALLER.read_text()),
            memory_size=256,
            timeout=Duration.seconds(_CALLER_SECONDS),
            role=create_service_role(self, "CallerRole", "lambda", allowed, wildcards=_WILDCARDS),
            log_group=group,
        )
        acknowledge_nag_findings(
            caller, {"L1": "One Python version everywhere: the one that was tested."}
        )
        return caller


_WILDCARDS = {
    r"Resource::<Compute\w*\.Arn>:\*": "Each release calls its own versions of the functions."
}


def _list_aliases_but_migrate(aliases: Mapping[str, lambda_.Alias]) -> list[Construct]:
    return [alias for name, alias in aliases.items() if name != "migrate"]
