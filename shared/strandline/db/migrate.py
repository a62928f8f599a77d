"""Migrate a database to the newest schema: roles by its administrator, migrations by the owner.

The previous release serves meanwhile. A request that needs a table queues behind the migration that
waits for this table's lock, so a migration waits a moment only, and tries again.
"""

import functools
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from strandline.db.adoption import bring_database_to_baseline, require_history_leading_to_baseline
from strandline.db.schema_files import (
    FunctionFile,
    Migration,
    execute_sql_text,
    list_function_files,
    list_migrations,
    read_roles_sql,
)
from strandline.errors import Misconfigured
from strandline.observability import logger

__all__ = [
    "WAITING_LOCK",
    "Migration",
    "list_migrations",
    "list_newer_applied_migrations",
    "list_pending_migrations",
    "migrate",
    "prepare_roles",
]

_LOCK = 7_265_310_482_119_847  # any constant: the holder migrates, others wait
WAITING_LOCK = 7_265_310_482_119_846
"""The key of the advisory lock that a migration holds in shared mode as long as it may wait for
tables: meanwhile nobody should take a lock that it would wait for."""
_LOCK_TIMEOUT = "2s"
"""How long a migration waits for a lock, and at most how long requests queue behind it."""
_LOCK_PAUSES = (1.0, 2.0, 5.0, 10.0)
"""Pauses between attempts to get all locks, in seconds: requests that queued pass. The last one is
repeated until the deadline."""
_LOCK_ERRORS = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

BATCH_SECONDS = 60
"""The timeout of one batch of a long migration, in seconds; a few seconds are intended."""

_CREATE_BOOKKEEPING = """
create table if not exists schema_migrations (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp());
create table if not exists schema_functions (
    room text primary key,
    revision int not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp())
"""
_RECORD_FUNCTIONS = """
insert into schema_functions (room, revision, checksum) values (%s, %s, %s)
on conflict (room) do update set revision = excluded.revision, checksum = excluded.checksum,
    applied_at = default
"""


def prepare_roles(administrator: psycopg.Connection[Any], passwords: dict[str, str]) -> None:
    """Create roles and extensions, and set the login roles' passwords, given by role name.
    Idempotent. Needs an administrator: CREATEROLE and the right to create the vector extension."""
    with administrator.transaction():
        administrator.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        execute_sql_text(administrator, read_roles_sql())
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
    """Apply pending migrations, each with its record in one transaction, then the rooms' functions
    whose revision has risen, all in one. Returns the names of the files applied. With `files`, only
    these: no functions.

    A long migration stops at `deadline`, in time.monotonic() seconds, and those after it wait: see
    `list_pending_migrations`. A file that does not get its locks by then raises the driver's error.
    Safe on every start and from several processes at once. Raises Misconfigured when an applied
    file was altered or is missing here, and for a database that cannot be adopted: see
    `bring_database_to_baseline`."""
    applied_names: list[str] = []
    with _hold_migration_lock(owner):
        owner.execute(_CREATE_BOOKKEEPING)
        if files is None:
            baseline, history = list_migrations()[0], _read_applied_migrations(owner)
            _retry_until_locked(
                owner, deadline, lambda: bring_database_to_baseline(owner, baseline, history)
            )
        pending = list_pending_migrations(owner, files)
        while pending and not pending[0].is_long:
            file = pending.pop(0)
            _retry_until_locked(
                owner, deadline, functools.partial(_apply_and_record_migration, owner, file)
            )
            applied_names.append(file.name)
        # They come before a long migration, as the code that calls them does; but after all tables.
        if files is None and all(file.is_long for file in pending):
            applied_names += _retry_until_locked(
                owner, deadline, lambda: apply_newer_function_files(owner, list_function_files())
            )
    if not pending:
        return applied_names
    # Another process may run between its batches: a newer release, or a second run of this one.
    if not _run_long_migration(owner, pending[0], deadline):
        return applied_names
    with _hold_migration_lock(owner):
        if pending[0].number not in _read_applied_migrations(
            owner
        ):  # unless another run finished it
            _record_migration(owner, pending[0])
            applied_names.append(pending[0].name)
    return [*applied_names, *migrate(owner, files, deadline)]


def list_pending_migrations(
    owner: psycopg.Connection[Any], migration_files: list[Migration] | None = None
) -> list[Migration]:
    """The migrations that are not applied yet, in order. Raises Misconfigured as `migrate`."""
    files = list_migrations() if migration_files is None else migration_files
    owner.execute(_CREATE_BOOKKEEPING)
    history = _read_applied_migrations(owner)
    if migration_files is None:
        require_history_leading_to_baseline(history)
    _require_unaltered_files(files, history)
    return [file for file in files if file.number not in history]


def list_newer_applied_migrations(owner: psycopg.Connection[Any]) -> list[str]:
    """Names of applied migrations that are newer than the last one of this release: the database is
    of a later release. Raises Misconfigured for a database with another history."""
    with _hold_migration_lock(owner):  # concurrent `create … if not exists` can still collide
        owner.execute(_CREATE_BOOKKEEPING)
    files, history = list_migrations(), _read_applied_migrations(owner)
    require_history_leading_to_baseline(history)
    return [name for number, (name, _) in sorted(history.items()) if number > files[-1].number]


def apply_newer_function_files(
    owner: psycopg.Connection[Any], files: Iterable[FunctionFile]
) -> list[str]:
    """Apply the files whose revision is higher than the one that the database has, in one
    transaction; a later release's functions stay. Returns their names. Raises Misconfigured where a
    text was altered and its revision was not."""
    with owner.transaction():
        rows = owner.execute("select room, revision, checksum from schema_functions").fetchall()
        record_by_room = {room: (revision, checksum) for room, revision, checksum in rows}
        newer = [
            file
            for file in files
            if _has_newer_revision(file, *record_by_room.get(file.room, (0, "")))
        ]
        with _let_function_owners_create(owner, {role for file in newer for role in file.owners}):
            for file in newer:
                with _note_file_name_on_error(file.name):
                    execute_sql_text(owner, file.text)
                    row = file.room, file.revision, file.checksum
                    owner.execute(_RECORD_FUNCTIONS, row)
    return [file.name for file in newer]


def _has_newer_revision(file: FunctionFile, revision: int, checksum: str) -> bool:
    if file.revision == revision and file.checksum != checksum:
        raise Misconfigured(
            f"{file.name} was altered after its revision {revision} was applied: restore the file, "
            f"or give it the revision {revision + 1}."
        )
    return file.revision > revision


@contextmanager
def _let_function_owners_create(owner: psycopg.Connection[Any], roles: set[str]) -> Generator[None]:
    """Let these roles create in the schema, as the owner of a new function must: only here."""
    names = sql.SQL(", ").join(map(sql.Identifier, sorted(roles)))
    if roles:
        owner.execute(sql.SQL("grant create on schema public to {}").format(names))
    yield
    if roles:
        owner.execute(sql.SQL("revoke create on schema public from {}").format(names))


@contextmanager
def _hold_migration_lock(owner: psycopg.Connection[Any]) -> Generator[None]:
    """Hold the lock that lets only one process migrate this database."""
    owner.execute("select pg_advisory_lock(%s)", (_LOCK,))
    try:
        yield
    finally:
        owner.execute("select pg_advisory_unlock(%s)", (_LOCK,))


def _retry_until_locked[Value](
    owner: psycopg.Connection[Any], deadline: float, attempt: Callable[[], Value]
) -> Value:
    """Repeat a transaction until it gets its locks, each within _LOCK_TIMEOUT. Raises the driver's
    error of the last attempt before `deadline`."""
    owner.execute("select pg_advisory_lock_shared(%s)", (WAITING_LOCK,))
    try:
        for pause in itertools.chain(_LOCK_PAUSES, itertools.repeat(_LOCK_PAUSES[-1])):
            try:
                with owner.transaction():
                    owner.execute("select set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
                    return attempt()
            except _LOCK_ERRORS as error:
                if time.monotonic() + pause > deadline:
                    raise
                files = getattr(error, "__notes__", [])
                logger.info("a migration waits for a lock", extra={"files": files})
            time.sleep(pause)
    finally:
        if not owner.closed:
            owner.execute("select pg_advisory_unlock_shared(%s)", (WAITING_LOCK,))
    raise AssertionError("pauses have no end")


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
                batch = functools.partial(_run_migration_batch, owner, file, tenant)
                try:
                    if not _retry_until_locked(owner, deadline, batch):
                        break
                except _LOCK_ERRORS:
                    return False
            finished_tenants.add(tenant)
    return True


def _list_tenants(owner: psycopg.Connection[Any]) -> list[str]:
    """All tenants, read as the planner: the owner's own role sees none."""
    with owner.transaction():
        owner.execute("set local role strandline_planner")
        rows = owner.execute("select tenant_id from tenants order by 1").fetchall()
    return [tenant for (tenant,) in rows]


def _run_migration_batch(owner: psycopg.Connection[Any], file: Migration, tenant: str) -> int:
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
        cursor = execute_sql_text(owner, file.text)
        if visible_tenants != [(tenant,)] or cursor.nextset() or cursor.rowcount < 0:
            raise Misconfigured(
                f"Migration {file.name} is long: it must be one statement that reports how many of "
                "the tenant's rows it changed."
            )
        return cursor.rowcount


def _read_applied_migrations(owner: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    rows = owner.execute("select number, name, checksum from schema_migrations").fetchall()
    return {number: (name, checksum) for number, name, checksum in rows}


def _require_unaltered_files(files: list[Migration], history: dict[int, tuple[str, str]]) -> None:
    file_by_number = {file.number: file for file in files}
    for number, (name, checksum) in sorted(history.items()):
        if number < files[0].number:
            continue  # before the baseline
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


def _apply_and_record_migration(owner: psycopg.Connection[Any], file: Migration) -> None:
    """Apply a file and record it, in the transaction of `_retry_until_locked`."""
    with _note_file_name_on_error(file.name):
        execute_sql_text(owner, file.text)
        _record_migration(owner, file)


@contextmanager
def _note_file_name_on_error(name: str) -> Generator[None]:
    """Tell of which file an error is."""
    try:
        yield
    except psycopg.Error as error:
        error.add_note(name)
        raise


def _record_migration(owner: psycopg.Connection[Any], file: Migration) -> None:
    owner.execute(
        "insert into schema_migrations (number, name, checksum) values (%s, %s, %s)",
        (file.number, file.name, file.checksum),
    )
