"""Fixtures of the proofs: servers that may be killed."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from strandline.db.database import Database
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.prove.append_history import add_tenant
from tests.seed_cluster import copy_seed
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import (
    KEY_SECRET,
    TEMPLATE,
    Gateway,
    ScratchDatabase,
    wire_handlers,
)


@pytest.fixture
def has_documented_answers() -> bool:
    """Proofs measure, and one of them (test_schemathesis.py) compares every answer by itself."""
    return False


@pytest.fixture
def start_durable_server() -> Iterator[Callable[..., EmbeddedPostgres]]:
    """Starts a durable server of the test's own, with these parameters. Its database TEMPLATE has
    a schema and a tenant that no crash can take."""
    # Not pytest's own directory: the server's account does not reach that.
    directory = Path(tempfile.mkdtemp(prefix="strandline-prove-"))
    directory.chmod(0o711)

    def start(**settings: str) -> EmbeddedPostgres:
        copy_seed(directory / "server")
        server = EmbeddedPostgres(directory / "server", durable=True, settings=settings)
        stack.enter_context(server)
        with closing(Database(ScratchDatabase(server, TEMPLATE).url)) as database:
            add_tenant(database)
        with psycopg.connect(server.dsn(), autocommit=True) as administrator:
            administrator.execute("checkpoint")
        return server

    with ExitStack() as stack:
        yield start
    shutil.rmtree(directory)


@pytest.fixture
def wire_plenty(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[WordEmbedder], Gateway]]:
    """Gives the service this embedder, and no quota to meet."""
    environment = {
        "STRANDLINE_DATABASE_URL": scratch_db.url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
        "STRANDLINE_TENANT_APPENDS_PER_MINUTE": "1000000",
        "STRANDLINE_TENANT_REQUESTS_PER_MINUTE": "1000000",
    }

    def wire(embedder: WordEmbedder) -> Gateway:
        for service in wire_handlers(environment, monkeypatch, embedder):
            stack.callback(service.database.close)
        return gateway

    with ExitStack() as stack:
        yield wire


@pytest.fixture
def plenty(wire_plenty: Callable[[WordEmbedder], Gateway]) -> Gateway:
    """The service with no quota to meet, and with vectors that cost nothing."""
    return wire_plenty(WordEmbedder("words/64", 64))
