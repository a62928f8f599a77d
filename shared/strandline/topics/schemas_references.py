"""Requests and responses of the references query."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from strandline.context.schemas import Citation
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel

MIN_BUDGET, MAX_BUDGET, DEFAULT_BUDGET = 100, 8000, 2000


class ReferencesRequest(RequestModel):
    """A question to answer from the topic index. Without a question, an outline of the index."""

    query: str | None = Field(default=None, min_length=1, max_length=8000)
    """The question. Absent: the topics from the roots down, level by level, and the newest events
    of the fresh tail."""
    participants: Participants | None = None
    """The participants on whose behalf to read: only events that all of them took part in are
    visible. The user that the key is bound to is added automatically."""
    format: Literal["json", "text"] = "json"
    """The response format. `text`: an outline of the answer for a prompt."""
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
    """The time limit in seconds. At the limit, the answer contains what was found so far."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """The minimum relevance: less relevant events are left out, and 0 keeps all. By default no
    single event is left out, but the answer has no events if `known` is below the threshold
    `min_known`, which comes from the tenant's tuning, else from the deployment's, else from the
    calibration of the embedding space."""
    now: Moment | None = None
    """The time to which expressions like "yesterday" or "before May" in the question refer, in the
    tenant's time zone. By default the server's time."""
    read_token: str | None = Field(default=None, max_length=4096)
    """The token of an earlier answer to the same question, to get that answer again."""


class ReferenceEvent(ResponseModel):
    """An event of an answer."""

    n: int
    """The citation number of the event."""
    event_id: UUID
    source_event_key: str | None
    """The `source_event_key` that it was sent with; null for a reader who did not write it."""
    speaker: str | None
    occurred_at: datetime
    """When it happened; if the event does not state this, when it was recorded."""
    text: str | None
    """Its text, or the beginning of a long text; null if the text is stored as a payload."""
    name: str | None
    """The payload's file name."""
    relevance: float | None
    """The probability that the event answers the question, 0 to 1. Null without a question, in an
    embedding space without a calibration, and for an event that no search found and whose topic the
    language model chose."""


class ReferenceTopic(ResponseModel):
    """A topic of a scope's tree: a leaf, which is a chain, or an inner node, which joins the topics
    below it."""

    kind: Literal["inner", "leaf"]
    slot: UUID
    """The id of its place in the tree, which stays the same while the content changes; for a leaf,
    the id of its chain."""
    node_id: UUID
    """The id of its content, which is immutable."""
    chain_version: int | None
    """For a leaf, the version of its chain."""
    topic: str | None
    summary: str | None
    """Null if it does not fit the budget, and for a chain that the quality gate rejected."""
    started_at: datetime
    last_event_at: datetime
    event_count: int
    leaf_count: int
    trust: str
    """The least trusted origin among its events."""
    relevance: float | None
    """The relevance of the best event found below it; null if there is none."""
    similarity: float | None
    """The cosine similarity of the question and the mean vector of its events; null without a
    question or a vector."""
    models: dict[str, Any]
    """The model and the prompt that its summary was written with."""
    citations: list[UUID]
    """The events that support it: at most 10 of those shown below it, or else its first event."""
    topics: list["ReferenceTopic"]
    """The shown topics below it, ordered by time."""
    events: list[ReferenceEvent]
    """The shown events directly below it, ordered by time."""


class FreshTail(ResponseModel):
    """Events that no topic of the snapshot holds yet, ordered by time."""

    events: list[ReferenceEvent]


class ReferenceScope(ResponseModel):
    """The part of an answer that belongs to one scope."""

    kind: Literal["scope"]
    scope_id: UUID
    participants: list[str]
    cutoff: int
    """Every event up to this seq, except statements, is under a leaf of the snapshot; 0 if the
    scope has no tree."""
    mark: int
    """The scope's last seq at the time of this answer. Later events are not in it."""
    topics: list[ReferenceTopic]
    """The root topic of its tree; empty if none of the tree is shown."""
    fresh_tail: FreshTail


class ReferenceRoot(ResponseModel):
    """The root of an answer."""

    kind: Literal["root"]
    scopes: list[ReferenceScope]


class AnswerSnapshotOut(ResponseModel):
    """The snapshot that an answer rests on."""

    snapshot_id: UUID
    version: int
    published_at: datetime
    age_seconds: float
    """The age of the snapshot at the time of the answer."""
    configuration: dict[str, Any]
    """The embedding space, and the model and the prompt of the summaries."""


class ReferencesLeftOut(ResponseModel):
    """How much was left out, by reason."""

    events: int
    """Events that do not fit the budget."""
    topics: int
    """Topics that do not fit the budget, in an outline without a question."""
    summaries: int
    """Summaries of shown topics that do not fit the budget."""
    shortened: int
    """Texts that are shown shortened, with `…` at the end."""
    width: int
    """Events below topics that the walk did not follow."""
    time: bool
    """Whether the time limit was reached before the walk ended."""


class WalkMethodOut(ResponseModel):
    """Which method chose the topics."""

    by: Literal["beam", "model"]
    model: str | None
    prompt: str | None
    rounds: int
    """How many times the model chose."""


class ReferencesOut(ResponseModel):
    """One tree from scopes over topics to events, or its outline, and the snapshot and settings
    behind it."""

    tree: ReferenceRoot | None
    """The tree; null with `format=text`."""
    text: str | None
    """The outline for a prompt, with `format=text`. It is enclosed in a tag that no text inside can
    close."""
    tokens: int
    """The number of tokens of the outline, never more than the budget."""
    citations: list[Citation]
    """The event of each citation number of the outline, in order."""
    known: float | None
    """The probability that the visible events contain an answer, 0 to 1; null without a
    question."""
    snapshot: AnswerSnapshotOut | None
    """The snapshot; null if none is published yet: then every event is in the fresh tail."""
    space: str | None
    """The embedding space in which the question was searched; null if it was searched by words
    alone."""
    walk: WalkMethodOut
    cut: ReferencesLeftOut
    degraded: list[str]
    """The limitations of this answer, empty if there are none. `no_query_vector`: it was searched
    by words alone. `no_model`: no language model is configured, so the beam search was used.
    `model_failed`: the model's answer could not be used, so the beam search was used from there.
    `not_repeatable`: the answer cannot be repeated."""
    not_yet_embedded: int
    """The number of visible events, at most 50, that have no vector yet and are found by words
    alone."""
    read_token: str
    """An opaque token of this answer. The same question with this token gets the same answer, for
    30 days. It is not a credential."""
