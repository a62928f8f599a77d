"""Jobs for who answers for a tenant: started, looked at, tried again."""

import uuid
from datetime import datetime
from uuid import UUID

from strandline.aws.run_requests import JobQueue
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import NotFound, StateConflict, Unavailable
from strandline.jobs import store
from strandline.jobs.schemas import JobOut, JobsPage, JobsQuery
from strandline.jobs.store import Job
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

JOB_NAMES = ("archiver", "sweeper")
"""The jobs that there are."""
_RETRY_JOB = "sweeper"
"""The job that tries failures of models again."""


def start_job(
    access: TenantDb, audit_context: AuditContext, job_queue: JobQueue, kind: str, now: datetime
) -> JobOut:
    """Start a job in the asker's tenant. Raises NotFound for one that there is not, StateConflict
    while it is queued or running, Unavailable where nothing can be started."""
    if kind not in JOB_NAMES:
        raise NotFound(
            f"There is no job of this name; there are {', '.join(JOB_NAMES)}.", jobs=JOB_NAMES
        )
    run_id = str(uuid.uuid4())
    with access.transaction():
        store.expire_leases(access, kind, now)
        job_id = store.enqueue(access, kind, run_id, now)
        if job_id is None:
            raise _make_conflict(access, kind)
        store_audit.add_entry(access, audit_context, {"job": kind, "job_id": str(job_id)})
    _start_run(access, job_queue, kind, kind, run_id, now)
    return get_job(access, job_id)


def retry_job(
    access: TenantDb, audit_context: AuditContext, job_queue: JobQueue, job_id: UUID, now: datetime
) -> JobOut:
    """Try a failed job again: the same job, once more. Raises NotFound, StateConflict where it has
    not failed, another of its kind is under way or it is of a kind that cannot be tried again,
    Unavailable where nothing can be started."""
    run_id = str(uuid.uuid4())
    with access.transaction():
        job = store.get_job(access, job_id)
        if job is None:
            raise NotFound
        if job.state != "failed":
            raise StateConflict(
                f"This job is {job.state}: only one that failed is tried again.", state=job.state
            )
        if job.kind == store.CONTINUES_KIND:
            raise StateConflict(
                "Where topics end is decided once, and chains rest on it: it is not tried again."
                " See to the model, for what is said from now on.",
                state=job.state,
            )
        if job.ref is None:
            store.expire_leases(access, job.kind, now)
            if store.find_active(access, job.kind):
                raise _make_conflict(access, job.kind)
        store.requeue(access, job_id, run_id, now)
        store_audit.add_entry(access, audit_context, {"job": job.kind, "job_id": str(job_id)})
    _start_run(
        access, job_queue, job.kind, job.kind if job.ref is None else _RETRY_JOB, run_id, now
    )
    return get_job(access, job_id)


def get_job(access: TenantDb, job_id: UUID) -> JobOut:
    """One job of the asker's tenant. Raises NotFound."""
    job = store.get_job(access, job_id)
    if job is None:
        raise NotFound
    return _to_job_out(job)


def list_jobs(access: TenantDb, query: JobsQuery) -> JobsPage:
    """The asker's tenant's jobs, newest first."""
    cursors = Cursors(access.sealer, access.caller.tenant, "jobs", query.state, query.kind)
    after = cursors.decode(query.cursor)
    rows = store.list_newest(access, query.state, query.kind, after, query.limit)
    last = rows[-1] if len(rows) == query.limit else None
    position = last and Position(last.pg_snapshot, last.created_at, last.job_id)
    return JobsPage(
        jobs=[_to_job_out(row) for row in rows],
        next_cursor=position and cursors.encode(position),
    )


def _start_run(
    access: TenantDb, job_queue: JobQueue, kind: str, job_name: str, run_id: str, now: datetime
) -> None:
    """Have the state machine take it up; where it cannot, the job has failed and says so."""
    try:
        job_queue.start_run(job_name, access.caller.tenant, run_id)
    except Unavailable:
        with access.transaction():
            store.fail_unstarted(access, kind, run_id, now)
        raise


def _make_conflict(access: TenantDb, kind: str) -> StateConflict:
    active_job_id = store.find_active(access, kind)
    return StateConflict(
        f"The {kind} is queued or running in this tenant already: look at it, or wait for its end.",
        job_id=str(active_job_id),
    )


def _to_job_out(job: Job) -> JobOut:
    return JobOut.model_validate({**vars(job), "totals": dict(job.totals)})
