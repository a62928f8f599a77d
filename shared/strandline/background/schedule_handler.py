"""Wishes off the queue: each becomes a run, now or at its time; what fails goes back alone."""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from strandline.aws import clients as aws_clients
from strandline.aws.run_requests import JOB_NAMES
from strandline.aws.scheduler import RunStarter, run_name
from strandline.clock import Clock, utc_now
from strandline.observability import logger, trace_context, trace_id_of

_MAX_WAIT = timedelta(seconds=5)
"""A schedule for a time that is past when it is made is refused: what is so near is waited for. A
run before its time would find nothing due, and have the name of the one that it wishes for."""


def _check_job_name(job: str) -> str:
    if job not in JOB_NAMES:
        raise ValueError("no job of ours")
    return job


@dataclass
class RunScheduler:
    """What the scheduler works with. It has no database: it wakes none."""

    clock: Clock = utc_now
    wait: Callable[[float], None] = time.sleep
    """For so many seconds."""

    @functools.cached_property
    def run_starter(self) -> RunStarter:
        """The state machine and its schedules, made on first use and kept."""
        return RunStarter.from_environment()


class RunRequest(BaseModel):
    """A message: a run of a job that begins now and has a name, or one at a time."""

    model_config = ConfigDict(frozen=True)

    job: Annotated[str, AfterValidator(_check_job_name)]
    at: AwareDatetime | None = None
    tenant: str | None = Field(default=None, pattern="^[a-z0-9][a-z0-9-]{0,62}$")
    run: str | None = Field(default=None, pattern="^[A-Za-z0-9_-]{1,80}$")
    trace: str = ""

    @model_validator(mode="after")
    def _check_at_or_run(self) -> "RunRequest":
        if (self.at is None) == (self.run is None):
            raise ValueError("at or run")
        return self


def schedule_runs(
    scheduler: RunScheduler, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """Make a batch of wishes come true. Gives SQS's partial batch response: the messages to be
    delivered again, and given up in the end."""
    del context
    records: list[Mapping[str, Any]] = event.get("Records") or []
    failed = [
        str(record["messageId"]) for record in records if not _handle_message(scheduler, record)
    ]
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def _handle_message(scheduler: RunScheduler, record: Mapping[str, Any]) -> bool:
    """Whether a message is done."""
    try:
        request = RunRequest.model_validate_json(record.get("body") or "")
    except ValidationError:
        return _report_failure(record, "malformed")
    with trace_context(trace_id_of(request.trace)):
        try:
            _start_or_schedule(scheduler, request)
        except aws_clients.all_errors() as error:
            return _report_failure(record, type(error).__name__)
        logger.info(
            "run wished for", extra={"job": request.job, "at": request.at, "run": request.run}
        )
    return True


def _start_or_schedule(scheduler: RunScheduler, request: RunRequest) -> None:
    if request.at is None:
        assert request.run is not None, "a wish has one of both"
        scheduler.run_starter.start_run(request.job, request.run, request.tenant)
        return
    delay = request.at - scheduler.clock()
    if delay > _MAX_WAIT:
        scheduler.run_starter.schedule_run(request.job, request.at)
        return
    scheduler.wait(max(0.0, delay.total_seconds()))
    scheduler.run_starter.start_run(request.job, run_name(request.job, request.at))


def _report_failure(record: Mapping[str, Any], reason: str) -> bool:
    fields = {"message_id": str(record["messageId"]), "reason": reason}
    logger.warning("message not handled", extra=fields)
    return False
