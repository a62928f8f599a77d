"""One populated database for the tests of isolation, cloned for each of them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import sql

from strandline.config import get_settings
from strandline.embeddings.embedder import Embedder
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.strandline.db.isolation import populate
from tests.support import KEY_SECRET, TEMPLATE, Gateway, ScratchDatabase, unique_name, wire_handlers

_TABLES = """
select tablename::text from pg_tables
where schemaname = 'public' or (schemaname = 'pg_catalog' and tablename in
    ('pg_class', 'pg_attribute', 'pg_constraint', 'pg_trigger', 'pg_policy', 'pg_proc', 'pg_index'))
"""


@dataclass(frozen=True)
class World:
    """A database that holds something of everybody in every table; nobody is connected to it."""

    base: ScratchDatabase
    copies: dict[str, list[tuple[Any, ...]]] = field(
        default_factory=dict[str, list[tuple[Any, ...]]]
    )
    """Copies of it that are as they were when they were made, by name."""

    def lend(self) -> ScratchDatabase:
        """A copy that nobody else uses."""
        server = self.base.server
        if self.copies:
            return ScratchDatabase(server, next(reversed(self.copies)))
        scratch_database = ScratchDatabase(server, unique_name())
        server.clone_database(self.base.name, scratch_database.name)
        self.copies[scratch_database.name] = _read_marks(scratch_database)
        return scratch_database

    def take_back(self, database: ScratchDatabase) -> None:
        """Keep a copy for the next test unless any row of it, or of its catalogue, was changed."""
        with suppress(psycopg.Error):
            if _read_marks(database) == self.copies[database.name]:
                return
        del self.copies[database.name]
        database.server.drop_database(database.name)


def _read_marks(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    """Of each table how many rows it has, and the transaction that wrote the newest of them: they
    change with every row that is added, changed or removed."""
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        statement = sql.SQL(" union all ").join(
            sql.SQL("select {}, count(*), max(xmin::text::bigint) from {}").format(
                sql.Literal(name), sql.Identifier(name)
            )
            for (name,) in administrator.execute(_TABLES)
        )
        marks = administrator.execute(statement).fetchall()
    return sorted(marks)


@pytest.fixture(scope="session")
def worlds() -> list[World]:
    """The one that was filled already, if there is one."""
    return []


@pytest.fixture(scope="module")
def world(
    worlds: list[World], server: EmbeddedPostgres, aws: LocalAws, embedder: Embedder
) -> World:
    """Filled through the gateway, once a run, and then only copied."""
    if not worlds:
        worlds.append(_fill(server, aws, embedder))
    return worlds[0]


def _fill(server: EmbeddedPostgres, aws: LocalAws, embedder: Embedder) -> World:
    name = unique_name()
    server.clone_database(TEMPLATE, name)
    base = ScratchDatabase(server, name)
    with pytest.MonkeyPatch.context() as patch:
        services = wire_handlers(
            {
                "STRANDLINE_DATABASE_URL": base.url,
                "STRANDLINE_BUCKET": aws.bucket,
                "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
                "STRANDLINE_KEY_SECRET": KEY_SECRET,
            },
            patch,
            embedder,
        )
        gateway = Gateway(base.url)
        populate(gateway, base)
        for database in [gateway.database, *(service.database for service in services)]:
            database.close()
    get_settings.cache_clear()
    return World(base)


@pytest.fixture
def copy(world: World) -> Iterator[ScratchDatabase]:
    """The populated database, to be broken."""
    copied = world.lend()
    yield copied
    world.take_back(copied)
