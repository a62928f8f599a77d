"""SQL for runs of jobs: a job's state in its tenant, as admins read it, and the leases that keep
runs apart."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.cursors import Position
from strandline.db.connection import Connection, translate_errors
from strandline.db.database import TenantDb

LEASE_SECONDS = 300
"""How long a tenant's job belongs to its run without a renewal; a working shard renews the lease
every minute or two, between its commits."""
PLAN_LEASE_SECONDS = 300
"""The same while no shard has begun: a run that died before that blocks the job only briefly."""
LEASE_EXPIRED = "lease_expired"
"""The reason of a job whose run stopped renewing its lease."""
RETENTION_DAYS = 30
"""How many days a finished job is kept."""


@dataclass(frozen=True)
class _CountRow:
    count: int


def fail_expired_jobs(access: TenantDb, kind: str | None, now: datetime) -> int:
    """Mark jobs (of one kind, or all) whose lease has run out as failed. Returns how many. A shard
    of such a job that is still working finds its lease lost."""
    (row,) = access.fetch(
        _CountRow,
        "select expire_job_leases(%(kind)s, %(now)s) as count",
        {"kind": kind, "now": now},
    )
    return row.count


def queue_job_for_run(access: TenantDb, kind: str, run: str, now: datetime) -> UUID | None:
    """Queue a job for the run of this name. Returns its id; None where one of this kind is queued
    or running already. In a transaction, after `fail_expired_jobs`."""
    rows = access.fetch(
        JobIdRow,
        "select job_id from enqueue_job(%(kind)s, %(run)s, %(job_id)s,"
        " make_interval(secs => %(seconds)s), %(now)s) job_id where job_id is not null",
        {
            "job_id": uuid7(),
            "kind": kind,
            "run": run,
            "now": now,
            "seconds": PLAN_LEASE_SECONDS,
        },
    )
    return rows[0].job_id if rows else None


def find_active_job_id(access: TenantDb, kind: str) -> UUID | None:
    """The id of the tenant's queued or running job of this kind, or None."""
    rows = access.fetch(
        JobIdRow,
        "select job_id from jobs where kind = %(kind)s and ref is null"
        " and state in ('queued', 'running')",
        {"kind": kind},
    )
    return rows[0].job_id if rows else None


def requeue_failed_job(access: TenantDb, job_id: UUID, run: str, now: datetime) -> bool:
    """Queue a failed job again, for the run of this name. Returns False where it has not failed. A
    failure with a `ref` has no lease and may be retried by any sweep: it is due at once."""
    return bool(
        access.execute(
            """
            update jobs set state = 'queued', run = %(run)s, finished_at = null, reason = '',
                advice = '', attempts = attempts + 1,
                leased_until = %(now)s::timestamptz
                    + make_interval(secs => case when ref is null then %(seconds)s else 0 end)
            where job_id = %(job_id)s and state = 'failed'
            """,
            {"job_id": job_id, "run": run, "now": now, "seconds": PLAN_LEASE_SECONDS},
        )
    )


@dataclass(frozen=True)
class ShardLease:
    """A leased shard; the lease holds until another worker leases the shard."""

    job_id: UUID
    shard: int
    lease_no: int


def lease_shard(
    access: TenantDb, kind: str, run: str, shard: int, now: datetime
) -> ShardLease | None:
    """Lease an unfinished shard of a run's job; a worker that had it before loses it. None where
    there is nothing to do: the shard is done, or the tenant's job belongs to another run. In a
    transaction."""
    rows = access.fetch(
        ShardLease,
        """
        with job as (
            update jobs set leased_until =
                %(now)s::timestamptz + make_interval(secs => %(seconds)s)
            where kind = %(kind)s and run = %(run)s and ref is null and state = 'running'
            returning job_id)
        update job_shards s set lease_no = s.lease_no + 1
        from job where s.job_id = job.job_id and s.shard = %(shard)s and s.state = 'waiting'
        returning s.job_id, s.shard, s.lease_no
        """,
        {"kind": kind, "run": run, "shard": shard, "now": now, "seconds": LEASE_SECONDS},
    )
    return rows[0] if rows else None


def renew_shard_lease(access: TenantDb, lease: ShardLease, now: datetime) -> bool:
    """Renew a lease. Returns False where the shard belongs to another worker. Must not run in a
    transaction that has a shard locked: everywhere, a job is locked before its shards."""
    return bool(
        access.fetch(
            JobIdRow,
            """
            update jobs j
            set leased_until = %(now)s::timestamptz + make_interval(secs => %(seconds)s)
            where j.job_id = %(job_id)s and j.state = 'running' and exists (
                select from job_shards s where s.job_id = j.job_id and s.shard = %(shard)s
                    and s.lease_no = %(lease_no)s and s.state = 'waiting')
            returning j.job_id
            """,
            {**vars(lease), "now": now, "seconds": LEASE_SECONDS},
        )
    )


def lock_leased_shard(access: TenantDb, lease: ShardLease) -> bool:
    """Lock a shard until the transaction ends, if it is still leased by this worker. Returns
    whether it is. It does not lock the job."""
    return bool(
        access.fetch(
            JobIdRow,
            """
            select s.job_id from job_shards s join jobs j using (tenant_id, job_id)
            where s.job_id = %(job_id)s and s.shard = %(shard)s and s.lease_no = %(lease_no)s
                and s.state = 'waiting' and j.state = 'running'
            for no key update of s
            """,
            vars(lease),
        )
    )


def mark_shard_done(
    access: TenantDb, lease: ShardLease, totals: Mapping[str, int], now: datetime
) -> bool:
    """Mark a shard as done, if it is still leased by this worker. Returns whether it was. The
    tenant's last shard ends its job. In a transaction of its own: everywhere, a job is locked
    before its shards."""
    access.execute(
        "select from jobs where job_id = %(job_id)s for no key update", {"job_id": lease.job_id}
    )
    if not lock_leased_shard(access, lease):
        return False
    access.execute(
        "update job_shards set state = 'done', reason = '', totals = %(totals)s"
        " where job_id = %(job_id)s and shard = %(shard)s",
        {"job_id": lease.job_id, "shard": lease.shard, "totals": json.dumps(dict(totals))},
    )
    access.execute(
        """
        update jobs set state = 'done', finished_at = %(now)s, reason = '', advice = '', totals = (
            select coalesce(jsonb_object_agg(key, total), '{}') from (
                select key, sum(value::bigint) as total
                from job_shards s, jsonb_each_text(s.totals)
                where s.job_id = %(job_id)s group by key) sums)
        where job_id = %(job_id)s and state = 'running' and not exists (
            select from job_shards s where s.job_id = %(job_id)s and s.state <> 'done')
        """,
        {"job_id": lease.job_id, "now": now},
    )
    return True


def record_shard_failure_reason(access: TenantDb, lease: ShardLease, reason: str) -> None:
    """Record why the last attempt at a shard failed; it may be attempted again. In a
    transaction."""
    access.execute(
        "update job_shards set reason = %(reason)s"
        " where job_id = %(job_id)s and shard = %(shard)s and lease_no = %(lease_no)s",
        {**vars(lease), "reason": reason},
    )


def fail_job_of_unstarted_run(access: TenantDb, kind: str, run: str, now: datetime) -> None:
    """Mark a job that was queued for a run that never began as failed. In a transaction."""
    access.execute(
        """
        update jobs set state = 'failed', finished_at = %(now)s, reason = 'not_started',
            advice = 'The state machine could not be reached. Try it again: POST '
                '/api/v1/admin/jobs/' || job_id || '/retry.'
        where kind = %(kind)s and run = %(run)s and state = 'queued'
        """,
        {"kind": kind, "run": run, "now": now},
    )


def sum_run_counts(connection: Connection, run: str) -> dict[str, int]:
    """The counts of a run, summed over all tenants."""
    with translate_errors(connection):
        rows: list[tuple[Any, ...]] = connection.execute(
            "select name, total from totals_of_run(%s)", (run,)
        ).fetchall()
    return {str(name): int(total) for name, total in rows}


def prune_finished_jobs(access: TenantDb, now: datetime, limit: int) -> int:
    """Delete up to `limit` jobs that finished RETENTION_DAYS ago. Returns how many. In a
    transaction."""
    return access.execute(
        """
        delete from jobs where job_id in (
            select job_id from jobs
            where finished_at < %(now)s::timestamptz - make_interval(days => %(days)s)
                and state in ('done', 'failed')
            order by finished_at limit %(limit)s)
        """,
        {"now": now, "days": RETENTION_DAYS, "limit": limit},
    )


type JobState = Literal["queued", "running", "done", "failed"]


@dataclass(frozen=True)
class JobIdRow:
    """The id of a job."""

    job_id: UUID


@dataclass(frozen=True)
class JobRow:
    """A job, and the database snapshot of the page it was read for."""

    job_id: UUID
    kind: str
    state: JobState
    scope_id: UUID | None
    ref: str | None
    reason: str
    advice: str
    attempts: int
    totals: Mapping[str, int]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    pg_snapshot: str


def list_newest(
    access: TenantDb, state: str | None, kind: str | None, after: Position | None, limit: int
) -> Sequence[JobRow]:
    """The caller's tenant's jobs, newest first. Later pages see the database snapshot of the
    first."""
    return access.fetch(
        JobRow,
        """
        select j.job_id, j.kind, j.state, j.scope_id, j.ref, j.reason, j.advice, j.attempts,
            j.totals, j.created_at, j.started_at, j.finished_at,
            coalesce(%(pg_snapshot)s, pg_current_snapshot()::text) as pg_snapshot
        from jobs j
        where (%(pg_snapshot)s::text is null or is_in_snapshot(j.xid, %(pg_snapshot)s::pg_snapshot))
            and (%(state)s::text is null or j.state = %(state)s)
            and (%(kind)s::text is null or j.kind = %(kind)s)
            and (%(at)s::timestamptz is null
                or (j.created_at, j.job_id) < (%(at)s, %(id)s::uuid))
        order by j.created_at desc, j.job_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "id": after and after.row_id,
            "state": state,
            "kind": kind,
            "limit": limit,
        },
    )


def get_job(access: TenantDb, job_id: UUID) -> JobRow | None:
    """One job, or None; inside a transaction its row is locked until the end."""
    rows = access.fetch(
        JobRow,
        """
        select j.job_id, j.kind, j.state, j.scope_id, j.ref, j.reason, j.advice, j.attempts,
            j.totals, j.created_at, j.started_at, j.finished_at, '' as pg_snapshot
        from jobs j where j.job_id = %(job_id)s for no key update
        """,
        {"job_id": job_id},
    )
    return rows[0] if rows else None
