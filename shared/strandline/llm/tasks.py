"""Language tasks for the house: the model that is configured, and its twin behind it."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from strandline.config import ServiceSettings
from strandline.db.database import Database, TenantDb
from strandline.failures import is_permanent_failure
from strandline.llm import prompts
from strandline.llm.budget import LlmBudget
from strandline.llm.client import Fallback, LlmClient
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.plain import PlainModel
from strandline.llm.prompts import PromptData, PromptLimits, TaskName
from strandline.llm.provider import Provider
from strandline.llm.types import (
    Continues,
    Entities,
    LanguageModel,
    ModelResult,
    PromptEvent,
    Summary,
    TaskContext,
    Topic,
)
from strandline.observability import logger

HEURISTIC_FAILED_REASON = "heuristic_failed"
"""Why the plain model answered: the heuristic model failed on this text, and would again."""
_CONTEXT_EVENTS = 8
"""How many of a lane's latest events before a message a model is shown to tell whether the topic
goes on."""


class LlmTasks:
    """A model's tasks, each for a `Task` and always with an answer: where the model is away, late,
    refuses, talks nonsense, is not allowed or too dear, it is the twin's and says why; where a text
    breaks the twin as well, the plain model's. One to a process; threads share it.

    Never called inside a database transaction. Raises Unavailable where the database, which holds
    limits and ledger, is away. Without a provider it is the twin alone and touches nothing.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings, provider: Provider | None
    ) -> None:
        self.heuristic: LanguageModel = HeuristicModel()
        self._plain_model: LanguageModel = PlainModel()
        self._database = database
        self._bounds = PromptLimits(settings.llm_event_characters, settings.llm_characters)
        self._provider = provider
        if provider is not None:
            self._budget = LlmBudget(database, settings, provider.name)
            self._client = LlmClient(provider, self._budget, settings)
        self._thread = threading.local()
        self.max_run_seconds = 2 * settings.llm_summary_seconds if provider else 0.0
        """What a closed run may take: what is asked of it side by side, and then a merge."""

    @property
    def provider_name(self) -> str | None:
        """The model's name, as in `openai:gpt-4o-mini`; None: the twin alone."""
        return None if self._provider is None else self._provider.name

    @property
    def has_model(self) -> bool:
        """A model is configured: answers are waited for."""
        return self._provider is not None

    def continues(
        self,
        task: TaskContext,
        before: Sequence[PromptEvent],
        message: PromptEvent,
        after: Sequence[PromptEvent],
    ) -> ModelResult[Continues]:
        """Does `message` go on with the topic of `before` (the lane's open events, in order)?
        `after`: what came next in the lane."""

        def render() -> PromptData:
            latest = self._render_events(task, "before", before[-_CONTEXT_EVENTS:])
            data = latest + self._render_events(task, "message", [message])
            return data + self._render_events(task, "after", after)

        return self._run_task(
            task, "continues", Continues, render, lambda by: by.continues(before, message, after)
        )

    def summarise(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[Summary]:
        """A closed run's narrative and importance."""
        render = partial(self._render_events, task, "events", events)
        return self._run_task(task, "summarise", Summary, render, lambda by: by.summarise(events))

    def merge(self, task: TaskContext, earlier: Summary, later: Summary) -> ModelResult[Summary]:
        """One summary of two runs on one topic."""

        def render() -> PromptData:
            first = prompts.render_summary("earlier", earlier, self._bounds)
            return first + prompts.render_summary("later", later, self._bounds)

        return self._run_task(task, "merge", Summary, render, lambda by: by.merge(earlier, later))

    def topic(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[Topic]:
        """A run's main theme."""
        render = partial(self._render_events, task, "events", events)
        return self._run_task(task, "topic", Topic, render, lambda by: by.topic(events))

    def entities(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[Entities]:
        """Who and what is named in a run."""
        render = partial(self._render_events, task, "events", events)
        return self._run_task(task, "entities", Entities, render, lambda by: by.entities(events))

    def write_calls(self, access: TenantDb) -> None:
        """Write down the calls made for the asker's tenant, when its work is done; outside of any
        transaction. Where the database is away they are kept for the next time."""
        if self._provider is not None:
            self._budget.write_calls(access)

    def take_metrics(self) -> Mapping[str, int]:
        """Metrics of this thread's calls since it last asked, by their names in `METRICS`."""
        counters, self._thread.counted = self._counter(), Counter[str]()
        return counters

    def _render_events(
        self, task: TaskContext, tag: str, events: Sequence[PromptEvent]
    ) -> PromptData:
        return prompts.render_events(tag, events, task.participants, self._bounds)

    def _run_task[Value: BaseModel](
        self,
        task: TaskContext,
        verb: TaskName,
        result_type: type[Value],
        render: Callable[[], PromptData],
        ask: Callable[[LanguageModel], Value],
    ) -> ModelResult[Value]:
        if self._provider is None:
            return self._run_heuristic(task, verb, ask)
        assert not self._database.in_transaction, "a model is never asked inside a transaction"
        counter = self._counter()
        try:
            value = self._client.ask(task, verb, result_type, render(), counter)
        except Fallback as fallback:
            counter["ModelFallbacks"] += 1
            counter["BreakerOpen"] += fallback.reason == "breaker_open"
            return self._run_heuristic(task, verb, ask, fallback.reason, fallback.retry_after)
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            counter["ModelFallbacks"] += 1
            _log_failure("request not made", task, verb, error)
            return self._run_heuristic(task, verb, ask, "request_failed")
        return ModelResult(value, self._provider.name, prompts.load_prompt(verb).name)

    def _run_heuristic[Value: BaseModel](
        self,
        task: TaskContext,
        verb: TaskName,
        ask: Callable[[LanguageModel], Value],
        reason: str | None = None,
        retry_after: float | None = None,
    ) -> ModelResult[Value]:
        """The heuristic model's answer, or the plain one's where a text breaks its rules."""
        try:
            return ModelResult(ask(self.heuristic), HeuristicModel.name, verb, reason, retry_after)
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            self._counter()["HeuristicFailures"] += 1
            _log_failure("heuristic model failed", task, verb, error)
            reason = reason if retry_after is not None else HEURISTIC_FAILED_REASON
            return ModelResult(ask(self._plain_model), PlainModel.name, verb, reason, retry_after)

    def _counter(self) -> Counter[str]:
        if not hasattr(self._thread, "counted"):
            self._thread.counted = Counter[str]()
        return self._thread.counted


def _log_failure(message: str, task: TaskContext, verb: TaskName, error: Exception) -> None:
    """Without the error's own words: they may quote the text."""
    fields = {"task": verb, "scope_id": task.scope_id, "error": type(error).__name__}
    logger.warning(message, extra=fields)
