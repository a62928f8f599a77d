"""Have the inner slots of one level of a tree summarised in parallel."""

import time
from collections.abc import Sequence
from functools import partial

from strandline.llm.parallel import run_all
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult, Overview, TaskContext, TopicTreePart

_MIN_PAUSE_SECONDS = 1.0

type Result = ModelResult[Overview]


def summarise_slots(
    llm: LlmTasks, task: TaskContext, slots: Sequence[Sequence[TopicTreePart]], end: float
) -> list[Result]:
    """The overviews of slots, in order. Each slot is given as its parts. As many requests run at
    once as the process allows. A request that is over the rate limit of the minute is sent again in
    the next minute, unless that is past `end` (in time.monotonic() seconds): then the heuristic
    model writes the overview."""
    results: dict[int, Result] = {}
    waiting = list(range(len(slots)))
    while waiting:
        calls = [partial(llm.overview, task, slots[number]) for number in waiting]
        results |= zip(waiting, run_all(llm, calls), strict=True)
        waits = {number: _seconds_to_wait(results[number]) for number in waiting}
        waiting = [number for number, seconds in waits.items() if seconds is not None]
        pause = max((waits[number] or 0.0 for number in waiting), default=0.0)
        pause = max(pause, _MIN_PAUSE_SECONDS)
        if not waiting or time.monotonic() + pause >= end:
            break
        time.sleep(pause)
    return [results[number] for number in range(len(slots))]


def _seconds_to_wait(result: Result) -> float | None:
    """The seconds after which the model may be asked again; None if the result is final."""
    return result.retry_after if result.fallback_reason == "rate_limited" else None
