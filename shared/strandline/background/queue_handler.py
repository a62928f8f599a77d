"""The Lambda handler of the work queue: each message names scopes; failed messages return to the
queue one by one."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.calibrate_space import calibrate_if_possible
from strandline.background.process_events import embed_and_fold_scopes
from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.errors import StrandlineError, Unavailable
from strandline.jobs.next_runs import schedule_next_runs
from strandline.jobs.worker_resources import JobMetrics, WorkerResources, job_log_context
from strandline.observability import ensure_trace_id, logger
from strandline.personas.deferred_answers import answer_deferred_question
from strandline.resources import Resources
from strandline.tenants.store_spaces import read_space


def handle_scope_messages(
    resources: Resources, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """Process the scopes that a batch of messages names. Scopes that no message names are found by
    a sweep.

    Returns SQS's partial batch response: the messages to deliver again.
    """
    if event.get("ping"):
        return resources.check_version(context.function_name)
    get_settings()  # raises if the process is not configured
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - 2
    worker = WorkerResources(
        resources.database,
        resources.blobs,
        resources.embedder,
        deadline,
        JobMetrics(),
        resources.llm,
        get_settings().tuning,
        clock=resources.clock,
        embedders=resources.embedders,
    )
    records: list[Mapping[str, Any]] = event.get("Records") or []
    failed_ids: list[str] = []
    outage: Unavailable | None = None
    for record in records:
        # Once the database is unreachable, the other messages fail without an attempt: each would
        # wait for it as long again, until Lambda ended the function and none of them came back
        # early.
        outage = outage or _find_database_outage(resources, deadline)
        if not _handle_scope_message(resources, worker, context, record, outage):
            failed_ids.append(str(record["messageId"]))
    now = resources.clock()
    if records and not resources.job_queue.is_run_requested(
        "sweeper", now
    ):  # that run requests the next ones itself
        space = resources.embedder.space
        schedule_next_runs(
            resources.database, resources.job_queue, get_settings(), now, deadline, space=space
        )
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed_ids]}


def _find_database_outage(resources: Resources, deadline: float) -> Unavailable | None:
    """Connect to the database, unless that is done. Returns the error if it cannot be reached."""
    try:
        resources.database.connection(deadline)
    except Unavailable as error:
        return error
    return None


def _handle_scope_message(
    resources: Resources,
    worker: WorkerResources,
    context: LambdaContext,
    record: Mapping[str, Any],
    outage: Unavailable | None,
) -> bool:
    """Process one message. Returns whether it is done. Any error, an unexpected one too, fails this
    message alone: SQS delivers it again, and moves it to the dead-letter queue in the end. A
    dependency that is unreachable may be back in seconds, so such messages return early."""
    body = _parse_message_body(record)
    job = replace(worker, tally=JobMetrics())
    trace, tenant = ensure_trace_id(str(body.get("trace"))), str(body.get("tenant", ""))
    with job_log_context(job.tally, context.function_name, "work_message", trace, tenant):
        try:
            reason = _fold_scopes_and_answer_turns(resources, job, body, outage)
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


def _fold_scopes_and_answer_turns(
    resources: Resources, job: WorkerResources, body: Mapping[str, Any], outage: Unavailable | None
) -> str:
    """Fold the scopes that a message names, and answer its turns. Returns how many scopes are not
    finished, as text; empty if all are. Raises the outage, and KeyError and ValueError for a
    message that names no scopes."""
    scopes = [UUID(str(scope)) for scope in body["scopes"]]
    turns = [UUID(str(turn)) for turn in body.get("turns", ())]
    tenant = str(body["tenant"])
    if outage:
        raise outage
    access = job.database.connect_as(Caller.background(tenant))
    reader = job.for_reader_of(read_space(access).reading_space)
    calibrate_if_possible(access, reader.embedder, job.deadline)
    outcome = embed_and_fold_scopes(job, tenant, scopes)
    # Queued behind the work that others wait for.
    immediate = dict.fromkeys(sorted(outcome.unfinished_scopes), 0.0)
    resources.work_queue.send_later(tenant, {**outcome.retry_delays, **immediate})
    for turn_id in turns:
        answer_deferred_question(resources, tenant, turn_id, job.deadline)
    return f"{outcome.failed_count} of {len(scopes)} scopes" if outcome.failed_count else ""


def _parse_message_body(record: Mapping[str, Any]) -> dict[str, Any]:
    """A message's body; empty if it is not a JSON object, so that it names no scope."""
    try:
        body = json.loads(record["body"])
    except (ValueError, LookupError, TypeError, RecursionError):
        body = None
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}
