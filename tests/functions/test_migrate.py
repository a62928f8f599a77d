"""The migrate function, called as a deployment calls it."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from functions.migrate.handler import lambda_handler
from strandline.errors import Misconfigured
from strandline.local.lambda_context import LambdaContext
from strandline.local.postgres import EmbeddedPostgres
from strandline.services.migrate import migrations, prepare_roles
from tests.support import EVENTS, PASSWORDS, Base, fresh_name

EVENT = json.loads((EVENTS / "migrate.json").read_text())


@pytest.fixture
def empty(server: EmbeddedPostgres) -> Iterator[Base]:
    name = fresh_name()
    with psycopg.connect(server.dsn(), autocommit=True) as administrator:
        administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(server.dsn(name), autocommit=True) as administrator:
        prepare_roles(administrator, PASSWORDS)
    yield Base(server, name)
    server.drop_database(name)


def test_a_fresh_database_is_brought_to_this_release(
    empty: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_OWNER_DATABASE_URL", empty.owner_url)
    context: Any = LambdaContext("migrate", 600)
    assert lambda_handler(EVENT, context) == {"applied": [file.name for file in migrations()]}
    assert lambda_handler(EVENT, context) == {"applied": []}
    assert empty.rows("select count(*) from events") == [(0,)]


def test_without_an_owner_to_connect_as_it_says_what_is_missing() -> None:
    context: Any = LambdaContext("migrate", 600)
    with pytest.raises(Misconfigured, match="STRANDLINE_OWNER_DATABASE_URL"):
        lambda_handler(EVENT, context)
