"""A tenant that sends far more than its share, and what it gets; and who asks for a connection."""

import functools
import importlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from strandline.db.database import Caller, Database
from tests.support import Gateway, user_message

THREADS = 4


@dataclass
class NoiseResult:
    """What a noisy tenant got."""

    count_by_status: Counter[int] = field(default_factory=Counter[int])
    """Requests by status."""
    needless_connections: int = 0
    """Connections that refused requests asked for."""
    seconds: float = 0.0

    @property
    def served(self) -> int:
        """Requests that were served."""
        return self.count_by_status[200] + self.count_by_status[201]


class CountingDatabase:
    """A database that notes the thread that asks for it."""

    def __init__(self, database: Database, counts: Counter[int]) -> None:
        self._database, self._counts = database, counts

    def connect_as(self, caller: Caller, deadline: float | None = None) -> Any:
        """As the database's."""
        self._counts[threading.get_ident()] += 1
        return self._database.connect_as(caller, deadline)

    def connection(self, deadline: float | None = None) -> Any:
        """As the database's."""
        self._counts[threading.get_ident()] += 1
        return self._database.connection(deadline)

    def close(self) -> None:
        """As the database's."""
        self._database.close()


def count_connections() -> Counter[int]:
    """How often each thread asks for a connection from here on; of handlers that served nothing
    yet."""
    counts = Counter[int]()
    for name in ("ingest", "query"):
        service = importlib.import_module(f"functions.{name}.handler").resources
        vars(service)["database"] = CountingDatabase(service.database, counts)
    return counts


@functools.cache
def _connection_counts() -> Counter[int]:
    """A noisy process watches its handlers once: they keep what they first worked with."""
    return count_connections()


def send_request(gateway: Gateway, key: str, n: int) -> int:
    """The status of the nth request of a mix: two reads to an append."""
    if n % 3 == 0:
        return gateway.call(
            "POST", "/api/v1/events", user_message(f"tide {n}", "user:a"), key=key
        ).status
    path = "/memories/list" if n % 3 == 1 else "/api/v1/scopes"
    return gateway.call("GET", path, key=key, query={"participants": "user:a"}).status


def make_noise(url: str, key: str, per_second: float, seconds: float) -> NoiseResult:
    """So many requests a second for so long, from several threads, through handlers of this
    process: those of the environment's settings. For a process of its own."""
    gateway, counts = Gateway(url), _connection_counts()
    noise, lock, start = NoiseResult(), threading.Lock(), time.monotonic()

    def send(first: int) -> None:
        own_noise, thread_id, n = NoiseResult(), threading.get_ident(), 0
        while time.monotonic() < start + seconds:
            before = counts[thread_id]
            status = send_request(gateway, key, first + n)
            own_noise.count_by_status[status] += 1
            if status == 429:
                own_noise.needless_connections += counts[thread_id] - before
            n += 1
            time.sleep(max(0.0, start + (n * THREADS + first) / per_second - time.monotonic()))
        with lock:
            noise.count_by_status += own_noise.count_by_status
            noise.needless_connections += own_noise.needless_connections

    threads = [threading.Thread(target=send, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    noise.seconds = time.monotonic() - start
    return noise
