"""The decided content of a chain version."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class ChainContent(BaseModel):
    """The decided content of one chain version."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    """By the server's clock: heat starts here."""
    topic: str | None
    summary: str
    entities: list[dict[str, str]]
    importance: float
    density: float
    coherence: float | None
    quality: float
    rejected: str | None
    joins: UUID | None = None
    """The chain that the run is merged into, if any. All fields above then describe the merged
    chain."""
    models: dict[str, dict[str, str | None]]
    """By task: the model, the prompt, and why the heuristic model answered instead of the
    configured one."""

    @property
    def fallback_reason(self) -> str | None:
        """The reason to retry the enrichment; None if no task fell back to the heuristic model."""
        return next((m["fell_back"] for m in self.models.values() if m["fell_back"]), None)


FOLD_FAILED = "fold_failed"
"""The reason of a run or a message that was not judged because judging it failed and would fail
again on the same input."""
ERASED = "erased"
"""The reason of a run or a chain whose text was deleted because one of its events was erased. Its
content is decided again (`blank_chains` in the database writes this)."""


class RunEnrichment(NamedTuple):
    """A run's decided content, and the vector of its summary in Postgres's text format. A rejected
    run has no vector."""

    content: ChainContent
    vector: str | None
    is_new: bool = False
    """True if it was just decided, False in a replay."""


def make_placeholder_content(now: datetime, event_count: int, error: Exception) -> ChainContent:
    """Make the content of a run on which every other step failed. It states only the number of
    events. Listings leave such a chain out, and a retry of its job replaces the content."""
    return ChainContent(
        at=now,
        topic=None,
        summary=f"{event_count} events.",
        entities=[],
        importance=0.0,
        density=0.0,
        coherence=None,
        quality=0.0,
        rejected=FOLD_FAILED,
        models={"all": {"model": "none", "prompt": type(error).__name__, "fell_back": FOLD_FAILED}},
    )
