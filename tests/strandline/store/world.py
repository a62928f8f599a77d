"""One populated database for the tests of isolation, cloned for each of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from strandline.config import get_settings
from strandline.embeddings.embedder import Embedder
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.strandline.store.isolation import populate
from tests.support import KEY_SECRET, TEMPLATE, Gateway, ScratchDatabase, unique_name, wire_handlers


@dataclass(frozen=True)
class World:
    """A database that holds something of everybody in every table; nobody is connected to it."""

    base: ScratchDatabase


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
def copy(world: World, server: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """The populated database, to be broken."""
    name = unique_name()
    server.clone_database(world.base.name, name)
    yield ScratchDatabase(server, name)
    server.drop_database(name)
