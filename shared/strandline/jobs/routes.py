"""Background work over HTTP: for a tenant's admins, who start it, look at it and try it again."""

from datetime import UTC, datetime

from strandline.db.database import Access, Asker
from strandline.errors import NotFound, StateConflict, Unavailable
from strandline.http.app import Answer, Request, Route, answer
from strandline.jobs import control
from strandline.jobs.schemas import JobOut, JobsPage, JobsQuery


def start_job(request: Request) -> Answer:
    """Start a job in the credential's tenant, whether or not it is due: `archiver` or `sweeper`.
    One that is queued or running is a 409 that names it."""
    started = control.start(
        _access(request), request.act, request.service.runs, request.path("job"), _now()
    )
    return answer(started, 202)


def list_jobs(request: Request) -> Answer:
    """The tenant's jobs, newest first; what failed says why, and what to do. Finished ones stay for
    30 days."""
    return answer(control.newest(_access(request), request.query(JobsQuery)))


def get_job(request: Request) -> Answer:
    """One job, by its id: its state, what it did, and why it failed if it did."""
    return answer(control.get(_access(request), request.path_id("job")))


def retry_job(request: Request) -> Answer:
    """Try a failed job again, by its id. Of `enrich` the chain's model is asked again, in the
    background."""
    retried = control.retry(
        _access(request), request.act, request.service.runs, request.path_id("job"), _now()
    )
    return answer(retried, 202)


def _access(request: Request) -> Access:
    """Jobs are the whole tenant's, whoever the key is bound to: ids and numbers, no memory."""
    asker = Asker.background(request.principal.tenant)
    return request.service.database.access(asker, request.deadline)


def _now() -> datetime:
    return datetime.now(UTC)


_JOB = "/api/v1/admin/jobs/{job}"

ROUTES = {
    "GET /api/v1/admin/jobs": Route(list_jobs, "admin", {200: JobsPage}, query=JobsQuery),
    f"GET {_JOB}": Route(get_job, "admin", {200: JobOut}),
    f"POST {_JOB}": Route(
        start_job,
        "admin",
        {202: JobOut},
        errors=(NotFound, StateConflict, Unavailable),
        records=True,
    ),
    f"POST {_JOB}/retry": Route(
        retry_job,
        "admin",
        {202: JobOut},
        errors=(StateConflict, Unavailable),
        records=True,
    ),
}
