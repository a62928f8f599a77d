"""What an append hands from step to step: its items, and the results of those that are decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strandline.errors import StrandlineError
from strandline.log.event_builder import NewEvent
from strandline.log.event_draft import EventDraft
from strandline.log.schemas_append import Receipt

STORED_OUTCOMES = ("created", "replayed")
"""The outcomes of items that are in the log after an append."""


@dataclass(frozen=True)
class AppendResult:
    """The result of one item: a receipt, or the error that refused it."""

    receipt: Receipt | None = None
    is_replay: bool = False
    error: StrandlineError | None = None

    @property
    def is_new(self) -> bool:
        """Whether the append created a new event, rather than replaying one."""
        return self.receipt is not None and not self.is_replay


@dataclass(frozen=True)
class AppendBatch:
    """The items of one append between two of its steps, by item number: the item's place in the
    request. Each step returns a batch of its own."""

    drafts: Mapping[int, EventDraft]
    events: Mapping[int, NewEvent] = field(default_factory=dict[int, NewEvent])
    """The events to store: of each draft one, once they are built, that was not refused."""
    results: Mapping[int, AppendResult] = field(default_factory=dict[int, AppendResult])
    """The results of the items that are decided."""

    def refuse(self, errors: Mapping[int, StrandlineError]) -> "AppendBatch":
        """The batch with these items refused: they are not stored."""
        if not errors:
            return self
        refusals = {n: AppendResult(error=error) for n, error in errors.items()}
        return replace(
            self,
            drafts={n: draft for n, draft in self.drafts.items() if n not in errors},
            events={n: event for n, event in self.events.items() if n not in errors},
            results={**self.results, **refusals},
        )
