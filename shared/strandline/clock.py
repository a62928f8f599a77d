"""The clock: a parameter wherever the time matters."""

from collections.abc import Callable
from datetime import UTC, datetime

type Clock = Callable[[], datetime]
"""Returns the current time, with its time zone."""


def utc_now() -> datetime:
    """The current time in UTC, by this machine."""
    return datetime.now(UTC)
