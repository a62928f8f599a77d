"""Runs of the state machine, begun now or at a time: what makes wishes come true."""

import json
import os
from datetime import UTC, datetime
from typing import Any

from strandline.aws import clients
from strandline.errors import Misconfigured

_VARIABLES = ("STRANDLINE_STATE_MACHINE", "STRANDLINE_SCHEDULE_GROUP", "STRANDLINE_SCHEDULER_ROLE")


class RunStarter:
    """One state machine, and the group of schedules that start it. Whatever is asked for twice is
    there once, by its name."""

    def __init__(self, machine: str, group: str, role: str) -> None:
        self._machine, self._group, self._role = machine, group, role
        self._states: Any = clients.retrying_client("stepfunctions")
        self._scheduler: Any = clients.retrying_client("scheduler")

    @classmethod
    def from_environment(cls) -> "RunStarter":
        """As the environment names them. Raises Misconfigured naming every missing variable."""
        missing = [name for name in _VARIABLES if not os.environ.get(name)]
        if missing:
            raise Misconfigured(f"The scheduler needs {', '.join(missing)}.", variables=missing)
        return cls(*(os.environ[name] for name in _VARIABLES))

    def start_run(self, job: str, run: str, tenant: str | None = None) -> None:
        """Start a run of a job, everywhere or in one tenant, unless one of this name was."""
        run_input = {"job": job} | ({"tenant": tenant} if tenant else {})
        try:
            self._states.start_execution(
                stateMachineArn=self._machine, name=run, input=json.dumps(run_input)
            )
        except clients.client_error() as error:
            _raise_unless("ExecutionAlreadyExists", error)

    def schedule_run(self, job: str, at: datetime) -> None:
        """Have a run of a job start at this time, once; the schedule removes itself then."""
        try:
            self._scheduler.create_schedule(
                Name=run_name(job, at),
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
        except clients.client_error() as error:
            _raise_unless("ConflictException", error)


def run_name(job: str, at: datetime) -> str:
    """What a job's run at this time is called, as a schedule and as a run."""
    return f"{job}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _raise_unless(code: str, error: Exception) -> None:
    """Raise an error that is not of this code."""
    response: Any = vars(error)["response"]
    if response["Error"]["Code"] != code:
        raise error
