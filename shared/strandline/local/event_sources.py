"""What invokes functions besides HTTP: messages of queues, and EventBridge Scheduler's schedules,
which moto stores but does not run."""

import logging
import re
import threading
import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]  # pyright: ignore[reportMissingTypeStubs]
    BotoCoreError,
    ClientError,
)

from strandline.clock import Clock, utc_now
from strandline.local.aws import make_local_client
from strandline.local.lambda_context import (
    ACCOUNT_ID,
    REGION,
    Event,
    Handler,
    LambdaContext,
    derive_function_name,
)

logger = logging.getLogger(__name__)

BATCH_SIZE = 10
# A long poll cannot be interrupted: a stop waits for one at most.
POLL_SECONDS = 1
STOP_SECONDS = 2.0
# Failed messages return after so many seconds, not after the queue's 180: a message that always
# fails is in the dead-letter queue within seconds.
RETRY_SECONDS = 1
FUNCTION_SECONDS = 900.0  # the longest that Lambda lets a function run
BACKOFF_SECONDS = 1.0  # after the queue itself did not answer


class QueuePoller:
    """Lambda's event source mapping for one queue: batches of up to 10, with partial failures.

    Messages that the handler does not report in `batchItemFailures` are deleted. If it raises, or
    reports an identifier that is not in the batch, the whole batch has failed.
    """

    def __init__(self, work_queue_url: str, handler: Handler) -> None:
        self._handler = handler
        self._name = derive_function_name(handler)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._poll_until_stopped, name=self._name, daemon=True
        )
        self._url = work_queue_url
        self._sqs = make_local_client("sqs")
        response = self._sqs.get_queue_attributes(
            QueueUrl=work_queue_url, AttributeNames=["QueueArn"]
        )
        self._arn: str = response["Attributes"]["QueueArn"]

    def start(self) -> None:
        """Start polling; once per object."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, and wait up to 2 s for the batch under way."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)
        self._sqs.close()

    def _poll_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._process_next_batch()

    def _invoke_handler(self, event: Event) -> object:
        return self._handler(event, LambdaContext(self._name, FUNCTION_SECONDS))

    def _process_next_batch(self) -> None:
        try:
            if messages := self._receive_messages():
                self._delete_succeeded_and_return_failed(
                    messages, self._invoke_handler_on_batch(messages)
                )
        except (BotoCoreError, ClientError):
            logger.exception("the queue %s does not answer", self._url)
            self._stopping.wait(BACKOFF_SECONDS)

    def _receive_messages(self) -> list[dict[str, Any]]:
        response = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=BATCH_SIZE,
            WaitTimeSeconds=POLL_SECONDS,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return response.get("Messages", [])

    def _invoke_handler_on_batch(self, messages: list[dict[str, Any]]) -> set[str]:
        """Invoke the handler; returns the ids of the messages that failed."""
        batch = {message["MessageId"] for message in messages}
        try:
            answer = self._invoke_handler(
                {"Records": [_make_lambda_record(m, self._arn) for m in messages]}
            )
            failed = _find_failed_message_ids(answer)
        except Exception as error:
            logger.error(
                "%s failed on a batch of %d: %s", self._name, len(messages), type(error).__name__
            )
            return batch
        return failed if failed <= batch else batch

    def _delete_succeeded_and_return_failed(
        self, messages: list[dict[str, Any]], failed: set[str]
    ) -> None:
        """Delete what succeeded; let the rest return soon."""
        receipts = [{"Id": m["MessageId"], "ReceiptHandle": m["ReceiptHandle"]} for m in messages]
        succeeded = [receipt for receipt in receipts if receipt["Id"] not in failed]
        retries = [
            receipt | {"VisibilityTimeout": RETRY_SECONDS}
            for receipt in receipts
            if receipt["Id"] in failed
        ]
        if succeeded:
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=succeeded)
        if retries:
            self._sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=retries)


def _find_failed_message_ids(response: object) -> set[str]:
    """The identifiers in `batchItemFailures`; no answer and an empty one mean success."""
    if not isinstance(response, Mapping):
        return set()
    entries = cast("Mapping[str, Any]", response).get("batchItemFailures")
    failures: list[dict[str, str]] = entries or []
    return {failure["itemIdentifier"] for failure in failures}


def _make_lambda_record(message: dict[str, Any], arn: str) -> Event:
    """One message as Lambda passes it to a function."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {
            name: _rename_attribute_fields(value)
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": REGION,
    }


def _rename_attribute_fields(value: dict[str, Any]) -> Event:
    """A message attribute under Lambda's names: `StringValue` is `stringValue` there."""
    lists: Event = {"stringListValues": [], "binaryListValues": []}
    return lists | {name[0].lower() + name[1:]: content for name, content in value.items()}


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
        self._thread = threading.Thread(target=self._fire_until_stopped, name="ticker", daemon=True)
        self._scheduler = make_local_client("scheduler")
        self._states = make_local_client("stepfunctions")
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

    def _fire_until_stopped(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                self.fire_due_schedules()
            except (BotoCoreError, ClientError):
                logger.exception("the scheduler does not answer")

    def fire_due_schedules(self) -> None:
        """Start what has become due since the last call."""
        last_check, now = self._last_check, self._clock()
        for summary in self._scheduler.list_schedules(GroupName=GROUP, MaxResults=100)["Schedules"]:
            schedule = self._scheduler.get_schedule(GroupName=GROUP, Name=summary["Name"])
            if last_check < find_next_fire_time(schedule, last_check) <= now:
                self._start_execution(schedule)
        self._last_check = now

    def _start_execution(self, schedule: dict[str, Any]) -> None:
        target = schedule["Target"]
        if schedule.get("ActionAfterCompletion") == "DELETE":
            self._scheduler.delete_schedule(GroupName=GROUP, Name=schedule["Name"])
        self._states.start_execution(
            stateMachineArn=target["Arn"], name=str(uuid.uuid4()), input=target["Input"]
        )


def find_next_fire_time(schedule: dict[str, Any], after: datetime) -> datetime:
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
    with closing(make_local_client("scheduler")) as scheduler:
        scheduler.create_schedule(
            Name=name,
            GroupName=GROUP,
            ScheduleExpression=expression,
            ScheduleExpressionTimezone="UTC",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": machine, "RoleArn": ROLE, "Input": run_input},
        )
