"""Fixtures: one embedded server a run, one database a test, the real handlers."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.config import get_settings
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.minilm import LocalEmbedder
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.support import (
    KEY_SECRET,
    TEMPLATE,
    Gateway,
    ScratchDatabase,
    make_template,
    unique_name,
    wire_handlers,
)

CASES = 20_000
"""Requests that are made up against the API, at full size."""


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the machine reaches a test, and none of a test the next."""
    for name in list(os.environ):
        if name.startswith("STRANDLINE_"):
            monkeypatch.delenv(name)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """One embedded Postgres for the run, with the migrated template."""
    # Root's server runs as nobody, who must be able to enter: pytest's own folders are closed.
    directory = Path(tempfile.mkdtemp(prefix="strandline-test-"))
    directory.chmod(0o711)
    try:
        with EmbeddedPostgres(directory, durable=False) as running:
            make_template(running)
            yield running
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def scratch_db(server: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """A database of the test's own."""
    name = unique_name()
    server.clone_database(TEMPLATE, name)
    yield ScratchDatabase(server, name)
    server.drop_database(name)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """S3 and SQS in this process."""
    with LocalAws(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """The model that ships, loaded once."""
    return LocalEmbedder()


@pytest.fixture
def gateway(
    scratch_db: ScratchDatabase, aws: LocalAws, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gateway]:
    """The whole service but its HTTP server: real handlers, database, queue and bucket."""
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


@pytest.fixture
def repository() -> Path:
    """The project's root."""
    return Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make prove` runs the sizes that were promised, `make test` a tenth of them."""
    parser.addoption("--full", action="store_true", help="run proofs at their full size")
    parser.addoption("--cases", type=int, help="requests that schemathesis makes up")


@pytest.fixture
def scaled(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """A promised size, or a tenth of it."""
    full = bool(request.config.getoption("--full"))
    return lambda size: size if full else max(1, size // 10)


@pytest.fixture
def case_count(request: pytest.FixtureRequest, scaled: Callable[[int], int]) -> int:
    """Requests that are made up against the API."""
    option: int | None = request.config.getoption("--cases")
    return scaled(CASES) if option is None else option
