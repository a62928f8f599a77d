"""A writer for high rates: events wait in a bounded queue, and a thread stores them in batches."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.client import answers
from strandline.client.errors import ServiceError, TooLargeError, UnavailableError
from strandline.client.memory import EventFields, MemoryVerbs, Role, require_result_of_each_event
from strandline.client.outbox import (
    NotStoredError,
    PendingEvent,
    UnstoredEvent,
    WriterOutbox,
    logger,
    split_batch_in_halves,
)
from strandline.client.transport import SyncCaller

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Writer:
    """`with client.writer() as writer: writer.add("...", user="alice")`.

    Events of one writer are stored in the order in which they were added, each exactly once: it
    has its key before it is first sent. At most `max_pending` events wait; then `add` waits. While
    the service is away a batch is repeated for `give_up_after` seconds. What could not be stored is
    given to `on_failure`, and raised by the next `flush` or `close` as NotStoredError. The end of
    the program flushes, too. Safe for threads; a forked process stores what it adds itself.
    """

    def __init__(
        self,
        client: SyncCaller,
        *,
        max_pending: int,
        linger: float,
        give_up_after: float,
        on_failure: Callable[[UnstoredEvent], None] | None,
    ) -> None:
        self._client, self._linger, self._give_up_after = client, linger, give_up_after
        self._retry = replace(client.connection.settings.retry, seconds=give_up_after)
        self._make_outbox = lambda: WriterOutbox(max_pending, on_failure)
        self._closing = False
        self._start_queue_and_thread()
        atexit.register(self._close_at_exit)

    def _start_queue_and_thread(self) -> None:
        self._process = os.getpid()
        self._outbox = self._make_outbox()
        self._condition = threading.Condition()
        self._flushing = 0
        self._thread = threading.Thread(
            target=self._store_batches_until_closed, name="strandline-writer", daemon=True
        )
        self._thread.start()

    def _restart_after_fork(self) -> None:
        """In a forked process: begin again. It has no thread, and what waits is the parent's to
        store."""
        if self._process != os.getpid():
            self._start_queue_and_thread()

    @property
    def pending(self) -> int:
        """How many events are not settled yet."""
        return self._outbox.pending_count

    @property
    def stored(self) -> int:
        """How many events the service acknowledged."""
        return self._outbox.stored_count

    def add(
        self,
        content: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        role: Role = "user",
        session_id: str | None = None,
        timeout: float | None = None,
        **more: Unpack[EventFields],
    ) -> str:
        """Add an event to the queue, and return its `source_event_key`. Waits while the queue is
        full, at most `timeout` seconds; then raises TimeoutError, and the event is not taken.
        Raises RuntimeError after `close`."""
        fields = {"user": user, "agent": agent, "participants": participants, "role": role}
        fields |= {"session_id": session_id, **more}
        self._restart_after_fork()
        with self._condition:
            is_free = self._condition.wait_for(
                lambda: self._closing or self._outbox.has_room, timeout
            )
            if self._closing:
                raise RuntimeError("the writer is closed")
            if not is_free:
                raise TimeoutError(f"{self.pending} events wait, and the service takes none")
            entry = self._outbox.make_pending_event(self._client, content, fields)
            self._outbox.enqueue(entry)
            self._condition.notify_all()
        return entry.event["source_event_key"]

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all events are settled. Raises NotStoredError, and TimeoutError after so many
        seconds."""
        self._restart_after_fork()
        with self._condition:
            self._flushing += 1
            self._condition.notify_all()
            try:
                if not self._condition.wait_for(lambda: self._outbox.pending_count == 0, timeout):
                    raise TimeoutError(f"{self.pending} events are not stored yet")
            finally:
                self._flushing -= 1
            self._outbox.raise_unreported_failures()

    def close(self) -> None:
        """Store all pending events, and end. Raises NotStoredError."""
        self._restart_after_fork()
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        self._thread.join()
        atexit.unregister(self._close_at_exit)
        self._outbox.raise_unreported_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except NotStoredError as failure:
            if error is None:
                raise
            failure.attach_to(error)

    def _close_at_exit(self) -> None:
        if self._process != os.getpid():
            return  # nothing was added in this forked process
        try:
            self.close()
        except NotStoredError as failure:
            logger.error("%s", failure)

    def _store_batches_until_closed(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._outbox.has_events_to_send or self._closing)
                if not self._outbox.has_events_to_send:
                    return
                self._condition.wait_for(self._is_batch_due, self._linger)
                batch = self._outbox.take_next_batch()
            self._settle_batch(batch)
            with self._condition:
                self._condition.notify_all()

    def _is_batch_due(self) -> bool:
        return self._outbox.is_batch_full or self._closing or self._flushing > 0

    def _settle_batch(self, batch: Sequence[PendingEvent]) -> None:
        """Settle a batch, whatever happens."""
        deadline = time.monotonic() + self._give_up_after
        while batch:
            try:
                answer = self._post_batch(batch)
            except TooLargeError as error:
                if len(batch) == 1:
                    self._record_failed_events(batch, error)
                    return
                first, batch = split_batch_in_halves(batch)
                self._settle_batch(first)
                continue
            except ServiceError as error:
                self._record_failed_events(batch, error)
                return
            except Exception as error:
                logger.exception("a batch could not be sent")
                self._record_failed_events(batch, ServiceError(f"{type(error).__name__}: {error}"))
                return
            with self._condition:
                batch = self._outbox.record_batch_answer(batch, answer)
            if batch and time.monotonic() > deadline:
                self._record_failed_events(
                    batch, UnavailableError("The service could not store the event.")
                )
                return
            if batch:
                time.sleep(self._retry.cap / 10)

    def _post_batch(self, batch: Sequence[PendingEvent]) -> answers.BatchAnswer:
        call = MemoryVerbs.post_batch.call(self._client, [entry.event for entry in batch])
        answer = self._client.connection.perform(call, self._retry)
        return require_result_of_each_event(answer, len(batch))

    def _record_failed_events(self, batch: Sequence[PendingEvent], error: ServiceError) -> None:
        with self._condition:
            self._outbox.record_failed_events(batch, error)
