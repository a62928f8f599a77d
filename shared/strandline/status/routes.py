"""HTTP routes of health and metrics."""

from dataclasses import dataclass

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
from strandline.llm.store_calls import ModelState, read_state
from strandline.status import metrics, store
from strandline.status.schemas import (
    BackgroundState,
    Health,
    LanguageState,
    Liveness,
    MemoryState,
)

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
    tenant_state = _read_tenant_state(request) if is_up else _NOTHING_KNOWN
    background, model = tenant_state.background, tenant_state.model
    needs_operator = background and (background.scopes_stuck or background.rows_unreadable)
    is_healthy = set(statuses.values()) == {"ok"} and not (needs_operator or model.resting_until)
    status = "ok" if is_healthy else "degraded" if is_up else "unavailable"
    headers = {} if is_up else {"Retry-After": "2"}
    name = resources.llm.model_name
    body = Health(
        status=status,
        dependencies=statuses,
        language=LanguageState(
            provider=name,
            failure=model.failure_text,
            failed_at=model.failed_at,
            resting_until=model.resting_until,
        ),
        background=background,
        memory=tenant_state.memory,
        warnings=[*resources.warnings, *_describe_model_failure(name, model)],
    )
    return json_response(body, 200 if is_up else 503, headers)


@dataclass(frozen=True)
class _TenantState:
    """What is told of the credential's tenant."""

    background: BackgroundState | None
    model: ModelState
    memory: MemoryState | None


_NOTHING_KNOWN = _TenantState(None, ModelState(None, None, None), None)


def _read_tenant_state(request: Request) -> _TenantState:
    """The state of the credential's tenant; nothing is known if the credential is not valid or the
    database failed."""
    resources = request.resources
    try:
        principal = request.get_credential_principal()
        caller = Caller.background(principal.tenant)
        access = resources.database.connect_as(caller, request.deadline)
        name = resources.llm.model_name
        return _TenantState(
            BackgroundState(**vars(metrics.count_failures(access))),
            _NOTHING_KNOWN.model if name is None else read_state(access, name),
            MemoryState(**vars(store.count_memory(access)))
            if principal.has_right("admin")
            else None,
        )
    except StrandlineError:
        return _NOTHING_KNOWN


def _describe_model_failure(name: str | None, model: ModelState) -> list[str]:
    if model.failure_text is None or model.failed_at is None:
        return []
    return [
        f"The language model {name} failed at {model.failed_at:%Y-%m-%d %H:%M} UTC:"
        f" {model.failure_text} The heuristic model answers while it fails."
    ]


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
