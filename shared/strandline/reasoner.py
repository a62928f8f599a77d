"""Language tasks for the house: the model that is configured, and its twin behind it."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from strandline.asking import Asking, Fallen
from strandline.config import Settings
from strandline.db import Access, Database
from strandline.metering import Meter
from strandline.models import shown
from strandline.models.language import (
    Continues,
    Done,
    Entities,
    LanguageModel,
    Said,
    Summary,
    Task,
    Topic,
)
from strandline.models.provider import Provider
from strandline.models.shown import Bounds, Shown, Verb
from strandline.models.twin import Twin

_TURN_EVENTS = 8
"""How many of a lane's latest events before a message a model is shown to tell whether the topic
goes on."""


class Reasoner:
    """A model's tasks, each for a `Task` and always with an answer: where the model is away, late,
    refuses, talks nonsense, is not allowed or too dear, it is the twin's and says why. One to a
    process; threads share it.

    Never called inside a database transaction. Raises Unavailable where the database, which holds
    limits and ledger, is away. Without a provider it is the twin alone and touches nothing.
    """

    def __init__(self, database: Database, settings: Settings, provider: Provider | None) -> None:
        self.twin: LanguageModel = Twin()
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
        return self._provider and self._provider.name

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

        twin = partial(self.twin.continues, before, message, after)
        return self._done(task, "continues", Continues, show, twin)

    def summarise(self, task: Task, said: Sequence[Said]) -> Done[Summary]:
        """A closed run's narrative and importance."""
        show = partial(self._events, task, "events", said)
        return self._done(task, "summarise", Summary, show, partial(self.twin.summarise, said))

    def merge(self, task: Task, earlier: Summary, later: Summary) -> Done[Summary]:
        """One summary of two runs on one topic."""

        def show() -> Shown:
            first = shown.summary("earlier", earlier, self._bounds)
            return first + shown.summary("later", later, self._bounds)

        return self._done(task, "merge", Summary, show, partial(self.twin.merge, earlier, later))

    def topic(self, task: Task, said: Sequence[Said]) -> Done[Topic]:
        """A run's main theme."""
        show = partial(self._events, task, "events", said)
        return self._done(task, "topic", Topic, show, partial(self.twin.topic, said))

    def entities(self, task: Task, said: Sequence[Said]) -> Done[Entities]:
        """Who and what is named in a run."""
        show = partial(self._events, task, "events", said)
        return self._done(task, "entities", Entities, show, partial(self.twin.entities, said))

    def flush(self, access: Access) -> None:
        """Write down the calls made for the asker's tenant, when its work is done; outside of any
        transaction. Where the database is away they are kept for the next time."""
        if self._provider is not None:
            self._meter.flush(access)

    def counted(self) -> Mapping[str, int]:
        """Metrics of this thread's calls since it last asked, by their names in `METRICS`; nothing
        without a provider."""
        counted, self._thread.counted = self._counter(), Counter[str]()
        return counted

    def _events(self, task: Task, tag: str, said: Sequence[Said]) -> Shown:
        return shown.events(tag, said, task.participants, self._bounds)

    def _done[Value: BaseModel](
        self,
        task: Task,
        verb: Verb,
        result: type[Value],
        show: Callable[[], Shown],
        twin: Callable[[], Value],
    ) -> Done[Value]:
        if self._provider is None:
            return Done(twin(), Twin.name, verb)
        assert not self._database.in_transaction, "a model is never asked inside a transaction"
        counter = self._counter()
        try:
            value = self._asking.ask(task, verb, result, show(), counter)
        except Fallen as fallen:
            counter["ModelFallbacks"] += 1
            counter["BreakerOpen"] += fallen.reason == "breaker_open"
            return Done(twin(), Twin.name, verb, fallen.reason, fallen.again_in)
        return Done(value, self._provider.name, shown.prompt(verb).name)

    def _counter(self) -> Counter[str]:
        if not hasattr(self._thread, "counted"):
            self._thread.counted = Counter[str]()
        return self._thread.counted
