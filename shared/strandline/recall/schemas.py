"""Requests and answers of recall."""

from pydantic import (
    Field,
)

from strandline.log.schemas import EventOut, Filters
from strandline.schemas import Participants, ResponseModel


class RecallRequest(Filters):
    """A question to memory."""

    query: str = Field(min_length=1, max_length=8000)
    participants: Participants | None = None
    """On whose behalf is asked. A bound user joins by itself."""
    limit: int = Field(default=10, ge=1, le=100, strict=True)
    """At most so many."""


class Score(ResponseModel):
    """Why a hit stands where it stands."""

    total: float
    text_rank: int | None
    text_score: float | None
    vector_rank: int | None
    cosine: float | None
    fresh_rank: int | None
    """Its place among events that have no vector yet, newest first."""


class Piece(ResponseModel):
    """A range of characters of a payload's text: from start, up to but without end."""

    start_char: int
    end_char: int


class Hit(ResponseModel):
    """A memory and where it comes from."""

    event: EventOut
    piece: Piece | None
    """Which characters of a payload's text matched; null where only its name did."""
    score: Score


class RecallAnswer(ResponseModel):
    """Memories, best first, and what the answer rested on."""

    hits: list[Hit]
    degraded: list[str]
    """What was missing from this answer; empty when nothing was. `no_query_vector`: it is by words
    alone; `cut_by_size`: the best hits fill an answer before `limit`."""
    not_yet_embedded: int
    """How many events in view, 50 at most, can be found by their words alone as yet."""
    token: str
    """What this answer rested on: snapshot of the database, now, embedding space."""
