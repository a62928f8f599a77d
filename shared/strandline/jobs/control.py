"""Jobs for who answers for a tenant: started, looked at, tried again."""

import uuid
from datetime import datetime
from uuid import UUID

from strandline.aws.run_requests import Runs
from strandline.cursors import Cursors, Position
from strandline.db.database import Access
from strandline.errors import NotFound, StateConflict, Unavailable
from strandline.jobs import store
from strandline.jobs.schemas import JobOut, JobsPage, JobsQuery
from strandline.jobs.store import Job
from strandline.tenants import store_audit
from strandline.tenants.store_audit import Act

JOBS = ("archiver", "sweeper")
"""The jobs that there are."""
_RETRIES = "sweeper"
"""The job that tries failures of models again."""


def start(access: Access, act: Act, runs: Runs, kind: str, now: datetime) -> JobOut:
    """Start a job in the asker's tenant. Raises NotFound for one that there is not, StateConflict
    while it is queued or running, Unavailable where nothing can be started."""
    if kind not in JOBS:
        raise NotFound(f"There is no job of this name; there are {', '.join(JOBS)}.", jobs=JOBS)
    run = str(uuid.uuid4())
    with access.transaction():
        store.expire(access, kind, now)
        job_id = store.queue(access, kind, run, now)
        if job_id is None:
            raise _busy(access, kind)
        store_audit.add(access, act, {"job": kind, "job_id": str(job_id)})
    _begin(access, runs, kind, kind, run, now)
    return get(access, job_id)


def retry(access: Access, act: Act, runs: Runs, job_id: UUID, now: datetime) -> JobOut:
    """Try a failed job again: the same job, once more. Raises NotFound, StateConflict where it has
    not failed, another of its kind is under way or it is of a kind that cannot be tried again,
    Unavailable where nothing can be started."""
    run = str(uuid.uuid4())
    with access.transaction():
        job = store.get(access, job_id)
        if job is None:
            raise NotFound
        if job.state != "failed":
            raise StateConflict(
                f"This job is {job.state}: only one that failed is tried again.", state=job.state
            )
        if job.kind == store.CONTINUES:
            raise StateConflict(
                "Where topics end is decided once, and chains rest on it: it is not tried again."
                " See to the model, for what is said from now on.",
                state=job.state,
            )
        if job.ref is None:
            store.expire(access, job.kind, now)
            if store.standing(access, job.kind):
                raise _busy(access, job.kind)
        store.requeue(access, job_id, run, now)
        store_audit.add(access, act, {"job": job.kind, "job_id": str(job_id)})
    _begin(access, runs, job.kind, job.kind if job.ref is None else _RETRIES, run, now)
    return get(access, job_id)


def get(access: Access, job_id: UUID) -> JobOut:
    """One job of the asker's tenant. Raises NotFound."""
    job = store.get(access, job_id)
    if job is None:
        raise NotFound
    return _shown(job)


def newest(access: Access, asked: JobsQuery) -> JobsPage:
    """The asker's tenant's jobs, newest first."""
    of = Cursors(access.sealer, access.asker.tenant, "jobs", asked.state, asked.kind)
    after = of.decode(asked.cursor)
    rows = store.newest(access, asked.state, asked.kind, after, asked.limit)
    last = rows[-1] if len(rows) == asked.limit else None
    position = last and Position(last.mark, last.created_at, last.job_id)
    return JobsPage(
        jobs=[_shown(row) for row in rows],
        next_cursor=position and of.encode(position),
    )


def _begin(access: Access, runs: Runs, kind: str, function: str, run: str, now: datetime) -> None:
    """Have the state machine take it up; where it cannot, the job has failed and says so."""
    try:
        runs.start(function, access.asker.tenant, run)
    except Unavailable:
        with access.transaction():
            store.abandon(access, kind, run, now)
        raise


def _busy(access: Access, kind: str) -> StateConflict:
    standing = store.standing(access, kind)
    return StateConflict(
        f"The {kind} is queued or running in this tenant already: look at it, or wait for its end.",
        job_id=str(standing),
    )


def _shown(job: Job) -> JobOut:
    return JobOut.model_validate({**vars(job), "totals": dict(job.totals)})
