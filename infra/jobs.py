"""The state machine of all jobs, what may start it, and when it starts by itself."""

import json
from pathlib import Path

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.logs import log_group
from infra.nag_suppressions import acknowledge
from infra.roles import allow, service_role
from infra.settings import StackSettings
from infra.storage import Storage
from strandline.deployment import FUNCTIONS, FunctionSpec

DEFINITION = Path(__file__).parent / "job.asl.json"
"""What `make run` executes, too."""
JOB_FUNCTIONS = tuple(fn for fn in FUNCTIONS if fn.min_spacing_minutes or "owner" in fn.needs)
"""The functions that it calls: the jobs, and a migration that takes long."""
ALIAS = "live"
"""The alias that is called; the definition names it, too."""


def function_prefix(settings: StackSettings) -> str:
    """What every function's name begins with; the state machine puts the job's after it."""
    return f"{settings.stack_name}-"


class Jobs(Construct):
    """A state machine, the group of its one-time schedules, and the role that starts it. Its names
    are known before it is made, so that the functions it calls may know it."""

    def __init__(
        self, scope: Construct, id: str, settings: StackSettings, storage: Storage
    ) -> None:
        super().__init__(scope, id)
        self._stack = Stack.of(self)
        self.group = settings.stack_name
        self._name = f"{settings.stack_name}-jobs"
        self.arn = self._arn("stateMachine", self._name)
        self.role = self._role(settings, storage)
        self.machine = self._machine(settings, storage)
        self.scheduler_role = self._scheduler_role()
        group = scheduler.CfnScheduleGroup(self, "WakeUps", name=self.group)
        for fn in JOB_FUNCTIONS:
            if fn.schedule:
                self._schedule(fn).add_resource_dependency(group)

    def _arn(self, resource: str, name: str) -> str:
        return self._stack.format_arn(
            service="states",
            resource=resource,
            resource_name=name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def _machine(self, settings: StackSettings, storage: Storage) -> stepfunctions.StateMachine:
        """The definition goes into the template as the file has it; CloudFormation fills it in."""
        machine = stepfunctions.StateMachine(
            self,
            "Machine",
            state_machine_name=self._name,
            role=self.role,
            definition_body=stepfunctions.DefinitionBody.from_string(DEFINITION.read_text()),
            definition_substitutions={
                "Bucket": storage.bucket.bucket_name,
                "FunctionPrefix": function_prefix(settings),
            },
            logs=stepfunctions.LogOptions(
                destination=log_group(
                    self, "Logs", settings, storage.key, f"/aws/vendedlogs/states/{self._name}"
                ),
                level=stepfunctions.LogLevel.ALL,
                include_execution_data=False,
            ),
            tracing_enabled=settings.tracing,
        )
        if not settings.tracing:
            acknowledge(
                machine, {"SF2": "Traces are a setting (tracing); the trace id is in the logs."}
            )
        return machine

    def _role(self, settings: StackSettings, storage: Storage) -> iam.IRole:
        """It calls the jobs' functions, reads its list, and starts the map's own executions."""
        functions = [
            self._stack.format_arn(
                service="lambda",
                resource="function",
                resource_name=f"{function_prefix(settings)}{fn.name}:{ALIAS}",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            for fn in JOB_FUNCTIONS
        ]
        # AWS's guide names both, for an execution and for a run of a map.
        map_executions = [
            self._arn("execution", f"{self._name}{separator}") for separator in ("/*", ":*")
        ]
        map_actions = [
            "states:RedriveExecution",
            "states:DescribeExecution",
            "states:StopExecution",
        ]
        allowed = [
            allow(["lambda:InvokeFunction"], *functions),
            allow(["s3:GetObject"], storage.bucket.arn_for_objects("_jobs/*")),
            allow(["states:StartExecution"], self.arn),
            allow(map_actions, *map_executions),
            allow(_LOG_DELIVERY, "*"),
        ]
        if storage.key:
            allowed.append(allow(["kms:Decrypt"], storage.key.key_arn))
        if settings.tracing:
            allowed.append(allow(_TRACE_ACTIONS, "*"))
        return service_role(
            self,
            "Role",
            "states",
            allowed,
            account=self._stack.account,
            wildcards={
                "/_jobs/": "The lists of runs: each has its own name.",
                ":execution:": "The executions that the map makes of this machine.",
                r"::\*$": "The delivery of logs (and traces) takes no resource.",
            },
        )

    def _scheduler_role(self) -> iam.IRole:
        """What Scheduler is when it starts the machine."""
        start = allow(["states:StartExecution"], self.arn)
        return service_role(self, "Starter", "scheduler", [start], account=self._stack.account)

    def _schedule(self, fn: FunctionSpec) -> scheduler.CfnSchedule:
        return scheduler.CfnSchedule(
            self,
            f"{fn.name.capitalize()}Schedule",
            group_name=self.group,
            schedule_expression=fn.schedule,
            schedule_expression_timezone="UTC",
            flexible_time_window={"mode": "OFF"},
            target={
                "arn": self.arn,
                "roleArn": self.scheduler_role.role_arn,
                "input": json.dumps({"job": fn.name}),
            },
        )


_LOG_DELIVERY = [
    *("logs:CreateLogDelivery", "logs:GetLogDelivery", "logs:UpdateLogDelivery"),
    *("logs:DeleteLogDelivery", "logs:ListLogDeliveries", "logs:PutResourcePolicy"),
    *("logs:DescribeResourcePolicies", "logs:DescribeLogGroups"),
]
_TRACE_ACTIONS = [
    *("xray:PutTraceSegments", "xray:PutTelemetryRecords"),
    *("xray:GetSamplingRules", "xray:GetSamplingTargets"),
]
