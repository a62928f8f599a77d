"""Fixtures of the proofs: servers that may be killed."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from strandline.db.database import Database
from strandline.local.postgres import EmbeddedPostgres
from tests.prove.history import add_tenant
from tests.support import TEMPLATE, ScratchDatabase, make_template


@pytest.fixture
def start_durable_server() -> Iterator[Callable[..., EmbeddedPostgres]]:
    """Starts a durable server of the test's own, with these parameters. Its database TEMPLATE has
    a schema and a tenant that no crash can take."""
    # Not pytest's own directory: the server's account does not reach that.
    directory = Path(tempfile.mkdtemp(prefix="strandline-prove-"))
    directory.chmod(0o711)

    def start(**settings: str) -> EmbeddedPostgres:
        server = EmbeddedPostgres(directory / "server", durable=True, settings=settings)
        stack.enter_context(server)
        make_template(server)
        with closing(Database(ScratchDatabase(server, TEMPLATE).url)) as database:
            add_tenant(database)
        with psycopg.connect(server.dsn(), autocommit=True) as administrator:
            administrator.execute("checkpoint")
        return server

    with ExitStack() as stack:
        yield start
    shutil.rmtree(directory)
