"""Answers about the health of the service."""

from typing import Literal

from strandline.schemas import ResponseModel


class Liveness(ResponseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class LanguageState(ResponseModel):
    """The language model, which is not asked for this."""

    provider: str | None
    """As in `openai:gpt-4o-mini`; null: there is none, and the twin does its tasks. Whether it is
    left alone for a while is each tenant's own: see `models.resting_until` of its usage."""


class BackgroundState(ResponseModel):
    """What fails of the tenant's background work; GET /api/v1/admin/jobs has the reasons."""

    scopes_stuck: int
    """Scopes whose work was put off five times in a row: their events are safe and recalled, but no
    chain is formed of the newest. It is tried again by itself."""
    jobs_failed: int
    """Jobs that failed and were not tried again; they are kept for 30 days."""


class Health(ResponseModel):
    """What the service needs, and whether it answers."""

    status: Literal["ok", "degraded", "unavailable"]
    dependencies: dict[str, str]
    """`ok`, or what is wrong, for each of database, blobs, queue and embedding."""
    language: LanguageState
    background: BackgroundState | None
    """Null while the database is away, and for a credential that does not hold."""
    warnings: list[str]
    """What endangers it although it answers, and what to do."""
