"""HTTP routes of health and metrics."""

from strandline.db.database import Caller
from strandline.errors import StrandlineError
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    AnswerMediaType,
    Response,
    Route,
    json_response,
    text_response,
)
from strandline.status import metrics
from strandline.status.schemas import BackgroundState, Health, LanguageState, Liveness

_METRICS_TYPE = AnswerMediaType("text/plain; version=0.0.4")


def liveness(request: Request) -> Response:
    """Check that the process responds. It does not use the database, because frequent checks would
    keep the database from pausing."""
    del request
    return json_response(Liveness())


def health(request: Request) -> Response:
    """Check the service's dependencies. Returns 200, or 503 if memory cannot be served. Requires a
    key that this deployment made, but does not look it up in the database."""
    resources = request.resources
    checks = {
        "database": lambda: resources.database.connection(request.deadline),
        "blobs": resources.blobs.check,
        "queue": resources.work_queue.check,
        "embedding": lambda: resources.embedder.embed(["health"], timeout=2.0),
    }
    statuses: dict[str, str] = {}
    for name, check in checks.items():
        try:
            check()
            statuses[name] = "ok"
        except StrandlineError as error:
            statuses[name] = error.code
        except Exception as error:  # a dependency's failure is reported, not raised
            statuses[name] = type(error).__name__
    is_up = statuses["database"] == "ok"
    background = _background_state(request) if is_up else None
    needs_operator = background and (background.scopes_stuck or background.rows_unreadable)
    is_healthy = set(statuses.values()) == {"ok"} and not needs_operator
    status = "ok" if is_healthy else "degraded" if is_up else "unavailable"
    headers = {} if is_up else {"Retry-After": "2"}
    language = LanguageState(provider=resources.llm.model_name)
    body = Health(
        status=status,
        dependencies=statuses,
        language=language,
        background=background,
        warnings=list(resources.warnings),
    )
    return json_response(body, 200 if is_up else 503, headers)


def _background_state(request: Request) -> BackgroundState | None:
    """The background failures of the credential's tenant; None if the credential is not valid or
    the database failed."""
    try:
        tenant = request.get_credential_tenant()
        access = request.resources.database.connect_as(Caller.background(tenant), request.deadline)
        return BackgroundState(**vars(metrics.count_failures(access)))
    except StrandlineError:
        return None


def get_metrics(request: Request) -> Response:
    """Get the tenant's counters for Prometheus: stored data and pending work. They cover the whole
    tenant, even if the key is bound to a user."""
    resources = request.resources
    access = resources.database.connect_as(
        Caller.background(request.principal.tenant), request.deadline
    )
    return text_response(
        metrics.render_tenant_metrics(access, resources.embedder.space), _METRICS_TYPE
    )


ROUTES = {
    "GET /health": Route(liveness, None, {200: Liveness}),
    "GET /api/v1/health": Route(health, "issued", {200: Health, 503: Health}),
    "GET /metrics": Route(get_metrics, "admin", {200: _METRICS_TYPE}, audits_refusals_only=True),
}
