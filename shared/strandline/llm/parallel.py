"""Run language tasks in parallel: they wait for a model, not for each other."""

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from strandline.llm.tasks import LlmTasks
from strandline.observability import ensure_trace_id, make_trace_header, trace_context

MAX_PARALLEL = 3
"""How many tasks of a process run at once."""


@functools.cache
def _thread_pool() -> ThreadPoolExecutor:
    """Kept for the life of the process, because each thread keeps a database connection."""
    return ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="model")


def submit_returning_metrics[Value](
    llm: LlmTasks, call: Callable[[], Value]
) -> Future[tuple[Value, Mapping[str, int]]]:
    """Begin a call of a task in a thread of the pool, with the trace of this one. Its result comes
    with the metrics of the call."""
    trace = ensure_trace_id(make_trace_header())

    def traced_call() -> tuple[Value, Mapping[str, int]]:
        with trace_context(trace):
            return call(), llm.take_metrics()

    return _thread_pool().submit(traced_call)


def run_all_in_parallel[Value](llm: LlmTasks, calls: Sequence[Callable[[], Value]]) -> list[Value]:
    """Run calls of tasks in parallel and return their results in order; their metrics count as this
    thread's. Without a configured model they run one after the other in this thread. An error of a
    call is raised, once all have ended."""
    if not llm.has_model:
        return [call() for call in calls]
    futures = [submit_returning_metrics(llm, call) for call in calls]
    errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise errors[0]
    values: list[Value] = []
    for future in futures:
        value, counts = future.result()
        llm.add_metrics(counts)
        values.append(value)
    return values
