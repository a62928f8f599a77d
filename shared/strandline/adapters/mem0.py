"""mem0's verbs on the service: a program moves here by another import.

from strandline.adapters.mem0 import Memory  # instead of: from mem0 import Memory

memory = Memory()
memory.add("I moor at pier B.", user_id="alice")
memory.search("Where do I moor?", filters={"user_id": "alice"})["results"]
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.adapters.client_pairs import ClientPair
from strandline.adapters.mem0_verbs import KEEP, Mem0Verbs
from strandline.adapters.step_runners import run_steps, run_steps_async
from strandline.client.clients import AsyncStrandline, Strandline

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

Messages: TypeAlias = str | Mapping[str, Any] | list[dict[str, Any]]
"""A text of the user, a message, or messages: `{"role": "user", "content": "…"}`."""


def _tell_of_config(config: object) -> None:
    if config is not None:
        logger.warning("mem0's configuration is not read: the service has models of its own")


class Memory:
    """mem0's `Memory`: what is added are events of the service, and `search` is recall.

    `user_id` and `agent_id` are the participants, and `user` and `agent` those of calls that name
    none. `url` and `key` are by default STRANDLINE_URL and STRANDLINE_API_KEY; a client of your own
    may be given instead. Safe for threads.

    Each message is a memory as it was said, whatever `infer` says: no language model is called.
    What the program adds again after an error is stored once. An update is a new event, and the
    history stays. Raises ServiceError, and ValueError as mem0 does, where no user is named, and
    where nobody told whose an id is: a search, a list, an `add` here, or `user`."""

    def __init__(
        self,
        config: object = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
    ) -> None:
        _tell_of_config(config)
        self._verbs = Mem0Verbs(user, agent)
        self._clients = ClientPair(url, key, client=client)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """As `Memory()`: the configuration is not read, which a warning says."""
        return cls(config_dict)

    def add(
        self,
        messages: Messages,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> dict[str, Any]:
        """Store messages, each a memory, all or none of what a request holds: `{"results": [{"id",
        "memory", "event"}]}`. `timestamp` says when they were said; after the day
        `expiration_date` no search and no list has them."""
        return self._run(
            self._verbs.add(
                messages,
                ids={"user_id": user_id, "agent_id": agent_id, "run_id": run_id},
                metadata=metadata,
                timestamp=timestamp,
                expiration_date=expiration_date,
                infer=infer,
                memory_type=memory_type,
                prompt=prompt,
            )
        )

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Memories that answer a query, best first, each with a `score` from 0 to 1 of at least
        `threshold`; with `explain` also `score_details`. `rerank` is not looked at."""
        del rerank
        return self._run(
            self._verbs.search(
                query,
                top_k=top_k,
                filters=filters,
                threshold=threshold,
                explain=explain,
                reference_date=reference_date,
                show_expired=show_expired,
                more=kwargs,
            )
        )

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """One memory; None where there is none."""
        return self._run(self._verbs.get(memory_id))

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Memories, the newest first: `{"results": [...]}`."""
        return self._run(
            self._verbs.get_all(
                filters=filters, top_k=top_k, show_expired=show_expired, more=kwargs
            )
        )

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = KEEP,
        data: str | None = None,
    ) -> dict[str, Any]:
        """Change a memory's text, fields of its metadata, or its last day. `data` is the same as
        `text`."""
        return self._run(
            self._verbs.update(
                memory_id, text=text, metadata=metadata, expiration_date=expiration_date, data=data
            )
        )

    def delete(self, memory_id: str) -> dict[str, Any]:
        """Erase a memory with its history where the key has the right `erase`; else hide it."""
        return self._run(self._verbs.delete(memory_id))

    def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """As `delete`, all memories with these ids."""
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        return self._run(self._verbs.delete_all(ids))

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """What became of a memory, the oldest first: `old_memory`, `new_memory`, `event` and so
        on."""
        return self._run(self._verbs.history(memory_id))

    def close(self) -> None:
        """Close the connections of the client that this object made."""
        self._clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Any) -> Any:
        return run_steps(self._clients.blocking, steps)


class AsyncMemory:
    """As Memory, without blocking. Safe for tasks."""

    def __init__(
        self,
        config: object = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        url: str | None = None,
        key: str | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        _tell_of_config(config)
        self._verbs = Mem0Verbs(user, agent)
        self._clients = ClientPair(url, key, async_client=async_client)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """As `AsyncMemory()`: the configuration is not read, which a warning says."""
        return cls(config_dict)

    async def add(
        self,
        messages: Messages,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        llm: object = None,
    ) -> dict[str, Any]:
        """Store messages, each a memory, all or none of what a request holds: `{"results": [{"id",
        "memory", "event"}]}`. `timestamp` says when they were said; after the day
        `expiration_date` no search and no list has them."""
        return await self._run(
            self._verbs.add(
                messages,
                ids={"user_id": user_id, "agent_id": agent_id, "run_id": run_id},
                metadata=metadata,
                timestamp=timestamp,
                expiration_date=expiration_date,
                infer=infer,
                memory_type=memory_type,
                prompt=prompt,
                llm=llm,
            )
        )

    async def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Memories that answer a query, best first, each with a `score` from 0 to 1 of at least
        `threshold`; with `explain` also `score_details`. `rerank` is not looked at."""
        del rerank
        return await self._run(
            self._verbs.search(
                query,
                top_k=top_k,
                filters=filters,
                threshold=threshold,
                explain=explain,
                reference_date=reference_date,
                show_expired=show_expired,
                more=kwargs,
            )
        )

    async def get(self, memory_id: str) -> dict[str, Any] | None:
        """One memory; None where there is none."""
        return await self._run(self._verbs.get(memory_id))

    async def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Memories, the newest first: `{"results": [...]}`."""
        return await self._run(
            self._verbs.get_all(
                filters=filters, top_k=top_k, show_expired=show_expired, more=kwargs
            )
        )

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = KEEP,
        data: str | None = None,
    ) -> dict[str, Any]:
        """Change a memory's text, fields of its metadata, or its last day. `data` is the same as
        `text`."""
        return await self._run(
            self._verbs.update(
                memory_id, text=text, metadata=metadata, expiration_date=expiration_date, data=data
            )
        )

    async def delete(self, memory_id: str) -> dict[str, Any]:
        """Erase a memory with its history where the key has the right `erase`; else hide it."""
        return await self._run(self._verbs.delete(memory_id))

    async def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """As `delete`, all memories with these ids."""
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        return await self._run(self._verbs.delete_all(ids))

    async def history(self, memory_id: str) -> list[dict[str, Any]]:
        """What became of a memory, the oldest first: `old_memory`, `new_memory`, `event` and so
        on."""
        return await self._run(self._verbs.history(memory_id))

    async def aclose(self) -> None:
        """Close the connections of the client that this object made."""
        await self._clients.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, steps: Any) -> Any:
        return await run_steps_async(self._clients.asynchronous, steps)
