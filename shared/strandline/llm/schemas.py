"""Answers about model calls."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.schemas import ResponseModel


class ModelCallOut(ResponseModel):
    """A request to a language model's provider: numbers and ids, no text."""

    call_id: UUID
    at: datetime
    """When it began."""
    task: str
    """What was asked for, as in `summarise`."""
    model: str
    prompt: str
    """Task and version of its prompt, as in `summarise/1`."""
    tokens_in: int
    """As the provider counts them; where it does not, about as many."""
    tokens_out: int
    cost_usd: float
    milliseconds: float
    outcome: Literal["ok", "invalid_output", "format_refused", "refused", "late", "unavailable"]
    scope_id: UUID | None
    """The scope whose text was shown."""
    job: str | None
    """The work that it was made for."""


class ModelCallPage(ResponseModel):
    """A tenant's calls of language models, newest first."""

    calls: list[ModelCallOut]
    next_cursor: str | None
