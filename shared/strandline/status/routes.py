"""Health and metrics over HTTP."""

from strandline.db.database import Asker
from strandline.errors import StrandlineError
from strandline.http.app import Answer, Media, Request, Route, answer, text
from strandline.status import metrics
from strandline.status.schemas import BackgroundState, Health, LanguageState, Liveness

_METRICS = Media("text/plain; version=0.0.4")


def liveness(request: Request) -> Answer:
    """The process answers. Never touches the database: it would never rest."""
    del request
    return answer(Liveness())


def health(request: Request) -> Answer:
    """What this service needs, and whether it answers: 200, or 503 when memory cannot be served.
    Takes a key that this deployment made, but no database to check it."""
    service = request.service
    checks = {
        "database": lambda: service.database.connection(request.deadline),
        "blobs": service.blobs.check,
        "queue": service.hints.check,
        "embedding": lambda: service.embedder.embed(["health"], timeout=2.0),
    }
    found: dict[str, str] = {}
    for name, check in checks.items():
        try:
            check()
            found[name] = "ok"
        except StrandlineError as error:
            found[name] = error.code
        except Exception as error:  # what a dependency does is told, not suffered
            found[name] = type(error).__name__
    up = found["database"] == "ok"
    background = _background(request) if up else None
    fine = set(found.values()) == {"ok"} and not (background and background.scopes_stuck)
    status = "ok" if fine else "degraded" if up else "unavailable"
    headers = {} if up else {"Retry-After": "2"}
    language = LanguageState(provider=service.reasoner.provider)
    told = Health(
        status=status,
        dependencies=found,
        language=language,
        background=background,
        warnings=list(service.warnings),
    )
    return answer(told, 200 if up else 503, headers)


def _background(request: Request) -> BackgroundState | None:
    """Of whoever's credential holds; None where it does not, or the database went away."""
    try:
        tenant = request.tenant()
        access = request.service.database.access(Asker.background(tenant), request.deadline)
        return BackgroundState(**vars(metrics.trouble(access)))
    except StrandlineError:
        return None


def get_metrics(request: Request) -> Answer:
    """The tenant in numbers, as Prometheus scrapes them: what there is, and what waits. They are
    the whole tenant's, whoever the key is bound to."""
    service = request.service
    access = service.database.access(Asker.background(request.principal.tenant), request.deadline)
    return text(metrics.exposition(access, service.embedder.space), _METRICS)


ROUTES = {
    "GET /health": Route(liveness, None, {200: Liveness}),
    "GET /api/v1/health": Route(health, "issued", {200: Health, 503: Health}),
    "GET /metrics": Route(get_metrics, "admin", {200: _METRICS}, numbers_only=True),
}
