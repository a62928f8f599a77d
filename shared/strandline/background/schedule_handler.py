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
from strandline.aws.run_requests import JOBS
from strandline.aws.scheduler import Wakeups, name_of
from strandline.clock import Clock, utc_now
from strandline.observability import logger, trace_of, traced

_NEAR = timedelta(seconds=5)
"""A schedule for a time that is past when it is made is refused: what is so near is waited for. A
run before its time would find nothing due, and have the name of the one that it wishes for."""


def _known(job: str) -> str:
    if job not in JOBS:
        raise ValueError("no job of ours")
    return job


@dataclass
class Waker:
    """What the waker works with. It has no database: it wakes none."""

    clock: Clock = utc_now
    wait: Callable[[float], None] = time.sleep
    """For so many seconds."""

    @functools.cached_property
    def wakeups(self) -> Wakeups:
        """The state machine and its schedules, made on first use and kept."""
        return Wakeups.from_environment()


class Wish(BaseModel):
    """A message: a run of a job that begins now and has a name, or one at a time."""

    model_config = ConfigDict(frozen=True)

    job: Annotated[str, AfterValidator(_known)]
    at: AwareDatetime | None = None
    tenant: str | None = Field(default=None, pattern="^[a-z0-9][a-z0-9-]{0,62}$")
    run: str | None = Field(default=None, pattern="^[A-Za-z0-9_-]{1,80}$")
    trace: str = ""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Wish":
        if (self.at is None) == (self.run is None):
            raise ValueError("at or run")
        return self


def wake(waker: Waker, event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Make a batch of wishes come true. Gives SQS's partial batch response: the messages to be
    delivered again, and given up in the end."""
    del context
    records: list[Mapping[str, Any]] = event.get("Records") or []
    failed = [str(record["messageId"]) for record in records if not _granted(waker, record)]
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def _granted(waker: Waker, record: Mapping[str, Any]) -> bool:
    """Whether a message is done."""
    try:
        wish = Wish.model_validate_json(record.get("body") or "")
    except ValidationError:
        return _refused(record, "malformed")
    with traced(trace_of(wish.trace)):
        try:
            _grant(waker, wish)
        except aws_clients.failures() as error:
            return _refused(record, type(error).__name__)
        logger.info("run wished for", extra={"job": wish.job, "at": wish.at, "run": wish.run})
    return True


def _grant(waker: Waker, wish: Wish) -> None:
    if wish.at is None:
        assert wish.run is not None, "a wish has one of both"
        waker.wakeups.start(wish.job, wish.run, wish.tenant)
        return
    ahead = wish.at - waker.clock()
    if ahead > _NEAR:
        waker.wakeups.schedule(wish.job, wish.at)
        return
    waker.wait(max(0.0, ahead.total_seconds()))
    waker.wakeups.start(wish.job, name_of(wish.job, wish.at))


def _refused(record: Mapping[str, Any], reason: str) -> bool:
    shown = {"message_id": str(record["messageId"]), "reason": reason}
    logger.warning("message not handled", extra=shown)
    return False
