"""What a language model is asked for: one verb a task, and what it gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from pydantic import BaseModel, Field

type EntityKind = Literal["person", "company", "project", "product", "technology", "place", "other"]


@dataclass(frozen=True)
class PromptEvent:
    """An event as a model is shown it: bounded, and as all its scope's participants may see it."""

    seq: int
    speaker: str | None
    """A participant, as in `user:mara`."""
    role: str
    type: str
    text: str
    said_at: datetime


class Continues(BaseModel):
    """Does the topic go on?"""

    continues: bool


class Summary(BaseModel):
    """What was said, and how much it matters from 0 (small talk) to 1 (must not be forgotten)."""

    summary: str = Field(min_length=1, max_length=4000)
    importance: float = Field(ge=0, le=1)


class Topic(BaseModel):
    """The main theme in a few words."""

    topic: str = Field(min_length=1, max_length=200)


class Entity(BaseModel):
    """Somebody or something named."""

    name: str = Field(min_length=1, max_length=200)
    kind: EntityKind = "other"


class Entities(BaseModel):
    """All that are named, the most mentioned first; each once."""

    entities: list[Entity] = Field(max_length=100)


class LanguageModel(Protocol):
    """The tasks. Implementations are the deterministic twin and, through `Reasoner`, providers."""

    def continues(
        self, before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
    ) -> Continues:
        """Does `message` go on with the topic of `before` (the lane's open events, in order)?
        `after`: what came next in the lane."""
        ...

    def summarise(self, events: Sequence[PromptEvent]) -> Summary:
        """A closed run's narrative and importance."""
        ...

    def merge(self, earlier: Summary, later: Summary) -> Summary:
        """One summary of two runs on one topic."""
        ...

    def topic(self, events: Sequence[PromptEvent]) -> Topic:
        """A run's main theme."""
        ...

    def entities(self, events: Sequence[PromptEvent]) -> Entities:
        """Who and what is named in a run."""
        ...


@dataclass(frozen=True)
class ModelResult[Value: BaseModel]:
    """A task's result, and who gave it."""

    value: Value
    model: str
    """`twin/3`, `plain/1`, or the provider's as in `openai:gpt-4o-mini`."""
    prompt: str
    """Task and version of its prompt, as in `summarise/1`; of the twin the task alone."""
    fallback_reason: str | None = None
    """Why the twin answered though a model is configured: `budget_spent`, `rate_limited`,
    `breaker_open`, `late`, `out_of_time` (ours), `unavailable`, `refused`, `invalid_output`,
    `request_failed`; or `heuristic_failed`: the twin failed too, and the plain model answered."""
    retry_after: float | None = None
    """Seconds after which the model would be asked: who can wait gets its answer then."""


@dataclass(frozen=True)
class TaskContext:
    """For whom a model is asked: what its call is recorded, limited and paid by."""

    tenant: str
    subject: str
    """Whose rate it counts towards: `user:NAME` or `key:ID` in a request, in the background the
    scope's id."""
    participants: tuple[str, ...]
    """Of the scope whose text is shown."""
    scope_id: str | None = None
    job: str | None = None
    """On whose behalf it is in the background: `fold`, `retry`, or a sweep's job by its id."""
    deadline: float | None = None
    """time.monotonic() seconds until when an answer is of use."""
