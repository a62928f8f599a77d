"""Fixtures of the tests of the schema."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from strandline.db.migrate import prepare_roles
from strandline.local.postgres import EmbeddedPostgres
from tests.strandline.db.world import copy, world, worlds
from tests.support import PASSWORDS, ScratchDatabase, unique_name

__all__ = ["copy", "world", "worlds"]


@pytest.fixture
def empty(server: EmbeddedPostgres) -> Iterator[ScratchDatabase]:
    """A database with roles and extensions, and no table."""
    name = unique_name()
    with psycopg.connect(server.dsn(), autocommit=True) as administrator:
        statement = sql.SQL("create database {} strategy file_copy")
        administrator.execute(statement.format(sql.Identifier(name)))
    with psycopg.connect(server.dsn(name), autocommit=True) as administrator:
        prepare_roles(administrator, PASSWORDS)
    yield ScratchDatabase(server, name)
    server.drop_database(name)
