"""Hints off the queue: each names a scope; what fails goes back alone."""

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.embed import embed_scopes
from strandline.config import settings
from strandline.errors import StrandlineError
from strandline.jobs.context import Tally, Worker
from strandline.jobs.request_next import wake_next
from strandline.observability import logger, measured, spread, trace_of, traced
from strandline.resources import Service


def work_through(
    service: Service, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """Work on the scopes that a batch of messages names. What no message names, a sweep finds.

    Gives SQS's partial batch response: the messages to be delivered again.
    """
    settings()  # a process that is not configured does nothing
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - 2
    worker = Worker(
        service.database,
        service.blobs,
        service.embedder,
        deadline,
        Tally(),
        service.reasoner,
        settings().tuning,
        clock=service.clock,
    )
    records: list[Mapping[str, Any]] = event.get("Records") or []
    failed = [
        str(record["messageId"])
        for record in records
        if not _handled(service, worker, context, record)
    ]
    now = service.clock()
    if records and not service.runs.is_near("sweeper", now):  # which looks itself, in the end
        space = service.embedder.space
        wake_next(service.database, service.runs, settings(), now, deadline, space=space)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def _handled(
    service: Service, worker: Worker, context: LambdaContext, record: Mapping[str, Any]
) -> bool:
    """Whether a message is done. Whatever one of them brings about, a fault of ours included, fails
    it alone: SQS delivers it again, and gives it up in the end."""
    hint, reason = _hint(record), ""
    job = replace(worker, tally=Tally())
    with told(job.tally, context.function_name, "hint", trace_of(str(hint.get("trace")))):
        try:
            scopes = [UUID(str(scope)) for scope in hint["scopes"]]
            tenant = str(hint["tenant"])
            failed = embed_scopes(job, tenant, scopes)
            at_once = dict.fromkeys(sorted(job.tally.more), 0.0)  # behind what others wait for
            service.hints.send_later(tenant, {**job.tally.later, **at_once})
            if failed:
                reason = f"{failed} of {len(scopes)} scopes"
        except StrandlineError as error:
            reason = error.code
        except Exception as error:
            reason = type(error).__name__
        if reason:
            job.tally.failures = max(job.tally.failures, 1)
            logger.warning(
                "message not handled",
                extra={"message_id": str(record["messageId"]), "reason": reason},
            )
    return not reason


def _hint(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a message says; a body that is no JSON object says nothing, and so names no scope."""
    try:
        hint = json.loads(record["body"])
    except (ValueError, LookupError, TypeError, RecursionError):
        hint = None
    return cast("dict[str, Any]", hint) if isinstance(hint, dict) else {}


@contextmanager
def told(tally: Tally, function: str, kind: str, trace: str) -> Generator[None]:
    """A job's lines, which share a trace; the last is its metrics too."""
    started = time.monotonic()
    with traced(trace):
        try:
            yield
        except Exception:
            tally.failures = max(tally.failures, 1)
            raise
        finally:
            metrics: dict[str, float | list[float]] = {
                "Milliseconds": round((time.monotonic() - started) * 1000, 1),
                "EventsEmbedded": tally.events,
                "EmbeddingMilliseconds": tally.calls,
                "Failures": tally.failures,
                "FoldMilliseconds": tally.folds,
                "SimilarityCosine": spread(tally.cosines),
                **tally.counts,
            }
            if tally.due:
                metrics["ScopesDue"] = sum(due.scopes for due in tally.due)
                metrics["ScopesStuck"] = sum(due.stuck for due in tally.due)
                metrics["OldestDueSeconds"] = max(due.seconds for due in tally.due)
                metrics["OldestUnembeddedSeconds"] = max(d.unembedded_seconds for d in tally.due)
                metrics["OldestUnfoldedSeconds"] = max(d.unfolded_seconds for d in tally.due)
            logger.info("job", extra=measured({"function": function, "job": kind}, metrics))
