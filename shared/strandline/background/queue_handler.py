"""The Lambda handler of the work queue: each message names scopes; failed messages return to the
queue one by one."""

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.embed import process_scopes
from strandline.config import get_settings
from strandline.errors import StrandlineError, Unavailable
from strandline.jobs.context import Tally, Worker
from strandline.jobs.request_next import request_next_runs
from strandline.observability import (
    emf_fields,
    logger,
    sample_quantiles,
    trace_context,
    trace_id_of,
)
from strandline.resources import Resources


def handle_messages(
    resources: Resources, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """Process the scopes that a batch of messages names. Scopes that no message names are found by
    a sweep.

    Returns SQS's partial batch response: the messages to deliver again.
    """
    get_settings()  # raises if the process is not configured
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - 2
    worker = Worker(
        resources.database,
        resources.blobs,
        resources.embedder,
        deadline,
        Tally(),
        resources.llm,
        get_settings().tuning,
        clock=resources.clock,
    )
    records: list[Mapping[str, Any]] = event.get("Records") or []
    failed_ids: list[str] = []
    outage: Unavailable | None = None
    for record in records:
        # Once the database is away the rest fails untried: each message would wait for it as long
        # again, until Lambda ended the function and none of them came back early.
        outage = outage or _find_outage(resources, deadline)
        if not _handle_message(resources, worker, context, record, outage):
            failed_ids.append(str(record["messageId"]))
    now = resources.clock()
    if records and not resources.job_queue.is_run_requested(
        "sweeper", now
    ):  # that run requests the next ones itself
        space = resources.embedder.space
        request_next_runs(
            resources.database, resources.job_queue, get_settings(), now, deadline, space=space
        )
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed_ids]}


def _find_outage(resources: Resources, deadline: float) -> Unavailable | None:
    """Connect to the database, unless that is done. Returns the error if it cannot be reached."""
    try:
        resources.database.connection(deadline)
    except Unavailable as error:
        return error
    return None


def _handle_message(
    resources: Resources,
    worker: Worker,
    context: LambdaContext,
    record: Mapping[str, Any],
    outage: Unavailable | None,
) -> bool:
    """Process one message. Returns whether it is done. Any error, an unexpected one too, fails this
    message alone: SQS delivers it again, and moves it to the dead-letter queue in the end. What is
    away may be back in seconds, so those messages return early."""
    body, reason = _parse_body(record), ""
    job = replace(worker, tally=Tally())
    with log_job(
        job.tally, context.function_name, "work_message", trace_id_of(str(body.get("trace")))
    ):
        try:
            scopes = [UUID(str(scope)) for scope in body["scopes"]]
            tenant = str(body["tenant"])
            if outage:
                raise outage
            unfinished_count = process_scopes(job, tenant, scopes)
            immediate = dict.fromkeys(
                sorted(job.tally.unfinished_scopes), 0.0
            )  # queued behind the work that others wait for
            resources.work_queue.send_later(tenant, {**job.tally.retry_delays, **immediate})
            if unfinished_count:
                reason = f"{unfinished_count} of {len(scopes)} scopes"
        except Unavailable as error:
            reason = error.code
            attributes: Mapping[str, str] = record.get("attributes") or {}
            resources.work_queue.return_soon(
                str(record.get("receiptHandle")), int(attributes.get("ApproximateReceiveCount", 1))
            )
        except StrandlineError as error:
            reason = error.code
        except Exception as error:
            reason = type(error).__name__
        if reason:
            job.tally.failures = max(job.tally.failures, 1)
            logger.warning(
                "message failed",
                extra={"message_id": str(record["messageId"]), "reason": reason},
            )
    return not reason


def _parse_body(record: Mapping[str, Any]) -> dict[str, Any]:
    """A message's body; empty if it is not a JSON object, so that it names no scope."""
    try:
        body = json.loads(record["body"])
    except (ValueError, LookupError, TypeError, RecursionError):
        body = None
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


@contextmanager
def log_job(tally: Tally, function: str, kind: str, trace: str) -> Generator[None]:
    """Log a job's lines with one trace id; the last line holds its metrics."""
    start = time.monotonic()
    with trace_context(trace):
        try:
            yield
        except Exception:
            tally.failures = max(tally.failures, 1)
            raise
        finally:
            metrics: dict[str, float | list[float]] = {
                "DurationMilliseconds": round((time.monotonic() - start) * 1000, 1),
                "EventsEmbedded": tally.embedded_events,
                "EmbeddingMilliseconds": tally.embedding_ms,
                "WorkFailures": tally.failures,
                "FoldMilliseconds": tally.fold_ms,
                "SimilarityCosine": sample_quantiles(tally.cosines),
                **{name: sample_quantiles(values) for name, values in tally.samples.items()},
                **tally.counters,
            }
            if tally.due_work:
                metrics["ScopesDue"] = sum(due.scopes for due in tally.due_work)
                metrics["ScopesStuck"] = sum(due.stuck for due in tally.due_work)
                metrics["OldestDueSeconds"] = max(due.seconds for due in tally.due_work)
                metrics["OldestUnembeddedSeconds"] = max(
                    d.unembedded_seconds for d in tally.due_work
                )
                metrics["OldestUnfoldedSeconds"] = max(d.unfolded_seconds for d in tally.due_work)
            logger.info("job", extra=emf_fields({"function": function, "job": kind}, metrics))
