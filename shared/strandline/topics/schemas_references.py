"""Requests and responses of the references query."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.context.schemas import Citation
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel

MIN_BUDGET, MAX_BUDGET, DEFAULT_BUDGET = 100, 8000, 2000


class ReferencesRequest(RequestModel):
    """A question to walk the topic index for; without one, an outline of what it holds."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """The question. Absent: the topics from the roots down, level by level, and the newest events
    of the fresh tail."""
    participants: Participants | None = None
    """On whose behalf to read: only what all of them took part in. A bound user is added
    automatically."""
    format: Literal["json", "text"] = "json"
    """`text`: the same as an outline for a prompt."""
    budget: int = Field(default=DEFAULT_BUDGET, ge=MIN_BUDGET, le=MAX_BUDGET, strict=True)
    """The maximum number of tokens of the outline. A token counts as four bytes of UTF-8."""
    limit: int | None = Field(default=None, ge=1, le=100, strict=True)
    """The maximum number of events. Absent: as many as the budget holds, 100 at most."""
    depth: int = Field(default=16, ge=1, le=64, strict=True)
    """The maximum number of levels of a scope's tree; events of deeper topics are shown below the
    last level."""
    width: int = Field(default=64, ge=1, le=256, strict=True)
    """The maximum number of topics of one level, over all trees, that are followed further down."""
    walk: Literal["beam", "model"] = "beam"
    """Who chooses the topics to follow: scores, or the language model."""
    time_limit: float = Field(default=10.0, ge=0.05, le=20, strict=True)
    """Seconds after which the answer has what was found until then."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Events that are less relevant to the question are left out; 0 leaves none out. By default no
    single event is left out, but there are none at all where `known` is below `min_known` of the
    tenant's tuning, else of the deployment's, else the calibrated one of the embedding space."""
    now: Moment | None = None
    """The time that "yesterday" or "before May" in the question refer to, read in the tenant's time
    zone; by default the server's."""
    read_token: str | None = Field(default=None, max_length=4096)
    """The token of an earlier answer to the same question, to get that answer again."""


class ReferenceEvent(ResponseModel):
    """An event of an answer."""

    n: int
    """The number of its citation."""
    event_id: UUID
    source_event_key: str | None
    """The key it was sent with; null for a reader who did not write it."""
    speaker: str | None
    occurred_at: datetime
    """When it happened; where the event does not say, when it was recorded."""
    text: str | None
    """Its text, or the beginning of a long one; null where that is stored as a payload."""
    name: str | None
    """The payload's file name."""
    relevance: float | None
    """How likely it answers the question: 0 to 1; null without a question, in an embedding space
    that has no calibration, and where the language model chose its topic though no search found
    it."""


class ReferenceTopic(ResponseModel):
    """A topic of a scope's tree: a leaf, which is a chain, or one that joins the topics below
    it."""

    kind: Literal["inner", "leaf"]
    slot: UUID
    """Its place in the tree, which stays while its content changes; of a leaf its chain."""
    node_id: UUID
    """Its content, which never changes."""
    chain_version: int | None
    """Of a leaf."""
    topic: str | None
    summary: str | None
    """Null where the budget does not hold it, and for a chain that the quality gate rejected."""
    started_at: datetime
    last_event_at: datetime
    event_count: int
    leaf_count: int
    trust: str
    """The least trusted origin of its events."""
    relevance: float | None
    """That of the best event found below it; null without one."""
    similarity: float | None
    """The cosine of the question and its events' mean; null without a question or a vector."""
    models: dict[str, Any]
    """The model and the prompt of its summary."""
    citations: list[UUID]
    """Events that it rests on: those shown below it, at most 10, else its first."""
    topics: list["ReferenceTopic"]
    """The topics below it that are shown, in order of time."""
    events: list[ReferenceEvent]
    """The events right below it that are shown, in order of time."""


class FreshTail(ResponseModel):
    """Events that no topic of the snapshot holds yet, in order of time."""

    events: list[ReferenceEvent]


class ReferenceScope(ResponseModel):
    """A scope's branch of an answer."""

    kind: Literal["scope"]
    scope_id: UUID
    participants: list[str]
    cutoff: int
    """Every event up to this seq, but statements, is under a leaf of the snapshot; 0 without a
    tree."""
    mark: int
    """The scope's last seq as of this answer: what was appended later is not in it."""
    topics: list[ReferenceTopic]
    """The root of its tree; empty where nothing of it is shown."""
    fresh_tail: FreshTail


class ReferenceRoot(ResponseModel):
    """The root of an answer."""

    kind: Literal["root"]
    scopes: list[ReferenceScope]


class SnapshotOut(ResponseModel):
    """The snapshot that an answer rests on."""

    snapshot_id: UUID
    version: int
    published_at: datetime
    age_seconds: float
    """At the time of the answer."""
    configuration: dict[str, Any]
    """The embedding space, the model and the prompt of its summaries."""


class ReferencesCut(ResponseModel):
    """How much was left out."""

    events: int
    """Events that the budget does not hold."""
    topics: int
    """Topics that the budget does not hold, of an outline without a question."""
    summaries: int
    """Summaries of shown topics that the budget does not hold."""
    shortened: int
    """Texts that are shown in part, with `…` at the end."""
    width: int
    """Events below topics that the walk left out."""
    time: bool
    """Whether the time ended before the walk did."""


class WalkOut(ResponseModel):
    """Who chose the topics."""

    by: Literal["beam", "model"]
    model: str | None
    prompt: str | None
    rounds: int
    """How many choices the model made."""


class ReferencesOut(ResponseModel):
    """One tree from scopes over topics to events, or its outline, and what it rests on."""

    tree: ReferenceRoot | None
    """Null with `format=text`."""
    text: str | None
    """The outline for a prompt, with `format=text`. It begins and ends with a tag that nothing
    inside can close."""
    tokens: int
    """The tokens of the outline, never more than the budget."""
    citations: list[Citation]
    """The event behind each number of the outline, in order."""
    known: float | None
    """How likely the events in view hold an answer: 0 to 1; null without a question."""
    snapshot: SnapshotOut | None
    """Null where nothing is published yet: then everything is fresh tail."""
    space: str | None
    """The embedding space of the question; null where it was searched by words alone."""
    walk: WalkOut
    cut: ReferencesCut
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: it was searched by words
    alone. `no_model`: no language model is configured, the beam walked. `model_failed`: its answer
    could not be used, the beam walked on. `not_repeatable`: it cannot be given again."""
    not_yet_embedded: int
    """How many visible events, 50 at most, have no vector yet and are found by their words
    alone."""
    read_token: str
    """An opaque token of this answer: the same question with it gets the same answer, for 30 days.
    It is no credential."""
