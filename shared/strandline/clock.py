"""The clocks: the time of day, a parameter wherever it matters, and the age of what a process
keeps between requests."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

type Clock = Callable[[], datetime]
"""Returns the current time, with its time zone."""
_MAX_JITTER_SECONDS = 1.0
"""So far two readings of two clocks lie apart, without one of them having been set."""


def utc_now() -> datetime:
    """The current time in UTC, by this machine."""
    return datetime.now(UTC)


class _UptimeClock:
    """A monotonic clock that does not stand still while Lambda has frozen the process, as that of
    the system may: the time of day has gone on by then. Where that is set back, it takes nothing
    away. Safe for threads."""

    def __init__(self) -> None:
        self._lead = time.time() - time.monotonic()
        """How far the time of day is before the system's clock."""
        self._frozen_seconds = 0.0
        self._lock = threading.Lock()

    def read(self) -> float:
        """Seconds, of which only differences mean something."""
        with self._lock:
            monotonic = time.monotonic()
            gain = time.time() - monotonic - self._lead
            if gain > 0:
                self._frozen_seconds += gain
            if gain > 0 or gain < -_MAX_JITTER_SECONDS:
                self._lead += gain
            return monotonic + self._frozen_seconds


read_uptime = _UptimeClock().read
"""For the age of what outlives a request. Deadlines within one are in time.monotonic() seconds."""
