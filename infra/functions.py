"""The table: one row per Lambda. A new function is a folder, a row, an event and a test."""

from dataclasses import dataclass
from typing import Literal

type Need = Literal["database", "owner", "blobs", "queue", "model"]


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


FUNCTIONS = (
    Fn(
        "ingest",
        memory=1024,
        timeout=29,
        needs=frozenset({"database", "blobs", "queue"}),
        routes=("POST /api/v1/events", "POST /api/v1/events/batch", "POST /api/v1/uploads"),
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
        needs=frozenset({"database"}),
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
            "GET /openapi.json",
            "GET /docs",
            "GET /docs/{file}",
        ),
    ),
    Fn("migrate", memory=512, timeout=600, needs=frozenset({"owner"})),
)
