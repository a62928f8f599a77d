"""Promise: what a writer took is stored exactly once and in order, though the service is killed.

SIGKILL of the whole one-machine service, again and again, while a program writes.
"""

import json
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline import Strandline
from strandline.client.retries import Retry
from tests.strandline.local.programs import RUN, Program, migrated_directory

pytestmark = pytest.mark.integration

EVENTS, KILLS = 100_000, 5
READY = "Ctrl-C stops everything"
GIVE_UP_SECONDS = 600.0


def find_port() -> int:
    """A port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def restartable(directory: Path) -> Generator[Callable[[], None]]:
    """A service on a port that stays; calling what it gives kills it and starts it again."""
    port = str(find_port())
    programs = [Program(RUN, directory, STRANDLINE_PORT=port)]
    programs[0].wait_for(READY)

    def restart() -> None:
        programs[-1].kill()
        programs.append(Program(RUN, directory, STRANDLINE_PORT=port))

    try:
        yield restart
    finally:
        programs[-1].kill()


def test_writer_stores_events_once_despite_killed_service(
    proof_size: Callable[[int], int],
) -> None:
    count = proof_size(EVENTS)
    kills = KILLS if count == EVENTS else 1
    deaths = {count * (kill + 1) // (kills + 1) for kill in range(kills)}
    expected = [f"event {n}" for n in range(count)]
    began = time.monotonic()
    with migrated_directory() as directory, restartable(directory) as restart:
        place = json.loads((directory / "local.json").read_text())
        with Strandline(place["url"], place["key"], retry=Retry(cap=1)) as client:
            with client.writer(max_pending=2_000, give_up_after=GIVE_UP_SECONDS) as writer:
                for n, text in enumerate(expected):
                    if n in deaths:
                        restart()
                    writer.add(text, user="alice")
            assert writer.stored == count
            (scope,) = client.scopes(user="alice")
            feed = client.events(scope.scope_id, user="alice", page_size=500)
            assert [event.content for event in feed] == expected
    print(f"{count} events, {kills} kills: {time.monotonic() - began:.0f} s")
