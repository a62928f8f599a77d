"""Requests and responses of recall."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from strandline.log.schemas import EventOut, Filters
from strandline.schemas import Moment, Participants, RequestModel, ResponseModel

type _Weight = Annotated[float, Field(ge=0, le=1, strict=True)]
type SonaName = Annotated[str, Field(min_length=1, max_length=200)]
"""A sona's id, or one of its names."""


class RecallWeights(RequestModel):
    """What else orders the hits, besides how likely they answer. A cosine weighs 1."""

    recency: _Weight = 0.0
    """The weight of how recent an event is, which lasts longer for an important one."""
    importance: _Weight = 0.0
    """The weight of how much recalls for these participants have used it in the last 30 days, or
    what rests on it."""
    sona: _Weight = 0.0
    """The weight of how much an event belongs to `sona`: 1 where the sona was active in it, else
    the cosine of the event and the sona's centroid."""


class RecallRequest(Filters):
    """A question to search memory for."""

    query: str = Field(min_length=1, max_length=8000)
    participants: Participants | None = None
    """The participants to search for: only events in which all of them took part. A bound user is
    added automatically."""
    limit: int = Field(default=10, ge=1, le=100, strict=True)
    """The maximum number of hits."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Hits that are less relevant are left out; 0 leaves none out. By default no single hit is left
    out, but there are none at all where `known` is below `min_known` of the tenant's tuning, else
    of the deployment's, else the calibrated one of the embedding space. Events without a vector
    that hold a word of the question stay."""
    expand: int = Field(default=0, ge=0, le=50, strict=True)
    """The maximum number of events to add that the best ten hits rest on: along their edges, and
    those of what they cite, three in a row at most, heaviest first."""
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    """A budget for the texts, best first: what does not fit is left out. A token is four bytes."""
    order: Literal["relevance", "time"] = "relevance"
    """`time`: what is cited before what cites it, else oldest first."""
    sona: SonaName | None = None
    """The sona in which is asked, by its id or one of its names: exactly, else the nearest in
    meaning. It orders the hits where `weights` has a weight for it, and hides nothing."""
    weights: RecallWeights | None = None
    """Weights of recency, importance and the sona, by which the hits are ordered in addition. By
    default none counts. What answers at all, `relevance` and `known` stay the same."""
    now: Moment | None = None
    """The time that "yesterday" or "before May" in the question refer to, read in the tenant's time
    zone; by default the server's."""
    explain: bool = Field(default=False, strict=True)
    """Whether each hit shows the features of its score."""
    include: Literal["full"] | None = None
    """`full`: each hit shows its whole event."""


class Piece(ResponseModel):
    """A range of characters of a payload's text; `end_char` is exclusive."""

    start_char: int
    end_char: int


class Hit(ResponseModel):
    """An event that was found, and why."""

    event_id: UUID
    source_event_key: str | None
    """The key it was sent with; null for a reader who did not write it."""
    speaker: str | None
    occurred_at: datetime
    """When it happened; where the event does not say, when it was recorded."""
    text: str | None
    """Its text; null where that is stored as a payload."""
    name: str | None
    """The payload's file name."""
    piece: Piece | None
    """The part of a payload's text that matched; null where only its file name did."""
    relevance: float | None
    """How likely it answers the question: 0 to 1, comparable between questions. Null in an
    embedding space that has no calibration, and for an event that `expand` added."""
    why: list[str]
    """The question's words that it holds, in the index's form, and `meaning` where it is similar in
    meaning; `edge` where `expand` added it."""
    features: Mapping[str, float] | None
    """What its score was computed from, with `explain`, and with `weights` its recency and
    importance, 0 to 1, and of a `sona` how much it belongs to it; docs/recall.md describes each."""
    event: EventOut | None
    """The whole event, with `include`: `full`."""


class RecallAnswer(ResponseModel):
    """The hits, by default best first, and what the answer was based on."""

    known: float | None
    """How likely the events in view that pass the filters hold an answer: 0 to 1. Null in an
    embedding space that has no calibration."""
    hits: list[Hit]
    """Empty where nothing is relevant enough."""
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: it was searched by words
    alone. `not_calibrated`: `min_relevance` left nothing out, because the embedding space has no
    calibration. `cut_by_size`: the response was full before `limit` hits."""
    not_yet_embedded: int
    """How many visible events, 50 at most, have no vector yet and are found by their words
    alone."""
    read_token: str
    """An opaque token of what this answer was based on: database snapshot, time, embedding space.
    It is no credential."""
