"""Requests and responses of a context as text, and of the search of a session's context."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, RootModel

from strandline.graph.schemas_search import KnownGraph
from strandline.log.schemas_fields import SessionId
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel
from strandline.sessions.schemas_context import ChainHit, ContextOut

MIN_BUDGET, MAX_BUDGET, DEFAULT_BUDGET = 100, 8000, 1000


class ContextTextRequest(RequestModel):
    """What a prompt needs from memory: a question or none, and a budget."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """The question that topics and events are to answer. Absent: short-term memory and the latest
    topics."""
    participants: Participants | None = None
    """On whose behalf to read: only what all of them took part in. A bound user is added
    automatically. With `session_id` some of the session's participants; absent, all of them."""
    session_id: SessionId | None = None
    """The session whose short-term memory is shown. Absent: the newest events of all in view."""
    scope_id: UUID | None = None
    """The session's scope. Required where several visible sessions have this name."""
    budget: int = Field(default=DEFAULT_BUDGET, ge=MIN_BUDGET, le=MAX_BUDGET, strict=True)
    """The maximum number of tokens of the text. A token counts as four bytes of UTF-8."""
    limit: int | None = Field(default=None, ge=1, le=100, strict=True)
    """The maximum number of events that answer the question. Absent: as many as the budget holds.
    The event before one that is short or answers a question comes with it and is not counted."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Events that are less relevant to the question are left out; 0 leaves none out. By default no
    single event is left out, but there are none at all where `known` is below `min_known` of the
    tenant's tuning, else of the deployment's, else the calibrated one of the embedding space."""
    now: Moment | None = None
    """The time that "yesterday" or "before May" in the question refer to, read in the tenant's time
    zone; by default the server's."""


class Citation(ResponseModel):
    """The event behind a number of the text."""

    n: int
    """`[1]` in the text is the citation with `n` 1."""
    event_id: UUID
    source_event_key: str | None
    """The key it was sent with; null for a reader who did not write it."""


class CutOut(ResponseModel):
    """How much was left out because the budget does not hold it."""

    recent: int
    """Events of short-term memory."""
    topics: int
    events: int
    """Events that answer the question, or stand before one that does."""
    shortened: int
    """Texts that are shown in part, with `…` at the end."""


class ContextTextOut(ResponseModel):
    """Short-term memory, what is known, topics and events as one block of text for a prompt."""

    text: str
    """Put it into the prompt as it is. It begins and ends with a tag that nothing inside can
    close."""
    tokens: int
    """The tokens of the text, never more than the budget."""
    known: float | None
    """How likely the events in view hold an answer: 0 to 1; null without a query, and in an
    embedding space that has no calibration."""
    citations: list[Citation]
    """In order of `n`."""
    cut: CutOut
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: it was searched by words
    alone. `not_calibrated`: `min_relevance` left nothing out, because the embedding space has no
    calibration."""
    read_token: str
    """An opaque token of what this answer was based on: database snapshot, time, embedding space.
    It is no credential."""


class SessionContextOut(RootModel[ContextOut | ContextTextOut]):
    """The context of a session for its agent; with `format=text` one block of text for a prompt."""


class SearchOut(ResponseModel):
    """Chains that answer a question, best first, and what the knowledge graph holds about it."""

    session_id: str
    scope_id: UUID
    known: float | None
    """How likely these participants' events hold an answer: 0 to 1. Null in an embedding space that
    has no calibration."""
    hits: list[ChainHit]
    """Empty where nothing is relevant enough."""
    graph: KnownGraph
    """Of all scopes in view. Empty with `only_session`, and where the tenant's long-term memory is
    switched off."""
    degraded: list[str]
    """As in a session's context."""
    read_token: str
    """An opaque token of what this answer was based on: database snapshot, time, embedding space.
    It is no credential."""
