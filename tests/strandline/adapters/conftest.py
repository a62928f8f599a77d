"""One service for all tests of the adapters, in a process of its own: they run in an environment
without the service's packages, as the programs of users do. Each test has users of its own."""

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strandline import Strandline

ROOT = Path(__file__).parents[3]


class Service:
    """The service that runs beside the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(ROOT / ".venv/bin/python"), "-m", "tests.strandline.adapters.service_program"],
            cwd=ROOT,
            env={
                **{n: v for n, v in os.environ.items() if not n.startswith("STRANDLINE_")},
                "PYTHONPATH": f"{ROOT / 'shared'}{os.pathsep}{ROOT}",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the service did not start"
        says: dict[str, Any] = json.loads(line)
        self.url: str = says["url"]
        self.key: str = says["key"]
        self.erasing_key: str = says["erasing_key"]
        self.key_of_ann: str = says["key_of_ann"]
        self.key_of_ben: str = says["key_of_ben"]

    def restart(self) -> None:
        """Kill it and its database, and start it again at the same address."""
        self._tell("restart\n")
        self._read()

    def stop(self) -> None:
        """End it, with all that it stored."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()


def lose_first_answer(holder: object) -> None:
    """Make the client of an adapter lose the answer to its next request, which was carried out."""
    memory: Any = getattr(holder, "_memory", None)
    clients: Any = vars(holder)["_clients"] if memory is None else memory.clients
    perform, errors = clients.asynchronous.perform, [ConnectionError("the answer was lost")]

    async def lose(call: Any) -> Any:
        answer = await perform(call)
        if errors:
            raise errors.pop()
        return answer

    clients.asynchronous.perform = lose


def act_before_request(
    client: Strandline, method: str, path: str, act: Callable[[], object]
) -> None:
    """Let another program act once, just before the client's next request of this kind, whose path
    ends so."""
    perform = client.perform

    def perform_after_other(call: Any) -> Any:
        if call.method == method and call.path.endswith(path):
            client.perform = perform
            act()
        return perform(call)

    client.perform = perform_after_other


def list_texts(client: Strandline, user: str) -> list[tuple[str, str, bool]]:
    """What was said by a user and the agent, in order: the role, the text, whether in a session."""
    events = [*client.get_all(user=user, agent="helper")][::-1]
    return [(event.role, str(event.content), event.session_id is not None) for event in events]


class Users(NamedTuple):
    """Two users whom no other test knows."""

    alice: str
    bob: str


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.stop()


@pytest.fixture
def users() -> Users:
    number = uuid.uuid4().hex[:8]
    return Users(f"alice-{number}", f"bob-{number}")


@pytest.fixture(autouse=True)
def environment(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings that programs of users have."""
    for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("STRANDLINE_URL", service.url)
    monkeypatch.setenv("STRANDLINE_API_KEY", service.key)


@pytest.fixture
def client(service: Service) -> Iterator[Strandline]:
    """A client that may erase."""
    with Strandline(service.url, service.erasing_key) as client:
        yield client
