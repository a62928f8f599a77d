"""A job's function: the state machine's plan, shard and finish."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from aws_lambda_powertools.utilities.typing import LambdaContext

from strandline.background.queue_handler import told
from strandline.config import settings
from strandline.errors import Malformed
from strandline.jobs import runner
from strandline.jobs.context import Tally
from strandline.jobs.request_next import wake_next
from strandline.jobs.runner import Job, Shard, Tools
from strandline.observability import trace_of, traced
from strandline.resources import Service

_SPARE_SECONDS = 10.0
"""Of a function's time: what ends a shard that found its time over."""
_LOOKED_THROUGH = ("scopes_embedded", "events_embedded", "chains_embedded")
"""What a sweep counts of what it found by looking through tenants."""


def run_verb(
    job: Job, service: Service, event: Mapping[str, Any], context: LambdaContext
) -> dict[str, Any]:
    """One step of a run: {"verb": "plan" | "shard" | "finish", "run", ...}.

    A plan gives where its list lies and how long it is, a shard nothing, and the end of a run what
    all of it did, in numbers.
    """
    settings()  # a process that is not configured does nothing
    now, run, verb = service.clock(), str(event["run"]), event.get("verb")
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS
    asked: Mapping[str, Any] = event.get("input") or {}
    tools = cast("Tools", service)  # pyright does not look through what makes them on first use
    if verb == "shard":
        tally, shard = Tally(), Shard(str(asked["tenant"]), int(asked["shard"]))
        with told(tally, context.function_name, job.name, trace_of(None)):
            runner.work_on(tools, job, run, shard, now, deadline, tally)
            service.hints.send_later(shard.tenant, tally.later)
        return {}
    with traced(trace_of(None)):
        if verb == "plan":
            with ending(service, deadline) as end:
                planned = runner.plan(tools, job, run, now, asked.get("tenant"))
                end.comes_later = planned.shards > 0
            return planned._asdict()
        if verb == "finish":
            with ending(service, deadline) as end:
                totals = runner.finish(tools, job, run, now)
                end.got_on = any(totals.get(name) for name in _LOOKED_THROUGH)
            return totals
    raise Malformed("verb: plan, shard or finish")


@dataclass
class _End:
    """How a step went that a run may end with."""

    comes_later: bool = False
    """It is not the last: the run has parts."""
    got_on: bool = False
    """Something was found by looking through tenants: there may be more."""


@contextmanager
def ending(service: Service, deadline: float) -> Generator[_End]:
    """A step after which the next run of every job is wished for, if its own ends here; one that
    fails is looked after again as well."""
    end = _End()
    try:
        yield end
    finally:
        if not end.comes_later:
            space = service.embedder.space if end.got_on else None
            now = service.clock()
            wake_next(service.database, service.runs, settings(), now, deadline, space=space)
