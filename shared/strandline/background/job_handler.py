"""A job's function: the state machine's plan, shard and finish."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.queue_handler import log_job
from strandline.config import get_settings
from strandline.errors import Malformed
from strandline.jobs import runner
from strandline.jobs.context import Tally
from strandline.jobs.request_next import request_next_runs
from strandline.jobs.runner import Job, JobResources, Shard
from strandline.observability import trace_context, trace_id_of
from strandline.resources import Resources

_RESERVE_SECONDS = 10.0
"""Of a function's time: what ends a shard that found its time over."""
_SCAN_TOTALS = ("scopes_embedded", "events_embedded", "chains_embedded")
"""What a sweep counts of what it found by looking through tenants."""


def run_step(
    job: Job, resources: Resources, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """One step of a run: {"verb": "plan" | "shard" | "finish", "run", ...}.

    A plan gives where its list lies and how long it is, a shard nothing, and the end of a run what
    all of it did, in numbers.
    """
    get_settings()  # a process that is not configured does nothing
    now, run, verb = resources.clock(), str(event["run"]), event.get("verb")
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - _RESERVE_SECONDS
    run_input: Mapping[str, Any] = event.get("input") or {}
    tools = cast(
        "JobResources", resources
    )  # pyright does not look through what makes them on first use
    if verb == "shard":
        tally, shard = Tally(), Shard(str(run_input["tenant"]), int(run_input["shard"]))
        with log_job(tally, context.function_name, job.name, trace_id_of(None)):
            runner.run_shard(tools, job, run, shard, now, deadline, tally)
            resources.work_queue.send_later(shard.tenant, tally.retry_delays)
        return {}
    with trace_context(trace_id_of(None)):
        if verb == "plan":
            with request_runs_after(resources, deadline) as outcome:
                plan = runner.plan_run(tools, job, run, now, run_input.get("tenant"))
                outcome.run_continues = plan.shards > 0
            return plan._asdict()
        if verb == "finish":
            with request_runs_after(resources, deadline) as outcome:
                totals = runner.finish_run(tools, job, run, now)
                outcome.found_work = any(totals.get(name) for name in _SCAN_TOTALS)
            return totals
    raise Malformed("verb: plan, shard or finish")


@dataclass
class _StepOutcome:
    """How a step went that a run may end with."""

    run_continues: bool = False
    """It is not the last: the run has parts."""
    found_work: bool = False
    """Something was found by looking through tenants: there may be more."""


@contextmanager
def request_runs_after(resources: Resources, deadline: float) -> Generator[_StepOutcome]:
    """A step after which the next run of every job is wished for, if its own ends here; one that
    fails is looked after again as well."""
    outcome = _StepOutcome()
    try:
        yield outcome
    finally:
        if not outcome.run_continues:
            space = resources.embedder.space if outcome.found_work else None
            now = resources.clock()
            request_next_runs(
                resources.database, resources.job_queue, get_settings(), now, deadline, space=space
            )
