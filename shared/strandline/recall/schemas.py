"""Requests and responses of recall."""

from pydantic import (
    Field,
)

from strandline.log.schemas import EventOut, Filters
from strandline.schemas import Participants, ResponseModel


class RecallRequest(Filters):
    """A question to search memory for."""

    query: str = Field(min_length=1, max_length=8000)
    participants: Participants | None = None
    """The participants to search for: only events in which all of them took part. A bound user is
    added automatically."""
    limit: int = Field(default=10, ge=1, le=100, strict=True)
    """The maximum number of hits."""


class Score(ResponseModel):
    """A hit's score and the ranks and scores that it was computed from."""

    total: float
    text_rank: int | None
    text_score: float | None
    vector_rank: int | None
    cosine: float | None
    fresh_rank: int | None
    """Its rank among events that have no vector yet, newest first."""


class Piece(ResponseModel):
    """A range of characters of a payload's text; `end_char` is exclusive."""

    start_char: int
    end_char: int


class Hit(ResponseModel):
    """An event that was found, and why."""

    event: EventOut
    piece: Piece | None
    """The part of a payload's text that matched; null where only its file name did."""
    score: Score


class RecallAnswer(ResponseModel):
    """The hits, best first, and what the answer was based on."""

    hits: list[Hit]
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: it was searched by words
    alone. `cut_by_size`: the response was full before `limit` hits."""
    not_yet_embedded: int
    """How many visible events, 50 at most, have no vector yet and are found by their words
    alone."""
    token: str
    """An opaque token of what this answer was based on: database snapshot, time, embedding
    space."""
