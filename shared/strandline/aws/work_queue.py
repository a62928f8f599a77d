"""Hints to the worker that a scope has work. Lost, doubled or late, the result is the same."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline.aws import clients
from strandline.errors import Unavailable
from strandline.observability import logger, trace_header

_MESSAGES = 10  # the most that SQS takes in a call; workers share a large batch through them
_LATEST_SECONDS = 900  # the longest that SQS holds a message back
_TRIES = 2  # whichever half second passes without an answer: that is a second in all
_OWED = 10  # messages; what goes over the edge is found by the daily sweep


def _nobody() -> bool:
    return False


class Hints:
    """The queue of hints; without a URL none are sent.

    An append is committed before its hint. Where that cannot be sent `instead` is asked to have a
    sweep begin, and says whether it could; else the hint is owed, and goes with the next ones.
    """

    def __init__(self, queue_url: str, instead: Callable[[], bool] = _nobody) -> None:
        self._url = queue_url
        self._instead = instead
        self._sqs: Any = clients.queue() if queue_url else None
        self._owed: list[Mapping[str, object]] = []

    def send(self, tenant: str, scope_ids: Iterable[UUID]) -> None:
        """Name scopes that turned dirty, in one call, and the trace that they come from. A queue
        that does not answer is logged, and no error."""
        named = [str(scope) for scope in scope_ids]
        if not self._url:
            return
        share = max(1, -(-len(named) // _MESSAGES))
        self._send(
            [_entry(tenant, named[start : start + share]) for start in range(0, len(named), share)]
        )

    def send_later(self, tenant: str, waits: Mapping[UUID, float]) -> None:
        """Name scopes that wait, each for so many seconds, or (0) for its next turn; as `send`.
        What waits longer than a message can comes due in a sweep."""
        if not self._url:
            return
        entries = [
            _entry(tenant, [str(scope)])
            | {"DelaySeconds": min(_LATEST_SECONDS, math.ceil(seconds) + 1 if seconds else 0)}
            for scope, seconds in waits.items()
        ]
        self._send(entries)

    def _send(self, entries: Sequence[Mapping[str, object]]) -> None:
        """Send these, and what is owed. No further batch is tried once one was in vain."""
        waiting, self._owed = [*entries, *self._owed], []
        left: list[Mapping[str, object]] = []
        while waiting and not left:
            left, waiting = self._not_sent(waiting[:_MESSAGES]), waiting[_MESSAGES:]
        if left and not self._instead():
            self._owed = [*left, *waiting][:_OWED]

    def _not_sent(self, entries: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Send a batch; gives what of it could not be sent."""
        left, why = [{**entry, "Id": str(n)} for n, entry in enumerate(entries)], ""
        for _ in range(_TRIES):
            try:
                answer = self._sqs.send_message_batch(QueueUrl=self._url, Entries=left)
            except clients.failures() as error:
                why = type(error).__name__
                continue
            failed = {str(one["Id"]): str(one["Code"]) for one in answer.get("Failed", ())}
            left = [entry for entry in left if entry["Id"] in failed]
            if not left:
                return []
            why = " ".join(sorted({*failed.values()}))
        logger.warning("hint not sent", extra={"messages": len(left), "error": why})
        return [*left]

    def check(self) -> None:
        """Raise Unavailable when the queue does not answer."""
        if not self._url:
            return
        try:
            self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        except clients.failures() as error:
            raise Unavailable("The queue cannot be reached.") from error


def _entry(tenant: str, scopes: Sequence[str]) -> dict[str, object]:
    hint = {"tenant": tenant, "trace": trace_header(), "scopes": scopes}
    return {
        "MessageBody": json.dumps(hint),
        "MessageGroupId": tenant,  # a standard queue is fair between tenants by it
    }
