"""Bring a database to the newest schema: roles by its administrator, migrations by the owner."""

import hashlib
import importlib.resources
import os
import re
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
from psycopg import sql

from strandline.errors import Misconfigured

_LOCK = 7_265_310_482_119_847  # any constant: whoever holds it migrates, the others wait

_BOOKKEEPING = """
create table if not exists schema_migrations (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp())
"""


class Migration(NamedTuple):
    """One numbered file: `NNNN_verb_noun.sql`, applied once, never edited."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """The files that ship with the package, in order."""
    found: list[Migration] = []
    for file in importlib.resources.files("strandline").joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            found.append(Migration(int(match[1]), file.name, file.read_text("utf-8")))
    return sorted(found)


def prepare_roles(administrator: psycopg.Connection[Any], passwords: dict[str, str]) -> None:
    """Make roles and extensions and set the login roles' passwords. Idempotent; needs an
    administrator (CREATEROLE and the right to create the vector extension)."""
    text = (
        importlib.resources.files("strandline").joinpath("migrations/roles.sql").read_text("utf-8")
    )
    with administrator.transaction():
        administrator.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        administrator.execute(cast(LiteralString, text))
        for role, password in passwords.items():
            administrator.execute(
                sql.SQL("alter role {} password {}").format(
                    sql.Identifier(role), sql.Literal(password)
                )
            )


def migrate(owner: psycopg.Connection[Any], wanted: list[Migration] | None = None) -> list[str]:
    """Apply what is missing, each file and its record in one transaction; gives the names applied.

    Safe on every start and from several processes at once. Raises Misconfigured when a file that
    was applied has been altered since, or is missing here.
    """
    files = migrations() if wanted is None else wanted
    applied: list[str] = []
    owner.execute("select pg_advisory_lock(%s)", (_LOCK,))
    try:
        owner.execute(_BOOKKEEPING)
        done = _applied(owner)
        _refuse_altered(files, done)
        for file in files:
            if file.number not in done:
                _apply(owner, file)
                applied.append(file.name)
    finally:
        owner.execute("select pg_advisory_unlock(%s)", (_LOCK,))
    return applied


def migrate_from_environment() -> list[str]:
    """Apply what is missing, as the owner that STRANDLINE_OWNER_DATABASE_URL names."""
    url = os.environ.get("STRANDLINE_OWNER_DATABASE_URL")
    if not url:
        raise Misconfigured("STRANDLINE_OWNER_DATABASE_URL is not set: where the owner connects.")
    with psycopg.connect(url, autocommit=True) as owner:
        return migrate(owner)


def _applied(owner: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    rows = owner.execute("select number, name, checksum from schema_migrations").fetchall()
    return {number: (name, checksum) for number, name, checksum in rows}


def _refuse_altered(files: list[Migration], done: dict[int, tuple[str, str]]) -> None:
    shipped = {file.number: file for file in files}
    for number, (name, checksum) in sorted(done.items()):
        file = shipped.get(number)
        if file is None:
            raise Misconfigured(
                f"The database has migration {name}, which this release does not know: deploy a "
                "release at least as new as the database."
            )
        if file.checksum != checksum:
            raise Misconfigured(
                f"Migration {file.name} was altered after it was applied: restore the file and put "
                "the change into a new migration."
            )


def _apply(owner: psycopg.Connection[Any], file: Migration) -> None:
    with owner.transaction():
        owner.execute(cast(LiteralString, file.text))
        owner.execute(
            "insert into schema_migrations (number, name, checksum) values (%s, %s, %s)",
            (file.number, file.name, file.checksum),
        )
