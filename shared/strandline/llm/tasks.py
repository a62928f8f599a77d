"""The language tasks that the rest of the package calls: the configured model, and the heuristic
model as its fallback."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from strandline.config import ServiceSettings
from strandline.db.database import Database, TenantDb
from strandline.llm import prompts
from strandline.llm.budget import LlmBudget
from strandline.llm.client import Fallback, LlmClient
from strandline.llm.fixed_answer_model import FixedAnswerModel
from strandline.llm.heuristic import topic_continuation
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.prompts import AnswerTask, PromptData, PromptLimits, TaskName
from strandline.llm.provider import ModelProvider
from strandline.llm.types import (
    Contradiction,
    Entities,
    Entity,
    GraphExtraction,
    LanguageModel,
    MemoryAnswer,
    MessageToAnswer,
    ModelResult,
    PromptEvent,
    RunSummary,
    RunTopic,
    TaskContext,
    TopicContinuation,
    TopicTreePart,
    TopicTreePartsSummary,
    TopicWalkChoice,
    TopicWalkOption,
    make_answer_type,
    make_walk_choice_type,
)
from strandline.observability import logger
from strandline.permanent_failures import is_permanent_failure

HEURISTIC_FAILED_REASON = "heuristic_failed"
"""Why the plain model answered: the heuristic model failed on this text, and would fail again."""
_CONTEXT_EVENTS = 8
"""How many of a lane's latest events before a message are part of the question whether the topic
continues."""


class LlmTasks:
    """The language tasks. Each takes a `TaskContext` and always has an answer: if the model is
    unavailable, late, over a limit or over budget, refuses, or gives an unusable answer, the
    heuristic model answers and the result says why; if a text makes that fail too, the plain model
    answers. One per process; threads share it.

    Must not be called inside a database transaction. Raises Unavailable where the database, which
    holds limits and records, is unavailable. Without a provider only the heuristic model is used,
    and the database is not touched.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings, provider: ModelProvider | None
    ) -> None:
        self.heuristic: LanguageModel = HeuristicModel()
        self._plain_model: LanguageModel = FixedAnswerModel()
        self._database = database
        self._bounds = PromptLimits(settings.llm_event_characters, settings.llm_characters)
        self._provider = provider
        if provider is not None:
            self._budget = LlmBudget(database, settings, provider.name)
            self._client = LlmClient(provider, self._budget, settings)
        self._thread = threading.local()
        self.max_run_seconds = 2 * settings.llm_summary_seconds if provider else 0.0
        """Seconds that a closed run may take: its parallel calls, then a merge. 0: no model."""

    @property
    def model_name(self) -> str | None:
        """The model's name, as in `openai:gpt-4o-mini`; None if there is only the heuristic
        model."""
        return None if self._provider is None else self._provider.name

    @property
    def has_model(self) -> bool:
        """Whether a model is configured, so that its answers are waited for."""
        return self._provider is not None

    def continues(
        self,
        task: TaskContext,
        before: Sequence[PromptEvent],
        message: PromptEvent,
        after: Sequence[PromptEvent],
    ) -> ModelResult[TopicContinuation]:
        """Whether `message` continues the topic of `before`, the lane's open events in order.
        `after` has the events that follow it in the lane. The model is asked only where the
        heuristic model is not sure."""

        def render() -> PromptData:
            latest = self._render_events(task, "before", before[-_CONTEXT_EVENTS:])
            data = latest + self._render_events(task, "message", [message])
            return data + self._render_events(task, "after", after)

        def ask(by: LanguageModel) -> TopicContinuation:
            return by.continues(before, message, after)

        if self._provider is not None and self._is_continuation_clear(before, message, after):
            return self._run_heuristic(task, "continues", ask)
        return self._run_task(task, "continues", TopicContinuation, render, ask)

    def continues_by_heuristic(
        self,
        task: TaskContext,
        before: Sequence[PromptEvent],
        message: PromptEvent,
        after: Sequence[PromptEvent],
    ) -> bool:
        """What the heuristic model says of `continues`, for an answer that nothing rests on."""
        result = self._run_heuristic(
            task, "continues", lambda by: by.continues(before, message, after)
        )
        return result.value.continues

    def _is_continuation_clear(
        self,
        before: Sequence[PromptEvent],
        message: PromptEvent,
        after: Sequence[PromptEvent],
    ) -> bool:
        try:
            return topic_continuation.is_continuation_clear(before, message, after)
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            return False  # the model may know what the heuristic model fails on

    def summarise(
        self, task: TaskContext, events: Sequence[PromptEvent]
    ) -> ModelResult[RunSummary]:
        """A closed run's narrative summary and importance."""
        render = partial(self._render_events, task, "events", events)
        return self._run_task(
            task, "summarise", RunSummary, render, lambda by: by.summarise(events)
        )

    def merge(
        self, task: TaskContext, earlier: RunSummary, later: RunSummary
    ) -> ModelResult[RunSummary]:
        """One summary of two runs on one topic."""

        def render() -> PromptData:
            first = prompts.render_summary("earlier", earlier, self._bounds)
            return first + prompts.render_summary("later", later, self._bounds)

        return self._run_task(
            task, "merge", RunSummary, render, lambda by: by.merge(earlier, later)
        )

    def topic(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[RunTopic]:
        """A run's main theme."""
        render = partial(self._render_events, task, "events", events)
        return self._run_task(task, "topic", RunTopic, render, lambda by: by.topic(events))

    def entities(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[Entities]:
        """The people and things named in a run."""
        render = partial(self._render_events, task, "events", events)
        return self._run_task(task, "entities", Entities, render, lambda by: by.entities(events))

    def describe_by_heuristic(
        self, task: TaskContext, events: Sequence[PromptEvent], reason: str
    ) -> tuple[ModelResult[RunSummary], ModelResult[RunTopic], ModelResult[Entities]]:
        """A run's summary, topic and entities by the heuristic model, because the configured one
        could not give all of them, for this reason."""
        return (
            self._run_heuristic(task, "summarise", lambda by: by.summarise(events), reason),
            self._run_heuristic(task, "topic", lambda by: by.topic(events), reason),
            self._run_heuristic(task, "entities", lambda by: by.entities(events), reason),
        )

    def overview(
        self, task: TaskContext, parts: Sequence[TopicTreePart]
    ) -> ModelResult[TopicTreePartsSummary]:
        """A summary of what these parts of a topic tree have in common."""
        render = partial(prompts.render_topic_tree_parts, "parts", parts, self._bounds)
        return self._run_task(
            task, "overview", TopicTreePartsSummary, render, lambda by: by.overview(parts)
        )

    def walk(
        self, task: TaskContext, question: str, options: Sequence[TopicWalkOption]
    ) -> ModelResult[TopicWalkChoice]:
        """Which of these parts of a topic tree are likely to hold the answer to a question. An
        answer with a number that was not shown is unusable."""
        render = partial(prompts.render_walk_options, question, options, self._bounds)
        choice_type = make_walk_choice_type(len(options))
        return self._run_task(
            task, "walk", choice_type, render, lambda by: by.walk(question, options)
        )

    def contradicts(self, task: TaskContext, first: str, second: str) -> ModelResult[Contradiction]:
        """Whether two statements cannot both hold."""
        render = partial(
            prompts.render_statements, (first, second), task.participants, self._bounds
        )
        return self._run_task(
            task, "contradicts", Contradiction, render, lambda by: by.contradicts(first, second)
        )

    def extract(
        self,
        task: TaskContext,
        events: Sequence[PromptEvent],
        entities: Sequence[Entity],
        *,
        may_ask: bool = True,
    ) -> ModelResult[GraphExtraction]:
        """The facts, decisions and relations that a chain's events state, for the knowledge graph.
        `entities` are those of the chain. Without `may_ask` the heuristic model answers."""

        def ask(by: LanguageModel) -> GraphExtraction:
            return by.extract(events, entities)

        if not may_ask:
            return self._run_heuristic(task, "extract", ask)
        render = partial(
            prompts.render_numbered_events, "events", events, task.participants, self._bounds
        )
        return self._run_task(task, "extract", GraphExtraction, render, ask)

    def answer(
        self,
        task: TaskContext,
        verb: AnswerTask,
        block: str,
        memory_count: int,
        message: MessageToAnswer,
    ) -> ModelResult[MemoryAnswer]:
        """The configured model's answer to a question or message, from a block of so many numbered
        memories. It has no fallback. The model is offered no tool. Raises Fallback where it gives
        no usable answer, AssertionError without a model."""
        assert self._provider is not None, "the caller checks has_model"
        assert not self._database.in_transaction, "a model is never called inside a transaction"
        counter = self._get_thread_counter()
        data = prompts.render_memories_and_question(block, message, task.participants, self._bounds)
        try:
            value = self._client.ask(task, verb, make_answer_type(memory_count), data, counter)
        except Fallback as fallback:
            counter["ModelBreakerRejections"] += fallback.reason == "breaker_open"
            raise
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            _log_failure("model request failed", task, verb, error)
            raise Fallback("invalid_output") from None
        return ModelResult(value, self._provider.name, prompts.load_prompt(verb).name)

    def name_model_and_prompt(self, verb: TaskName) -> tuple[str, str]:
        """The names of the model and of the prompt that a task's answers come from at present,
        unless the model falls back."""
        if self._provider is None:
            return HeuristicModel.name, verb
        return self._provider.name, prompts.load_prompt(verb).name

    def store_call_records(self, access: TenantDb) -> None:
        """Write the calls made for the caller's tenant, when its work is done; outside of any
        transaction. If the database is unavailable they are kept for the next time."""
        if self._provider is not None:
            self._budget.store_call_records(access)

    def take_metrics(self) -> Mapping[str, int]:
        """Metrics of this thread's calls since the last call of this method, by their names in
        `METRICS`."""
        counters, self._thread.counts = self._get_thread_counter(), Counter[str]()
        return counters

    def add_metrics(self, counts: Mapping[str, int]) -> None:
        """Count these metrics as this thread's: those of calls that other threads made for it."""
        self._get_thread_counter().update(counts)

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
        assert not self._database.in_transaction, "a model is never called inside a transaction"
        counter = self._get_thread_counter()
        try:
            value = self._client.ask(task, verb, result_type, render(), counter)
        except Fallback as fallback:
            counter["ModelFallbacks"] += 1
            counter["ModelBreakerRejections"] += fallback.reason == "breaker_open"
            return self._run_heuristic(task, verb, ask, fallback.reason, fallback.retry_after)
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            counter["ModelFallbacks"] += 1
            _log_failure("model request failed", task, verb, error)
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
        """The heuristic model's answer, or the plain model's where the heuristic model fails on a
        text."""
        try:
            return ModelResult(ask(self.heuristic), HeuristicModel.name, verb, reason, retry_after)
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            self._get_thread_counter()["HeuristicFailures"] += 1
            _log_failure("heuristic model failed", task, verb, error)
            reason = reason if retry_after is not None else HEURISTIC_FAILED_REASON
            return ModelResult(
                ask(self._plain_model), FixedAnswerModel.name, verb, reason, retry_after
            )

    def _get_thread_counter(self) -> Counter[str]:
        if not hasattr(self._thread, "counts"):
            self._thread.counts = Counter[str]()
        return self._thread.counts


def _log_failure(message: str, task: TaskContext, verb: TaskName, error: Exception) -> None:
    """Log a failure without the error's own text, which may quote memory."""
    fields = {"task": verb, "scope_id": task.scope_id, "error": type(error).__name__}
    logger.warning(message, extra=fields)
