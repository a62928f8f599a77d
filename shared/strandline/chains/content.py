"""The content of a chain version, as it was decided."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class ChainContent(BaseModel):
    """The content of one chain version, as it was decided."""

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
    """The chain that the run is merged into, if any; all fields above then describe the merged
    chain."""
    models: dict[str, dict[str, str | None]]
    """By task: the model, the prompt, and why the heuristic model answered instead of the
    configured one."""

    @property
    def fallback_reason(self) -> str | None:
        """Why a retry is worth it; None where no task fell back."""
        return next((m["fell_back"] for m in self.models.values() if m["fell_back"]), None)


FOLD_FAILED = "fold_failed"
"""The reason of a run or a message that was not judged because judging it failed and would fail
again on the same input."""
ERASED = "erased"
"""The reason of a run or a chain whose text is gone, since an event of it was erased: its content
is decided anew (`blank_chains` in the database writes this)."""


class RunEnrichment(NamedTuple):
    """A run's decided content, and its summary's vector as Postgres writes it. A rejected run has
    no vector."""

    content: ChainContent
    vector: str | None
    is_new: bool = False
    """True where it was just decided, False in a replay."""


def make_placeholder_content(now: datetime, event_count: int, error: Exception) -> ChainContent:
    """The content of a run on which every other step failed: it says only how many events there
    are. Listings leave such a chain out, and a retry of its job replaces the content."""
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
