"""Google's Agent Development Kit: a memory service for runners.

runner = Runner(..., memory_service=StrandlineMemoryService())
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

from strandline.adapters.agent_memory import AgentMemory, SaidText, post_unerased_events
from strandline.client import answers
from strandline.client.clients import AsyncStrandline
from strandline.client.errors import GoneError, NotFoundError
from strandline.moments import parse_moment

_USER = "user"
_KIND = "google_adk"
_MAX_SESSION_CHARS = 128
_MIN_RELEVANCE = 0.1
"""Below it a hit does not speak of the query, unless it has a word of it."""


class StrandlineMemoryService(BaseMemoryService):
    """A `BaseMemoryService`: events of sessions are events of the service, and a search is recall.

    Each call of the framework names a user and an app, whose memory it is about: the participants
    `user:<user_id>` and `agent:<app_name>`. `agent` names the agent instead of the app, so that
    several apps share one memory of a user; `participants` is a function of app and user that names
    everybody. `limit` is the number of results of a search. `url` and `key` are by default
    STRANDLINE_URL and STRANDLINE_API_KEY; an `async_client` of your own may be given instead.

    What is added again is stored once: an event under its own id and text, a memory under its id.
    Raises ValueError where no user is named, and ServiceError.
    """

    def __init__(
        self,
        *,
        agent: str | None = None,
        participants: Callable[[str, str], Iterable[str]] | None = None,
        limit: int = 10,
        url: str | None = None,
        key: str | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        if agent and participants:
            raise ValueError("a function of participants names the agent, too")

        def choose(app_name: str, user_id: str) -> list[str]:
            return [_name_user(user_id), f"agent:{agent or app_name}"]

        self._memory = AgentMemory(
            participants=participants or choose, url=url, key=key, async_client=async_client
        )
        self._limit = limit

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session that were not added before."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add what events say: texts, without thoughts, calls of tools and their results. An event
        whose memory was deleted is not added again. `custom_metadata` is JSON that the events of
        the service get."""
        await self._store(
            [app_name, user_id],
            session_id,
            [
                SaidText(
                    "user" if event.author == _USER else "agent",
                    text := _read_text(event.content),
                    _make_key(app_name, user_id, session_id, event.id, text),
                    datetime.fromtimestamp(event.timestamp, timezone.utc),
                    _make_metadata(event.author, custom_metadata),
                    _name_speaker(event.author, user_id),
                )
                for event in events
                if not event.partial
            ],
        )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories as they are; those with an `id` once. They are of the user where their
        author is `user`, else of the agent. A timestamp without a zone is local time, as ADK
        writes it; one that is no date is left out."""
        await self._store(
            [app_name, user_id],
            None,
            [
                SaidText(
                    "user" if entry.author == _USER else "agent",
                    text := _read_text(entry.content),
                    _make_key(app_name, user_id, None, entry.id, text) if entry.id else None,
                    _read_time(entry.timestamp),
                    _make_metadata(
                        entry.author, {**entry.custom_metadata, **(custom_metadata or {})}
                    ),
                    _name_speaker(entry.author, user_id),
                )
                for entry in memories
            ],
        )

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """What answers a query, best first; nothing where nothing relevant is known. An entry has
        the author and the `custom_metadata` that it was added with; the latter also says how
        relevant it is, and which event has replaced it."""
        if not query.strip():
            return SearchMemoryResponse()
        answer = await self._memory.clients.asynchronous.recall(
            query[:8000],
            participants=self._memory.list_participants(app_name, user_id),
            limit=self._limit,
            include="full",
        )
        return SearchMemoryResponse(
            memories=[_make_entry(hit) for hit in answer.hits if _is_relevant(hit)]
        )

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Erase a memory by the id that a search gave; nothing where the user has none of it, or
        has it no more. The key needs the right `erase`."""
        if not memory_id:
            raise ValueError("memory_id: name the memory, by the id that a search gave")
        participants = self._memory.list_participants(app_name, user_id)
        try:
            event_id = UUID(memory_id)
        except ValueError:
            return
        client = self._memory.clients.asynchronous
        with suppress(NotFoundError, GoneError):
            event = await client.get(event_id, participants=participants)
            await client.erase(event_ids=[event.event_id])

    async def aclose(self) -> None:
        """Close the connections of the client that this service made."""
        await self._memory.clients.aclose()

    async def _store(
        self, run: Sequence[str], session_id: str | None, texts: Sequence[SaidText]
    ) -> None:
        participants = self._memory.list_participants(*run)
        session = session_id and _name_session(*run, session_id)
        steps = self._memory.store_texts(participants, session, texts, post_unerased_events)
        await self._memory.run_async(steps)


def _name_user(user_id: str) -> str:
    """The participant of a user. Raises ValueError for an id that would name another one's."""
    if not user_id or unicodedata.normalize("NFC", user_id).strip() != user_id:
        raise ValueError(
            f"user_id: {user_id!r} is empty, has blanks at an end, or is not in Unicode's form NFC;"
            " name the participants by a function of app and user"
        )
    return f"user:{user_id}"


def _name_speaker(author: str | None, user_id: str) -> str:
    """Who says what has this author, if that is one of the participants."""
    return f"user:{user_id}" if author == _USER else f"agent:{author}"


def _name_session(*names: str) -> str:
    """The service's session: other users may have one of the same id. Each name of app, user and
    id gives another one, also where they have slashes."""
    name = "/".join(names)
    if len(name) <= _MAX_SESSION_CHARS and name.count("/") == len(names) - 1:
        return name
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _make_key(*parts: str | None) -> str:
    return f"{_KIND}/{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"


def _make_metadata(author: str | None, custom: Mapping[str, object] | None) -> dict[str, object]:
    note = {"author": author, "custom_metadata": dict(custom or {})}
    return {_KIND: {name: value for name, value in note.items() if value}}


def _read_time(text: str | None) -> datetime | None:
    """When a timestamp is, by local time where it has no zone; None where it is no date."""
    try:
        return parse_moment(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text or "").astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def _read_text(content: Content | None) -> str:
    parts = (content.parts if content else None) or []
    return "\n".join(part.text for part in parts if part.text and not part.thought)


def _is_relevant(hit: answers.Hit) -> bool:
    """Whether a hit has a word of the query, or its meaning. The framework's tools put all that
    they get into the prompt."""
    return bool(hit.why) or hit.relevance is None or hit.relevance >= _MIN_RELEVANCE


def _make_entry(hit: answers.Hit) -> MemoryEntry:
    metadata: Mapping[str, Any] = hit.event.metadata if hit.event else {}
    note: Mapping[str, Any] = metadata.get(_KIND, {})
    custom: Mapping[str, Any] = note.get("custom_metadata", {})
    kind, _, name = (hit.speaker or "").partition(":")
    author = note.get("author") or (_USER if kind == "user" else name or None)
    details = {
        "relevance": hit.relevance,
        "superseded_by": hit.superseded_by and str(hit.superseded_by),
    }
    return MemoryEntry(
        content=Content(
            role=_USER if author == _USER else "model",
            parts=[Part(text=hit.text or hit.excerpt or hit.name or "")],
        ),
        custom_metadata={
            **{name: value for name, value in custom.items() if name not in details},
            **{name: value for name, value in details.items() if value is not None},
        },
        id=str(hit.event_id),
        author=author,
        timestamp=hit.occurred_at.isoformat(),
    )
