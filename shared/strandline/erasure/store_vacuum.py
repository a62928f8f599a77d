"""SQL that vacuums the rows that an erasure deleted or changed.

Deleted and changed row versions stay in the table's pages until a vacuum finds that no transaction
can see them. The planner's statistics keep values until the next ANALYZE. Both commands run outside
of transactions, as the application's role, which has the MAINTAIN privilege on tables with memory.

A VACUUM holds a lock that a migration may need, and every request that needs the table would wait
behind that migration. So a vacuum yields, as autovacuum does.
"""

import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import errors, sql
from psycopg.errors import Diagnostic

from strandline.db.connection import Connection, translate_errors
from strandline.db.database import Database, TenantDb
from strandline.db.migrate import WAITING_LOCK
from strandline.erasure.data_inventory import DATA_LOCATIONS
from strandline.errors import OutcomeUnknown, Unavailable
from strandline.observability import logger

TABLES = tuple(table for table, hook in DATA_LOCATIONS.items() if hook.clearing != "kept")
"""The tables that erasures clear."""
_LEAST_SPACING = timedelta(minutes=1)
_TIME_SHARE = 0.05
"""The largest share of the time that vacuums take, unless a vacuum takes longer than 3 minutes."""
_WATCH_SECONDS = 0.5
"""How often a running vacuum looks whether somebody waits for its lock."""


@dataclass(frozen=True)
class UnvacuumedErasure:
    """An erasure whose rows wait for a vacuum."""

    erasure_id: UUID
    cleared_at: datetime
    cleared_xid: int
    vacuums: int
    """How many it has had, which all failed."""
    is_seen: bool
    """Whether a running transaction may still see what it cleared."""

    def is_vacuumed_by(self, cutoff: int) -> bool:
        """Whether a vacuum with this cutoff removed everything that it cleared: no older snapshot
        was held."""
        return _xid_difference(self.cleared_xid, cutoff) < 0


def list_unvacuumed_erasures(access: TenantDb, max_vacuums: int) -> Sequence[UnvacuumedErasure]:
    """The tenant's erasures whose rows wait for a vacuum and that have had fewer than
    `max_vacuums`."""
    return access.fetch(
        UnvacuumedErasure,
        """
        select erasure_id, cleared_at, cleared_xid::text::bigint as cleared_xid, vacuums,
            cleared_xid >= pg_snapshot_xmin(pg_current_snapshot()) as is_seen
        from erasures
        where tenant_id = current_tenant() and completed_at is null and cleared_at is not null
            and vacuumed_at is null and vacuums < %(max_vacuums)s
        """,
        {"max_vacuums": max_vacuums},
    )


@dataclass(frozen=True)
class LatestVacuumRun:
    """The latest `vacuum_tables_with_memory`, for any tenant's erasure."""

    ended_at: datetime | None
    """None: no vacuum has ended yet."""
    is_running: bool
    """Whether another vacuum is running."""
    seconds: float
    """How long one takes, by the average of all since the statistics began."""

    def compute_next(self, now: datetime, spacing: timedelta, failed_count: int) -> datetime:
        """When an erasure may have its next vacuum, at most `spacing` after this one. One that had
        vacuums, which failed, waits for all of it."""
        if self.ended_at is None:
            return now
        quick = max(_LEAST_SPACING, timedelta(seconds=self.seconds / _TIME_SHARE))
        return self.ended_at + (spacing if failed_count else min(quick, spacing))


def read_latest_vacuum_run(access: TenantDb) -> LatestVacuumRun:
    """The latest vacuum, for all tenants."""
    (row,) = access.fetch(
        LatestVacuumRun,
        """
        select case when bool_and(t.last_vacuum is not null) then min(t.last_vacuum) end
                as ended_at,
            exists (
                select from pg_stat_progress_vacuum p join pg_stat_user_tables v using (relid)
                where p.datname = current_database() and v.relname = any (%(tables)s))
                as is_running,
            (sum(coalesce(t.total_vacuum_time / nullif(t.vacuum_count, 0), 0)
                + coalesce(t.total_analyze_time / nullif(t.analyze_count, 0), 0)) / 1000)
                ::double precision as seconds
        from pg_stat_user_tables t where t.relname = any (%(tables)s)
        """,
        {"tables": list(TABLES)},
    )
    return row


@dataclass(frozen=True)
class VacuumResult:
    """The result of a vacuum of all tables."""

    cutoff: int | None
    """The transaction id (its lower 32 bits) before which all deleted rows are removed; None: this
    is not known for every table."""
    reason: str = ""
    """Why `cutoff` is not known."""


def vacuum_tables_with_memory(
    database: Database, is_out_of_time: Callable[[], bool]
) -> VacuumResult:
    """Vacuum and analyze all tables that erasures clear, and their indexes, one by one without a
    time limit for each. Starts no further table once `is_out_of_time` or while a migration waits,
    and stops when somebody waits for its lock. Raises Unavailable, and database errors."""
    connection = database.connection()
    messages: list[str] = []

    def keep(notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "INFO":
            messages.append(notice.message_primary or "")

    with translate_errors(connection), _without_statement_timeout(connection):
        connection.add_notice_handler(keep)
        try:
            with _cancel_when_waited_for(database, connection):
                for table in TABLES:
                    if is_out_of_time():
                        return VacuumResult(None, "out_of_time")
                    if is_migration_waiting(connection):
                        return VacuumResult(None, "migration_waits")
                    connection.execute(_VACUUM.format(sql.Identifier(table)))
        except errors.QueryCanceled:
            return VacuumResult(None, "yielded")
        finally:
            connection.remove_notice_handler(keep)
        connection.execute(_CLEAR_STATISTICS, {"tables": list(TABLES)})
    return parse_vacuum_cutoff(messages)


def is_migration_waiting(connection: Connection) -> bool:
    """Whether a migration may wait for a table's lock: then no vacuum should begin. Raises
    Unavailable."""
    with translate_errors(connection):
        row = connection.execute(
            "select from pg_locks where locktype = 'advisory' and objsubid = 1"
            " and database = (select oid from pg_database where datname = current_database())"
            " and (classid::bigint << 32 | objid::bigint) = %s",
            (WAITING_LOCK,),
        ).fetchone()
    return row is not None


@contextmanager
def _cancel_when_waited_for(database: Database, connection: Connection) -> Generator[None]:
    """Cancel what the connection executes in this block once a session waits for a table that it
    has locked."""
    (process,) = connection.execute("select pg_backend_pid()").fetchone() or (0,)
    is_done = threading.Event()

    def watch() -> None:
        try:
            with closing(database.connection()) as other, translate_errors(other):
                while not is_done.wait(_WATCH_SECONDS):
                    other.execute(_CANCEL_IF_WAITED_FOR, {"process": process})
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("a vacuum does not yield", extra={"reason": error.code})

    thread = threading.Thread(target=watch, name="vacuum")
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


_CANCEL_IF_WAITED_FOR = """
    select pg_cancel_backend(%(process)s)
    where exists (
        select from pg_locks l
        where l.locktype = 'relation' and not l.granted
            and %(process)s = any (pg_blocking_pids(l.pid)))
"""
_VACUUM = sql.SQL("vacuum (verbose, analyze, index_cleanup on, truncate off) {}")
_VACUUMED = re.compile(r'vacuuming "[^"]*\.public\.([^".]+)"')
_CUTOFF = re.compile(r"^removable cutoff: (\d+),", re.MULTILINE)
"""Matches the cutoff that VACUUM reports for each table. Only the database knows all snapshots that
are held, including those of replicas, slots and prepared transactions. The message is in the
language of `lc_messages`, which only a superuser can change."""


def parse_vacuum_cutoff(messages: Sequence[str]) -> VacuumResult:
    """The smallest cutoff that VACUUM reported. None unless it reported one for every table,
    because VACUUM skips tables that it may not process."""
    cutoffs: list[int] = []
    missing = set(TABLES)
    for message in messages:
        if match := _CUTOFF.search(message):
            cutoffs.append(int(match[1]))
            missing.difference_update(_VACUUMED.findall(message))
    if messages and not cutoffs:
        return VacuumResult(None, "lc_messages_not_english")
    if missing:
        return VacuumResult(None, "tables_passed_over")
    return VacuumResult(min(cutoffs, key=lambda cutoff: _xid_difference(cutoff, cutoffs[0])))


def _xid_difference(xid: int, other: int) -> int:
    """How much later one transaction began than another, by the lower 32 bits of their ids."""
    return (xid - other + 2**31) % 2**32 - 2**31


_CLEAR_STATISTICS = """
    select pg_clear_attribute_stats('public', r.relname::text, a.attname::text, false)
    from pg_class t
    left join pg_index i on i.indrelid = t.oid
    join pg_class r on r.oid in (t.oid, i.indexrelid)
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    where t.relnamespace = 'public'::regnamespace and t.relname = any (%(tables)s)
        and t.reltuples <= 0
    group by r.relname, a.attname
"""
"""Clears the statistics of tables without rows and of their indexes, which ANALYZE leaves
unchanged."""


@contextmanager
def _without_statement_timeout(connection: Connection) -> Generator[None]:
    """Remove the statement timeout while the block runs."""
    connection.execute("set statement_timeout = 0")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("reset statement_timeout")


def count_vacuum_attempt(access: TenantDb, erasure_ids: Sequence[UUID]) -> None:
    """Record that a vacuum begins for these erasures, so that one whose worker dies is counted. In
    a transaction."""
    access.execute(
        "update erasures set vacuums = vacuums + 1"
        " where erasure_id = any (%(erasure_ids)s::uuid[]) and vacuumed_at is null",
        {"erasure_ids": list(erasure_ids)},
    )


def record_vacuum(access: TenantDb, erasure_ids: Sequence[UUID], at: datetime) -> None:
    """Record when the vacuum began that removed these erasures' rows. In a transaction."""
    access.execute(
        "update erasures set vacuumed_at = %(at)s"
        " where erasure_id = any (%(erasure_ids)s::uuid[]) and vacuumed_at is null",
        {"erasure_ids": list(erasure_ids), "at": at},
    )
