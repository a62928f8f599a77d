"""A job's function: the state machine's plan, shard and finish."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.config import settings
from strandline.errors import Malformed
from strandline.observability import trace_of, traced
from strandline.routes.queue import told
from strandline.service import Service
from strandline.services.jobs import frame
from strandline.services.jobs.frame import Job, Shard, Tools
from strandline.services.worker import Tally

_SPARE_SECONDS = 10.0
"""Of a function's time: what ends a shard that found its time over."""


def run_verb(
    job: Job, service: Service, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """One step of a run: {"verb": "plan" | "shard" | "finish", "run", ...}.

    A plan gives where its list lies and how long it is, a shard nothing, and the end of a run what
    all of it did, in numbers.
    """
    settings()  # a process that is not configured does nothing
    now, run, verb = datetime.now(UTC), str(event["run"]), event.get("verb")
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS
    asked: Mapping[str, Any] = event.get("input") or {}
    tools = cast("Tools", service)  # pyright does not look through what makes them on first use
    if verb == "shard":
        tally, shard = Tally(), Shard(str(asked["tenant"]), int(asked["shard"]))
        with told(tally, context.function_name, job.name, trace_of(None)):
            frame.work_on(tools, job, run, shard, now, deadline, tally)
        return {}
    with traced(trace_of(None)):
        if verb == "plan":
            return frame.plan(tools, job, run, now, asked.get("tenant"))._asdict()
        if verb == "finish":
            return frame.finish(tools, job, run, now)
    raise Malformed("verb: plan, shard or finish")
