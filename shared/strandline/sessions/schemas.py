"""What goes over the wire of sessions: the conversation, its short-term memory and its chains."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.log.schemas import (
    Channel,
    EventFields,
    EventOut,
    Metadata,
    Origin,
    Receipt,
    SessionId,
)
from strandline.schemas import (
    Count,
    Participant,
    Participants,
    RequestModel,
    ResponseModel,
    TimestampFields,
)

MAX_CHAINS = 200
_KEY_SUFFIX_LENGTH = len("#agent")


class SessionIn(RequestModel):
    """A conversation to be begun, among `participants`, or a user and an agent."""

    session_id: SessionId | None = None
    """The caller's own name for it. Absent: one is made."""
    participants: Participants | None = None
    """Everybody who takes part; the exact set names the scope."""
    user_id: Participant | None = None
    """Instead of participants, with `agent_id`: `alice`, short for `user:alice`."""
    agent_id: Participant | None = None
    """`helper`, short for `agent:helper`."""
    metadata: Metadata | None = None
    """The caller's own, given back with the session."""
    tenant_id: str | None = None
    """May repeat the credential's tenant; another is refused."""


class ScopeQuery(RequestModel):
    """Query string of what is asked of one session."""

    scope_id: UUID | None = None
    """Which session is meant, where several in view have this name."""


class InteractionIn(TimestampFields):
    """What a user said, and what an agent answered."""

    user_message: str = Field(min_length=1)
    agent_response: str = Field(min_length=1)
    metadata: Metadata = Field(default_factory=dict)
    """Of both messages."""
    channel: Channel = "http"
    source_event_key: (
        Annotated[str, Field(min_length=1, max_length=512 - _KEY_SUFFIX_LENGTH)] | None
    ) = None
    """The caller's own key for the two: the messages' keys are `<key>#user` and `<key>#agent`."""
    user: Participant | None = None
    """Who asks; one of the participants. Found by itself where only one can be meant."""
    agent: Participant | None = None
    """Who answers, likewise."""
    tenant_id: str | None = None
    """May repeat the credential's tenant; another is refused."""
    user_id: str | None = None
    """May repeat the credential's user; another is refused."""


class SessionEventIn(EventFields):
    """One event of the session; who takes part is known."""


class ContextQuery(ScopeQuery):
    """Query string of a session's context."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """What the chains are to be about. Absent: the latest."""
    limit: Annotated[Count, Field(ge=1, le=100)] | None = None
    """Recent events, at most so many, and no more than the window (10) holds. Absent: all of it."""
    chains: Annotated[Count, Field(ge=0, le=MAX_CHAINS)] | None = None
    """Chains, at most so many. Absent: 50, and 10 for a query: what is answered is warmed by it."""


class SearchRequest(RequestModel):
    """A question to a session's mid-term memory."""

    query: str = Field(min_length=1, max_length=8000)
    limit: int = Field(default=10, ge=1, le=MAX_CHAINS, strict=True)
    """At most so many."""
    similarity_threshold: float = Field(default=0.0, ge=-1, le=1, strict=True)
    """Least cosine of the question and a chain's summary. Where a model's vector is missing, words
    decide, and this does not."""


class PageQuery(ScopeQuery):
    """Query string of a session's list."""

    limit: Count = Field(default=50, ge=1, le=MAX_CHAINS)
    """At most so many."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class SegmentsQuery(PageQuery):
    """Query string of a session's chains."""

    include: Literal["rejected", "archived", "all"] | None = None
    """Besides the active ones."""


class SessionOut(ResponseModel):
    """A conversation, and among whom it is."""

    session_id: str
    scope_id: UUID
    participants: list[str]
    created_at: datetime
    metadata: Mapping[str, Any]


class SessionPage(ResponseModel):
    """Conversations that have not ended, newest first by when they began."""

    sessions: list[SessionOut]
    next_cursor: str | None


class EndedOut(ResponseModel):
    """The session has ended: no list shows it and nothing is added to it. Its events stay."""

    ended: Literal[True] = True
    events_kept: int


class InteractionOut(ResponseModel):
    """Both messages as they were stored."""

    session_id: str
    user: Receipt
    agent: Receipt


class EntityOut(ResponseModel):
    """Somebody or something that a chain names."""

    name: str
    kind: str
    """person, company, project, product, technology, place or other."""


class MadeBy(ResponseModel):
    """Which model did a task, with which prompt."""

    model: str
    prompt: str
    fell_back: str | None
    """Why it was not the model that is configured."""


class ChainOut(ResponseModel):
    """A closed run of events on one topic, as its newest version tells it."""

    chain_id: UUID
    version: int
    scope_id: UUID
    session_id: str | None
    """The one that it began in."""
    status: Literal["active", "rejected", "archived"]
    rejected: str | None
    """Why the quality gate keeps it out of lists; its events are recalled all the same."""
    topic: str
    summary: str
    entities: list[EntityOut]
    started_at: datetime
    last_event_at: datetime
    event_count: int
    event_ids: list[UUID]
    """The first 200 of the events that it rests on, in order."""
    trust: Origin
    """The least trusted origin of all of these, from `document` over `tool`, `agent` and `user` to
    `system`."""
    first_seq: int
    last_seq: int
    closed_by: Literal["break", "force", "gap", "idle", "retry"]
    """A new topic, too many events, a silence that an event ended, one that none did, a retry."""
    merged: bool
    """A later run on its topic was joined to it."""
    importance: float
    density: float
    coherence: float | None
    quality: float
    heat: float
    """How warm it is now."""
    strength: float
    """What recalls made of it, from 1."""
    accessed_at: datetime
    created_at: datetime
    archived_at: datetime | None
    made_by: Mapping[str, MadeBy]
    """By task."""


class RecentOut(ResponseModel):
    """An event of short-term memory, and for how many it stands."""

    event: EventOut
    count: int
    """Recent events of its type with its workflow_id or execution_id, of which it is the newest."""
    chain_id: UUID | None
    """The chain that holds it, once its topic has ended."""


class ContextOut(ResponseModel):
    """What a session's agent should have in mind."""

    session_id: str
    scope_id: UUID
    participants: list[str]
    recent: list[RecentOut]
    """Short-term memory, newest first: coalesced, within the window and younger than its time."""
    chains: list[ChainOut]
    """Mid-term memory of these participants, best or newest first."""
    degraded: list[str]
    """`no_query_vector`: chains were found by words alone; `cut_by_size`: there is more."""
    token: str
    """What this answer rested on: snapshot of the database, now, embedding space."""


class ChainHit(ResponseModel):
    """A chain and why it was found."""

    chain: ChainOut
    similarity: float | None
    """Cosine of question and summary; null where one of them has no vector."""
    text_score: float | None
    """How well words of its events answer, where that is why it was found."""


class SearchOut(ResponseModel):
    """Chains that answer a question, best first."""

    session_id: str
    scope_id: UUID
    hits: list[ChainHit]
    degraded: list[str]
    """As of a context."""
    token: str
    """What this answer rested on: snapshot of the database, now, embedding space."""


class TopicOut(ResponseModel):
    """A topic, and the recent events that are about it."""

    topic: str
    event_ids: list[UUID]
    """By seq."""
    chain_id: UUID | None
    """The chain that it is of; null for what goes on still."""
    trust: Origin
    """The least trusted origin of the events that it was named by: all of the chain's, where it is
    of one."""
    made_by: MadeBy | None
    """Who named it."""


class TopicsOut(ResponseModel):
    """What a session is about just now, the latest first; nothing where nothing was said lately."""

    session_id: str
    topics: list[TopicOut]


class HeatOut(ResponseModel):
    """A chain's heat, and all that it is made of: heat = base · retention."""

    chain_id: UUID
    topic: str
    trust: Origin
    """As of the chain: the least trusted origin of its events."""
    status: Literal["active", "rejected", "archived"]
    heat: float
    base: float
    """min(1, weight_importance · importance + weight_density · density)."""
    importance: float
    weight_importance: float
    density: float
    weight_density: float
    retention: float
    """e^(-hours_since_access / (tau_hours · strength))."""
    hours_since_access: float
    tau_hours: float
    strength: float
    """From 1; grows with each recall that counts."""
    accessed_at: datetime
    boosted_at: datetime | None
    """The last recall that counted."""
    cold_at: datetime
    """From when it may be archived, if nobody recalls it before."""
    promote_until: datetime
    """Until when it is warm enough to be promoted."""


class HeatPage(ResponseModel):
    """How warm a session's chains are, newest first."""

    session_id: str
    now: datetime
    """The moment that the figures are of."""
    chains: list[HeatOut]
    next_cursor: str | None


class SegmentPage(ResponseModel):
    """A session's chains, newest first."""

    session_id: str
    segments: list[ChainOut]
    next_cursor: str | None
