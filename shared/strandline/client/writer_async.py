"""A writer for high rates in an event loop: as Writer, with a task instead of a thread."""

from __future__ import annotations

import asyncio
import atexit
import os
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
from strandline.client.transport import AsyncCaller

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AsyncWriter:
    """`async with client.writer() as writer: await writer.add("...", user="alice")`. It gives the
    guarantees of Writer, except one: the end of the program cannot flush it, only log what was not
    stored, so leave the block before."""

    def __init__(
        self,
        client: AsyncCaller,
        *,
        max_pending: int,
        linger: float,
        give_up_after: float,
        on_failure: Callable[[UnstoredEvent], None] | None,
    ) -> None:
        self._client, self._linger, self._give_up_after = client, linger, give_up_after
        self._retry = replace(client.connection.settings.retry, seconds=give_up_after)
        self._outbox = WriterOutbox(max_pending, on_failure)
        self._condition = asyncio.Condition()
        self._flushing = 0
        self._closing, self._process = False, os.getpid()
        self._task: asyncio.Task[None] | None = None
        atexit.register(self._log_unstored_at_exit)

    @property
    def pending(self) -> int:
        """How many events are not settled yet."""
        return self._outbox.pending_count

    @property
    def stored(self) -> int:
        """How many events the service acknowledged."""
        return self._outbox.stored_count

    async def add(
        self,
        content: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        role: Role = "user",
        session_id: str | None = None,
        **more: Unpack[EventFields],
    ) -> str:
        """Add an event to the queue, and return its `source_event_key`. Waits while the queue is
        full. Raises RuntimeError after `close`."""
        fields = {"user": user, "agent": agent, "participants": participants, "role": role}
        fields |= {"session_id": session_id, **more}
        async with self._condition:
            if self._task is None:
                self._task = asyncio.create_task(
                    self._store_batches_until_closed(), name="strandline-writer"
                )
            await self._condition.wait_for(lambda: self._closing or self._outbox.has_room)
            if self._closing:
                raise RuntimeError("the writer is closed")
            entry = self._outbox.make_pending_event(self._client, content, fields)
            self._outbox.enqueue(entry)
            self._condition.notify_all()
        return entry.event["source_event_key"]

    async def flush(self) -> None:
        """Wait until all events are settled. Raises NotStoredError."""
        async with self._condition:
            self._flushing += 1
            self._condition.notify_all()
            try:
                await self._condition.wait_for(lambda: self._outbox.pending_count == 0)
            finally:
                self._flushing -= 1
            self._outbox.raise_unreported_failures()

    async def close(self) -> None:
        """Store all pending events, and end. Raises NotStoredError."""
        async with self._condition:
            self._closing = True
            self._condition.notify_all()
        if self._task is not None:
            await asyncio.shield(self._task)  # who gives up waiting does not end it
        atexit.unregister(self._log_unstored_at_exit)
        self._outbox.raise_unreported_failures()

    def _log_unstored_at_exit(self) -> None:
        if self.pending and self._process == os.getpid():
            logger.error("%d events of a writer that nobody closed were not stored", self.pending)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except NotStoredError as failure:
            if error is None:
                raise
            failure.attach_to(error)

    async def _store_batches_until_closed(self) -> None:
        while True:
            async with self._condition:
                await self._condition.wait_for(
                    lambda: self._outbox.has_events_to_send or self._closing
                )
                if not self._outbox.has_events_to_send:
                    return
            await self._linger_for_more()
            async with self._condition:
                batch = self._outbox.take_next_batch()
            await self._settle_batch(batch)
            async with self._condition:
                self._condition.notify_all()

    async def _linger_for_more(self) -> None:
        until = time.monotonic() + self._linger
        while time.monotonic() < until and not self._is_batch_due():
            await asyncio.sleep(self._linger / 10)

    def _is_batch_due(self) -> bool:
        return self._outbox.is_batch_full or self._closing or self._flushing > 0

    async def _settle_batch(self, batch: Sequence[PendingEvent]) -> None:
        """Settle a batch, whatever happens."""
        deadline = time.monotonic() + self._give_up_after
        while batch:
            try:
                answer = await self._post_batch(batch)
            except TooLargeError as error:
                if len(batch) == 1:
                    self._outbox.record_failed_events(batch, error)
                    return
                first, batch = split_batch_in_halves(batch)
                await self._settle_batch(first)
                continue
            except ServiceError as error:
                self._outbox.record_failed_events(batch, error)
                return
            except Exception as error:
                logger.exception("a batch could not be sent")
                self._outbox.record_failed_events(
                    batch, ServiceError(f"{type(error).__name__}: {error}")
                )
                return
            batch = self._outbox.record_batch_answer(batch, answer)
            if batch and time.monotonic() > deadline:
                self._outbox.record_failed_events(
                    batch, UnavailableError("The service could not store the event.")
                )
                return
            if batch:
                await asyncio.sleep(self._retry.cap / 10)

    async def _post_batch(self, batch: Sequence[PendingEvent]) -> answers.BatchAnswer:
        call = MemoryVerbs.post_batch.call(self._client, [entry.event for entry in batch])
        answer = await self._client.connection.perform(call, self._retry)
        return require_result_of_each_event(answer, len(batch))
