"""Requests and responses of a context as text."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, RootModel

from strandline.log.schemas_fields import SessionId
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel
from strandline.sessions.schemas_context import ContextOut

MIN_BUDGET, MAX_BUDGET, DEFAULT_BUDGET = 100, 8000, 1000
DEFAULT_EVENTS = 20
"""How many events answer a question by default, if the budget holds them."""


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
    limit: int = Field(default=DEFAULT_EVENTS, ge=1, le=100, strict=True)
    """The maximum number of events that answer the question."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Events that are less relevant to the question are left out; 0 leaves none out. By default no
    single event is left out, but there are none at all where `known` is below the tenant's
    threshold, else below the calibrated one of the embedding space."""
    now: Moment | None = None
    """The time that "yesterday" or "last summer" in the question refer to; by default the
    server's."""


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
    """Events that answer the question."""
    shortened: int
    """Texts that are shown in part, with `…` at the end."""


class ContextTextOut(ResponseModel):
    """Short-term memory, topics and events as one block of text for a prompt."""

    text: str
    """Put it into the prompt as it is. It begins and ends with a tag that nothing inside can
    close."""
    tokens: int
    """The tokens of the text, never more than the budget."""
    known: float | None
    """How likely the events in view hold an answer: 0 to 1; null without a query."""
    citations: list[Citation]
    """In order of `n`."""
    cut: CutOut
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: it was searched by words
    alone."""
    read_token: str
    """An opaque token of what this answer was based on: database snapshot, time, embedding space.
    It is no credential."""


class SessionContextOut(RootModel[ContextOut | ContextTextOut]):
    """The context of a session for its agent; with `format=text` one block of text for a prompt."""
