"""Hints to the worker that a scope has work. Lost, doubled or late, the result is the same."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline import boto
from strandline.errors import Unavailable
from strandline.observability import logger, trace_header

_MESSAGES = 10  # the most that SQS takes in a call; workers share a large batch through them
_LATEST_SECONDS = 900  # the longest that SQS holds a message back


class Hints:
    """The queue of hints; without a URL none are sent."""

    def __init__(self, queue_url: str) -> None:
        self._url = queue_url
        # The append is committed, and the sweep finds what no hint named.
        self._sqs: Any = boto.queue() if queue_url else None

    def send(self, tenant: str, scope_ids: Iterable[UUID]) -> None:
        """Name scopes that turned dirty, in one call, and the trace that they come from. A queue
        that does not answer is logged, and no error."""
        named = [str(scope) for scope in scope_ids]
        if not self._url or not named:
            return
        share = -(-len(named) // _MESSAGES)
        self._send(
            [
                _entry(tenant, start, named[start : start + share])
                for start in range(0, len(named), share)
            ]
        )

    def send_later(self, tenant: str, waits: Mapping[UUID, float]) -> None:
        """Name scopes that wait, each for so many seconds; as `send`. What waits longer than a
        message can comes due in a sweep."""
        if not self._url:
            return
        entries = [
            _entry(tenant, place, [str(scope)])
            | {"DelaySeconds": min(_LATEST_SECONDS, max(1, math.ceil(seconds)) + 1)}
            for place, (scope, seconds) in enumerate(waits.items())
        ]
        for first in range(0, len(entries), _MESSAGES):
            self._send(entries[first : first + _MESSAGES])

    def _send(self, entries: Sequence[Mapping[str, object]]) -> None:
        try:
            self._sqs.send_message_batch(QueueUrl=self._url, Entries=list(entries))
        except boto.failures() as error:
            logger.warning(
                "hint not sent", extra={"messages": len(entries), "error": type(error).__name__}
            )

    def check(self) -> None:
        """Raise Unavailable when the queue does not answer."""
        if not self._url:
            return
        try:
            self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        except boto.failures() as error:
            raise Unavailable("The queue cannot be reached.") from error


def _entry(tenant: str, place: int, scopes: Sequence[str]) -> dict[str, object]:
    hint = {"tenant": tenant, "trace": trace_header(), "scopes": scopes}
    return {
        "Id": str(place),
        "MessageBody": json.dumps(hint),
        "MessageGroupId": tenant,  # a standard queue is fair between tenants by it
    }
