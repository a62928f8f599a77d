"""Have the inner slots of a tree summarised: those of a level at once."""

import time
from collections.abc import Sequence
from functools import partial

from strandline.llm.parallel import run_all
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult, Overview, TaskContext, TopicPart

_MIN_PAUSE_SECONDS = 1.0

type Result = ModelResult[Overview]


def describe_all(
    llm: LlmTasks, task: TaskContext, slots: Sequence[Sequence[TopicPart]], end: float
) -> list[Result]:
    """The overviews of slots, each of its parts, in order; as many at once as the process allows.
    One that has to wait for the next minute's calls is asked for again then, unless that is past
    `end` (in time.monotonic() seconds): its overview is then the heuristic model's."""
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
    """After which the model may be asked again; None where its answer stands."""
    return result.retry_after if result.fallback_reason == "rate_limited" else None
