"""Fires EventBridge Scheduler's schedules, which moto stores but does not run."""

import logging
import re
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    BotoCoreError,
    ClientError,
)

from strandline.clock import Clock, utc_now
from strandline.local.aws import client
from strandline.local.lambda_context import ACCOUNT_ID

logger = logging.getLogger(__name__)

GROUP = "strandline"
ROLE = f"arn:aws:iam::{ACCOUNT_ID}:role/local"
_POLL_SECONDS = 0.25
_ONCE = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_DAILY = re.compile(r"cron\((\d+) (\d+) \* \* \? \*\)")


class LocalScheduler:
    """Starts the state machine of each schedule in GROUP when `clock` reaches its time: once for
    `at(…)`, daily for `cron(M H * * ? *)`, both in UTC. Needs a `LocalAws`."""

    def __init__(self, clock: Clock = utc_now) -> None:
        self._clock = clock
        self._last_check = clock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)
        self._scheduler = client("scheduler")
        self._states = client("stepfunctions")
        self._scheduler.create_schedule_group(Name=GROUP)

    def start(self) -> None:
        """Start the loop; once per object."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop; nothing more is started."""
        self._stopping.set()
        self._thread.join()
        self._scheduler.close()
        self._states.close()

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                self.fire_due()
            except (BotoCoreError, ClientError):
                logger.exception("the scheduler does not answer")

    def fire_due(self) -> None:
        """Start what has become due since the last call."""
        last_check, now = self._last_check, self._clock()
        for summary in self._scheduler.list_schedules(GroupName=GROUP, MaxResults=100)["Schedules"]:
            schedule = self._scheduler.get_schedule(GroupName=GROUP, Name=summary["Name"])
            if last_check < next_fire_time(schedule, last_check) <= now:
                self._fire(schedule)
        self._last_check = now

    def _fire(self, schedule: dict[str, Any]) -> None:
        target = schedule["Target"]
        if schedule.get("ActionAfterCompletion") == "DELETE":
            self._scheduler.delete_schedule(GroupName=GROUP, Name=schedule["Name"])
        self._states.start_execution(
            stateMachineArn=target["Arn"], name=str(uuid.uuid4()), input=target["Input"]
        )


def next_fire_time(schedule: dict[str, Any], after: datetime) -> datetime:
    """The next time of a schedule after `after`; a one-time schedule that was missed fires at
    once."""
    expression = schedule["ScheduleExpression"]
    if once_match := _ONCE.fullmatch(expression):
        at = datetime.fromisoformat(once_match[1]).replace(tzinfo=UTC)
        return max(at, after + timedelta(microseconds=1))
    daily_match = _DAILY.fullmatch(expression)
    assert daily_match is not None, f"not a schedule in a form that Strandline uses: {expression}"
    minute, hour = (int(part) for part in daily_match.groups())
    today = after.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today > after else today + timedelta(days=1)


def create_daily_schedule(name: str, expression: str, machine: str, run_input: str) -> None:
    """Start the machine with this input daily, as the deployed stack does."""
    with closing(client("scheduler")) as scheduler:
        scheduler.create_schedule(
            Name=name,
            GroupName=GROUP,
            ScheduleExpression=expression,
            ScheduleExpressionTimezone="UTC",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": machine, "RoleArn": ROLE, "Input": run_input},
        )
