"""A writer's queue: pending events in order, and those that could not be stored. It serves threads
and tasks alike; its user ensures that only one of them uses it at a time."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from strandline.client import answers
from strandline.client.errors import ServiceError, make_error
from strandline.client.memory import MemoryVerbs
from strandline.client.request_building import VerbGroup, to_json_value

logger = logging.getLogger("strandline.client")

MAX_BATCH = 500
"""The most events of a request."""
MAX_BATCH_BYTES = 3 * 1024 * 1024
"""The most bytes of a request's events; the service takes 4 MiB."""


@dataclass(frozen=True)
class PendingEvent:
    """A pending event."""

    event: Mapping[str, Any]
    size: int


@dataclass(frozen=True)
class UnstoredEvent:
    """An event that was not stored, and why. Send it again with the same `source_event_key`: it is
    stored once, whatever became of it."""

    event: Mapping[str, Any]
    error: ServiceError


class NotStoredError(ServiceError):
    """Some events were not stored; `failures` has each of them with its reason."""

    code = "not_stored"

    def __init__(self, failures: Sequence[UnstoredEvent]) -> None:
        first = failures[0]
        super().__init__(
            f"{len(failures)} events were not stored. The first, with the key "
            f"{first.event['source_event_key']!r}: {first.error}"
        )
        self.failures = list(failures)

    def __reduce__(self) -> tuple[type[NotStoredError], tuple[list[UnstoredEvent]]]:
        return type(self), (self.failures,)

    def attach_to(self, error: BaseException) -> None:
        """Let the error that ended a block tell of the events, too."""
        if sys.version_info >= (3, 11):
            error.add_note(str(self))
        else:
            logger.error("%s", self)


class WriterOutbox:
    """Events on their way."""

    def __init__(
        self, max_pending: int, on_failure: Callable[[UnstoredEvent], None] | None
    ) -> None:
        if max_pending < 1:
            raise ValueError("max_pending: must be at least 1")
        self._max_pending, self._on_failure = max_pending, on_failure
        self._key_base, self._count = uuid4(), 0
        self._waiting: deque[PendingEvent] = deque()
        self._in_flight = 0
        self._failures_to_report: list[UnstoredEvent] = []
        self.stored_count = 0
        """How many events the service acknowledged."""

    @property
    def pending_count(self) -> int:
        """How many events are not settled yet."""
        return len(self._waiting) + self._in_flight

    @property
    def has_room(self) -> bool:
        """Whether another event may wait."""
        return self.pending_count < self._max_pending

    @property
    def is_batch_full(self) -> bool:
        """Whether the next batch is full, so that it need not wait for more events."""
        return len(self._waiting) >= min(MAX_BATCH, self._max_pending)

    @property
    def has_events_to_send(self) -> bool:
        """Whether there is something to send."""
        return bool(self._waiting)

    def make_pending_event(
        self, caller: VerbGroup, content: str | None, fields: Mapping[str, Any]
    ) -> PendingEvent:
        """An event with its key: the caller's, or one of its own. `fields` are those of
        `MemoryVerbs.add`. Raises TypeError for an unknown one."""
        values = MemoryVerbs.add.declaration.bind_arguments(caller, (content,), fields)
        self._count += 1
        key = {"source_event_key": f"{self._key_base}-{self._count}"}
        event = {**key, **to_json_value(values)}
        return PendingEvent(event, len(json.dumps(event)))

    def enqueue(self, entry: PendingEvent) -> None:
        """Let an event wait."""
        self._waiting.append(entry)

    def take_next_batch(self) -> list[PendingEvent]:
        """The next batch, which is in flight from now on."""
        batch: list[PendingEvent] = []
        size = 0
        while self._waiting and len(batch) < MAX_BATCH:
            size += self._waiting[0].size
            if batch and size > MAX_BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        self._in_flight += len(batch)
        return batch

    def record_batch_answer(
        self, batch: Sequence[PendingEvent], answer: answers.BatchAnswer
    ) -> list[PendingEvent]:
        """Record the answer to a batch. Returns the events that may be stored later."""
        again: list[PendingEvent] = []
        for entry, item in zip(batch, answer.results, strict=True):
            if item.error is None:
                self.stored_count += 1
                self._in_flight -= 1
            elif item.error.retryable:
                again.append(entry)
            else:
                self.record_failed_events(
                    [entry], make_error(item.status, item.error.model_dump(), None)
                )
        return again

    def record_failed_events(self, batch: Sequence[PendingEvent], error: ServiceError) -> None:
        """Record these events as failed."""
        self._in_flight -= len(batch)
        for entry in batch:
            failure = UnstoredEvent(entry.event, error)
            self._failures_to_report.append(failure)
            if self._on_failure is not None:
                try:
                    self._on_failure(failure)
                except Exception:
                    logger.exception("on_failure failed")

    def raise_unreported_failures(self) -> None:
        """Raises NotStoredError for failures that no call has reported yet."""
        if self._failures_to_report:
            failures, self._failures_to_report = self._failures_to_report, []
            raise NotStoredError(failures)


def split_batch_in_halves(
    batch: Sequence[PendingEvent],
) -> tuple[Sequence[PendingEvent], Sequence[PendingEvent]]:
    """A batch that is too large, in two."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
