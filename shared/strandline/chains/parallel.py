"""Questions to a model side by side."""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from strandline.jobs.context import Worker
from strandline.observability import trace_header, trace_of, traced


@functools.cache
def _helpers() -> ThreadPoolExecutor:
    """Kept, because a thread keeps a connection."""
    return ThreadPoolExecutor(3, thread_name_prefix="enrich")


def at_once[A, B, C](
    worker: Worker, one: Callable[[], A], two: Callable[[], B], three: Callable[[], C]
) -> tuple[A, B, C]:
    """All three side by side: they wait for a model, not for each other (A-68). The twin is asked
    here and now."""
    if not worker.reasoner.asks:
        return one(), two(), three()
    trace = trace_of(trace_header())

    def apart[Value](ask: Callable[[], Value]) -> Future[tuple[Value, Mapping[str, float]]]:
        def traced_ask() -> tuple[Value, Mapping[str, float]]:
            with traced(trace):
                return ask(), worker.reasoner.counted()

        return _helpers().submit(traced_ask)

    first, second, third = apart(one), apart(two), apart(three)
    answers = first.result(), second.result(), third.result()
    for _, counted in answers:
        worker.tally.counts.update(counted)
    return answers[0][0], answers[1][0], answers[2][0]
