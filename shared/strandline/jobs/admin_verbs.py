"""The admin's verbs on jobs: start, retry, read, list."""

import uuid
from datetime import datetime
from uuid import UUID

from strandline.aws.run_requests import JobQueue
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import NotFound, StateConflict, Unavailable
from strandline.function_specs import JOBS
from strandline.jobs import store_failures, store_runs
from strandline.jobs.schemas import JobOut, JobsPage, JobsQuery
from strandline.jobs.store_runs import JobRow
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

JOB_NAMES = tuple(job.name for job in JOBS)
"""The jobs that can be started."""
_RETRY_JOBS = {
    store_failures.GROW_KIND: "builder",
    store_failures.PROMOTE_KIND: "promoter",
    store_failures.ANALYZE_KIND: "analytics",
}
_RETRY_JOB = "sweeper"
"""The job that retries all other failures."""


def start_job(
    access: TenantDb, audit_context: AuditContext, job_queue: JobQueue, kind: str, now: datetime
) -> JobOut:
    """Start a job in the caller's tenant. Returns it as queued. Raises NotFound for an unknown
    name, StateConflict while it is queued or running, Unavailable where no run can be started."""
    if kind not in JOB_NAMES:
        raise NotFound(
            f"There is no job with this name. Use one of: {', '.join(JOB_NAMES)}.", jobs=JOB_NAMES
        )
    run_id = str(uuid.uuid4())
    with access.transaction():
        store_runs.fail_expired_jobs(access, kind, now)
        job_id = store_runs.queue_job_for_run(access, kind, run_id, now)
        if job_id is None:
            raise _make_already_active_conflict(access, kind)
        store_audit.add_audit_entry(access, audit_context, {"job": kind, "job_id": str(job_id)})
    _start_run_or_fail_job(access, job_queue, kind, kind, run_id, now)
    return get_job(access, job_id)


def retry_job(
    access: TenantDb, audit_context: AuditContext, job_queue: JobQueue, job_id: UUID, now: datetime
) -> JobOut:
    """Retry a failed job: the same job, one attempt more. Raises NotFound; StateConflict where it
    has not failed, where another of its kind is queued or running, or where its kind cannot be
    retried; Unavailable where no run can be started."""
    run_id = str(uuid.uuid4())
    with access.transaction():
        job = store_runs.get_job(access, job_id)
        if job is None:
            raise NotFound
        if job.state != "failed":
            raise StateConflict(
                f"This job is {job.state}: only a failed job can be retried.", state=job.state
            )
        if job.kind == store_failures.CONTINUES_KIND:
            raise StateConflict(
                "Where topics end is decided once, and chains rest on it: it cannot be retried."
                " Check the model, so that it judges the next messages.",
                state=job.state,
            )
        if job.ref is None:
            store_runs.fail_expired_jobs(access, job.kind, now)
            if store_runs.find_active_job_id(access, job.kind):
                raise _make_already_active_conflict(access, job.kind)
        store_runs.requeue_failed_job(access, job_id, run_id, now)
        store_audit.add_audit_entry(access, audit_context, {"job": job.kind, "job_id": str(job_id)})
    retry_job_name = job.kind if job.ref is None else _RETRY_JOBS.get(job.kind, _RETRY_JOB)
    _start_run_or_fail_job(access, job_queue, job.kind, retry_job_name, run_id, now)
    return get_job(access, job_id)


def get_job(access: TenantDb, job_id: UUID) -> JobOut:
    """One job of the caller's tenant. Raises NotFound."""
    job = store_runs.get_job(access, job_id)
    if job is None:
        raise NotFound
    return _to_job_out(job)


def list_jobs(access: TenantDb, query: JobsQuery) -> JobsPage:
    """A page of the caller's tenant's jobs, newest first."""
    cursors = Cursors(access.sealer, access.caller.tenant, "jobs", query.state, query.kind)
    after = cursors.decode(query.cursor)
    rows = store_runs.list_newest(access, query.state, query.kind, after, query.limit)
    last = rows[-1] if len(rows) == query.limit else None
    position = last and Position(last.pg_snapshot, last.created_at, last.job_id)
    return JobsPage(
        jobs=[_to_job_out(row) for row in rows],
        next_cursor=position and cursors.encode(position),
    )


def _start_run_or_fail_job(
    access: TenantDb, job_queue: JobQueue, kind: str, job_name: str, run_id: str, now: datetime
) -> None:
    """Ask for a run of the state machine. Where that fails, mark the job as failed and raise
    Unavailable."""
    try:
        job_queue.start_run(job_name, access.caller.tenant, run_id)
    except Unavailable:
        with access.transaction():
            store_runs.fail_job_of_unstarted_run(access, kind, run_id, now)
        raise


def _make_already_active_conflict(access: TenantDb, kind: str) -> StateConflict:
    active_job_id = store_runs.find_active_job_id(access, kind)
    return StateConflict(
        f"The {kind} is already queued or running in this tenant: see job_id, or wait for its end.",
        job_id=str(active_job_id),
    )


def _to_job_out(job: JobRow) -> JobOut:
    return JobOut.model_validate({**vars(job), "totals": dict(job.totals)})
