"""What was looked up and is believed for a while: whose a credential is, which tenants are."""

import threading
import time
from collections.abc import Callable, Hashable

_SECONDS = 50.0
"""What was revoked is refused everywhere a minute later at the latest, with time to spare."""
_SIZE = 10_000


class Believed[Fact]:
    """Facts by key, each believed for less than a minute. Shared by threads. No fact is None."""

    def __init__(self) -> None:
        self._facts: dict[Hashable, tuple[Fact, float]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Fact | None:
        """What is believed of `key`; None: look it up."""
        known = self._facts.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    def keep(self, key: Hashable, fact: Fact) -> Fact:
        """Believe what was looked up just now."""
        until = time.monotonic() + _SECONDS
        with self._lock:
            if len(self._facts) >= _SIZE:
                self._facts.clear()
            self._facts[key] = (fact, until)
        return fact

    def forget(self, about: Callable[[Fact], bool]) -> None:
        """Look up again what these facts were about before it is next believed."""
        with self._lock:
            for key in [key for key, (fact, _) in self._facts.items() if about(fact)]:
                del self._facts[key]
