"""A database that an older release left, with what was said in it.

It is a dump of a data directory: 25 events of two scopes, 24 of them folded into a chain. Its
schema was made by migrations up to 0055, whose files are gone.
"""

import lzma
from pathlib import Path

import psycopg
from psycopg import sql

from strandline.db.migrate import prepare_roles
from strandline.local.postgres import EmbeddedPostgres

_DUMP = Path(__file__).with_name("strandline") / "db" / "database_0055.sql.xz"
EVENTS = 25


def restore_older_database(server: EmbeddedPostgres, name: str, passwords: dict[str, str]) -> None:
    """Create it under this name, with the roles that its owners and rights name."""
    with psycopg.connect(server.dsn(), autocommit=True) as administrator:
        administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(server.dsn(name), autocommit=True) as administrator:
        prepare_roles(administrator, passwords)
        administrator.execute(lzma.decompress(_DUMP.read_bytes()))
