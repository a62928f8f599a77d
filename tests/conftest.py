"""Fixtures: one embedded server a run, one database a test, the real handlers."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from strandline.config import get_settings
from strandline.db import connection as db_connection
from strandline.embeddings.embedder import Embedder
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.aws_clients import share_applications, share_clients
from tests.connections import SESSIONS
from tests.databases import DatabasePool
from tests.prove.proof_runner import CASES
from tests.seed_cluster import SETTINGS, copy_seed
from tests.server_directory import make_server_directory
from tests.support import (
    KEY_SECRET,
    CachedEmbedder,
    Gateway,
    Reply,
    ScratchDatabase,
    Tell,
    user_message,
    wire_handlers,
)

INTEGRATION_FOLDERS = ("infra", "layers", "prove")
SERVERS = {"server", "aurora"}
"""Fixtures that start a database."""
PROOFS = Path(__file__).parent / "prove"
EXAMPLES, EXAMPLES_SAMPLE = 300, 40
"""Of a property, at its full size and in a sample."""
SAMPLE = 40
"""`make test` runs one in so many of what `make prove` runs."""


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the machine reaches a test, and none of a test the next."""
    for name in list(os.environ):
        if name.startswith("STRANDLINE_"):
            monkeypatch.delenv(name)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def shared_clients() -> Iterator[None]:
    """Clients of AWS are made once for each `LocalAws`, and what answers them once."""
    with pytest.MonkeyPatch.context() as patch:
        share_clients(patch)
        share_applications(patch)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """One embedded Postgres for the run, with the migrated template."""
    with make_server_directory() as directory:
        copy_seed(directory)
        with EmbeddedPostgres(directory, durable=False, settings=SETTINGS) as running:
            yield running


@pytest.fixture(scope="session")
def databases(server: EmbeddedPostgres) -> Iterator[DatabasePool]:
    """The run's databases, whose sessions outlive a test."""
    pool = DatabasePool(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db_connection, "connect", SESSIONS.connect_service)
        yield pool
    pool.close()


@pytest.fixture
def scratch_db(
    databases: DatabasePool, request: pytest.FixtureRequest
) -> Iterator[ScratchDatabase]:
    """A database that no other test uses at the same time, without rows; with the marker
    `own_database` one that none has used before, with `own_sessions` one without sessions."""
    database = databases.lend(
        fresh=request.node.get_closest_marker("own_database") is not None,
        new_sessions=request.node.get_closest_marker("own_sessions") is not None,
    )
    yield database
    databases.take_back(database)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """S3 and SQS in this process."""
    with LocalAws(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """The model that ships, loaded once. Texts that many tests share are embedded once."""
    return CachedEmbedder()


@pytest.fixture
def has_documented_answers() -> bool:
    """Whether each answer of `gateway` has to be one that the document promises. Tests whose
    answers are not in it override this."""
    return True


@pytest.fixture
def gateway(
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
    has_documented_answers: bool,
) -> Iterator[Gateway]:
    """The whole service but its HTTP server: real handlers, database, queue and bucket."""
    if has_documented_answers:
        check_answers(monkeypatch)
    services = wire_handlers(
        {
            "STRANDLINE_DATABASE_URL": scratch_db.url,
            "STRANDLINE_BUCKET": aws.bucket,
            "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
            "STRANDLINE_KEY_SECRET": KEY_SECRET,
        },
        monkeypatch,
        embedder,
    )
    test_gateway = Gateway(scratch_db.url)
    yield test_gateway
    for database in [test_gateway.database, *(service.database for service in services)]:
        database.close()


def check_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare every answer of a gateway with the document. MCP is not in it: the official client
    checks its answers (tests/strandline/commands/test_mcp_stdio_bridge.py)."""
    from tests import contract

    call = Gateway.call

    def call_checked(front: Gateway, method: str, path: str, *body: object, **more: Any) -> Reply:
        reply = call(front, method, path, *body, **more)
        if "mcp" not in path:
            contract.check(method, path, reply)
        return reply

    monkeypatch.setattr(Gateway, "call", call_checked)


@pytest.fixture
def tell(gateway: Gateway) -> Tell:
    """Append an event and give its receipt: tell(key, "text", "user:alice", ..., field=value)."""

    def append(key: str, text: str, *who: str, **more: object) -> Any:
        reply = gateway.call("POST", "/api/v1/events", user_message(text, *who, **more), key=key)
        assert reply.status == 201, reply.text
        return reply.body

    return append


@pytest.fixture
def repository() -> Path:
    """The project's root."""
    return Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make prove` runs the sizes that were promised, `make test` a sample of them."""
    parser.addoption("--full", action="store_true", help="run proofs at their full size")
    parser.addoption("--quick", action="store_true", help="run what needs no database or program")
    parser.addoption("--renew-examples", action="store_true", help="write the answers of examples")
    parser.addoption("--cases", type=int, help="requests that schemathesis makes up")


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried with a sample of their examples, with `--full` with all. Without a
    deadline for an example: a time fails no test."""
    examples = EXAMPLES if config.getoption("--full") else EXAMPLES_SAMPLE
    hypothesis.settings.register_profile("strandline", max_examples=examples, deadline=None)
    hypothesis.settings.load_profile("strandline")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--quick`, do not even import what needs the stack, a build or a proof's servers."""
    is_integration = collection_path.parent == Path(__file__).parent and (
        collection_path.name in INTEGRATION_FOLDERS
    )
    return True if is_integration and config.getoption("--quick") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--full` no test that is only a proof; with `--quick` only tests that start no
    database, no build and no other program. The longest come first: processes that steal each
    other's tests then end at about the same time."""
    full, quick = config.getoption("--full"), config.getoption("--quick")
    selected = [
        item
        for item in items
        if (full or item.get_closest_marker("proof") is None)
        and not (quick and _is_integration(item))
    ]
    remaining = set(selected)
    config.hook.pytest_deselected(items=[item for item in items if item not in remaining])
    items[:] = sorted(selected, key=lambda item: PROOFS not in item.path.parents)


def pytest_collection() -> None:
    """What is collected stays: the garbage collector need not look at it, now and again and again,
    which takes a fifth of the processor time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From now on there is garbage. It is looked for less often than by default, which takes a
    twentieth of the processor time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def _is_integration(item: pytest.Item) -> bool:
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
    return not SERVERS.isdisjoint(fixtures) or item.get_closest_marker("integration") is not None


@pytest.fixture(scope="session")
def proof_size(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """A promised size, or a sample of it."""
    full = bool(request.config.getoption("--full"))
    return lambda size: size if full else max(1, size // SAMPLE)


@pytest.fixture
def case_count(request: pytest.FixtureRequest, proof_size: Callable[[int], int]) -> int:
    """Requests that are made up against the API."""
    option: int | None = request.config.getoption("--cases")
    return proof_size(CASES) if option is None else option
