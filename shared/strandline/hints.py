"""Hints to the worker that a scope has work. Lost, doubled or late, the result is the same."""

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from strandline import boto
from strandline.errors import Unavailable
from strandline.observability import logger, trace_header

# One second in all and no retry: the append is committed, and the sweep finds what no hint named.
_CONFIG = Config(connect_timeout=0.5, read_timeout=0.5, retries={"total_max_attempts": 1})
_MESSAGES = 10  # the most that SQS takes in a call; workers share a large batch through them


class Hints:
    """The queue of hints; without a URL none are sent."""

    def __init__(self, queue_url: str) -> None:
        self._url = queue_url
        self._sqs: Any = boto.client("sqs", _CONFIG) if queue_url else None

    def send(self, tenant: str, scope_ids: Iterable[UUID]) -> None:
        """Name scopes that turned dirty, in one call, and the trace that they come from. A queue
        that does not answer is logged, and no error."""
        named = [str(scope) for scope in scope_ids]
        if not self._url or not named:
            return
        share = -(-len(named) // _MESSAGES)
        hint = {"tenant": tenant, "trace": trace_header()}
        entries = [
            {
                "Id": str(start),
                "MessageBody": json.dumps(hint | {"scopes": named[start : start + share]}),
                "MessageGroupId": tenant,  # a standard queue is fair between tenants by it
            }
            for start in range(0, len(named), share)
        ]
        try:
            self._sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
        except (BotoCoreError, ClientError) as error:
            logger.warning(
                "hint not sent", extra={"scopes": len(named), "error": type(error).__name__}
            )

    def check(self) -> None:
        """Raise Unavailable when the queue does not answer."""
        if not self._url:
            return
        try:
            self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        except (BotoCoreError, ClientError) as error:
            raise Unavailable("The queue cannot be reached.") from error
