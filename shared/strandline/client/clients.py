"""The clients: `Strandline` for programs that wait, `AsyncStrandline` for those with an event
loop. Both have the same verbs."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from strandline.client import answers
from strandline.client.admin import Admin, AsyncAdmin
from strandline.client.connection_settings import make_connection_settings
from strandline.client.erasures import ErasureVerbs
from strandline.client.errors import UnexpectedAnswerError
from strandline.client.graph import AsyncGraph, Graph
from strandline.client.memory import Fields, MemoryVerbs
from strandline.client.personas import PersonaVerbs
from strandline.client.request_building import join_participants
from strandline.client.retries import Retry
from strandline.client.scopes_and_payloads import ScopeAndPayloadVerbs
from strandline.client.sessions import AsyncSession, Session, SessionPlan
from strandline.client.transport import (
    AsyncCaller,
    AsyncConnection,
    SyncCaller,
    SyncConnection,
)

if TYPE_CHECKING:
    import httpx2
    from typing_extensions import Self

    from strandline.client.writer import UnstoredEvent, Writer
    from strandline.client.writer_async import AsyncWriter

_TIMEOUT = 30.0
"""Seconds; the service itself answers within 29."""


def _make_session_plan(
    session_id: str | None,
    participants: list[str] | None,
    scope_id: UUID | str | None,
    metadata: Fields | None,
    ends: bool,
) -> SessionPlan:
    if session_id is None and participants is None:
        raise ValueError(
            "session_id: name the session, or say who takes part, as in "
            "session(user='alice', agent='helper')"
        )
    scope = None if scope_id is None else str(scope_id)
    return SessionPlan(session_id or str(uuid4()), participants, scope, metadata, ends)


def _find_next_after_seq(after_seq: int, page: answers.FeedPage) -> int:
    """Where the next page of a feed begins. Raises UnexpectedAnswerError where that would be where
    this one began."""
    if page.events and page.next_after_seq <= after_seq:
        raise UnexpectedAnswerError("The feed does not move on: a page came twice.")
    return max(after_seq, page.next_after_seq)


class Strandline(MemoryVerbs, ScopeAndPayloadVerbs, ErasureVerbs, PersonaVerbs, SyncCaller):
    """A client of a Strandline service. Safe for threads. Use it in a `with` block, or call
    `close`.

    `url` and `key` are by default STRANDLINE_URL and STRANDLINE_API_KEY. `token` is a JWT instead
    of a key. `timeout` is in seconds for each attempt. `http` is an httpx2.Client of your own, for
    client certificates or a proxy. Raises ValueError for an address, a credential or a time
    that cannot be used; all verbs raise ServiceError.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        token: str | None = None,
        timeout: float = _TIMEOUT,
        retry: Retry | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        settings = make_connection_settings(url, key, token, timeout, retry)
        SyncCaller.__init__(self, SyncConnection(settings, http))

    @functools.cached_property
    def graph(self) -> Graph:
        """The knowledge graph."""
        return Graph(self.connection)

    @functools.cached_property
    def admin(self) -> Admin:
        """Tenants, keys, jobs, snapshots."""
        return Admin(self.connection)

    def session(
        self,
        session_id: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        scope_id: UUID | str | None = None,
        metadata: Fields | None = None,
        ends: bool = False,
    ) -> Session:
        """One conversation: `with client.session(user="alice", agent="helper") as session: ...`
        begins it, or joins it where it has begun. It goes on after the block, unless `ends`.
        `session_id` alone joins one that exists. Raises NotFoundError."""
        members = join_participants(user, agent, participants)
        return Session(
            self.connection, _make_session_plan(session_id, members, scope_id, metadata, ends)
        )

    def events(
        self,
        scope_id: UUID | str,
        *,
        after_seq: int = 0,
        follow: bool = False,
        interval: float = 1.0,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        page_size: int | None = None,
    ) -> Iterator[answers.EventOut]:
        """The events of a scope in order, from the one after `after_seq`: nothing missing, nothing
        twice. To resume, pass the `seq` of the last event that you have. `follow` waits for new
        ones, asking every `interval` seconds."""
        readers = join_participants(user, agent, participants)
        while True:
            page = self.feed_page(
                scope_id,
                after_seq=after_seq,
                participants=readers,
                everybody=everybody,
                limit=page_size,
            )
            yield from page.events
            after_seq = _find_next_after_seq(after_seq, page)
            if not page.events or after_seq >= page.last_seq:
                if not follow:
                    return
                time.sleep(interval)

    def writer(
        self,
        *,
        max_pending: int = 10_000,
        linger: float = 0.05,
        give_up_after: float = 300.0,
        on_failure: Callable[[UnstoredEvent], None] | None = None,
    ) -> Writer:
        """A writer for high rates: `with client.writer() as writer: writer.add(...)`. See
        Writer."""
        from strandline.client.writer import Writer

        return Writer(
            self,
            max_pending=max_pending,
            linger=linger,
            give_up_after=give_up_after,
            on_failure=on_failure,
        )

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStrandline(MemoryVerbs, ScopeAndPayloadVerbs, ErasureVerbs, PersonaVerbs, AsyncCaller):
    """An asynchronous client of a Strandline service, for the tasks of one event loop. Use it in an
    `async with` block, or await `close`. Parameters are those of Strandline."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        token: str | None = None,
        timeout: float = _TIMEOUT,
        retry: Retry | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        settings = make_connection_settings(url, key, token, timeout, retry)
        AsyncCaller.__init__(self, AsyncConnection(settings, http))

    @functools.cached_property
    def graph(self) -> AsyncGraph:
        """The knowledge graph."""
        return AsyncGraph(self.connection)

    @functools.cached_property
    def admin(self) -> AsyncAdmin:
        """Tenants, keys, jobs, snapshots."""
        return AsyncAdmin(self.connection)

    def session(
        self,
        session_id: str | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        scope_id: UUID | str | None = None,
        metadata: Fields | None = None,
        ends: bool = False,
    ) -> AsyncSession:
        """One conversation, as of Strandline.session: `async with client.session(...)`."""
        members = join_participants(user, agent, participants)
        return AsyncSession(
            self.connection, _make_session_plan(session_id, members, scope_id, metadata, ends)
        )

    async def events(
        self,
        scope_id: UUID | str,
        *,
        after_seq: int = 0,
        follow: bool = False,
        interval: float = 1.0,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[answers.EventOut]:
        """The events of a scope in order, as of Strandline.events: `async for`."""
        import asyncio

        readers = join_participants(user, agent, participants)
        while True:
            page = await self.feed_page(
                scope_id,
                after_seq=after_seq,
                participants=readers,
                everybody=everybody,
                limit=page_size,
            )
            for event in page.events:
                yield event
            after_seq = _find_next_after_seq(after_seq, page)
            if not page.events or after_seq >= page.last_seq:
                if not follow:
                    return
                await asyncio.sleep(interval)

    def writer(
        self,
        *,
        max_pending: int = 10_000,
        linger: float = 0.05,
        give_up_after: float = 300.0,
        on_failure: Callable[[UnstoredEvent], None] | None = None,
    ) -> AsyncWriter:
        """A writer for high rates: `async with client.writer() as writer: await
        writer.add(...)`."""
        from strandline.client.writer_async import AsyncWriter

        return AsyncWriter(
            self,
            max_pending=max_pending,
            linger=linger,
            give_up_after=give_up_after,
            on_failure=on_failure,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
