"""Request and response types of recall, and of insert: an append whose edges are found by
recall."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, model_validator
from typing_extensions import Self, TypeAliasType

from strandline.log.schemas_append import AppendRequest, Receipt
from strandline.log.schemas_read import EdgeOut, EventFilters, EventOut
from strandline.moments import LAST_MOMENT
from strandline.recall.broad_questions import is_broad
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel

_Weight = TypeAliasType("_Weight", Annotated[float, Field(ge=0, le=1, strict=True)])
SonaName = TypeAliasType("SonaName", Annotated[str, Field(min_length=1, max_length=200)])
"""A sona's id, or one of its names."""
MAX_LINKS = 20


class RecallWeights(RequestModel):
    """Weights of further criteria for the order of the hits. A cosine has a weight of 1."""

    recency: _Weight = 0.0
    """The weight of an event's recency, which decays slower for an important event."""
    importance: _Weight = 0.0
    """The weight of an event's importance: how much recalls for these participants have used it, or
    events that cite it, in the last 30 days."""
    sona: _Weight = 0.0
    """The weight of how much an event belongs to `sona`: 1 if the sona was active in it, else the
    cosine similarity of the event and the sona's centroid."""


class QuestionTime(RequestModel):
    """When a question is asked, and for which time."""

    now: Moment | None = None
    """The time to which expressions like "yesterday" or "before May" in the question refer, in the
    tenant's time zone. By default `as_of`, else the server's time."""
    as_of: Moment | None = None
    """Answer as one could have at this time: events that happened later (`occurred_at`, else
    `recorded_at`) are left out and supersede nothing. An event that was stored later but happened
    by then counts; one that was erased since does not. By default nothing is left out. Never after
    `now`."""

    @model_validator(mode="after")
    def _require_as_of_before_now(self) -> Self:
        if self.as_of and self.now and self.as_of > self.now:
            raise ValueError("as_of must not be after now: that is when the question is asked")
        return self

    def choose_now(self, clock: datetime) -> datetime:
        """The time at which the question is asked; by default `as_of`, else `clock`."""
        return self.now or self.as_of or clock

    def to_filter_until_as_of(self) -> Mapping[str, object]:
        """The filter that leaves out what happened after `as_of`."""
        if self.as_of is None or self.as_of == LAST_MOMENT:
            return {}
        # `until` is exclusive, and a stored time has microseconds
        return {"until": (self.as_of + timedelta(microseconds=1)).isoformat()}


class RecallRequest(QuestionTime, EventFilters):
    """A question to search memory for."""

    query: str = Field(min_length=1, max_length=8000)
    participants: Participants | None = None
    """The participants on whose behalf to search: only events that all of them took part in are
    found. The user that the key is bound to is added automatically."""
    limit: int = Field(default=10, ge=1, le=100, strict=True)
    """The maximum number of hits."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """The minimum relevance: less relevant hits are left out, and 0 keeps all. By default no single
    hit is left out, but the answer has no hits if `known` is below the threshold `min_known`, which
    comes from the tenant's tuning, else from the deployment's, else from the calibration of the
    embedding space. Events without a vector that contain a word of the question are kept."""
    expand: int = Field(default=0, ge=0, le=50, strict=True)
    """The maximum number of events to add because the best ten hits cite them, directly or through
    up to two other events, those with the greatest weights first."""
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    """A token budget for the texts, filled best first: a long text that does not fit is cut to its
    `piece`, and hits that do not fit are left out, and `did_not_fit` counts them. If none fits, the
    best one is cut to fit. A token counts as four bytes."""
    order: Literal["relevance", "time"] | None = None
    """The order of the hits. `time`: cited events before those that cite them, otherwise oldest
    first. Absent: `relevance`, or `time` where `breadth` is."""
    breadth: bool | None = Field(default=None, strict=True)
    """Whether the question needs a list, an order or a summary: the hits are then spread over the
    topics of the best ones, with events of these topics that no word or vector found. Absent: told
    from the question's form, as in "summarize", "in which order" or "how many in total"."""
    sona: SonaName | None = None
    """The sona on whose behalf the question is asked, by its id or one of its names (an exact
    match, else the closest in meaning). It affects the order of the hits if `weights` has a weight
    for it, and never hides events."""
    weights: RecallWeights | None = None
    """Additional weights for the order of the hits: recency, importance and the sona. By default
    none is used. They do not change which events are found, nor `relevance` and `known`."""
    only_words: bool = Field(default=False, strict=True)
    """Whether to search by words alone, without the question's vector, as where no embedding model
    answers."""
    explain: bool = Field(default=False, strict=True)
    """Whether each hit includes the features of its score, and the answer their weights."""
    include: Literal["full"] | None = None
    """`full`: each hit includes the whole event."""

    @model_validator(mode="after")
    def _require_since_before_as_of(self) -> Self:
        if self.as_of and self.since and self.since > self.as_of:
            raise ValueError("since must not be after as_of: what happened after it is left out")
        return self

    @property
    def needs_breadth(self) -> bool:
        """Whether the question needs a list, an order or a summary."""
        return is_broad(self.query, self.breadth)

    @property
    def orders_by_time(self) -> bool:
        """Whether the hits stand in the order of time."""
        return self.needs_breadth if self.order is None else self.order == "time"

    @property
    def has_filters(self) -> bool:
        """Whether the caller narrows the search, other than by `as_of`."""
        return bool(super().to_json_filter())

    def to_json_filter(self) -> Mapping[str, object]:
        """The filters that are set, and what `as_of` leaves out, as one filter."""
        period = self.to_filter_until_as_of()
        is_narrower = self.until and self.as_of and self.until <= self.as_of
        return {**super().to_json_filter(), **({} if is_narrower else period)}

    @property
    def shows_near_duplicates(self) -> bool:
        """Whether near-duplicates are hits of their own: with a filter, and where no relevance is
        too low."""
        return self.min_relevance == 0 or self.has_filters


class TextRange(ResponseModel):
    """A range of characters of a text; `end_char` is exclusive. A character is a Unicode code
    point, not a unit of UTF-16: in JavaScript an item of `[...text]`."""

    start_char: int
    end_char: int


class HitNearDuplicates(ResponseModel):
    """The near-duplicates of a hit: older events of the same speaker whose text is equal but for
    upper case, white space and punctuation, or, of an agent or a tool, for numbers, times and
    ids."""

    count: int
    event_ids: list[UUID]
    """The ids of at most 20 of them, newest first."""


class Hit(ResponseModel):
    """An event that was found, and the reasons."""

    event_id: UUID
    source_event_key: str | None
    """The `source_event_key` that it was sent with; null for a reader who did not write it."""
    speaker: str | None
    occurred_at: datetime
    """When it happened; if the event does not state this, when it was recorded."""
    text: str | None
    """Its text, with `max_tokens` perhaps cut to its `piece`; null if the text is stored as a
    payload."""
    name: str | None
    """The payload's file name."""
    piece: TextRange | None
    """The part that matches, of a payload's text or of a text of more than 1,000 characters: at
    most 600 characters, or one sentence; of a payload whose text was not read up to 16,384
    characters. Where only the name or the meaning of a payload matches, its beginning; null if
    nothing of another text does."""
    excerpt: str | None
    """What a payload's text says in `piece`, with `max_tokens` perhaps cut. Null for other events,
    for a payload that is no text, and where it was not read: beyond the best eight payloads, or as
    `degraded` says."""
    relevance: float | None
    """The probability that the event answers the question, 0 to 1, comparable between questions.
    Null in an embedding space without a calibration, and for an event that was added to those
    that were found."""
    why: list[str]
    """The words of the question that it contains, in the index's form; `meaning` if it is similar
    in meaning; `edge` if `expand` added it; `topic` if `breadth` did; `later` if it may have
    changed what the next hit states, a home, a job, a tool, a plan or a preference, and so comes
    before it."""
    superseded_by: UUID | None
    """The newest visible event, no later than `as_of`, in which its speaker says what ends or may
    have changed what this one states: a home, a job, a tool, a plan or a preference. It may be no
    hit itself, because of `limit`, `max_tokens` or a filter. Null where nothing does."""
    superseded_sentence: str | None
    """The only sentence of its text that `superseded_by` is about, while the rest may hold; null if
    that is all or several of them."""
    features: Mapping[str, float] | None
    """With `explain`, the features of its score; with `weights`, also its recency and importance, 0
    to 1, and, with a `sona`, how much it belongs to the sona. docs/recall.md describes each."""
    event: EventOut | None
    """The whole event, with `include`: `full`."""
    similar: HitNearDuplicates | None
    """The near-duplicates among the events that were found, which share the place of this one, the
    newest; null if there are none. They are hits of their own, after the others, with a filter and
    with a `min_relevance` of 0."""


class ScoringOut(ResponseModel):
    """What scores and the threshold of this answer rest on."""

    min_known: float | None
    """The threshold that `known` was compared with; null where hits are not left out by it: with
    `min_relevance`, by words alone, and in an embedding space without a calibration."""
    weights: Mapping[str, float]
    """The weight of each feature: an event's score is the sum of weight times value."""


class RecallAnswer(ResponseModel):
    """The hits, by default best first, and the settings and state that the answer is based on."""

    known: float | None
    """How likely the visible events that pass the filters speak of the question's subject, 0 to 1.
    Whether the very answer is there, only a reader of the hits can tell. Null in an embedding space
    without a calibration."""
    hits: list[Hit]
    """Empty if no event is relevant enough."""
    scoring: ScoringOut | None = None
    """With `explain`."""
    breadth: bool
    """Whether the question was answered as one that needs a list, an order or a summary."""
    did_not_fit: int
    """The number of hits that were left out because they do not fit `max_tokens`."""
    degraded: list[str]
    """The limitations of this answer, empty if there are none. `no_query_vector`: it was searched
    by words alone. `not_calibrated`: `min_relevance` left nothing out, because the embedding space
    has no calibration. `cut_by_size`: the response was full before `limit` hits. `cut_by_budget`: a
    text does not fit `max_tokens` and is cut, marked by `…`. `payloads_unread`: the payload store
    did not answer in time, so texts of payloads are missing. `no_scope_in_view`: the participants,
    as their names are written, never took part together; names keep their case."""
    not_yet_embedded: int
    """The number of visible events, at most 50, that have no vector yet and are found by words
    alone."""
    not_yet_folded: int
    """The number of visible events that are not folded yet: chains, topics and `superseded_by` do
    not know them, hits do."""
    read_token: str
    """An opaque token of the state that this answer is based on: database snapshot, time, embedding
    space. It is not a credential."""


class InsertLinkOptions(RequestModel):
    """How an event is linked to the events that are already stored."""

    limit: int = Field(default=5, ge=1, le=MAX_LINKS, strict=True)
    """The maximum number of edges. Edges of the body count first and are all kept; the best results
    fill the rest."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Events that are less relevant are not linked. By default, the event is linked to those events
    that recall would return: none if `known` is below the threshold."""


class InsertRequest(AppendRequest):
    """An event to append, linked to stored events that its participants can see."""

    recall: InsertLinkOptions = Field(default_factory=InsertLinkOptions)


class InsertReceipt(Receipt):
    """The acknowledgement of an insert. A replay returns the same, with the edges found
    originally."""

    edges: list[EdgeOut]
    """The event's edges, ordered by CID: those of the body, and those found, with the relevance as
    weight."""
    degraded: list[str]
    """The limitations of the recall, empty if there are none. `no_query_vector`: it was searched by
    words alone."""
