"""Strands Agents: a store for its memory manager.

    memory = MemoryManager(stores=[StrandlineMemoryStore(user="alice", agent="helper")])
    agent = Agent(memory_manager=memory)

`strands_sessions` has a repository for its session manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from strands.memory import (
    AddMessagesContext,
    ExtractionConfig,
    InvocationTrigger,
    MemoryEntry,
    MemoryStore,
    SearchOptions,
)
from strands.types.content import Message

from strandline.adapters.client_pairs import ClientPair, join_participants_and_require_user
from strandline.adapters.event_batches import clean_text, post_events
from strandline.adapters.session_records import RetryKeys
from strandline.adapters.step_runners import run_steps_async
from strandline.client.clients import AsyncStrandline

_DEFAULT_RESULTS = 10
_MOST_RESULTS = 100
_MAX_QUERY_CHARS = 8000


class StrandlineMemoryStore(MemoryStore):
    """A `MemoryStore`: what the agent said and was told, and what it adds, are events of the
    service, and `search` is recall.

    `user`, `agent` and `participants` say whose memory it is. `url` and `key` are by default
    STRANDLINE_URL and STRANDLINE_API_KEY; a client of your own may be given instead. `session_id`
    names the session of the messages; by default it is a new one. Messages are stored after each
    turn, without a call of a model; `extraction` says otherwise. What the manager tries again after
    an error is stored once. Raises ValueError where no user is named, and ServiceError.
    """

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        session_id: str | None = None,
        name: str = "strandline",
        description: str | None = "What was said before, with whom and when.",
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
        url: str | None = None,
        key: str | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        if extraction is None and writable:
            self.extraction = ExtractionConfig(trigger=[InvocationTrigger()])
        self._session_id = session_id or str(uuid4())
        self._participants = join_participants_and_require_user(user, agent, participants)
        self._clients = ClientPair(url, key, async_client=async_client)
        self._keys = RetryKeys()

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """The events that answer a query, best first; none where nothing relevant is known. Their
        metadata says which they are, who said them when, and how relevant they are."""
        limit = (options or {}).get("max_search_results")
        if limit is None:
            limit = self.max_search_results
        if limit is None:
            limit = _DEFAULT_RESULTS
        if limit < 1 or not query.strip():
            return []
        answer = await self._clients.asynchronous.recall(
            clean_text(query[:_MAX_QUERY_CHARS]),
            participants=self._participants,
            limit=min(limit, _MOST_RESULTS),
        )
        return [
            MemoryEntry(
                content=hit.text or hit.excerpt or hit.name or "",
                metadata={
                    "event_id": str(hit.event_id),
                    "speaker": hit.speaker,
                    "occurred_at": hit.occurred_at.isoformat(),
                    "relevance": hit.relevance,
                    "superseded_by": hit.superseded_by and str(hit.superseded_by),
                },
            )
            for hit in answer.hits
        ]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Store a text that the agent states."""
        fields = {"content": content, "metadata": {"strands": metadata or {}}}
        await self._add_events([("add", {**fields, "role": "agent", "type": "message"})])

    async def add_messages(
        self, messages: list[Message], context: AddMessagesContext | None = None
    ) -> None:
        """Store messages: texts, and results of tools as observations."""
        numbers = context.sequence_numbers if context else None
        events = [
            (number, event)
            for number, message in zip(numbers or range(len(messages)), messages, strict=True)
            for event in _list_message_events(message, self._session_id)
        ]
        await self._add_events(events)

    async def _add_events(self, events: Sequence[tuple[object, dict[str, Any]]]) -> None:
        """Store events, each under a key that it keeps until it is stored."""
        with self._keys.attempt([[*event] for event in events]) as keys:
            numbered_events = [
                {
                    **event,
                    "content": clean_text(event["content"]),
                    "participants": self._participants,
                    "source_event_key": f"{key}/{number}",
                }
                for key, (number, event) in zip(keys, events, strict=True)
            ]
            await run_steps_async(self._clients.asynchronous, post_events(numbered_events))

    async def aclose(self) -> None:
        """Close the connections of the client that this store made."""
        await self._clients.aclose()


def _list_message_events(message: Message, session_id: str) -> list[dict[str, Any]]:
    """The events of a message: its text, and each result of a tool."""
    blocks = cast("list[Mapping[str, Any]]", message["content"])
    texts = [block["text"] for block in blocks if block.get("text", "").strip()]
    role = "agent" if message["role"] == "assistant" else "user"
    events: list[dict[str, Any]] = []
    if texts:
        events.append({"role": role, "type": "message", "content": "\n".join(texts)})
    for block in blocks:
        parts = block.get("toolResult", {}).get("content", [])
        output = "\n".join(part["text"] for part in parts if part.get("text", "").strip())
        if output:
            events.append({"role": "agent", "type": "observation", "content": output})
    return [{**event, "session_id": session_id} for event in events]
