"""Run model calls in parallel."""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from strandline.jobs.context import Worker
from strandline.observability import trace_context, trace_header, trace_id_of


@functools.cache
def _thread_pool() -> ThreadPoolExecutor:
    """Kept for the life of the process, because each thread keeps a database connection."""
    return ThreadPoolExecutor(3, thread_name_prefix="enrich")


def run_in_parallel[A, B, C](
    worker: Worker,
    first_call: Callable[[], A],
    second_call: Callable[[], B],
    third_call: Callable[[], C],
) -> tuple[A, B, C]:
    """Run three calls in parallel and return their results in order: they wait for a model, not for
    each other (A-68). Without a configured model they run one after the other in this thread, by
    the heuristic model. An error of a call is raised."""
    if not worker.llm.has_model:
        return first_call(), second_call(), third_call()
    trace = trace_id_of(trace_header())

    def submit[Value](call: Callable[[], Value]) -> Future[tuple[Value, Mapping[str, float]]]:
        def traced_call() -> tuple[Value, Mapping[str, float]]:
            with trace_context(trace):
                return call(), worker.llm.take_metrics()

        return _thread_pool().submit(traced_call)

    first, second, third = submit(first_call), submit(second_call), submit(third_call)
    results = first.result(), second.result(), third.result()
    for _, counts in results:
        worker.tally.counters.update(counts)
    return results[0][0], results[1][0], results[2][0]
