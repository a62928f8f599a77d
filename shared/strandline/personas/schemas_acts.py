"""Requests and answers about acts, the thread of a sona."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from strandline.schemas import (
    PARSE_NUMBER,
    Count,
    ParticipantsQuery,
    RequestModel,
    ResponseModel,
)

MAX_WAIT_SECONDS = 20


class ActIn(RequestModel):
    """A continuation of a sona's thread."""

    event_id: UUID
    """The memory that it is tied to."""
    after: UUID | None = None
    """The act that it continues, which is the head of the thread. Omit it for the first act."""


class NextActQuery(ParticipantsQuery):
    """Query string of the act after another one."""

    after: UUID | None = None
    """The last act that the caller has read. Omit it to get the first one."""


class ActsQuery(ParticipantsQuery):
    """Query string of a stream of acts."""

    cursor: str | None = Field(default=None, max_length=4096)
    """`cursor` of the previous answer. Omit it to start with the first act."""
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS), PARSE_NUMBER] = 0.0
    """Seconds to wait for an act if there is none after the cursor. Two requests of a tenant may
    wait at once; another one is answered at once, with Retry-After."""
    limit: Count = Field(default=50, ge=1, le=500)
    """The maximum number of acts."""


class ActOut(ResponseModel):
    """One step of a sona's thread."""

    act_id: UUID
    previous_id: UUID | None
    """The act that it continues; null for the first. That act may be visible only to other
    readers."""
    event_id: UUID
    scope_id: UUID
    pushed_at: datetime


class NextAct(ResponseModel):
    """The act after another one, among those that the caller sees."""

    act: ActOut | None
    """Null if there is none yet."""
    head: UUID | None
    """The newest act of the thread, even if the caller cannot see it. A push continues it."""


class ActsPage(ResponseModel):
    """Acts in the order of the thread, which is the same for all readers."""

    acts: list[ActOut]
    """Empty if none came while the request waited."""
    cursor: str
    """Send it with the next request: no act is missed or returned twice."""
    head: UUID | None
    """As in the answer for one act."""
    retry_after: int | None = None
    """Seconds after which to ask again with `cursor`. Null unless the request had to wait and could
    not, because too many requests wait already."""
