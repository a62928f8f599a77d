"""Request and response types of sessions: the conversation, its short-term memory and its
chains."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.log.schemas_append import EventFields, Receipt
from strandline.log.schemas_fields import Channel, Metadata, OccurredAtFields, Origin, SessionId
from strandline.schemas import Count, Participant, Participants, RequestModel, ResponseModel

MAX_CHAINS = 200
_KEY_SUFFIX_LENGTH = len("#agent")


class SessionIn(RequestModel):
    """A session to begin, between `participants`, or a user and an agent."""

    session_id: SessionId | None = None
    """The caller's own name for the session. Absent: a new id is generated."""
    participants: Participants | None = None
    """All participants of the session. The exact set determines the scope."""
    user_id: Participant | None = None
    """Instead of `participants`, together with `agent_id`: `alice` is short for `user:alice`."""
    agent_id: Participant | None = None
    """Together with `user_id`: `helper` is short for `agent:helper`."""
    metadata: Metadata | None = None
    """The caller's own data, returned with the session."""
    tenant_id: str | None = None
    """The credential's tenant, if given. Any other value is refused."""


class ScopeIdQuery(RequestModel):
    """The query parameters of routes of one session."""

    scope_id: UUID | None = None
    """The session's scope. Required if several visible sessions have this name."""


class InteractionIn(OccurredAtFields):
    """A user's message and an agent's answer."""

    user_message: str = Field(min_length=1)
    agent_response: str = Field(min_length=1)
    metadata: Metadata = Field(default_factory=dict)
    """The metadata of both messages."""
    channel: Channel = "http"
    source_event_key: (
        Annotated[str, Field(min_length=1, max_length=512 - _KEY_SUFFIX_LENGTH)] | None
    ) = None
    """The caller's own key for both messages: their keys are `<key>#user` and `<key>#agent`."""
    user: Participant | None = None
    """The participant who sends `user_message`. May be omitted if only one participant fits."""
    agent: Participant | None = None
    """The participant who answers. May be omitted if only one participant fits."""
    tenant_id: str | None = None
    """The credential's tenant, if given. Any other value is refused."""
    user_id: str | None = None
    """The credential's user, if given. Any other value is refused."""


class SessionEventIn(EventFields):
    """An event to append to a session. The session determines the participants."""


class ChainsPageQuery(ScopeIdQuery):
    """The query parameters of a list of one session."""

    limit: Count = Field(default=50, ge=1, le=MAX_CHAINS)
    """The maximum number of results."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the previous page."""


class SegmentsQuery(ChainsPageQuery):
    """The query parameters of a session's chains."""

    include: Literal["rejected", "archived", "all"] | None = None
    """Chains to return in addition to the active ones."""


class SessionOut(ResponseModel):
    """A session and its participants."""

    session_id: str
    scope_id: UUID
    participants: list[str]
    created_at: datetime
    metadata: Mapping[str, Any]


class SessionPage(ResponseModel):
    """Sessions that have not ended, newest first by when they began."""

    sessions: list[SessionOut]
    next_cursor: str | None


class EndedSession(ResponseModel):
    """The confirmation that a session has ended: no list returns it, and nothing can be appended to
    it. Its events are kept."""

    ended: Literal[True] = True
    events_kept: int


class InteractionReceipts(ResponseModel):
    """The receipts of both messages."""

    session_id: str
    user: Receipt
    agent: Receipt


class MentionInChain(ResponseModel):
    """A person or thing that a chain mentions. It is no node of the graph and has no id."""

    name: str
    kind: str
    """One of person, company, project, product, technology, place and other."""


class ModelAndPrompt(ResponseModel):
    """The model and the prompt that produced a result."""

    model: str
    prompt: str
    fell_back: str | None
    """Why the configured model was not used; null if it was."""


class ChainOut(ResponseModel):
    """A closed run of events on one topic, in its newest version."""

    chain_id: UUID
    version: int
    scope_id: UUID
    session_id: str | None
    """The session in which it began."""
    status: Literal["active", "rejected", "archived"]
    rejected: str | None
    """Why the quality gate excludes it from lists; null if it does not. Recall still finds its
    events."""
    topic: str | None
    """A few words that name it; null if its text has none. There is always a summary."""
    summary: str
    entities: list[MentionInChain]
    started_at: datetime
    last_event_at: datetime
    event_count: int
    event_ids: list[UUID]
    """The ids of the first 200 events of the chain, in order."""
    echo_ids: list[UUID]
    """Those of these events that are echoes: events that mostly repeat what a recall returned
    shortly before. They are not evidence, so they do not count for `importance` and `density`."""
    trust: Origin
    """The least trusted origin of all its events. From least to most trusted: `document`, `tool`,
    `agent`, `user`, `system`."""
    first_seq: int
    last_seq: int
    closed_by: Literal["break", "force", "gap", "idle", "retry"]
    """Why it was closed. `break`: a new topic. `force`: too many events. `gap`: a pause before the
    next event. `idle`: a pause with no further event. `retry`: a retry."""
    merged: bool
    """Whether a later run of events on the same topic was merged into it."""
    importance: float
    density: float
    coherence: float | None
    quality: float
    heat: float
    """Its heat now, from 0 to 1."""
    strength: float
    """Its resistance to cooling, at least 1; recalls raise it."""
    accessed_at: datetime
    created_at: datetime
    archived_at: datetime | None
    made_by: Mapping[str, ModelAndPrompt]
    """The model behind each field, by task."""


class ChainHeatOut(ResponseModel):
    """A chain's heat and its factors: heat = base · retention."""

    chain_id: UUID
    topic: str | None
    """The chain's topic, as in a chain."""
    trust: Origin
    """The least trusted origin of the chain's events."""
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
    """Its resistance to cooling, at least 1; each recall that counts raises it."""
    accessed_at: datetime
    boosted_at: datetime | None
    """The time of the last recall that counted."""
    cold_at: datetime
    """When it may be archived, if it is not recalled before."""
    promote_until: datetime
    """Until when it is warm enough to be promoted."""


class ChainHeatPage(ResponseModel):
    """The heat of a session's chains, newest first."""

    session_id: str
    now: datetime
    """The time for which the heat was computed."""
    chains: list[ChainHeatOut]
    next_cursor: str | None


class SegmentPage(ResponseModel):
    """A session's chains, newest first."""

    session_id: str
    segments: list[ChainOut]
    next_cursor: str | None
