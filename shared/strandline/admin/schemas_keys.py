"""Requests and responses about API keys."""

from datetime import datetime
from typing import Literal

from pydantic import (
    Field,
)
from typing_extensions import TypeAliasType

from strandline.schemas import Moment, Participant, RequestModel, ResponseModel

KeyRight = TypeAliasType("KeyRight", Literal["read", "write", "admin", "operator", "erase"])


class KeyIn(RequestModel):
    """A key to make."""

    user: Participant | None = None
    """Bind it to `user:NAME`: it reads and writes as that user only."""
    rights: list[KeyRight] = Field(default=["read", "write"], min_length=1, max_length=5)
    label: str = Field(default="", max_length=200)
    """What it is for. Lists show it, so do not put a secret here."""
    expires_at: Moment | None = None
    """At most 3,650 days ahead. Absent: it does not expire."""


class RotateIn(RequestModel):
    """How to rotate a key."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=30 * 86_400, strict=True)
    """How long both keys are valid, in seconds. The old one never lasts beyond its own expiry."""
    expires_at: Moment | None = None
    """The successor's expiry. Absent: it gets the lifetime that the old key was made with."""


class KeyOut(ResponseModel):
    """A key, without its secret."""

    key_id: str
    user: str | None
    """The participant that it is bound to; null if unbound."""
    rights: list[KeyRight]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The id of its successor."""


class NewKeyOut(KeyOut):
    """A new key, with its token."""

    token: str
    """The credential. It is shown only once and never stored."""


class RotatedOut(ResponseModel):
    """A key's successor, and the old key, which ends at its `expires_at`."""

    key: NewKeyOut
    old: KeyOut


class KeyPage(ResponseModel):
    """A tenant's keys, newest first."""

    keys: list[KeyOut]
    next_cursor: str | None
