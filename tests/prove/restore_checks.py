"""A database brought back into a cluster of its own, and the judges of what came back."""

import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg import sql

from strandline.db.database import Caller, Database
from strandline.db.migrate import prepare_roles
from strandline.local import postgres_installation
from strandline.local.postgres import EmbeddedPostgres
from strandline.log import store as log_store
from strandline.log.cid import Edge, compute_block_cid, encode_block
from tests.support import PASSWORDS, ScratchDatabase

GUARD_QUERIES = (
    "select 'row security', relname::text, relowner::regrole::text, relrowsecurity::text,"
    " relforcerowsecurity::text, relacl::text from pg_class"
    " where relnamespace = 'public'::regnamespace",
    "select 'columns', attrelid::regclass::text, attname::text, attacl::text, '', ''"
    " from pg_attribute where attacl is not null and attrelid >= 16384",
    "select 'policy', tablename::text, policyname::text, roles::text || cmd, qual, with_check"
    " from pg_policies where schemaname = 'public'",
    "select 'function', oid::regprocedure::text, proowner::regrole::text, prosecdef::text,"
    " proconfig::text, proacl::text from pg_proc where pronamespace = 'public'::regnamespace",
    "select 'trigger', tgrelid::regclass::text, tgname::text, tgenabled::text,"
    " tgfoid::regproc::text, '' from pg_trigger where not tgisinternal",
    "select 'constraint', conrelid::regclass::text, conname::text, pg_get_constraintdef(oid),"
    " convalidated::text, '' from pg_constraint where connamespace = 'public'::regnamespace",
    "select 'schema', nspname::text, nspacl::text, '', '', '' from pg_namespace"
    " where nspname = 'public'",
    "select 'role', rolname::text, rolsuper::text || rolbypassrls, rolcanlogin::text,"
    " rolcreaterole::text || rolcreatedb, rolconfig::text from pg_roles"
    " where rolname like 'strandline%%'",
    "select 'member', roleid::regrole::text, member::regrole::text, inherit_option::text,"
    " set_option::text, admin_option::text from pg_auth_members"
    " where roleid::regrole::text like 'strandline%%'",
)
"""Whatever keeps tenants apart and the log whole."""


def read_guards(base: ScratchDatabase) -> set[tuple[object, ...]]:
    """What guards this database, as it lies in the catalogue."""
    return {row for statement in GUARD_QUERIES for row in base.rows(statement)}


def checksum_tables(base: ScratchDatabase) -> dict[str, tuple[object, ...]]:
    """Of every table how many rows it has, and what they come to."""
    tables = base.rows("select tablename from pg_tables where schemaname = 'public'")
    return {
        name: base.rows(
            f"select count(*), md5(string_agg(t::text, '|' order by t::text)) from {name} t"  # noqa: S608
        )[0]
        for (name,) in tables
    }


def find_damage(base: ScratchDatabase) -> Iterator[str]:
    """What is wrong with a log: a gap in a scope's order, an event that its CID is not of."""
    gaps = base.rows(
        "select s.scope_id::text, s.last_seq, count(e), coalesce(max(e.seq), 0) from scopes s"
        " left join events e using (tenant_id, scope_id)"
        " group by s.tenant_id, s.scope_id, s.last_seq"
        " having count(e) <> s.last_seq or coalesce(max(e.seq), 0) <> s.last_seq"
    )
    yield from (f"scope {scope}: {count} events up to {last}" for scope, last, count, _ in gaps)
    database = Database(base.url)
    try:
        for tenant, event_id in base.rows("select tenant_id, event_id::text from events"):
            event = log_store.get_event(
                database.connect_as(Caller.background(tenant)), UUID(event_id)
            )
            if event is None:
                yield f"event {event_id} is not seen by its own tenant"
                continue
            edges = [Edge(edge["cid"], edge["weight"]) for edge in event.edges]
            if compute_block_cid(encode_block(event, edges)) != event.cid:
                yield f"event {event_id} does not hash to its CID"
    finally:
        database.close()


@contextmanager
def restore_from_dump(
    source: ScratchDatabase, directory: Path, *options: str
) -> Generator[ScratchDatabase]:
    """The database alone, row by row, by pg_dump and pg_restore as superuser: roles come from
    roles.sql, and transactions are numbered again."""
    dump = directory / "dump"
    _run("pg_dump", "--format=custom", f"--file={dump}", source.admin_url)
    with EmbeddedPostgres(directory / "restored", durable=False) as server:
        base = ScratchDatabase(server, source.name)
        with psycopg.connect(server.dsn(), autocommit=True) as administrator:
            statement = sql.SQL("create database {}")
            administrator.execute(statement.format(sql.Identifier(base.name)))
        with psycopg.connect(base.admin_url, autocommit=True) as administrator:
            prepare_roles(administrator, PASSWORDS)
        _run("pg_restore", "--exit-on-error", *options, f"--dbname={base.admin_url}", str(dump))
        yield base


@contextmanager
def restore_from_backup(source: ScratchDatabase, directory: Path) -> Generator[ScratchDatabase]:
    """The cluster's files with its log, as a snapshot of Aurora's volume is: roles and the numbers
    of transactions with it."""
    home = directory / "restored"
    home.mkdir()
    data = home / "pgdata"
    replica = source.server.dsn("replication")
    _run(
        "pg_basebackup", "--no-sync", "--checkpoint=fast", f"--pgdata={data}", f"--dbname={replica}"
    )
    (home / "password").write_text(source.server.password)
    account = postgres_installation.choose_server_account(home / "none")
    if account is not None:
        for path in (data, *data.rglob("*")):
            account.chown(path)
    with EmbeddedPostgres(home, durable=False) as server:
        yield ScratchDatabase(server, source.name)


def _run(program: str, *words: str) -> None:
    binaries = postgres_installation.find_or_copy_binaries(None)
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    subprocess.run([binaries / program, *words], check=True, env=environment)
