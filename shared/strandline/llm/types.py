"""The language tasks: inputs, results, and the interface of a model."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

MAX_TOPIC_CHARACTERS = 200

type EntityKind = Literal["person", "company", "project", "product", "technology", "place", "other"]


@dataclass(frozen=True)
class PromptEvent:
    """An event as a model gets it: bounded, and nothing that a participant of its scope may not
    see."""

    seq: int
    speaker: str | None
    """A participant, as in `user:mara`."""
    role: str
    type: str
    text: str
    said_at: datetime


class TopicContinuation(BaseModel):
    """Does the topic go on?"""

    continues: bool


class RunSummary(BaseModel):
    """What was said, and how much it matters, from 0 (small talk) to 1 (must not be forgotten)."""

    summary: str = Field(min_length=1, max_length=4000)
    importance: float = Field(ge=0, le=1)


class RunTopic(BaseModel):
    """The main theme in a few words, if there are any for it."""

    topic: str | None = Field(min_length=1, max_length=MAX_TOPIC_CHARACTERS)
    """Null where nothing names it."""


class Entity(BaseModel):
    """A person or thing that is named."""

    name: str = Field(min_length=1, max_length=200)
    kind: EntityKind = "other"


class Entities(BaseModel):
    """Everything that is named, the most mentioned first; each once."""

    entities: list[Entity] = Field(max_length=100)


@dataclass(frozen=True)
class TopicTreePart:
    """A part of a topic tree as a model gets it: a chain, or what is below an inner node."""

    topic: str | None
    summary: str | None
    """None: the chain was rejected."""
    started_at: datetime
    last_event_at: datetime
    event_count: int


class TopicTreePartsSummary(BaseModel):
    """What several parts of a topic tree speak of together, and a heading for it, if there is
    one."""

    summary: str = Field(min_length=1, max_length=1000)
    topic: str | None = Field(min_length=1, max_length=200)


@dataclass(frozen=True)
class TopicWalkOption:
    """A part of a topic tree that a walk may follow; its number is its place in the list, from
    1."""

    part: TopicTreePart
    participants: tuple[str, ...]
    """Of its scope: nobody else is named by id."""
    score: float
    """Its score without a model."""


class TopicWalkChoice(BaseModel):
    """The numbers of the parts to follow, the best first."""

    model_config = ConfigDict(extra="forbid")

    numbers: list[int]


class Contradiction(BaseModel):
    """Do two statements contradict each other?"""

    contradicts: bool


@functools.cache
def make_walk_choice_type(option_count: int) -> type[TopicWalkChoice]:
    """The type of a choice from so many parts: each number is one of theirs."""

    class BoundedChoice(TopicWalkChoice):
        """Of one list of parts."""

        numbers: list[Annotated[int, Field(strict=True, ge=1, le=option_count)]] = Field(
            max_length=2 * option_count
        )

    return BoundedChoice


@dataclass(frozen=True)
class MessageToAnswer:
    """What a model answers: a question to memory, or a message in a conversation."""

    text: str
    tag: Literal["question", "message"]
    said_at: datetime
    speaker: str | None = None
    """Who says it, for people; a message's."""
    agent: str | None = None
    """Who replies, for people."""
    persona: str | None = None
    """The name of the sona in which it replies."""


class MemoryAnswer(BaseModel):
    """An answer from numbered memories."""

    text: str = Field(min_length=1, max_length=8000)
    remembers: bool
    """Whether the memories hold what is asked for."""
    citations: list[int]
    """The numbers of the memories that it rests on."""


@functools.cache
def make_answer_type(memory_count: int) -> type[MemoryAnswer]:
    """The type of an answer from so many memories: each number is one of theirs."""

    class BoundedAnswer(MemoryAnswer):
        """From one block of memories."""

        citations: list[Annotated[int, Field(strict=True, ge=1, le=memory_count)]] = Field(
            max_length=200
        )

    return BoundedAnswer


type FactCategory = Literal[
    "personal", "professional", "preference", "technical", "relationship", "general"
]


class ExtractedFact(BaseModel):
    """Something that holds, by the numbers of the events that say so."""

    content: str = Field(min_length=1, max_length=1000)
    category: FactCategory
    about: list[str] = Field(max_length=20)
    """Names of the entities that it is about."""
    confidence: float = Field(ge=0, le=1)
    events: list[int] = Field(min_length=1, max_length=50)


class ExtractedDecision(BaseModel):
    """What was decided, by the numbers of the events that say so."""

    title: str = Field(min_length=1, max_length=500)
    rationale: str | None = Field(max_length=1000)
    about: list[str] = Field(max_length=20)
    confidence: float = Field(ge=0, le=1)
    events: list[int] = Field(min_length=1, max_length=50)


class ExtractedRelation(BaseModel):
    """How two entities are related, by the numbers of the events that say so."""

    source: str = Field(min_length=1, max_length=200)
    relation: str = Field(min_length=1, max_length=100)
    target: str = Field(min_length=1, max_length=200)
    nuance: str | None = Field(max_length=500)
    confidence: float = Field(ge=0, le=1)
    events: list[int] = Field(min_length=1, max_length=50)


class GraphExtraction(BaseModel):
    """What a chain says for the knowledge graph."""

    entities: list[Entity] = Field(max_length=60)
    facts: list[ExtractedFact] = Field(max_length=60)
    decisions: list[ExtractedDecision] = Field(max_length=30)
    relations: list[ExtractedRelation] = Field(max_length=60)


class LanguageModel(Protocol):
    """The tasks of a model. Implementations are the deterministic heuristic model and the plain
    model; providers are called through `LlmTasks`."""

    def continues(
        self, before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
    ) -> TopicContinuation:
        """Whether `message` continues the topic of `before`, the lane's open events in order.
        `after` has the events that follow it in the lane."""
        ...

    def summarise(self, events: Sequence[PromptEvent]) -> RunSummary:
        """A closed run's narrative summary and importance."""
        ...

    def merge(self, earlier: RunSummary, later: RunSummary) -> RunSummary:
        """One summary of two runs on one topic."""
        ...

    def topic(self, events: Sequence[PromptEvent]) -> RunTopic:
        """A run's main theme."""
        ...

    def entities(self, events: Sequence[PromptEvent]) -> Entities:
        """The people and things named in a run."""
        ...

    def overview(self, parts: Sequence[TopicTreePart]) -> TopicTreePartsSummary:
        """What these parts of a topic tree speak of together."""
        ...

    def walk(self, question: str, options: Sequence[TopicWalkOption]) -> TopicWalkChoice:
        """Which parts of a topic tree are likely to hold the answer to a question."""
        ...

    def contradicts(self, first: str, second: str) -> Contradiction:
        """Whether two statements cannot both hold."""
        ...

    def extract(self, events: Sequence[PromptEvent], entities: Sequence[Entity]) -> GraphExtraction:
        """What a chain's events say for the knowledge graph. `entities` are those of the chain.
        Events are cited by their numbers, from 1."""
        ...


@dataclass(frozen=True)
class ModelResult[Value: BaseModel]:
    """A task's result, and the model it came from."""

    value: Value
    model: str
    """`heuristic/4` (the heuristic model), `plain/2`, or the provider's name, as in
    `openai:gpt-4o-mini`."""
    prompt: str
    """Task and version of its prompt, as in `summarise/1`; without a prompt the task alone."""
    fallback_reason: str | None = None
    """Why the heuristic model answered although a model is configured: `budget_spent`,
    `rate_limited`, `breaker_open`, `late`, `out_of_time` (the worker's), `unavailable`, `refused`,
    `misconfigured`, `invalid_output`, `request_failed`, `erasing` (events of the scope are being
    erased). Or `heuristic_failed`: the heuristic model failed too, and the plain model answered."""
    retry_after: float | None = None
    """Seconds after which the model may be called again; a caller that can wait gets its answer
    then."""


@dataclass(frozen=True)
class TaskContext:
    """On whose behalf a model is called: for its record, limits and costs."""

    tenant: str
    subject: str
    """Whose rate limit the call counts towards: `user:NAME` or `key:ID` in a request, the scope's
    id in the background."""
    participants: tuple[str, ...]
    """The participants of the scope whose text the model gets."""
    scope_id: str | None = None
    job: str | None = None
    """The background work that makes the call: `fold`, `retry`, or a sweep's job by its id."""
    deadline: float | None = None
    """In time.monotonic() seconds; a later answer is of no use."""
