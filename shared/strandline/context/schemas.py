"""Request and response types of contexts: as text, of a session with the search of its chains, and
the topics of short-term memory."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, RootModel, model_validator
from typing_extensions import Self

from strandline.graph.search.schemas import RelevantGraph
from strandline.log.schemas_fields import Origin, SessionId
from strandline.log.schemas_read import EventOut
from strandline.recall.broad_questions import is_broad
from strandline.recall.schemas import QuestionTime
from strandline.schemas import (
    PARSE_COUNT,
    PARSE_NUMBER,
    Participants,
    RequestModel,
    ResponseModel,
    Switch,
)
from strandline.sessions.schemas import MAX_CHAINS, ChainOut, ModelAndPrompt, ScopeIdQuery

MIN_BUDGET, MAX_BUDGET, DEFAULT_BUDGET = 100, 8000, 1000


class ContextTextRequest(QuestionTime):
    """The memory to get for a prompt: an optional question, and a budget. With `as_of`, topics with
    later events are left out, too, and the knowledge graph, which holds what is so now."""

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

    breadth: bool | None = Field(default=None, strict=True)
    """Whether the question needs a list, an order or a summary: more events of more topics are
    shown, each shortened to less, as in recall. Absent: told from the question's form."""

    @model_validator(mode="after")
    def _require_query_with_as_of_and_breadth(self) -> Self:
        if self.as_of and self.query is None:
            raise ValueError("as_of needs a query: without one, a text shows the newest events")
        if self.breadth is not None and self.query is None:
            raise ValueError("breadth needs a query: it says what the question asks for")
        return self

    @property
    def needs_breadth(self) -> bool:
        """Whether the question needs a list, an order or a summary."""
        return is_broad(self.query, self.breadth)


class Citation(ResponseModel):
    """The event that a number in the text refers to."""

    n: int
    """The citation number: `[1]` in the text is the citation with `n` 1."""
    event_id: UUID
    source_event_key: str | None
    """The `source_event_key` that it was sent with; null for a reader who did not write it."""


class LeftOutCountsOut(ResponseModel):
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
    """How likely the visible events speak of the question's subject, 0 to 1. Whether the very
    answer is there, only a reader of the text can tell. Null without a query, and in an embedding
    space without a calibration."""
    breadth: bool
    """Whether the question was answered as one that needs a list, an order or a summary."""
    citations: list[Citation]
    """The citations, ordered by `n`."""
    cut: LeftOutCountsOut
    degraded: list[str]
    """The limitations of this answer, empty if there are none. `no_query_vector`: it was searched
    by words alone. `not_calibrated`: `min_relevance` left nothing out, because the embedding space
    has no calibration. `payloads_unread`: the payload store did not answer in time, so texts of
    payloads are missing. `no_scope_in_view`: the participants, as their names are written, never
    took part together; names keep their case."""
    not_yet_embedded: int | None
    """The number of visible events, at most 50, that have no vector yet and are found by words
    alone; null without a query."""
    not_yet_folded: int | None
    """The number of visible events that are not folded yet: topics and chains do not know them,
    short-term memory and events do; null without a query."""
    read_token: str
    """An opaque token of the state that this answer is based on: database snapshot, time, embedding
    space. It is not a credential."""


class SessionContextQuery(ScopeIdQuery):
    """The query parameters of a session's context."""

    participants: Participants | None = None
    """Some of the session's participants (repeat the parameter for several): the context covers all
    scopes in which these took part. Absent: all participants. The user that the key is bound to is
    added automatically."""
    only_session: Switch = False
    """Whether to limit the context to this session, without chains that contain other sessions'
    events."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """A question that selects the chains. Absent: the latest chains."""
    min_relevance: Annotated[float, Field(ge=0, le=1), PARSE_NUMBER] | None = None
    """The minimum relevance: a chain is left out if all of its events are less relevant to the
    question, and 0 keeps all. By default the chains are those about as relevant as the best one,
    and there are none if `known` is below the threshold `min_known`, which comes from the tenant's
    tuning, else from the deployment's, else from the calibration of the embedding space."""
    limit: Annotated[int, Field(ge=1, le=100), PARSE_COUNT] | None = None
    """The maximum number of recent events, never more than the window (10). Absent: the whole
    window."""
    chains: Annotated[int, Field(ge=0, le=MAX_CHAINS), PARSE_COUNT] | None = None
    """The maximum number of chains. Absent: 50, or 10 with a query, because a query warms the
    chains that answer it."""
    format: Literal["json", "text"] = "json"
    """The response format. `text`: one block of text for a prompt, which, with a query, also
    contains the events that answer it."""
    budget: Annotated[int, Field(ge=100, le=8000), PARSE_COUNT] | None = None
    """The maximum number of tokens of the text, 1,000 by default. A token counts as four bytes of
    UTF-8. Only with `format=text`."""

    breadth: Switch | None = None
    """Whether the question needs a list, an order or a summary: all chains of the best events are
    then shown, and a text has more events, each shortened to less. Absent: told from the
    question's form."""

    @model_validator(mode="after")
    def _require_query_with_breadth_and_text_format_with_budget(self) -> Self:
        if self.breadth is not None and self.query is None:
            raise ValueError("breadth needs a query: it says what the question asks for")
        if self.budget is not None and self.format != "text":
            raise ValueError("budget limits a text; send format=text with it")
        return self

    @property
    def needs_breadth(self) -> bool:
        """Whether the question needs a list, an order or a summary."""
        return is_broad(self.query, self.breadth)


class ChainSearchRequest(RequestModel):
    """A question for which to search the chains of a session's participants."""

    participants: Participants | None = None
    """As in a session's context: some of the session's participants."""
    only_session: bool = Field(default=False, strict=True)
    """Whether to limit the search to this session, as in a session's context."""

    query: str = Field(min_length=1, max_length=8000)
    limit: int = Field(default=10, ge=1, le=MAX_CHAINS, strict=True)
    """The maximum number of results."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """The minimum relevance: a chain is left out if all of its events are less relevant to the
    question, and 0 keeps all. By default the chains are those about as relevant as the best one,
    and there are none if `known` is below the threshold `min_known`, which comes from the tenant's
    tuning, else from the deployment's, else from the calibration of the embedding space."""
    similarity_threshold: float | None = Field(default=None, ge=0, le=1, strict=True)
    """How near a chain must come to the best one, as a share of its odds to answer the question: 1
    gives the best chain alone, 0.7 also those nearly as likely, 0 every chain with an event found.
    By default 0.5, or 0 with `min_relevance`. It means the same in every embedding space."""


class RecentEventOut(ResponseModel):
    """An event of short-term memory, and the number of events that it represents."""

    event: EventOut
    count: int
    """The number of recent events of its type with its workflow_id or execution_id. This is the
    newest of them."""
    chain_id: UUID | None
    """The chain that contains it; null while its topic has not ended."""


class ContextOut(ResponseModel):
    """The context of a session for its agent."""

    session_id: str
    scope_id: UUID
    participants: list[str]
    known: float | None
    """How likely these participants' events speak of the question's subject, 0 to 1, as in recall;
    null without a query, and in an embedding space without a calibration."""
    recent: list[RecentEventOut]
    """Short-term memory, newest first: coalesced, within the window and the maximum age."""
    chains: list[ChainOut]
    """Chains of these participants: best first with a query, else newest first."""
    degraded: list[str]
    """The limitations of this answer, empty if there are none. `no_query_vector`: chains were
    searched by words alone. `not_calibrated`: `min_relevance` left nothing out, because the
    embedding space has no calibration. `cut_by_size`: the response was full."""
    not_yet_embedded: int | None
    """The number of visible events, at most 50, that have no vector yet and are found by words
    alone; null without a query."""
    not_yet_folded: int | None
    """The number of visible events that are not folded yet: topics and chains do not know them,
    short-term memory and events do; null without a query."""
    read_token: str
    """An opaque token of the state that this answer is based on: database snapshot, time, embedding
    space. It is not a credential."""


class ChainHit(ResponseModel):
    """A chain that was found, with its scores."""

    chain: ChainOut
    relevance: float | None
    """The probability that one of its events answers the question, 0 to 1, comparable between
    questions. Null in an embedding space without a calibration."""
    similarity: float | None
    """The cosine similarity of the question and the summary; null if either has no vector."""


class SessionContextOut(RootModel[ContextOut | ContextTextOut]):
    """The context of a session for its agent; with `format=text`, as one block of text for a
    prompt."""


class SearchOut(ResponseModel):
    """Chains that answer a question, best first, and what the knowledge graph holds about it."""

    session_id: str
    scope_id: UUID
    known: float | None
    """How likely these participants' events speak of the question's subject, 0 to 1, as in recall.
    Null in an embedding space without a calibration."""
    hits: list[ChainHit]
    """Empty if no chain is relevant enough."""
    graph: RelevantGraph
    """What the knowledge graph holds about the question, in all visible scopes. Empty with
    `only_session`, and if the tenant's long-term memory is disabled."""
    degraded: list[str]
    """As in a session's context."""
    not_yet_embedded: int
    """The number of visible events, at most 50, that have no vector yet and are found by words
    alone."""
    not_yet_folded: int
    """The number of visible events that are not folded yet: topics and chains do not know them,
    short-term memory and events do."""
    read_token: str
    """An opaque token of the state that this answer is based on: database snapshot, time, embedding
    space. It is not a credential."""


class ShortTermTopicOut(ResponseModel):
    """A topic, and the recent events on it."""

    topic: str | None
    """A few words that name it; null if the events' text has none."""
    summary: str | None
    """The summary of its chain; null for events that are in no chain yet."""
    event_ids: list[UUID]
    """The ids of the events, ordered by `seq`."""
    chain_id: UUID | None
    """The chain with this topic; null for events that are in no chain yet."""
    trust: Origin
    """The least trusted origin of the events behind the topic: all events of the chain, if it has
    one."""
    made_by: ModelAndPrompt | None
    """The model that named it."""


class TopicsOut(ResponseModel):
    """The topics of a session's short-term memory, latest first; empty if there are no recent
    events."""

    session_id: str
    topics: list[ShortTermTopicOut]
