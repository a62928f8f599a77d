"""Requests and answers about sonas and their acts, and of queries and chats."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType

from strandline.context.schemas import MAX_BUDGET, MIN_BUDGET
from strandline.log.schemas_fields import Metadata, OccurredAtFields, SessionId
from strandline.recall.schemas import RecallWeights, SonaName
from strandline.schemas import (
    PARSE_NUMBER,
    Count,
    Moment,
    PagingQuery,
    Participant,
    Participants,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
)

MAX_NAMES = 16
MAX_MEMORIES = 500
MAX_WAIT_SECONDS = 20
DEFAULT_ANSWER_BUDGET = 2000
MAX_MESSAGE_CHARS = 8000

_Relevance = TypeAliasType("_Relevance", Annotated[float, Field(ge=0, le=1, strict=True)])
_Budget = TypeAliasType("_Budget", Annotated[int, Field(ge=MIN_BUDGET, le=MAX_BUDGET, strict=True)])


def _clean_name(name: str) -> str:
    text = " ".join(name.split())
    if not text:
        raise ValueError("must not be blank")
    return text


def _require_text(message: str) -> str:
    if not message.strip():
        raise ValueError("must not be blank")
    return message


SonaNameIn = TypeAliasType(
    "SonaNameIn", Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_clean_name)]
)
"""A name of a sona."""


class FindOrMakeSonaRequest(RequestModel):
    """A sona to look up by its name, or to make."""

    name: SonaNameIn


class SonaNamesPatch(RequestModel):
    """The new names of a sona."""

    names: list[SonaNameIn] = Field(min_length=1, max_length=MAX_NAMES)
    """All of its names. The first one is shown."""


class SonaMergeRequest(RequestModel):
    """The sona to merge this one into."""

    into: UUID


class SonaMemoriesRequest(RequestModel):
    """Events in which a sona was active."""

    event_ids: list[UUID] = Field(min_length=1, max_length=MAX_MEMORIES)


class SonaQuery(ParticipantsQuery):
    """Query string of one sona."""

    include: Literal["centroid"] | None = None
    """`centroid`: include the sona's centroid in the embedding space."""


class SonasQuery(PagingQuery):
    """Query string of the list of sonas."""


class SonaOut(ResponseModel):
    """A sona: a persona, by its id and its names."""

    uuid: UUID
    names: list[str]
    created_at: datetime


class SonaFound(SonaOut):
    """A sona, and how it was found by the name."""

    found_by: Literal["name", "meaning", "new"]
    """`name`: it has exactly this name. `meaning`: it has a name of nearly the same meaning. `new`:
    it was made."""


class SonaDetail(SonaOut):
    """A sona, with its centroid in the embedding space over the memories that the caller sees."""

    memories: int
    """The number of events in view that have a vector and in which it was active."""
    space: str
    """The embedding space of the centroid."""
    centroid: list[float] | None
    """The mean of these events' vectors. Null without `include=centroid`, or if there are no such
    events."""


class SonaPage(ResponseModel):
    """Sonas, newest first."""

    sonas: list[SonaOut]
    next_cursor: str | None


class RecordedSonaMemories(ResponseModel):
    """How many of the events were recorded for a sona."""

    uuid: UUID
    added: int
    """Events that are new to it."""
    known: int
    """Events in which it was active already."""


class PushActRequest(RequestModel):
    """A continuation of a sona's thread."""

    event_id: UUID
    """The memory that it is tied to."""
    after: UUID | None = None
    """The act that it continues, which is the head of the thread. Omit it for the first act."""


class NextActQuery(ParticipantsQuery):
    """Query string of the act after another one."""

    after: UUID | None = None
    """The last act that the caller has read. Omit it to get the first one."""


class ActsQuery(ParticipantsQuery):
    """Query string of a stream of acts."""

    cursor: str | None = Field(default=None, max_length=4096)
    """`cursor` of the previous answer. Omit it to start with the first act."""
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS), PARSE_NUMBER] = 0.0
    """Seconds to wait for an act if there is none after the cursor. Two requests of a tenant may
    wait at once; another one is answered at once, with Retry-After."""
    limit: Count = Field(default=50, ge=1, le=500)
    """The maximum number of acts."""


class ActOut(ResponseModel):
    """One step of a sona's thread."""

    act_id: UUID
    previous_id: UUID | None
    """The act that it continues; null for the first. That act may be visible only to other
    readers."""
    event_id: UUID
    scope_id: UUID
    pushed_at: datetime


class NextAct(ResponseModel):
    """The act after another one, among those that the caller sees."""

    act: ActOut | None
    """Null if there is none yet."""
    head: UUID | None
    """The newest act of the thread, even if the caller cannot see it. A push continues it."""


class ActsPage(ResponseModel):
    """Acts in the order of the thread, which is the same for all readers."""

    acts: list[ActOut]
    """Empty if none came while the request waited."""
    cursor: str
    """Send it with the next request: no act is missed or returned twice."""
    head: UUID | None
    """As in the answer for one act."""
    retry_after: int | None = None
    """Seconds after which to ask again with `cursor`. Null unless the request had to wait and could
    not, because too many requests wait already."""


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

    message: Annotated[
        str, Field(min_length=1, max_length=MAX_MESSAGE_CHARS), AfterValidator(_require_text)
    ]
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


class AnswerCitation(ResponseModel):
    """A memory that an answer rests on."""

    n: int
    """Its number in the block that the model was shown."""
    event_id: UUID


class ModelAnswerOut(ResponseModel):
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
    citations: list[AnswerCitation]
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
