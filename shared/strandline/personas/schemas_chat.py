"""Requests and answers of queries and chats."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from strandline.context.schemas import MAX_BUDGET, MIN_BUDGET
from strandline.log.schemas_fields import Metadata, OccurredAtFields, SessionId
from strandline.recall.schemas import RecallWeights, SonaName
from strandline.schemas import (
    Moment,
    Participant,
    Participants,
    RequestModel,
    ResponseModel,
)

DEFAULT_ANSWER_BUDGET = 2000
MAX_MESSAGE_CHARS = 8000

_Relevance = TypeAliasType("_Relevance", Annotated[float, Field(ge=0, le=1, strict=True)])
_Budget = TypeAliasType("_Budget", Annotated[int, Field(ge=MIN_BUDGET, le=MAX_BUDGET, strict=True)])


class AnswerRequest(RequestModel):
    """A question for the language model to answer from memory."""

    query: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    participants: Participants | None = None
    """The participants on whose behalf to read: only what all of them took part in. A bound user is
    added automatically."""
    sona: SonaName | None = None
    """The sona that answers, by its id or one of its names."""
    budget: _Budget = DEFAULT_ANSWER_BUDGET
    """The maximum number of tokens of the recalled block that the model is shown."""
    min_relevance: _Relevance | None = None
    """As of a context."""
    weights: RecallWeights | None = None
    """Weights of recency, importance and the sona for choosing the memories that the model is
    shown, as for a recall. By default none of them is used."""
    now: Moment | None = None
    """The time that "yesterday" in the question refers to; by default the server's."""


class ChatRequest(OccurredAtFields):
    """A message to store, and to reply to from memory."""

    message: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    participants: Participants
    """All participants, one of them an agent. They are the scope of both events, and only what all
    of them may see is recalled."""
    reply_as: Participant | None = None
    """The agent that replies. May be omitted if only one agent takes part."""
    speaker: Participant | None = None
    """Who says the message. May be omitted if only one user takes part, or the credential is bound
    to one."""
    session_id: SessionId | None = None
    """The conversation. Its latest events are shown to the model too."""
    sona: SonaName | None = None
    """The sona of both events, by its id or a name. A name means the sona with exactly this name,
    else the one nearest in meaning, else a new one."""
    metadata: Metadata = Field(default_factory=dict)
    """Metadata of the message's event."""
    budget: _Budget = DEFAULT_ANSWER_BUDGET
    """The maximum number of tokens of the recalled block that the model is shown."""
    min_relevance: _Relevance | None = None
    """As of a context."""
    weights: RecallWeights | None = None
    """As of a query."""


class TurnCitation(ResponseModel):
    """A memory that an answer rests on."""

    n: int
    """Its number in the block that the model was shown."""
    event_id: UUID


class TurnOut(ResponseModel):
    """An answer of the language model, or its progress."""

    kind: Literal["query", "chat"]
    state: Literal["done", "waiting", "failed"]
    """`waiting`: it takes longer than a request; poll `GET /api/v1/turns/{turn_id}`."""
    turn_id: UUID | None
    """Null if it was answered within its request."""
    reason: str
    """Why it failed, as a code; else empty."""
    text: str | None
    """The answer; null until there is one."""
    remembers: bool | None
    """False if memory does not hold what was asked for."""
    citations: list[TurnCitation]
    """The memories that the answer rests on. Each was shown to the model."""
    known: float | None
    """How likely memory holds an answer: 0 to 1, as of a context."""
    degraded: list[str]
    """How recall was limited, as of a context."""
    model: str | None
    """The language model; null if it was not asked, because nothing is remembered."""
    prompt: str | None
    """The version of the model's instructions."""
    input_id: UUID | None
    """For a chat, the event of the message."""
    answer_id: UUID | None
    """For a chat, the event of the answer."""
    sona: UUID | None
    """The sona that answered."""
