"""A tenant that sends far more than its share, and what it gets; and who asks for a connection."""

import functools
import importlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from strandline.db.database import Asker, Database
from tests.support import Gateway, said

THREADS = 4


@dataclass
class Noise:
    """What a noisy tenant got."""

    answers: Counter[int] = field(default_factory=Counter[int])
    """Requests by status."""
    asked_for_nothing: int = 0
    """Connections that refused requests asked for."""
    seconds: float = 0.0

    @property
    def granted(self) -> int:
        """Requests that were served."""
        return self.answers[200] + self.answers[201]


class Watched:
    """A database that notes the thread that asks for it."""

    def __init__(self, database: Database, asked: Counter[int]) -> None:
        self._database, self._asked = database, asked

    def access(self, asker: Asker, deadline: float | None = None) -> Any:
        """As the database's."""
        self._asked[threading.get_ident()] += 1
        return self._database.access(asker, deadline)

    def connection(self, deadline: float | None = None) -> Any:
        """As the database's."""
        self._asked[threading.get_ident()] += 1
        return self._database.connection(deadline)

    def close(self) -> None:
        """As the database's."""
        self._database.close()


def watch() -> Counter[int]:
    """How often each thread asks for a connection from here on; of handlers that served nothing
    yet."""
    asked = Counter[int]()
    for name in ("ingest", "query"):
        service = importlib.import_module(f"functions.{name}.handler").service
        vars(service)["database"] = Watched(service.database, asked)
    return asked


@functools.cache
def _watched() -> Counter[int]:
    """A noisy process watches its handlers once: they keep what they first worked with."""
    return watch()


def ask(gateway: Gateway, key: str, n: int) -> int:
    """The status of the nth request of a mix: two reads to an append."""
    if n % 3 == 0:
        return gateway.call("POST", "/api/v1/events", said(f"tide {n}", "user:a"), key=key).status
    path = "/memories/list" if n % 3 == 1 else "/api/v1/scopes"
    return gateway.call("GET", path, key=key, query={"participants": "user:a"}).status


def make_noise(url: str, key: str, a_second: float, seconds: float) -> Noise:
    """So many requests a second for so long, from several threads, through handlers of this
    process: those of the environment's settings. For a process of its own."""
    gateway, asked = Gateway(url), _watched()
    noise, adding, began = Noise(), threading.Lock(), time.monotonic()

    def send(first: int) -> None:
        own, me, n = Noise(), threading.get_ident(), 0
        while time.monotonic() < began + seconds:
            before = asked[me]
            status = ask(gateway, key, first + n)
            own.answers[status] += 1
            if status == 429:
                own.asked_for_nothing += asked[me] - before
            n += 1
            time.sleep(max(0.0, began + (n * THREADS + first) / a_second - time.monotonic()))
        with adding:
            noise.answers += own.answers
            noise.asked_for_nothing += own.asked_for_nothing

    threads = [threading.Thread(target=send, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    noise.seconds = time.monotonic() - began
    return noise
