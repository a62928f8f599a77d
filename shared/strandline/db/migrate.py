"""Bring a database to the newest schema: roles by its administrator, migrations by the owner."""

import hashlib
import importlib.resources
import math
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
from psycopg import sql

from strandline.errors import Misconfigured

_LOCK = 7_265_310_482_119_847  # any constant: whoever holds it migrates, the others wait

BATCH_SECONDS = 60
"""The longest that a long migration's statement may take; a few are meant."""

_CREATE_MIGRATIONS_TABLE = """
create table if not exists schema_migrations (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp())
"""


class Migration(NamedTuple):
    """One numbered file: `NNNN_verb_noun.sql`, applied once, never edited or renamed."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def is_long(self) -> bool:
        """Whether it may take longer than a function lives: `-- long: <why>` is its first line.

        Such a file is one statement that touches a bounded number of one tenant's rows. It is
        repeated, each time in a transaction of its own, until it touches none, in every tenant."""
        return self.text.startswith("-- long: ")


def list_migrations() -> list[Migration]:
    """The files that ship with the package, in order."""
    files: list[Migration] = []
    for file in importlib.resources.files("strandline").joinpath("db/migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            files.append(Migration(int(match[1]), file.name, file.read_text("utf-8")))
    return sorted(files)


def prepare_roles(administrator: psycopg.Connection[Any], passwords: dict[str, str]) -> None:
    """Make roles and extensions and set the login roles' passwords. Idempotent; needs an
    administrator (CREATEROLE and the right to create the vector extension)."""
    text = (
        importlib.resources.files("strandline")
        .joinpath("db/migrations/roles.sql")
        .read_text("utf-8")
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


def migrate(
    owner: psycopg.Connection[Any],
    files: list[Migration] | None = None,
    deadline: float = math.inf,
) -> list[str]:
    """Apply what is missing, each file and its record in one transaction; gives the names applied.
    A long one is left at `deadline`, in time.monotonic() seconds, and what follows it waits for it:
    see `missing`.

    Safe on every start and from several processes at once. Raises Misconfigured when a file that
    was applied has been altered since or is missing here, and for a database that was created
    before the first of these files was written.
    """
    applied_names: list[str] = []
    with _migration_lock(owner):
        pending = list_pending(owner, files)
        while pending and not pending[0].is_long:
            _apply(owner, pending[0])
            applied_names.append(pending.pop(0).name)
    if not pending:
        return applied_names
    # Others may come between its batches: a newer release, or a second run of this one.
    if not _run_long_migration(owner, pending[0], deadline):
        return applied_names
    with _migration_lock(owner):
        if pending[0].number not in _read_applied(owner):  # nor has another run come to its end
            _record(owner, pending[0])
            applied_names.append(pending[0].name)
    return [*applied_names, *migrate(owner, files, deadline)]


def list_pending(
    owner: psycopg.Connection[Any], migration_files: list[Migration] | None = None
) -> list[Migration]:
    """The files that are not applied yet, in order. Raises as `migrate`."""
    files = list_migrations() if migration_files is None else migration_files
    owner.execute(_CREATE_MIGRATIONS_TABLE)
    applied = _read_applied(owner)
    _require_same_history(files, applied)
    _require_unaltered(files, applied)
    return [file for file in files if file.number not in applied]


def list_newer(owner: psycopg.Connection[Any]) -> list[str]:
    """Applied migrations that come after the last one of this release, by name: the database is of
    a later one. Raises Misconfigured for a database of another history."""
    with _migration_lock(owner):  # `if not exists` still collides with whoever just makes it
        owner.execute(_CREATE_MIGRATIONS_TABLE)
    files, applied = list_migrations(), _read_applied(owner)
    _require_same_history(files, applied)
    return [name for number, (name, _) in sorted(applied.items()) if number > files[-1].number]


@contextmanager
def _migration_lock(owner: psycopg.Connection[Any]) -> Generator[None]:
    """While this lasts nobody else migrates this database."""
    owner.execute("select pg_advisory_lock(%s)", (_LOCK,))
    try:
        yield
    finally:
        owner.execute("select pg_advisory_unlock(%s)", (_LOCK,))


def _run_long_migration(owner: psycopg.Connection[Any], file: Migration, deadline: float) -> bool:
    """Repeat a long file until it is done, or the time is over; says whether it is done. Tenants
    that are made meanwhile are gone through too: code of the release before serves them."""
    finished_tenants = set[str]()
    while remaining := [
        tenant for tenant in _list_tenants(owner) if tenant not in finished_tenants
    ]:
        for tenant in remaining:
            while True:
                if time.monotonic() > deadline:
                    return False
                if not _run_batch(owner, file, tenant):
                    break
            finished_tenants.add(tenant)
    return True


def _list_tenants(owner: psycopg.Connection[Any]) -> list[str]:
    """All of them: the owner sees none by itself."""
    with owner.transaction():
        owner.execute("set local role strandline_planner")
        rows = owner.execute("select tenant_id from tenants order by 1").fetchall()
    return [tenant for (tenant,) in rows]


def _run_batch(owner: psycopg.Connection[Any], file: Migration, tenant: str) -> int:
    """A long file once, in one tenant; gives the rows that it touched. Raises Misconfigured where
    that number says nothing: row-level security hides what it hides without a word."""
    with owner.transaction():
        owner.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        owner.execute(
            "select set_config('strandline.tenant', %s, true),"
            " set_config('strandline.viewer', '{}', true),"
            " set_config('statement_timeout', %s, true)",
            (tenant, f"{BATCH_SECONDS}s"),
        )
        visible_tenants = owner.execute("select tenant_id from tenants").fetchall()
        cursor = _execute(owner, file)
        if visible_tenants != [(tenant,)] or cursor.nextset() or cursor.rowcount < 0:
            raise Misconfigured(
                f"Migration {file.name} is long: it must be one statement, which says how many of "
                "the tenant's rows it touched."
            )
        return cursor.rowcount


def _read_applied(owner: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    rows = owner.execute("select number, name, checksum from schema_migrations").fetchall()
    return {number: (name, checksum) for number, name, checksum in rows}


def _require_same_history(files: list[Migration], applied: dict[int, tuple[str, str]]) -> None:
    """A database whose first migration is another one was created before the baseline: by files
    that had the same numbers and no longer exist."""
    first = applied.get(files[0].number)
    if first is not None and first[0] != files[0].name:
        raise Misconfigured(
            f"The database was created before this schema's baseline: its first migration is "
            f"{first[0]}, here it is {files[0].name}. No migration leads from one to the other: "
            "start with an empty database. After `make run` that means: delete the data directory "
            "(STRANDLINE_DATA_DIR, by default .strandline)."
        )


def _require_unaltered(files: list[Migration], applied: dict[int, tuple[str, str]]) -> None:
    file_by_number = {file.number: file for file in files}
    for number, (name, checksum) in sorted(applied.items()):
        file = file_by_number.get(number)
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
    try:
        with owner.transaction():
            _execute(owner, file)
            _record(owner, file)
    except psycopg.Error as error:
        error.add_note(file.name)
        raise


def _execute(owner: psycopg.Connection[Any], file: Migration) -> psycopg.Cursor[Any]:
    return owner.execute(cast(LiteralString, file.text))


def _record(owner: psycopg.Connection[Any], file: Migration) -> None:
    owner.execute(
        "insert into schema_migrations (number, name, checksum) values (%s, %s, %s)",
        (file.number, file.name, file.checksum),
    )
