"""Run model calls in parallel."""

from collections.abc import Callable

from strandline.jobs.worker_resources import WorkerResources
from strandline.llm.parallel import submit_returning_metrics


def run_in_parallel[A, B, C](
    worker: WorkerResources,
    first_call: Callable[[], A],
    second_call: Callable[[], B],
    third_call: Callable[[], C],
) -> tuple[A, B, C]:
    """Run three calls in parallel and return their results in order. They wait for a model, but do
    not depend on each other (A-68). Without a configured model, the heuristic model runs them one
    after the other in this thread. An error of a call is raised."""
    if not worker.llm.has_model:
        return first_call(), second_call(), third_call()
    llm = worker.llm
    first, second, third = (
        submit_returning_metrics(llm, first_call),
        submit_returning_metrics(llm, second_call),
        submit_returning_metrics(llm, third_call),
    )
    results = first.result(), second.result(), third.result()
    for _, counts in results:
        worker.tally.counters.update(counts)
    return results[0][0], results[1][0], results[2][0]
