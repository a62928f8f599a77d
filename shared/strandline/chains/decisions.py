"""Decisions: everything a fold decided from anything but the events. They outlive derived rows.

A replay follows them and calls no model. Kinds of decisions:

- `settings`: the fold's settings from this event on;
- `continues`: whether the topic continues at this user message, judged once the later events that
  it waits for have come. Stored if the topic broke, if a model was asked, and if judging the
  message failed and would fail again (the topic then continues);
- `vector_given_up`: this user message has no vector and is not compared with others;
- `echo`: this event mostly repeats what a recall returned to its participants shortly before. It is
  not evidence, and its use does not warm any chain;
- `slots`: what this user message states of its speaker's home, job, tools, plans and preferences
  (chains/slot_decisions);
- `formed`: the content of the run that ends at this event, and the chain it was merged into. If
  deciding it failed and would fail again, a placeholder, until a retry (`reformed`). If an erasure
  deleted its text, the next attempt has the content of the remaining events;
- `idle`: no event followed in this lane until the scope's `folded_seq` was `at_seq`;
- `reformed`: the new content of the chain whose last event this is;
- `extracted`: not made by a fold: the knowledge graph items extracted from a version of the chain
  whose last event this is (graph/promotion/extraction);
- `links`: not made by a fold: how recall found the edges of this event
  (log/store_links_and_sources).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from strandline.db.packed_vectors import PackedVector


@dataclass(frozen=True)
class FoldDecision:
    """One decision, and the event it is about."""

    event_id: UUID
    kind: str
    """One of the kinds that this module lists."""
    attempt: int
    """From 0; only repeated `formed`, `reformed` and `extracted` decisions have more than one."""
    at_seq: int
    """The scope's `folded_seq` at which it takes effect."""
    body: dict[str, Any]


def make_vector_given_up_decision(event_id: UUID, at_seq: int, reason: str) -> FoldDecision:
    """Decide that a user message's vector is not waited for: it was refused, or it is late."""
    return FoldDecision(event_id, "vector_given_up", 0, at_seq, {"why": reason})


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


class RunContentAndVector(NamedTuple):
    """A run's decided content, and the vector of its summary. A rejected run has no vector."""

    content: ChainContent
    vector: PackedVector | None
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
