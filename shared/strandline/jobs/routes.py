"""Background work over HTTP: for a tenant's admins, who start it, look at it and try it again."""

from datetime import UTC, datetime

from strandline.db.database import Caller, TenantDb
from strandline.errors import NotFound, StateConflict, Unavailable
from strandline.http.app import Request, Response, Route, json_response
from strandline.jobs import control
from strandline.jobs.schemas import JobOut, JobsPage, JobsQuery


def start_job(request: Request) -> Response:
    """Start a job in the credential's tenant, whether or not it is due: `archiver` or `sweeper`.
    One that is queued or running is a 409 that names it."""
    job = control.start_job(
        _connect(request),
        request.audit_context,
        request.resources.job_queue,
        request.path_parameter("job"),
        _now(),
    )
    return json_response(job, 202)


def list_jobs(request: Request) -> Response:
    """The tenant's jobs, newest first; what failed says why, and what to do. Finished ones stay for
    30 days."""
    return json_response(control.list_jobs(_connect(request), request.parse_query(JobsQuery)))


def get_job(request: Request) -> Response:
    """One job, by its id: its state, what it did, and why it failed if it did."""
    return json_response(control.get_job(_connect(request), request.path_id("job")))


def retry_job(request: Request) -> Response:
    """Try a failed job again, by its id. Of `enrich` the chain's model is asked again, in the
    background."""
    job = control.retry_job(
        _connect(request),
        request.audit_context,
        request.resources.job_queue,
        request.path_id("job"),
        _now(),
    )
    return json_response(job, 202)


def _connect(request: Request) -> TenantDb:
    """Jobs are the whole tenant's, whoever the key is bound to: ids and numbers, no memory."""
    caller = Caller.background(request.principal.tenant)
    return request.resources.database.connect_as(caller, request.deadline)


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
        audits_in_transaction=True,
    ),
    f"POST {_JOB}/retry": Route(
        retry_job,
        "admin",
        {202: JobOut},
        errors=(StateConflict, Unavailable),
        audits_in_transaction=True,
    ),
}
