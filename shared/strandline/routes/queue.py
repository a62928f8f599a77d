"""Hints off the queue: each names a scope; what fails goes back alone."""

import json
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.config import settings
from strandline.errors import StrandlineError
from strandline.observability import logger
from strandline.service import Service
from strandline.services.embed import Worker, embed_due, embed_scopes


def work_through(
    service: Service, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """Work on the scopes that a batch of messages names; without messages, on whatever is due.

    Gives SQS's partial batch response: the messages to be delivered again.
    """
    settings()  # a process that is not configured does nothing
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - 2
    worker = Worker(service.database, service.blobs, service.embedder, deadline)
    records: list[Mapping[str, Any]] = event.get("Records") or []
    if not records:
        embed_due(worker)
    failed = [str(record["messageId"]) for record in records if not _handled(worker, record)]
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def _handled(worker: Worker, record: Mapping[str, Any]) -> bool:
    """Whether a message is done. Whatever one of them brings about, a fault of ours included, fails
    it alone: SQS delivers it again, and gives it up in the end."""
    try:
        hint = json.loads(record["body"])
        scopes = [UUID(str(scope)) for scope in hint["scopes"]]
        failed = embed_scopes(worker, str(hint["tenant"]), scopes)
        if not failed:
            return True
        reason = f"{failed} of {len(scopes)} scopes"
    except StrandlineError as error:
        reason = error.code
    except Exception as error:
        reason = type(error).__name__
    logger.warning(
        "message not handled", extra={"message_id": str(record["messageId"]), "reason": reason}
    )
    return False
