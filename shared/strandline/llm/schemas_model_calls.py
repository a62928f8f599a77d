"""Response types of the routes that list model calls."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.schemas import ResponseModel


class ModelCallOut(ResponseModel):
    """One request to a language model's provider: numbers and ids, no text."""

    call_id: UUID
    at: datetime
    """When it began."""
    task: str
    """The task, as in `summarise`."""
    model: str
    prompt: str
    """Task and version of its prompt, as in `summarise/1`."""
    tokens_in: int
    """As the provider counts them; an estimate where it does not."""
    tokens_out: int
    cost_usd: float
    milliseconds: float
    outcome: Literal[
        "ok", "invalid_output", "format_refused", "refused", "late", "unavailable", "misconfigured"
    ]
    """`misconfigured`: the provider does not accept the deployment's key, model or address."""
    scope_id: UUID | None
    """The scope whose text the model was given."""
    job: str | None
    """The background work that made the call: `fold`, `retry`, or a job's id."""


class ModelCallPage(ResponseModel):
    """A tenant's model calls, newest first."""

    calls: list[ModelCallOut]
    next_cursor: str | None
