"""Starts runs of the state machine, now or at a time: carries out run requests."""

import json
import os
from datetime import UTC, datetime
from typing import Any

from strandline.aws import client_factory
from strandline.errors import Misconfigured

_VARIABLES = ("STRANDLINE_STATE_MACHINE", "STRANDLINE_SCHEDULE_GROUP", "STRANDLINE_SCHEDULER_ROLE")


class RunStarter:
    """One state machine, and the group of schedules that start it. Names make every call
    idempotent: the same run is started once."""

    def __init__(self, machine: str, group: str, role: str) -> None:
        self._machine, self._group, self._role = machine, group, role
        self._states: Any = client_factory.make_retrying_client("stepfunctions")
        self._scheduler: Any = client_factory.make_retrying_client("scheduler")

    @classmethod
    def from_environment(cls) -> "RunStarter":
        """Built from environment variables. Raises Misconfigured naming every missing variable."""
        missing = [name for name in _VARIABLES if not os.environ.get(name)]
        if missing:
            raise Misconfigured(f"The scheduler needs {', '.join(missing)}.", variables=missing)
        return cls(*(os.environ[name] for name in _VARIABLES))

    def start_run(self, job: str, run: str, tenant: str | None = None) -> None:
        """Start a run of a job, in all tenants or in one, unless a run of this name exists
        already."""
        run_input = {"job": job} | ({"tenant": tenant} if tenant else {})
        try:
            self._states.start_execution(
                stateMachineArn=self._machine, name=run, input=json.dumps(run_input)
            )
        except client_factory.client_error_class() as error:
            _reraise_unless_code("ExecutionAlreadyExists", error)

    def schedule_run(self, job: str, at: datetime) -> None:
        """Schedule one run of a job at this time; the schedule deletes itself afterwards. Does
        nothing if it exists already."""
        try:
            self._scheduler.create_schedule(
                Name=make_run_name(job, at),
                GroupName=self._group,
                ScheduleExpression=f"at({at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self._machine,
                    "RoleArn": self._role,
                    "Input": json.dumps({"job": job}),
                },
            )
        except client_factory.client_error_class() as error:
            _reraise_unless_code("ConflictException", error)


def make_run_name(job: str, at: datetime) -> str:
    """The name of a job's run at this time, as a schedule and as an execution."""
    return f"{job}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _reraise_unless_code(code: str, error: Exception) -> None:
    """Raise the error again, unless it has this code."""
    response: Any = vars(error)["response"]
    if response["Error"]["Code"] != code:
        raise error
