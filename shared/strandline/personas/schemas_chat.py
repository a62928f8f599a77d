"""Requests and answers of queries and chats."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from strandline.context.schemas import MAX_BUDGET, MIN_BUDGET
from strandline.log.schemas_fields import Metadata, SessionId, TimestampFields
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

type _Relevance = Annotated[float, Field(ge=0, le=1, strict=True)]
type _Budget = Annotated[int, Field(ge=MIN_BUDGET, le=MAX_BUDGET, strict=True)]


class AnswerRequest(RequestModel):
    """A question for the language model to answer from memory."""

    query: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    participants: Participants | None = None
    """On whose behalf to read: only what all of them took part in. A bound user is added
    automatically."""
    sona: SonaName | None = None
    """The sona in which is answered, by its id or one of its names."""
    budget: _Budget = DEFAULT_ANSWER_BUDGET
    """The maximum number of tokens of the recalled block that the model is shown."""
    min_relevance: _Relevance | None = None
    """As of a context."""
    weights: RecallWeights | None = None
    """Weights of recency, importance and the sona, by which the memories that the model is shown
    are chosen in addition, as of recall. By default none counts."""
    now: Moment | None = None
    """The time that "yesterday" in the question refers to; by default the server's."""


class ChatRequest(TimestampFields):
    """A message to store, and to be replied to from memory."""

    message: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    participants: Participants
    """Everybody who takes part, one of them an agent: the scope of both events. What is recalled is
    what all of them may see."""
    reply_as: Participant | None = None
    """The agent that replies. May be left out where one takes part."""
    speaker: Participant | None = None
    """Who says the message. May be left out where one user takes part, or the credential is bound
    to one."""
    session_id: SessionId | None = None
    """The conversation, whose latest events the model is shown too."""
    sona: SonaName | None = None
    """The sona in which both are said, by its id or a name: exactly, else the nearest in meaning,
    else a new one."""
    metadata: Metadata = Field(default_factory=dict)
    """Of the message's event."""
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
    """An answer of the language model, or how far it is."""

    kind: Literal["query", "chat"]
    state: Literal["done", "waiting", "failed"]
    """`waiting`: it takes longer than a request. `GET /api/v1/turns/{turn_id}` has it later."""
    turn_id: UUID | None
    """Null for what was answered within its request."""
    reason: str
    """Why it failed, as a code; else empty."""
    text: str | None
    """The answer; null until there is one."""
    remembers: bool | None
    """False where memory does not hold what was asked for."""
    citations: list[TurnCitation]
    """The memories that the answer rests on. Each was shown to the model."""
    known: float | None
    """How likely memory holds an answer: 0 to 1, as of a context."""
    degraded: list[str]
    """How recall was limited, as of a context."""
    model: str | None
    """The language model; null where it was not asked, because nothing is remembered."""
    prompt: str | None
    """The version of its instructions."""
    input_id: UUID | None
    """The event of the message, of a chat."""
    answer_id: UUID | None
    """The event of the answer, of a chat."""
    sona: UUID | None
    """The sona in which was answered."""
