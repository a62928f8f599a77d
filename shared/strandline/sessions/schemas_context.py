"""Requests and responses of a session's context and the search for its chains."""

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from strandline.log.schemas import EventOut
from strandline.schemas import (
    PARSE_COUNT,
    PARSE_NUMBER,
    Participants,
    RequestModel,
    ResponseModel,
    Switch,
)
from strandline.sessions.schemas import MAX_CHAINS, ChainOut, ScopeQuery


class ContextQuery(ScopeQuery):
    """The query string of a session's context."""

    participants: Participants | None = None
    """Some of the session's participants (repeat it for several): the context is of all scopes in
    which these took part. Absent: all of them. A bound user is added automatically."""
    only_session: Switch = False
    """Whether the context is of this session alone, without chains that hold others' events."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """A question that selects the chains. Absent: the latest chains."""
    min_relevance: Annotated[float, Field(ge=0, le=1), PARSE_NUMBER] | None = None
    """Chains whose events are all less relevant to the question are left out; 0 leaves none out. By
    default those are returned that are about as relevant as the best, and none at all where `known`
    is below `min_known` of the tenant's tuning, else of the deployment's, else the calibrated one
    of the embedding space."""
    limit: Annotated[int, Field(ge=1, le=100), PARSE_COUNT] | None = None
    """The maximum number of recent events, never more than the window (10). Absent: the whole
    window."""
    chains: Annotated[int, Field(ge=0, le=MAX_CHAINS), PARSE_COUNT] | None = None
    """The maximum number of chains. Absent: 50, or 10 with a query, because a query warms the
    chains that answer it."""
    format: Literal["json", "text"] = "json"
    """`text`: one block of text for a prompt, which with a query holds the events that answer it,
    too."""
    budget: Annotated[int, Field(ge=100, le=8000), PARSE_COUNT] | None = None
    """The maximum number of tokens of the text, 1,000 by default. A token counts as four bytes of
    UTF-8. Only with `format=text`."""

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.budget is not None and self.format != "text":
            raise ValueError("budget limits a text; send format=text with it")
        return self


class SearchRequest(RequestModel):
    """A question to search the chains of a session's participants for."""

    participants: Participants | None = None
    """As in a session's context: some of the session's participants."""
    only_session: bool = Field(default=False, strict=True)
    """As in a session's context."""

    query: str = Field(min_length=1, max_length=8000)
    limit: int = Field(default=10, ge=1, le=MAX_CHAINS, strict=True)
    """The maximum number of results."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Chains whose events are all less relevant to the question are left out; 0 leaves none out. By
    default those are returned that are about as relevant as the best, and none at all where `known`
    is below `min_known` of the tenant's tuning, else of the deployment's, else the calibrated one
    of the embedding space."""
    similarity_threshold: float | None = Field(default=None, ge=-1, le=1, strict=True)
    """The minimum cosine of the question and a chain's summary; by default none. It does not apply
    where a vector is missing and words decide."""


class RecentOut(ResponseModel):
    """An event of short-term memory, and how many events it stands for."""

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
    """How likely these participants' events hold an answer: 0 to 1; null without a query, and in an
    embedding space that has no calibration."""
    recent: list[RecentOut]
    """Short-term memory, newest first: coalesced, within the window and the maximum age."""
    chains: list[ChainOut]
    """Chains of these participants: best first with a query, else newest first."""
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: chains were searched by
    words alone. `not_calibrated`: `min_relevance` left nothing out, because the embedding space has
    no calibration. `cut_by_size`: the response was full."""
    read_token: str
    """An opaque token of what this answer was based on: database snapshot, time, embedding space.
    It is no credential."""


class ChainHit(ResponseModel):
    """A chain that was found, with its scores."""

    chain: ChainOut
    relevance: float | None
    """How likely one of its events answers the question: 0 to 1, comparable between questions. Null
    in an embedding space that has no calibration."""
    similarity: float | None
    """The cosine of question and summary; null where either has no vector."""
