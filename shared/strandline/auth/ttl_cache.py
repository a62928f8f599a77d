"""A cache for lookups of credentials and tenants. Entries expire after less than a minute."""

import threading
from collections.abc import Callable, Hashable

from strandline.clock import read_uptime

_TTL_SECONDS = 50.0
"""Seconds. A revocation takes effect everywhere within a minute, with a margin."""
_MAX_ENTRIES = 10_000


class TtlCache[Fact]:
    """Values by key, each valid for less than a minute. Safe for threads. A value is never None."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[Fact, float]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Fact | None:
        """The cached value of `key`, or None."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None and read_uptime() < entry[1] else None

    def put(self, key: Hashable, value: Fact) -> Fact:
        """Cache `value`, and return it."""
        expires_at = read_uptime() + _TTL_SECONDS
        with self._lock:
            if len(self._entries) >= _MAX_ENTRIES:
                self._entries.clear()
            self._entries[key] = (value, expires_at)
        return value

    def remove_where(self, matches: Callable[[Fact], bool]) -> None:
        """Remove the entries whose value matches."""
        with self._lock:
            for key in [key for key, (value, _) in self._entries.items() if matches(value)]:
                del self._entries[key]
