"""SQL for jobs as admins read them: background work that is done, running or failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.cursors import Position
from strandline.db.database import TenantDb

type JobState = Literal["queued", "running", "done", "failed"]


@dataclass(frozen=True)
class JobId:
    """The id of a job."""

    job_id: UUID


@dataclass(frozen=True)
class Job:
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
) -> Sequence[Job]:
    """The caller's tenant's jobs, newest first. Later pages see the database snapshot of the
    first."""
    return access.fetch(
        Job,
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


def get_job(access: TenantDb, job_id: UUID) -> Job | None:
    """One job, or None; inside a transaction its row is locked until the end."""
    rows = access.fetch(
        Job,
        """
        select j.job_id, j.kind, j.state, j.scope_id, j.ref, j.reason, j.advice, j.attempts,
            j.totals, j.created_at, j.started_at, j.finished_at, '' as pg_snapshot
        from jobs j where j.job_id = %(job_id)s for no key update
        """,
        {"job_id": job_id},
    )
    return rows[0] if rows else None
