"""The Lambda handler of run requests: each starts a run, now or at its time; failed messages return
to the queue one by one."""

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

from strandline.aws import client_factory
from strandline.aws.scheduler import RunStarter, make_run_name
from strandline.clock import Clock, utc_now
from strandline.function_specs import RUNNABLE
from strandline.observability import ensure_trace_id, logger, trace_context

_MAX_WAIT = timedelta(seconds=5)
"""EventBridge Scheduler rejects a schedule whose time has passed, so the function itself waits for
a time this near. It does not start the run early: that run would find nothing due, and would have
the same name as the run that it then requests."""
_RUNNABLE_NAMES = frozenset(fn.name for fn in RUNNABLE)


def _check_job_name(job: str) -> str:
    if job not in _RUNNABLE_NAMES:
        raise ValueError("job: unknown name")
    return job


@dataclass
class SchedulerResources:
    """The dependencies of the handler. It has no database connection, so that it never wakes a
    paused database."""

    clock: Clock = utc_now
    wait: Callable[[float], None] = time.sleep
    """Sleeps for this many seconds."""

    @functools.cached_property
    def run_starter(self) -> RunStarter:
        """The state machine and its schedules, created on first use."""
        return RunStarter.from_environment()


class RunRequest(BaseModel):
    """A message: a run to start now, with a name (`run`), or a run to start at a time (`at`)."""

    model_config = ConfigDict(frozen=True)

    job: Annotated[str, AfterValidator(_check_job_name)]
    at: AwareDatetime | None = None
    tenant: str | None = Field(default=None, pattern="^[a-z0-9][a-z0-9-]{0,62}$")
    run: str | None = Field(default=None, pattern="^[A-Za-z0-9_-]{1,80}$")
    trace: str = ""

    @model_validator(mode="after")
    def _require_either_at_or_run(self) -> "RunRequest":
        if (self.at is None) == (self.run is None):
            raise ValueError("exactly one of at and run is required")
        return self


def handle_run_requests(
    scheduler: SchedulerResources, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """Process a batch of run requests. Returns SQS's partial batch response: the messages to
    deliver again, until SQS moves them to the dead-letter queue."""
    del context
    records: list[Mapping[str, Any]] = event.get("Records") or []
    failed_ids = [
        str(record["messageId"]) for record in records if not _handle_run_request(scheduler, record)
    ]
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed_ids]}


def _handle_run_request(scheduler: SchedulerResources, record: Mapping[str, Any]) -> bool:
    """Process one message. Returns whether it is done."""
    try:
        request = RunRequest.model_validate_json(record.get("body") or "")
    except ValidationError:
        return _log_failed_message(record, "malformed")
    with trace_context(ensure_trace_id(request.trace)):
        try:
            _start_or_schedule_run(scheduler, request)
        except client_factory.all_error_classes() as error:
            return _log_failed_message(record, client_factory.describe_error(error))
        logger.info(
            "run requested", extra={"job": request.job, "at": request.at, "run": request.run}
        )
    return True


def _start_or_schedule_run(scheduler: SchedulerResources, request: RunRequest) -> None:
    if request.at is None:
        assert request.run is not None, "a request has one of the two"
        scheduler.run_starter.start_run(request.job, request.run, request.tenant)
        return
    delay = request.at - scheduler.clock()
    if delay > _MAX_WAIT:
        scheduler.run_starter.schedule_run(request.job, request.at)
        return
    scheduler.wait(max(0.0, delay.total_seconds()))
    scheduler.run_starter.start_run(request.job, make_run_name(request.job, request.at))


def _log_failed_message(record: Mapping[str, Any], reason: str) -> bool:
    fields = {"message_id": str(record["messageId"]), "reason": reason}
    logger.warning("message failed", extra=fields)
    return False
