"""Requests and answers about sonas."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from strandline.schemas import ListQuery, ParticipantsQuery, RequestModel, ResponseModel

MAX_NAMES = 16
MAX_MEMORIES = 500


def _clean_name(name: str) -> str:
    text = " ".join(name.split())
    if not text:
        raise ValueError("must not be blank")
    return text


type SonaNameIn = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_clean_name)]
"""A name of a sona."""


class SonaIn(RequestModel):
    """A sona to look up by its name, or to make."""

    name: SonaNameIn


class SonaPatch(RequestModel):
    """What a sona is called from now on."""

    names: list[SonaNameIn] = Field(min_length=1, max_length=MAX_NAMES)
    """All of its names, the first of which it is shown under."""


class SonaMergeIn(RequestModel):
    """Which sona another one is from now on."""

    into: UUID


class SonaMemoriesIn(RequestModel):
    """Events in which a sona was active."""

    event_ids: list[UUID] = Field(min_length=1, max_length=MAX_MEMORIES)


class SonaQuery(ParticipantsQuery):
    """Query string of one sona."""

    include: Literal["centroid"] | None = None
    """`centroid`: the answer has the sona's place in the embedding space."""


class SonaList(ListQuery):
    """Query string of the list of sonas."""


class SonaOut(ResponseModel):
    """A sona: a persona, by its id and its names."""

    uuid: UUID
    names: list[str]
    created_at: datetime


class SonaFound(SonaOut):
    """A sona, and how its name led to it."""

    found_by: Literal["name", "meaning", "new"]
    """`name`: it has this name. `meaning`: it has one of nearly the same meaning. `new`: there was
    none."""


class SonaDetail(SonaOut):
    """A sona, with its place in the embedding space over what the caller sees."""

    memories: int
    """The events in view in which it was active and that have a vector."""
    space: str
    """The embedding space of the centroid."""
    centroid: list[float] | None
    """The mean of these events' vectors, with `include`: `centroid`; else, and without such events,
    null."""


class SonaPage(ResponseModel):
    """Sonas, newest first."""

    sonas: list[SonaOut]
    next_cursor: str | None


class SonaMemories(ResponseModel):
    """What became of events in which a sona was active."""

    uuid: UUID
    added: int
    """Events that are new to it."""
    known: int
    """Events in which it was active already."""
