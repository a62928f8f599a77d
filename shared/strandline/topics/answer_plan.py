"""The plan of an answer to a references query, as it is stored to repeat the answer: ids and
numbers, no text."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

LAYOUT_VERSION = 2
"""The version of the rules that turn a plan into an answer. A stored plan of another version is not
rendered again."""


class _ManifestModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ManifestScope(_ManifestModel):
    """A scope of an answer."""

    scope_id: UUID
    cutoff: int
    mark: int


class ManifestNode(_ManifestModel):
    """A slot of an answer. Its parent, if it has one, comes before it."""

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
    """The event that is cited for the node if no event below it is shown."""


class ManifestEvent(_ManifestModel):
    """An event of an answer."""

    event_id: UUID
    scope_id: UUID
    slot: UUID | None
    """The slot under which the event is shown; None: the fresh tail."""
    relevance: float | None
    text_bytes: int | None
    """The maximum bytes of its text; None: as long as its line allows."""


class AnswerLeftOutCounts(_ManifestModel):
    """How much was left out, by reason."""

    events: int = 0
    """Events that do not fit the budget."""
    topics: int = 0
    """Topics that do not fit the budget, in an outline without a question."""
    summaries: int = 0
    """Summaries of shown topics that do not fit the budget."""
    shortened: int = 0
    """Texts that are shown shortened."""
    width: int = 0
    """Events below slots that the walk did not follow."""
    time: bool = False
    """Whether the time limit was reached before the walk ended."""


class WalkMethod(_ManifestModel):
    """Which method chose the slots: the beam or a language model."""

    by: Literal["beam", "model"]
    model: str | None = None
    prompt: str | None = None
    rounds: int = 0


class AnswerManifest(_ManifestModel):
    """An answer without its texts."""

    layout: int = LAYOUT_VERSION
    version: int | None
    """The version of the snapshot; None: there was none."""
    answered_at: datetime
    known: float | None
    space: str | None
    degraded: tuple[str, ...]
    not_yet_embedded: int
    walk: WalkMethod
    cut: AnswerLeftOutCounts
    scopes: tuple[ManifestScope, ...]
    nodes: tuple[ManifestNode, ...]
    events: tuple[ManifestEvent, ...]
    """Best first; without a question, newest first."""

    @property
    def node_ids(self) -> Sequence[UUID]:
        """The ids of the nodes that the answer shows."""
        return [node.node_id for node in self.nodes]

    @property
    def event_ids(self) -> Sequence[UUID]:
        """The ids of the events that the answer shows or cites."""
        first_events = [node.first_event for node in self.nodes if node.first_event]
        return list(dict.fromkeys([*(event.event_id for event in self.events), *first_events]))
