"""The state machine of all jobs, the role that starts it, and its schedules."""

import json
from pathlib import Path

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.log_group_factory import create_log_group
from infra.nag_suppressions import acknowledge_nag_findings
from infra.role_factory import create_service_role, make_allow_statement
from infra.settings import StackSettings
from infra.storage_and_queues import Storage
from strandline.function_specs import RUNNABLE, FunctionSpec

DEFINITION = Path(__file__).parent / "job.asl.json"
"""The definition of the state machine. `make run` executes the same file."""
ALIAS = "live"
"""The alias that callers use. The definition of the state machine contains it too."""


def make_function_prefix(settings: StackSettings) -> str:
    """The prefix of every function's name. The state machine appends the job's name."""
    return f"{settings.stack_name}-"


class Jobs(Construct):
    """A state machine, the group of its one-time schedules, and the role that starts it. The names
    are known before creation, so the functions that it calls can refer to it."""

    def __init__(
        self, scope: Construct, id: str, settings: StackSettings, storage: Storage
    ) -> None:
        super().__init__(scope, id)
        self._stack = Stack.of(self)
        self.group = settings.stack_name
        self._name = f"{settings.stack_name}-jobs"
        self.arn = self._make_states_arn("stateMachine", self._name)
        map_label = json.loads(DEFINITION.read_text())["States"]["map"]["Label"]
        self.shards_arn = f"{self.arn}/{map_label}"
        self.role = self._create_state_machine_role(settings, storage)
        self.machine = self._create_state_machine(settings, storage)
        self.scheduler_role = self._create_scheduler_role()
        group = scheduler.CfnScheduleGroup(self, "RunSchedules", name=self.group)
        self.schedules = [self._create_schedule(fn) for fn in RUNNABLE if fn.schedule]
        for schedule in self.schedules:
            schedule.add_resource_dependency(group)

    def _make_states_arn(self, resource: str, name: str) -> str:
        return self._stack.format_arn(
            service="states",
            resource=resource,
            resource_name=name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def _create_state_machine(
        self, settings: StackSettings, storage: Storage
    ) -> stepfunctions.StateMachine:
        """The definition goes into the template as it is; CloudFormation fills in variables."""
        machine = stepfunctions.StateMachine(
            self,
            "StateMachine",
            state_machine_name=self._name,
            role=self.role,
            definition_body=stepfunctions.DefinitionBody.from_string(DEFINITION.read_text()),
            definition_substitutions={
                "Bucket": storage.bucket.bucket_name,
                "FunctionPrefix": make_function_prefix(settings),
            },
            logs=stepfunctions.LogOptions(
                destination=create_log_group(
                    self, "Logs", settings, storage.key, f"/aws/vendedlogs/states/{self._name}"
                ),
                level=stepfunctions.LogLevel.ALL,
                include_execution_data=False,
            ),
            tracing_enabled=settings.tracing,
        )
        if not settings.tracing:
            acknowledge_nag_findings(
                machine, {"SF2": "Traces are a setting (tracing); the trace id is in the logs."}
            )
        return machine

    def _create_state_machine_role(self, settings: StackSettings, storage: Storage) -> iam.IRole:
        """It calls the jobs' functions, reads lists of shards and starts the map's executions."""
        functions = [
            self._stack.format_arn(
                service="lambda",
                resource="function",
                resource_name=f"{make_function_prefix(settings)}{fn.name}:{ALIAS}",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            for fn in RUNNABLE
        ]
        # The guide of AWS names both forms: for an execution and for a map run.
        map_executions = [
            self._make_states_arn("execution", f"{self._name}{separator}")
            for separator in ("/*", ":*")
        ]
        map_actions = [
            "states:RedriveExecution",
            "states:DescribeExecution",
            "states:StopExecution",
        ]
        allowed = [
            make_allow_statement(["lambda:InvokeFunction"], *functions),
            make_allow_statement(["s3:GetObject"], storage.bucket.arn_for_objects("_jobs/*")),
            make_allow_statement(["states:StartExecution"], self.arn),
            make_allow_statement(map_actions, *map_executions),
            make_allow_statement(_LOG_DELIVERY, "*"),
        ]
        if storage.key:
            decrypt = make_allow_statement(["kms:Decrypt"], storage.key.key_arn)
            service = f"s3.{self._stack.region}.amazonaws.com"
            decrypt.add_condition("StringEquals", {"kms:ViaService": service})
            allowed.append(decrypt)
        if settings.tracing:
            allowed.append(make_allow_statement(_TRACE_ACTIONS, "*"))
        return create_service_role(
            self,
            "Role",
            "states",
            allowed,
            account=self._stack.account,
            wildcards={
                "/_jobs/": "The lists of runs, each with its own name.",
                ":execution:": "The executions that the map starts of this machine.",
                r"::\*$": "The delivery of logs (and traces) takes no resource.",
            },
        )

    def _create_scheduler_role(self) -> iam.IRole:
        """The role that Scheduler assumes to start the state machine."""
        start = make_allow_statement(["states:StartExecution"], self.arn)
        return create_service_role(
            self, "ScheduleRole", "scheduler", [start], account=self._stack.account
        )

    def _create_schedule(self, fn: FunctionSpec) -> scheduler.CfnSchedule:
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
