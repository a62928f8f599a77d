"""Routes for background jobs: a tenant's admins start, read and retry them."""

from datetime import UTC, datetime

from strandline.db.database import Caller, TenantDb
from strandline.errors import NotFound, StateConflict, Unavailable
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.jobs import admin_verbs
from strandline.jobs.schemas import JobOut, JobsPage, JobsQuery, quote_job_names


def start_job(request: Request) -> Response:
    """Start a job in the credential's tenant, whether or not it is due: {job_names}. If it is
    queued or running already, the answer is a 409 with its `job_id`."""
    job = admin_verbs.start_job(
        _connect_as_background(request),
        request.audit_context,
        request.resources.job_queue,
        request.path_parameter("job"),
        _now(),
    )
    return json_response(job, 202)


def list_jobs(request: Request) -> Response:
    """The tenant's jobs, newest first. A failed job has its reason, and advice on what to do.
    Finished jobs are kept for 30 days."""
    return json_response(
        admin_verbs.list_jobs(_connect_as_background(request), request.parse_query(JobsQuery))
    )


def get_job(request: Request) -> Response:
    """One job, by its id: its state, what it did, and why it failed if it did."""
    return json_response(
        admin_verbs.get_job(_connect_as_background(request), request.path_id("job"))
    )


def retry_job(request: Request) -> Response:
    """Retry a failed job, by its id. A retry of `enrich` calls the chain's model again, in the
    background."""
    job = admin_verbs.retry_job(
        _connect_as_background(request),
        request.audit_context,
        request.resources.job_queue,
        request.path_id("job"),
        _now(),
    )
    return json_response(job, 202)


def _connect_as_background(request: Request) -> TenantDb:
    """Connect on behalf of the whole tenant, whatever user the key is bound to: jobs hold ids and
    numbers, no memory."""
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
        placeholders={"job_names": quote_job_names("or")},
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
