"""The table: one row per Lambda. A new function is a folder, a row, an event and a test."""

from dataclasses import dataclass
from typing import Literal

type Need = Literal["database", "owner", "blobs", "queue", "model", "states"]


@dataclass(frozen=True)
class Fn:
    """What a function is given, and what calls it."""

    name: str
    """Its folder in functions/."""
    memory: int
    """MB; 1769 are one vCPU."""
    timeout: int
    """Seconds."""
    needs: frozenset[Need]
    routes: tuple[str, ...] = ()
    """API Gateway resources, as "METHOD /path/{parameter}"."""
    queue: bool = False
    """Fed by the queue of hints."""
    every_minutes: int = 0
    """A job of the state machine, started so often; 0: none."""


FUNCTIONS = (
    Fn(
        "ingest",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "blobs", "queue"}),
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
    Fn(
        "query",
        memory=1769,
        timeout=29,
        needs=frozenset({"database", "blobs", "queue", "model"}),
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
    Fn(
        "worker",
        memory=1769,
        timeout=120,
        needs=frozenset({"database", "blobs", "queue", "model"}),
        queue=True,
    ),
    Fn(
        "admin",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "states"}),
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
            "GET /api/v1/admin/jobs",
            "GET /api/v1/admin/jobs/{job}",
            "POST /api/v1/admin/jobs/{job}",
            "POST /api/v1/admin/jobs/{job}/retry",
            "GET /openapi.json",
            "GET /docs",
            "GET /docs/{file}",
        ),
    ),
    Fn(
        "archiver",
        memory=1024,
        timeout=900,
        needs=frozenset({"database", "blobs"}),
        every_minutes=60,
    ),
    Fn(
        "sweeper",
        memory=1769,
        timeout=900,
        needs=frozenset({"database", "blobs", "model"}),
        every_minutes=5,
    ),
    Fn("migrate", memory=512, timeout=600, needs=frozenset({"owner"})),
)
