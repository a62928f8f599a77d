"""Requests and answers about API keys."""

from datetime import datetime
from typing import Literal

from pydantic import (
    Field,
)

from strandline.schemas import Moment, Participant, RequestModel, ResponseModel

type KeyRight = Literal["read", "write", "admin", "operator"]


class KeyIn(RequestModel):
    """A key to be made."""

    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=4)
    label: str = Field(default="", max_length=200)
    """What it is for. Shown in lists: no secret belongs here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: it does not expire."""


class RotateIn(RequestModel):
    """How a key is followed by another."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=30 * 86_400, strict=True)
    """How long both hold; the old one never longer than it would have."""
    expires_at: Moment | None = None
    """Of the successor. Absent: it holds as long as the old one was made for."""


class KeyOut(ResponseModel):
    """A key, without anything secret."""

    key_id: str
    user: str | None
    """The participant it is bound to."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The key that follows it."""


class NewKeyOut(KeyOut):
    """A key that was just made."""

    token: str
    """The credential itself: shown this once, and stored nowhere."""


class RotatedOut(ResponseModel):
    """A key's successor, and the key itself, which ends at its `expires_at`."""

    key: NewKeyOut
    old: KeyOut


class KeyPage(ResponseModel):
    """A tenant's keys, newest first."""

    keys: list[KeyOut]
    next_cursor: str | None
