"""The table of functions: one row per Lambda. A new function is a folder, a row, an event and a
test."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

type FunctionNeed = Literal[
    "database", "owner", "blobs", "work_queue", "job_queue", "model", "state_machine", "schedules"
]
type Layer = Literal["deps", "domain", "model"]

DAILY_SWEEP_SCHEDULE = "cron(30 3 * * ? *)"
"""The one schedule at a fixed time, in UTC: the daily sweep. The database's sweep day begins at
this time too (swept_day in the migrations)."""


@dataclass(frozen=True)
class FunctionSpec:
    """A Lambda function's resources, and what invokes it."""

    name: str
    """Its folder in functions/."""
    memory: int
    """MB; 1769 MB have one vCPU."""
    timeout: int
    """Seconds."""
    needs: frozenset[FunctionNeed]
    routes: tuple[str, ...] = ()
    """API Gateway resources, as "METHOD /path/{parameter}"."""
    queue: Literal["", "work_queue", "job_queue"] = ""
    """The queue that invokes it."""
    min_spacing_minutes: int = 0
    """For a job of the state machine: the least time between two runs that start because something
    is due; 0: not such a job."""
    schedule: str = ""
    """The expression in Scheduler's syntax, in UTC, at which it runs; "": only on request."""
    layers: tuple[Layer, ...] = ("deps", "domain")
    """Names from layers/build.py, lowest first."""
    reserved_concurrency: int = 0
    """The most instances at once, each with its own database connection; 0: not limited."""

    @property
    def max_connections(self) -> int:
        """The most database connections of one instance. A function that folds asks the language
        model from three threads besides its own (chains/parallel.py)."""
        return 4 if self.needs >= {"model", "job_queue"} else 1


MODEL_LAYERS: tuple[Layer, ...] = ("deps", "domain", "model")

FUNCTIONS = (
    FunctionSpec(
        "ingest",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue"}),
        reserved_concurrency=100,
        routes=(
            "POST /api/v1/events",
            "POST /api/v1/events/batch",
            "POST /api/v1/uploads",
            "POST /api/v1/sessions",
            "DELETE /api/v1/sessions/{session_id}",
            "POST /api/v1/sessions/{session_id}/interactions",
            "POST /api/v1/sessions/{session_id}/events",
        ),
    ),
    FunctionSpec(
        "query",
        memory=1769,
        timeout=29,
        needs=frozenset({"database", "blobs", "work_queue", "model"}),
        reserved_concurrency=100,
        layers=MODEL_LAYERS,
        routes=(
            "GET /health",
            "GET /api/v1/health",
            "GET /metrics",
            "GET /api/v1/events/{event_id}",
            "POST /api/v1/events/query",
            "GET /api/v1/scopes",
            "GET /api/v1/scopes/{scope_id}",
            "GET /api/v1/scopes/{scope_id}/events",
            "POST /api/v1/recall",
            "GET /api/v1/usage",
            "GET /api/v1/model-calls",
            "GET /api/v1/sessions",
            "GET /api/v1/sessions/{session_id}",
            "GET /api/v1/sessions/{session_id}/context",
            "POST /api/v1/sessions/{session_id}/context/search",
            "GET /api/v1/sessions/{session_id}/analysis/topics",
            "GET /api/v1/sessions/{session_id}/analysis/heat",
            "GET /api/v1/sessions/{session_id}/segments",
            "GET /memories/list",
            "GET /memory/{cid}",
            "GET /ipfs/{cid}",
            "GET /file/{cid}",
        ),
    ),
    FunctionSpec(
        "worker",
        memory=1769,
        timeout=120,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue", "model"}),
        reserved_concurrency=20,
        layers=MODEL_LAYERS,
        queue="work_queue",
    ),
    FunctionSpec(
        "admin",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "job_queue"}),
        reserved_concurrency=10,
        routes=(
            "POST /api/v1/admin/tenants",
            "GET /api/v1/admin/tenants",
            "GET /api/v1/admin/tenants/{tenant}",
            "PATCH /api/v1/admin/tenants/{tenant}",
            "POST /api/v1/admin/tenants/{tenant}/keys",
            "GET /api/v1/admin/tenants/{tenant}/keys",
            "GET /api/v1/admin/tenants/{tenant}/keys/{key_id}",
            "POST /api/v1/admin/tenants/{tenant}/keys/{key_id}/rotate",
            "DELETE /api/v1/admin/tenants/{tenant}/keys/{key_id}",
            "GET /api/v1/admin/tenants/{tenant}/audit",
            "POST /api/v1/admin/tenants/{tenant}/certificates",
            "GET /api/v1/admin/tenants/{tenant}/certificates",
            "GET /api/v1/admin/tenants/{tenant}/certificates/{certificate_id}",
            "DELETE /api/v1/admin/tenants/{tenant}/certificates/{certificate_id}",
            "GET /api/v1/admin/jobs",
            "GET /api/v1/admin/jobs/{job}",
            "POST /api/v1/admin/jobs/{job}",
            "POST /api/v1/admin/jobs/{job}/retry",
            "GET /openapi.json",
            "GET /",
            "GET /docs",
            "GET /docs/{file}",
        ),
    ),
    FunctionSpec(
        "archiver",
        memory=1024,
        timeout=900,
        needs=frozenset({"database", "blobs", "job_queue"}),
        reserved_concurrency=20,
        min_spacing_minutes=60,
    ),
    FunctionSpec(
        "sweeper",
        memory=1769,
        timeout=900,
        needs=frozenset({"database", "blobs", "work_queue", "job_queue", "model"}),
        reserved_concurrency=20,
        layers=MODEL_LAYERS,
        schedule=DAILY_SWEEP_SCHEDULE,
        min_spacing_minutes=5,
    ),
    FunctionSpec(
        "scheduler",
        memory=512,
        timeout=30,
        needs=frozenset({"state_machine", "schedules"}),
        queue="job_queue",
    ),
    FunctionSpec(
        "migrate",
        memory=512,
        timeout=600,
        needs=frozenset({"owner", "job_queue"}),
        # one for a deployment, while the state machine's may still run a long migration
        reserved_concurrency=2,
    ),
)


def route_table(
    functions: Iterable[FunctionSpec] = FUNCTIONS, *, preflights: bool = False
) -> dict[str, str]:
    """Every route, and the name of its function. With `preflights` every resource has OPTIONS too,
    served by the first function that has routes, because all give the same answer."""
    table = {route: fn.name for fn in functions for route in fn.routes}
    if preflights:
        first = next(iter(table.values()))
        table |= {f"OPTIONS {route.partition(' ')[2]}": first for route in [*table]}
    return table
