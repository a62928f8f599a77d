"""The Lambda handler of a job: the state machine's plan, shard and finish steps."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.config import get_settings
from strandline.errors import Malformed
from strandline.jobs import runner
from strandline.jobs.next_runs import schedule_next_runs
from strandline.jobs.runner import Job, JobResources, Shard, ShardFailed
from strandline.jobs.worker_resources import JobMetrics, job_log_context
from strandline.observability import ensure_trace_id, logger, trace_context
from strandline.resources import Resources

_RESERVE_SECONDS = 10.0
"""Seconds of the function's time that are reserved for ending a shard whose time is up."""
_SCAN_TOTALS = ("scopes_embedded", "events_embedded", "chains_embedded", "vectors_filled")
"""The counts of a sweep that show that scanning tenants found work."""


def run_step(
    job: Job,
    resources: Resources,
    event: Mapping[str, Any],
    context: LambdaContext,
    log_gauges: Callable[[JobResources, str, str, datetime], None] | None = None,
) -> dict[str, Any]:
    """One step of a run. `event` is {"verb": "plan" | "shard" | "finish", "run": its id, "input":
    {...}}. Each plan first calls `log_gauges` with the names of job and function, and the time, and
    each finish does so at its end.

    A plan returns its list's key and length, a shard nothing, the finish the run's counts. Raises
    Malformed for another verb, and whatever the step raises.
    """
    if event.get("ping"):
        return resources.check_version(context.function_name)
    get_settings()  # raises if the process is not configured
    now, run, verb = resources.clock(), str(event["run"]), event.get("verb")
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - _RESERVE_SECONDS
    run_input: Mapping[str, Any] = event.get("input") or {}
    tools = cast(
        "JobResources", resources
    )  # pyright does not match cached properties with the protocol's
    if verb == "shard":
        _run_shards(job, resources, run, runner.parse_item_shards(run_input), deadline, context)
        return {}
    with trace_context(ensure_trace_id(None)):
        if verb == "plan":
            with request_next_runs_on_exit(resources, deadline) as outcome:
                if log_gauges is not None:
                    log_gauges(tools, job.name, context.function_name, now)
                plan = runner.plan_run(tools, job, run, now, run_input.get("tenant"))
                outcome.run_continues = plan.shards > 0
            return plan._asdict()
        if verb == "finish":
            with request_next_runs_on_exit(resources, deadline) as outcome:
                totals = runner.finish_run(tools, job, run, now)
                outcome.found_work = any(totals.get(name) for name in _SCAN_TOTALS)
                if log_gauges is not None:
                    log_gauges(tools, job.name, context.function_name, now)
            return totals
    raise Malformed("verb: must be plan, shard or finish")


def _run_shards(
    job: Job,
    resources: Resources,
    run: str,
    shards: Sequence[Shard],
    deadline: float,
    context: LambdaContext,
) -> None:
    """Work on the shards of an item one after the other; each fails alone. Raises ShardFailed when
    one has failed, or was not begun in time: the state machine then tries the item again, and
    shards that are done are skipped. Any other error ends the item at once, because its cause is
    not in a shard."""
    tools = cast("JobResources", resources)
    failed_count = 0
    for position, shard in enumerate(shards):
        if time.monotonic() > deadline:
            raise ShardFailed(f"{job.name}: {len(shards) - position} shards were not begun in time")
        tally = JobMetrics()
        shard_deadline = runner.compute_shard_deadline(deadline, len(shards) - position - 1)
        try:
            function, trace = context.function_name, ensure_trace_id(None)
            with job_log_context(tally, function, job.name, trace, shard.tenant):
                runner.run_shard(tools, job, run, shard, resources.clock(), shard_deadline, tally)
        except ShardFailed as error:
            if len(shards) == 1:
                raise
            logger.warning("shard of an item failed", extra={"reason": error.message})
            failed_count += 1
    if failed_count:
        raise ShardFailed(f"{job.name}: {failed_count} of {len(shards)} shards failed")


@dataclass
class _StepOutcome:
    """The outcome of a step that may be the last of its run."""

    run_continues: bool = False
    """It is not the last: the run has shards."""
    found_work: bool = False
    """Scanning tenants found work: there may be more."""


@contextmanager
def request_next_runs_on_exit(resources: Resources, deadline: float) -> Generator[_StepOutcome]:
    """Run a step, then request the next run of every job if this run ends with the step. A step
    that fails ends its run too."""
    outcome = _StepOutcome()
    try:
        yield outcome
    finally:
        if not outcome.run_continues:
            space = resources.embedder.space if outcome.found_work else None
            now = resources.clock()
            schedule_next_runs(
                resources.database, resources.job_queue, get_settings(), now, deadline, space=space
            )
