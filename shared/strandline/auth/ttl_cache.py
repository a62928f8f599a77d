"""What was looked up and is believed for a while: whose a credential is, which tenants are."""

import threading
import time
from collections.abc import Callable, Hashable

_TTL_SECONDS = 50.0
"""What was revoked is refused everywhere a minute later at the latest, with time to spare."""
_MAX_ENTRIES = 10_000


class TtlCache[Fact]:
    """Facts by key, each believed for less than a minute. Shared by threads. No fact is None."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[Fact, float]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Fact | None:
        """What is believed of `key`; None: look it up."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None and time.monotonic() < entry[1] else None

    def put(self, key: Hashable, value: Fact) -> Fact:
        """Believe what was looked up just now."""
        expires_at = time.monotonic() + _TTL_SECONDS
        with self._lock:
            if len(self._entries) >= _MAX_ENTRIES:
                self._entries.clear()
            self._entries[key] = (value, expires_at)
        return value

    def remove_where(self, matches: Callable[[Fact], bool]) -> None:
        """Look up again what these facts were about before it is next believed."""
        with self._lock:
            for key in [key for key, (value, _) in self._entries.items() if matches(value)]:
                del self._entries[key]
