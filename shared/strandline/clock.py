"""What time it is, for whoever has to be given it."""

from collections.abc import Callable
from datetime import UTC, datetime

type Clock = Callable[[], datetime]
"""Gives the present moment, with its zone."""


def utc_now() -> datetime:
    """The present moment in UTC, by this machine."""
    return datetime.now(UTC)
