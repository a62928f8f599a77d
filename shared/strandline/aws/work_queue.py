"""Messages that tell the worker which scopes have work. A lost, repeated or late message changes
nothing in the result."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline.aws import client_factory
from strandline.errors import Unavailable
from strandline.observability import logger, make_trace_header

_BATCH_SIZE = 10  # the most that SQS accepts in a call; several workers share a large batch
MAX_DELAY_SECONDS = 900
"""The longest that SQS delays a message."""
_TRIES = 2  # each waits half a second for an answer: one second in all
_MAX_UNSENT = 10  # messages; the daily sweep finds the work of those that are dropped
_RETURN_SECONDS = (5, 30, 120)
"""When a message that was received once, twice, three times comes back. After that it waits for the
queue's visibility timeout, so that an outage of some minutes makes no dead letters."""


def _cannot_request_sweep() -> bool:
    return False


class WorkQueue:
    """The work queue. Without a URL nothing is sent.

    An append commits before its message is sent. If sending fails, `on_failure` is called to
    request a sweep, and returns whether it could. If it could not, the message is kept and goes
    with the next ones.
    """

    def __init__(
        self, work_queue_url: str, on_failure: Callable[[], bool] = _cannot_request_sweep
    ) -> None:
        self._url = work_queue_url
        self._on_failure = on_failure
        self._sqs: Any = client_factory.make_best_effort_sqs_client() if work_queue_url else None
        self._unsent: list[Mapping[str, object]] = []

    def send(self, tenant: str, scope_ids: Iterable[UUID]) -> None:
        """Send scopes that have new work, with the current trace id, in one call. A queue that does
        not answer is logged and raises nothing."""
        names = [str(scope) for scope in scope_ids]
        if not self._url:
            return
        chunk_size = max(1, -(-len(names) // _BATCH_SIZE))
        self._send_entries(
            [
                _make_message_entry(tenant, names[start : start + chunk_size])
                for start in range(0, len(names), chunk_size)
            ]
        )

    def send_later(self, tenant: str, delays: Mapping[UUID, float]) -> None:
        """Send scopes that have work after a delay in seconds each; 0: at the scope's next turn.
        Otherwise like `send`. A delay beyond SQS's limit is left to a sweep. The waits
        are seconds, for which a schedule is not exact enough."""
        if not self._url:
            return
        entries = [
            _make_message_entry(tenant, [str(scope)])
            | {"DelaySeconds": min(MAX_DELAY_SECONDS, math.ceil(seconds) + 1 if seconds else 0)}
            for scope, seconds in delays.items()
        ]
        self._send_entries(entries)

    def send_turn(self, tenant: str, turn_id: UUID) -> None:
        """Send a turn that waits for its answer. Otherwise like `send`."""
        if self._url:
            self._send_entries([_make_message_entry(tenant, [], [str(turn_id)])])

    def return_soon(self, receipt_handle: str, receive_count: int) -> None:
        """Let a message that could not be processed yet come back within seconds or minutes, by how
        often it was received, instead of after the queue's visibility timeout. A queue that does
        not answer is logged and raises nothing: then the message comes back after that."""
        if not self._url or not 0 < receive_count <= len(_RETURN_SECONDS):
            return
        seconds = _RETURN_SECONDS[receive_count - 1]
        try:
            client_factory.call_again_if_closed(
                self._sqs.change_message_visibility,
                or_late=True,
                QueueUrl=self._url,
                ReceiptHandle=receipt_handle,
                VisibilityTimeout=seconds,
            )
        except client_factory.all_error_classes() as error:
            logger.warning(
                "message not returned", extra={"error": client_factory.describe_error(error)}
            )

    def _send_entries(self, entries: Sequence[Mapping[str, object]]) -> None:
        """Send these messages, and those that were kept. After a batch that failed, no further one
        is tried."""
        queue, self._unsent = [*entries, *self._unsent], []
        remaining: list[Mapping[str, object]] = []
        while queue and not remaining:
            remaining, queue = self._send_batch(queue[:_BATCH_SIZE]), queue[_BATCH_SIZE:]
        if remaining and not self._on_failure():
            self._unsent = [*remaining, *queue][:_MAX_UNSENT]

    def _send_batch(self, entries: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Send a batch. Returns the messages that could not be sent."""
        remaining, reason = [{**entry, "Id": str(n)} for n, entry in enumerate(entries)], ""
        for _ in range(_TRIES):
            try:
                response = self._sqs.send_message_batch(QueueUrl=self._url, Entries=remaining)
            except client_factory.all_error_classes() as error:
                reason = client_factory.describe_error(error)
                continue
            failed = {
                str(failure["Id"]): str(failure["Code"]) for failure in response.get("Failed", ())
            }
            remaining = [entry for entry in remaining if entry["Id"] in failed]
            if not remaining:
                return []
            reason = " ".join(sorted({*failed.values()}))
        logger.warning(
            "work queue message not sent", extra={"messages": len(remaining), "error": reason}
        )
        return [*remaining]

    def check(self) -> None:
        """Raise Unavailable when the queue does not answer."""
        if not self._url:
            return
        try:
            client_factory.call_again_if_closed(
                self._sqs.get_queue_attributes,
                or_late=True,
                QueueUrl=self._url,
                AttributeNames=["QueueArn"],
            )
        except client_factory.all_error_classes() as error:
            raise Unavailable("The work queue cannot be reached. Try again.") from error


def _make_message_entry(
    tenant: str, scopes: Sequence[str], turns: Sequence[str] = ()
) -> dict[str, object]:
    body = {"tenant": tenant, "trace": make_trace_header(), "scopes": scopes}
    body |= {"turns": turns} if turns else {}
    return {
        "MessageBody": json.dumps(body),
        "MessageGroupId": tenant,  # a standard queue is fair between these groups
    }
