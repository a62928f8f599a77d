"""Migrate a database to the newest schema: roles by its administrator, migrations by the owner."""

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

_LOCK = 7_265_310_482_119_847  # any constant: the holder migrates, others wait

BATCH_SECONDS = 60
"""The timeout of one batch of a long migration, in seconds; a few seconds are intended."""

_CREATE_MIGRATIONS_TABLE = """
create table if not exists schema_migrations (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp())
"""


class Migration(NamedTuple):
    """A numbered file `NNNN_verb_noun.sql`, applied once, never edited or renamed."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def is_long(self) -> bool:
        """Whether it may take longer than a Lambda function can run: its first line is `-- long:
        <why>`.

        Such a file is one statement that changes a bounded number of one tenant's rows. It is
        repeated, each time in its own transaction, until it changes none, in every tenant.
        """
        return self.text.startswith("-- long: ")


def list_migrations() -> list[Migration]:
    """The migrations in the package, in order."""
    files: list[Migration] = []
    for file in importlib.resources.files("strandline").joinpath("db/migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            files.append(Migration(int(match[1]), file.name, file.read_text("utf-8")))
    return sorted(files)


def prepare_roles(administrator: psycopg.Connection[Any], passwords: dict[str, str]) -> None:
    """Create roles and extensions, and set the login roles' passwords, given by role name.
    Idempotent. Needs an administrator: CREATEROLE and the right to create the vector extension."""
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
    """Apply pending migrations, each with its record in one transaction. Returns the names applied.

    A long migration stops at `deadline`, in time.monotonic() seconds, and those after it wait: see
    `list_pending`. Safe on every start and from several processes at once. Raises Misconfigured
    when an applied file was altered or is missing here, and for a database that was created before
    the first of these files was written.
    """
    applied_names: list[str] = []
    with _migration_lock(owner):
        pending = list_pending(owner, files)
        while pending and not pending[0].is_long:
            _apply(owner, pending[0])
            applied_names.append(pending.pop(0).name)
    if not pending:
        return applied_names
    # Another process may run between its batches: a newer release, or a second run of this one.
    if not _run_long_migration(owner, pending[0], deadline):
        return applied_names
    with _migration_lock(owner):
        if pending[0].number not in _read_applied(owner):  # unless another run finished it
            _record(owner, pending[0])
            applied_names.append(pending[0].name)
    return [*applied_names, *migrate(owner, files, deadline)]


def list_pending(
    owner: psycopg.Connection[Any], migration_files: list[Migration] | None = None
) -> list[Migration]:
    """The migrations that are not applied yet, in order. Raises Misconfigured as `migrate`."""
    files = list_migrations() if migration_files is None else migration_files
    owner.execute(_CREATE_MIGRATIONS_TABLE)
    history = _read_applied(owner)
    _require_same_baseline(files, history)
    _require_unaltered(files, history)
    return [file for file in files if file.number not in history]


def list_newer(owner: psycopg.Connection[Any]) -> list[str]:
    """Names of applied migrations that are newer than the last one of this release: the database is
    of a later release. Raises Misconfigured for a database with another history."""
    with _migration_lock(owner):  # concurrent `create … if not exists` can still collide
        owner.execute(_CREATE_MIGRATIONS_TABLE)
    files, history = list_migrations(), _read_applied(owner)
    _require_same_baseline(files, history)
    return [name for number, (name, _) in sorted(history.items()) if number > files[-1].number]


@contextmanager
def _migration_lock(owner: psycopg.Connection[Any]) -> Generator[None]:
    """Hold the lock that lets only one process migrate this database."""
    owner.execute("select pg_advisory_lock(%s)", (_LOCK,))
    try:
        yield
    finally:
        owner.execute("select pg_advisory_unlock(%s)", (_LOCK,))


def _run_long_migration(owner: psycopg.Connection[Any], file: Migration, deadline: float) -> bool:
    """Repeat a long migration until it is done or `deadline` is past. Returns whether it is done.
    Tenants created meanwhile are included: the previous release's code still serves them."""
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
    """All tenants, read as the planner: the owner's own role sees none."""
    with owner.transaction():
        owner.execute("set local role strandline_planner")
        rows = owner.execute("select tenant_id from tenants order by 1").fetchall()
    return [tenant for (tenant,) in rows]


def _run_batch(owner: psycopg.Connection[Any], file: Migration, tenant: str) -> int:
    """Run one batch of a long migration in one tenant. Returns the number of rows changed. Raises
    Misconfigured where that number is meaningless: row-level security hides rows silently."""
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
                f"Migration {file.name} is long: it must be one statement that reports how many of "
                "the tenant's rows it changed."
            )
        return cursor.rowcount


def _read_applied(owner: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    rows = owner.execute("select number, name, checksum from schema_migrations").fetchall()
    return {number: (name, checksum) for number, name, checksum in rows}


def _require_same_baseline(files: list[Migration], history: dict[int, tuple[str, str]]) -> None:
    """Raise Misconfigured for a database whose first migration is another one. It was created
    before the baseline, by files with the same numbers that no longer exist."""
    first = history.get(files[0].number)
    if first is not None and first[0] != files[0].name:
        raise Misconfigured(
            f"The database was created before this schema's baseline: its first migration is "
            f"{first[0]}, here it is {files[0].name}. No migration leads from one to the other: "
            "start with an empty database. After `make run` that means: delete the data directory "
            "(STRANDLINE_DATA_DIR, by default .strandline)."
        )


def _require_unaltered(files: list[Migration], history: dict[int, tuple[str, str]]) -> None:
    file_by_number = {file.number: file for file in files}
    for number, (name, checksum) in sorted(history.items()):
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
