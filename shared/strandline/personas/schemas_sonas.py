"""Requests and answers about sonas."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType

from strandline.schemas import PagingQuery, ParticipantsQuery, RequestModel, ResponseModel

MAX_NAMES = 16
MAX_MEMORIES = 500


def _clean_name(name: str) -> str:
    text = " ".join(name.split())
    if not text:
        raise ValueError("must not be blank")
    return text


SonaNameIn = TypeAliasType(
    "SonaNameIn", Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_clean_name)]
)
"""A name of a sona."""


class SonaIn(RequestModel):
    """A sona to look up by its name, or to make."""

    name: SonaNameIn


class SonaPatch(RequestModel):
    """The new names of a sona."""

    names: list[SonaNameIn] = Field(min_length=1, max_length=MAX_NAMES)
    """All of its names. The first one is shown."""


class SonaMergeIn(RequestModel):
    """The sona to merge this one into."""

    into: UUID


class SonaMemoriesIn(RequestModel):
    """Events in which a sona was active."""

    event_ids: list[UUID] = Field(min_length=1, max_length=MAX_MEMORIES)


class SonaQuery(ParticipantsQuery):
    """Query string of one sona."""

    include: Literal["centroid"] | None = None
    """`centroid`: include the sona's centroid in the embedding space."""


class SonasQuery(PagingQuery):
    """Query string of the list of sonas."""


class SonaOut(ResponseModel):
    """A sona: a persona, by its id and its names."""

    uuid: UUID
    names: list[str]
    created_at: datetime


class SonaFound(SonaOut):
    """A sona, and how it was found by the name."""

    found_by: Literal["name", "meaning", "new"]
    """`name`: it has exactly this name. `meaning`: it has a name of nearly the same meaning. `new`:
    it was made."""


class SonaDetail(SonaOut):
    """A sona, with its centroid in the embedding space over the memories that the caller sees."""

    memories: int
    """The number of events in view that have a vector and in which it was active."""
    space: str
    """The embedding space of the centroid."""
    centroid: list[float] | None
    """The mean of these events' vectors. Null without `include=centroid`, or if there are no such
    events."""


class SonaPage(ResponseModel):
    """Sonas, newest first."""

    sonas: list[SonaOut]
    next_cursor: str | None


class SonaMemories(ResponseModel):
    """How many of the events were recorded for a sona."""

    uuid: UUID
    added: int
    """Events that are new to it."""
    known: int
    """Events in which it was active already."""
