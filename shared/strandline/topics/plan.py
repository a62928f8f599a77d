"""What an answer to a references question shows, as it is stored to give it again: ids and numbers,
no text."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

LAYOUT_VERSION = 2
"""The rules by which a plan becomes an answer. A plan of other rules is not answered again."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedScope(_Part):
    """A scope of an answer."""

    scope_id: UUID
    cutoff: int
    mark: int


class PlannedNode(_Part):
    """A slot of an answer; its parent's, if it has one, comes before it."""

    scope_id: UUID
    slot: UUID
    parent: UUID | None
    node_id: UUID
    is_leaf: bool
    relevance: float | None
    similarity: float | None
    has_summary: bool
    """Whether its summary is shown."""
    first_event: UUID | None
    """What is cited for it where no event below it is shown."""


class PlannedEvent(_Part):
    """An event of an answer."""

    event_id: UUID
    scope_id: UUID
    slot: UUID | None
    """The slot that it is shown below; None: the fresh tail."""
    relevance: float | None
    text_bytes: int | None
    """To how many bytes its text is shortened; None: as far as its line goes."""


class Cut(_Part):
    """How much was left out."""

    events: int = 0
    """Events that the budget does not hold."""
    topics: int = 0
    """Topics that the budget does not hold, of an outline without a question."""
    summaries: int = 0
    """Summaries of shown topics that the budget does not hold."""
    shortened: int = 0
    """Texts that are shown in part."""
    width: int = 0
    """Events below slots that the walk left out."""
    time: bool = False
    """Whether the time ended before the walk did."""


class WalkChoice(_Part):
    """Who walked."""

    by: Literal["beam", "model"]
    model: str | None = None
    prompt: str | None = None
    rounds: int = 0


class Plan(_Part):
    """An answer without its texts."""

    layout: int = LAYOUT_VERSION
    version: int | None
    """Of the snapshot; None: there was none."""
    answered_at: datetime
    known: float | None
    space: str | None
    degraded: tuple[str, ...]
    not_yet_embedded: int
    walk: WalkChoice
    cut: Cut
    scopes: tuple[PlannedScope, ...]
    nodes: tuple[PlannedNode, ...]
    events: tuple[PlannedEvent, ...]
    """Best first; without a question newest first."""

    @property
    def node_ids(self) -> Sequence[UUID]:
        """The content that it shows."""
        return [node.node_id for node in self.nodes]

    @property
    def event_ids(self) -> Sequence[UUID]:
        """The events that it shows or cites."""
        first_events = [node.first_event for node in self.nodes if node.first_event]
        return list(dict.fromkeys([*(event.event_id for event in self.events), *first_events]))
