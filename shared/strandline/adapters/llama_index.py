"""LlamaIndex: a memory block.

block = StrandlineMemoryBlock(user="alice", agent="helper")
memory = Memory.from_defaults(session_id="tour-7", memory_blocks=[block])
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import PrivateAttr
from typing_extensions import Unpack

from strandline.adapters.agent_memory import (
    DEFAULT_BUDGET,
    AgentMemory,
    AsyncMemoryOptions,
    SaidText,
)


class StrandlineMemoryBlock(BaseMemoryBlock[str]):
    """A `BaseMemoryBlock`: the prompt gets what memory holds about the user's latest message, and
    the messages that leave the queue of a `Memory` are stored.

    `user`, `agent` and `participants` say whose memory it is. `url` and `key` are by default
    STRANDLINE_URL and STRANDLINE_API_KEY; an `async_client` of your own may be given instead.
    `budget` is the size of the block in tokens, from 100 to 8,000. `name`, `description`,
    `priority` and `accept_short_term_memory` are those of any block.

    Texts of users and of the assistant are events of the session that the `Memory` names, which
    belongs to these participants alone. A text that could not be stored keeps its key: where it is
    put again, it is stored once. Raises ValueError where no user is named, and ServiceError.
    """

    budget: int = DEFAULT_BUDGET
    _memory: AgentMemory = PrivateAttr()

    def __init__(
        self,
        *,
        name: str = "strandline",
        description: str | None = None,
        priority: int = 0,
        accept_short_term_memory: bool = True,
        budget: int = DEFAULT_BUDGET,
        **whose: Unpack[AsyncMemoryOptions],
    ) -> None:
        fields: dict[str, Any] = {
            "name": name,
            "description": description,
            "priority": priority,
            "accept_short_term_memory": accept_short_term_memory,
            "budget": budget,
        }
        super().__init__(**fields)
        self._memory = AgentMemory(**whose)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        participants = self._memory.list_participants()
        steps = self._memory.read_block(participants, _find_question(messages or []), self.budget)
        return await self._memory.run_async(steps)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        participants = self._memory.list_participants()
        by_session: dict[str | None, list[SaidText]] = {}
        for message in messages:
            if message.role in (MessageRole.USER, MessageRole.ASSISTANT):
                role = "user" if message.role == MessageRole.USER else "agent"
                session_id = message.additional_kwargs.get("session_id")
                texts = by_session.setdefault(session_id, [])
                texts.append(SaidText(role, message.content or ""))
        for session_id, texts in by_session.items():
            await self._memory.run_async(self._memory.store_texts(participants, session_id, texts))

    async def aclose(self) -> None:
        """Close the connections of the client that this block made."""
        await self._memory.clients.aclose()


async def flush_memory(memory: Memory) -> None:
    """Hand the messages that are still in the queue of a `Memory` to its blocks, as at the end of a
    session: by itself a `Memory` does so only when its queue is full. They are no longer in the
    queue then, and are not handed over again."""
    messages = await memory.aget_all(status=MessageStatus.ACTIVE)
    blocks = cast("list[BaseMemoryBlock[str]]", cast("Any", memory).memory_blocks)
    await asyncio.gather(
        *(
            block.aput(messages, from_short_term_memory=True, session_id=memory.session_id)
            for block in blocks
        )
    )
    await memory.sql_store.archive_oldest_messages(memory.session_id, n=len(messages))


def _find_question(messages: Sequence[ChatMessage]) -> str | None:
    texts = [message.content for message in messages if message.role == MessageRole.USER]
    return texts[-1] if texts else None
