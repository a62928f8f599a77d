"""Request and response types of a context as text, and of the search of a session's context."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, RootModel

from strandline.graph.search.schemas import KnownGraph
from strandline.log.schemas_fields import SessionId
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel
from strandline.sessions.schemas_context import ChainHit, ContextOut

MIN_BUDGET, MAX_BUDGET, DEFAULT_BUDGET = 100, 8000, 1000


class ContextTextRequest(RequestModel):
    """The memory to get for a prompt: an optional question, and a budget."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """The question that topics and events should answer. Absent: short-term memory and the latest
    topics."""
    participants: Participants | None = None
    """The participants on whose behalf to read: only events that all of them took part in are
    visible. The user that the key is bound to is added automatically. With `session_id`, some of
    the session's participants; absent, all of them."""
    session_id: SessionId | None = None
    """The session whose short-term memory is shown. Absent: the newest of all visible events."""
    scope_id: UUID | None = None
    """The session's scope. Required if several visible sessions have this name."""
    budget: int = Field(default=DEFAULT_BUDGET, ge=MIN_BUDGET, le=MAX_BUDGET, strict=True)
    """The maximum number of tokens of the text. A token counts as four bytes of UTF-8."""
    limit: int | None = Field(default=None, ge=1, le=100, strict=True)
    """The maximum number of events that answer the question. Absent: as many as the budget holds.
    An event that is shown because the next one is short or answers its question is not counted."""
    expand: int = Field(default=0, ge=0, le=50, strict=True)
    """The maximum number of events to add because the best ten events cite them, directly or
    through up to two other events. They stand before all but the best event where the budget does
    not hold all."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """The minimum relevance: less relevant events are left out, and 0 keeps all. By default no
    single event is left out, but the text has no events for the question if `known` is below the
    threshold `min_known`, which comes from the tenant's tuning, else from the deployment's, else
    from the calibration of the embedding space."""
    now: Moment | None = None
    """The time to which expressions like "yesterday" or "before May" in the question refer, in the
    tenant's time zone. By default the server's time."""


class Citation(ResponseModel):
    """The event that a number in the text refers to."""

    n: int
    """The citation number: `[1]` in the text is the citation with `n` 1."""
    event_id: UUID
    source_event_key: str | None
    """The `source_event_key` that it was sent with; null for a reader who did not write it."""


class CutOut(ResponseModel):
    """How much was left out because it does not fit the budget."""

    recent: int
    """Events of short-term memory."""
    topics: int
    events: int
    """Events that answer the question, or precede one that does."""
    shortened: int
    """Texts that are shown shortened, with `…` at the end."""


class ContextTextOut(ResponseModel):
    """Short-term memory, known facts, topics and events as one block of text for a prompt."""

    text: str
    """The text to insert into the prompt unchanged. It is enclosed in a tag that no text inside can
    close."""
    tokens: int
    """The number of tokens of the text, never more than the budget."""
    known: float | None
    """The probability that the visible events contain an answer, 0 to 1; null without a query, and
    in an embedding space without a calibration."""
    citations: list[Citation]
    """The citations, ordered by `n`."""
    cut: CutOut
    degraded: list[str]
    """The limitations of this answer, empty if there are none. `no_query_vector`: it was searched
    by words alone. `not_calibrated`: `min_relevance` left nothing out, because the embedding space
    has no calibration. `no_scope_in_view`: the participants, as their names are written, never took
    part together; names keep their case."""
    read_token: str
    """An opaque token of the state that this answer is based on: database snapshot, time, embedding
    space. It is not a credential."""


class SessionContextOut(RootModel[ContextOut | ContextTextOut]):
    """The context of a session for its agent; with `format=text`, as one block of text for a
    prompt."""


class SearchOut(ResponseModel):
    """Chains that answer a question, best first, and what the knowledge graph holds about it."""

    session_id: str
    scope_id: UUID
    known: float | None
    """The probability that these participants' events contain an answer, 0 to 1. Null in an
    embedding space without a calibration."""
    hits: list[ChainHit]
    """Empty if no chain is relevant enough."""
    graph: KnownGraph
    """What the knowledge graph holds about the question, in all visible scopes. Empty with
    `only_session`, and if the tenant's long-term memory is disabled."""
    degraded: list[str]
    """As in a session's context."""
    read_token: str
    """An opaque token of the state that this answer is based on: database snapshot, time, embedding
    space. It is not a credential."""
