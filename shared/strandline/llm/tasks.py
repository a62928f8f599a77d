"""Language tasks for the house: the model that is configured, and its twin behind it."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from strandline.config import Settings
from strandline.db.database import Access, Database
from strandline.failures import recurs
from strandline.llm import prompts
from strandline.llm.budget import Meter
from strandline.llm.client import Asking, Fallen
from strandline.llm.heuristic.model import Twin
from strandline.llm.plain import PlainModel
from strandline.llm.prompts import Bounds, Shown, Verb
from strandline.llm.provider import Provider
from strandline.llm.types import (
    Continues,
    Done,
    Entities,
    LanguageModel,
    Said,
    Summary,
    Task,
    Topic,
)
from strandline.observability import logger

HEURISTIC_FAILED = "heuristic_failed"
"""Why the plain model answered: the heuristic model failed on this text, and would again."""
_TURN_EVENTS = 8
"""How many of a lane's latest events before a message a model is shown to tell whether the topic
goes on."""


class Reasoner:
    """A model's tasks, each for a `Task` and always with an answer: where the model is away, late,
    refuses, talks nonsense, is not allowed or too dear, it is the twin's and says why; where a text
    breaks the twin as well, the plain model's. One to a process; threads share it.

    Never called inside a database transaction. Raises Unavailable where the database, which holds
    limits and ledger, is away. Without a provider it is the twin alone and touches nothing.
    """

    def __init__(self, database: Database, settings: Settings, provider: Provider | None) -> None:
        self.twin: LanguageModel = Twin()
        self._plain: LanguageModel = PlainModel()
        self._database = database
        self._bounds = Bounds(settings.llm_event_characters, settings.llm_characters)
        self._provider = provider
        if provider is not None:
            self._meter = Meter(database, settings, provider.name)
            self._asking = Asking(provider, self._meter, settings)
        self._thread = threading.local()
        self.run_seconds = 2 * settings.llm_summary_seconds if provider else 0.0
        """What a closed run may take: what is asked of it side by side, and then a merge."""

    @property
    def provider(self) -> str | None:
        """The model's name, as in `openai:gpt-4o-mini`; None: the twin alone."""
        return None if self._provider is None else self._provider.name

    @property
    def asks(self) -> bool:
        """A model is configured: answers are waited for."""
        return self._provider is not None

    def continues(
        self, task: Task, before: Sequence[Said], message: Said, after: Sequence[Said]
    ) -> Done[Continues]:
        """Does `message` go on with the topic of `before` (the lane's open events, in order)?
        `after`: what came next in the lane."""

        def show() -> Shown:
            latest = self._events(task, "before", before[-_TURN_EVENTS:])
            told = latest + self._events(task, "message", [message])
            return told + self._events(task, "after", after)

        return self._done(
            task, "continues", Continues, show, lambda by: by.continues(before, message, after)
        )

    def summarise(self, task: Task, said: Sequence[Said]) -> Done[Summary]:
        """A closed run's narrative and importance."""
        show = partial(self._events, task, "events", said)
        return self._done(task, "summarise", Summary, show, lambda by: by.summarise(said))

    def merge(self, task: Task, earlier: Summary, later: Summary) -> Done[Summary]:
        """One summary of two runs on one topic."""

        def show() -> Shown:
            first = prompts.summary("earlier", earlier, self._bounds)
            return first + prompts.summary("later", later, self._bounds)

        return self._done(task, "merge", Summary, show, lambda by: by.merge(earlier, later))

    def topic(self, task: Task, said: Sequence[Said]) -> Done[Topic]:
        """A run's main theme."""
        show = partial(self._events, task, "events", said)
        return self._done(task, "topic", Topic, show, lambda by: by.topic(said))

    def entities(self, task: Task, said: Sequence[Said]) -> Done[Entities]:
        """Who and what is named in a run."""
        show = partial(self._events, task, "events", said)
        return self._done(task, "entities", Entities, show, lambda by: by.entities(said))

    def flush(self, access: Access) -> None:
        """Write down the calls made for the asker's tenant, when its work is done; outside of any
        transaction. Where the database is away they are kept for the next time."""
        if self._provider is not None:
            self._meter.flush(access)

    def counted(self) -> Mapping[str, int]:
        """Metrics of this thread's calls since it last asked, by their names in `METRICS`."""
        counted, self._thread.counted = self._counter(), Counter[str]()
        return counted

    def _events(self, task: Task, tag: str, said: Sequence[Said]) -> Shown:
        return prompts.events(tag, said, task.participants, self._bounds)

    def _done[Value: BaseModel](
        self,
        task: Task,
        verb: Verb,
        result: type[Value],
        show: Callable[[], Shown],
        ask: Callable[[LanguageModel], Value],
    ) -> Done[Value]:
        if self._provider is None:
            return self._without_provider(task, verb, ask)
        assert not self._database.in_transaction, "a model is never asked inside a transaction"
        counter = self._counter()
        try:
            value = self._asking.ask(task, verb, result, show(), counter)
        except Fallen as fallen:
            counter["ModelFallbacks"] += 1
            counter["BreakerOpen"] += fallen.reason == "breaker_open"
            return self._without_provider(task, verb, ask, fallen.reason, fallen.again_in)
        except Exception as error:
            if not recurs(error):
                raise
            counter["ModelFallbacks"] += 1
            _log_failure("request not made", task, verb, error)
            return self._without_provider(task, verb, ask, "request_failed")
        return Done(value, self._provider.name, prompts.prompt(verb).name)

    def _without_provider[Value: BaseModel](
        self,
        task: Task,
        verb: Verb,
        ask: Callable[[LanguageModel], Value],
        reason: str | None = None,
        again_in: float | None = None,
    ) -> Done[Value]:
        """The heuristic model's answer, or the plain one's where a text breaks its rules."""
        try:
            return Done(ask(self.twin), Twin.name, verb, reason, again_in)
        except Exception as error:
            if not recurs(error):
                raise
            self._counter()["HeuristicFailures"] += 1
            _log_failure("heuristic model failed", task, verb, error)
            reason = reason if again_in is not None else HEURISTIC_FAILED
            return Done(ask(self._plain), PlainModel.name, verb, reason, again_in)

    def _counter(self) -> Counter[str]:
        if not hasattr(self._thread, "counted"):
            self._thread.counted = Counter[str]()
        return self._thread.counted


def _log_failure(message: str, task: Task, verb: Verb, error: Exception) -> None:
    """Without the error's own words: they may quote the text."""
    shown = {"task": verb, "scope_id": task.scope_id, "error": type(error).__name__}
    logger.warning(message, extra=shown)
