"""Run model calls in parallel, so that all results come from one model."""

from collections.abc import Callable, Sequence
from functools import partial

from pydantic import BaseModel

from strandline.jobs.worker_resources import WorkerResources
from strandline.llm.parallel import submit_returning_metrics
from strandline.llm.types import (
    Entities,
    ModelResult,
    PromptEvent,
    RunSummary,
    RunTopic,
    TaskContext,
)

_BREAKER_OPEN = "breaker_open"

type Description = tuple[ModelResult[RunSummary], ModelResult[RunTopic], ModelResult[Entities]]
"""What models say of a run."""


def describe_run_with_one_model(
    worker: WorkerResources,
    task: TaskContext,
    events: Sequence[PromptEvent],
    *,
    waits_for_model: bool,
) -> Description:
    """Ask for a run's summary, topic and entities in parallel. All of them come from the configured
    model, or all from the heuristic model. Raises WorkDeferred under the same conditions as
    `WorkerResources.require_final_results`."""
    llm = worker.llm
    summarise = partial(llm.summarise, task, events)
    name_topic = partial(llm.topic, task, events)
    list_entities = partial(llm.entities, task, events)
    results = run_three_calls_in_parallel(worker, summarise, name_topic, list_entities)
    worker.require_final_results(results, waits_for_model=waits_for_model)
    if _are_results_from_both_models(worker, results) and any(
        r.fallback_reason == _BREAKER_OPEN for r in results
    ):
        # The one that tested the model found it well: the others are asked now.
        results = run_three_calls_in_parallel(
            worker,
            _keep_result_or_ask_again(results[0], summarise),
            _keep_result_or_ask_again(results[1], name_topic),
            _keep_result_or_ask_again(results[2], list_entities),
        )
        worker.require_final_results(results, waits_for_model=waits_for_model)
    reasons = [result.fallback_reason for result in results if result.fallback_reason]
    if _are_results_from_both_models(worker, results):
        return llm.describe_by_heuristic(task, events, reasons[0])
    return results


def _are_results_from_both_models(worker: WorkerResources, results: Description) -> bool:
    return worker.llm.has_model and len({r.fallback_reason is None for r in results}) > 1


def _keep_result_or_ask_again[Value: BaseModel](
    result: ModelResult[Value], ask: Callable[[], ModelResult[Value]]
) -> Callable[[], ModelResult[Value]]:
    """A call that gives the model's result again, or asks once more."""
    return partial(_return_value, result) if result.fallback_reason is None else ask


def _return_value[Value](value: Value) -> Value:
    return value


def run_three_calls_in_parallel[A, B, C](
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
