"""Pydantic AI: a capability that gives an agent memory.

agent = Agent(model, capabilities=[StrandlineMemory(user="alice", agent="helper")])
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import AgentRunResult, DeferredToolRequests, FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelResponse,
    TextContent,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.toolsets import AgentToolset
from pydantic_core import to_json
from typing_extensions import Unpack

from strandline.adapters.agent_memory import (
    DEFAULT_BUDGET,
    AgentMemory,
    AsyncMemoryOptions,
    SaidText,
)


@dataclass(init=False, eq=False, repr=False)  # a capability of a spec must be a dataclass
class StrandlineMemory(AbstractCapability[Any]):
    """A capability: the agent's instructions get what memory holds about the prompt, its tools
    recall and save, and what was said in a run is stored when the run has a result.

    `user`, `agent` and `participants` say whose memory it is, or `participants` is a function of
    the run's context, as in `lambda ctx: [f"user:{ctx.deps.user_id}", "agent:helper"]`. `url` and
    `key` are by default STRANDLINE_URL and STRANDLINE_API_KEY; an `async_client` of your own may be
    given instead. `budget` is the size of the block in tokens, from 100 to 8,000; `tools=False`
    leaves the tools out.

    Texts are events of the session that the conversation's id names. Each is stored once, however
    often a run is carried out under its id. Raises ValueError where no user is named, and
    ServiceError, which ends the run.
    """

    def __init__(
        self,
        *,
        budget: int = DEFAULT_BUDGET,
        tools: bool = True,
        id: str | None = None,
        description: str | None = None,
        defer_loading: bool = False,
        **whose: Unpack[AsyncMemoryOptions],
    ) -> None:
        self.id, self.description, self.defer_loading = id, description, defer_loading
        self._memory = AgentMemory(**whose)
        self._budget = budget
        self._has_tools = tools
        self._block: str | None = None

    async def for_run(self, ctx: RunContext[Any]) -> StrandlineMemory:
        """One that reads the block once in the run, so that all its requests begin alike."""
        own = copy.copy(self)
        own._block = None
        return own

    def get_instructions(self) -> Any:
        """What memory holds about the prompt."""

        async def read_block(ctx: RunContext[Any]) -> str:
            if self._block is None:
                steps = self._memory.read_block(
                    self._memory.list_participants(ctx), _find_question(ctx), self._budget
                )
                self._block = await self._memory.run_async(steps)
            return self._block

        return read_block

    def get_toolset(self) -> AgentToolset[Any] | None:
        """The tools `recall_memory` and `save_memory`."""
        memory = self._memory

        async def recall_memory(ctx: RunContext[Any], query: str) -> str:
            """Find what was said or saved in earlier conversations about a question."""
            return await memory.run_async(memory.read_block(memory.list_participants(ctx), query))

        async def save_memory(ctx: RunContext[Any], text: str) -> str:
            """Save one fact, preference or decision for later conversations, as a whole
            sentence."""
            fact = SaidText("agent", text, _make_key(ctx, ctx.tool_call_id, text))
            await memory.run_async(
                memory.store_texts(memory.list_participants(ctx), ctx.conversation_id, [fact])
            )
            return "Saved."

        return FunctionToolset([recall_memory, save_memory]) if self._has_tools else None

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Store what was said in the run."""
        texts = [
            SaidText(role, text, _make_key(ctx, number, text))
            for number, (role, text) in enumerate(_list_said(result))
        ]
        await self._memory.run_async(
            self._memory.store_texts(
                self._memory.list_participants(ctx), ctx.conversation_id, texts
            )
        )
        return result

    async def aclose(self) -> None:
        """Close the connections of the client that this capability made."""
        await self._memory.clients.aclose()


def _find_question(ctx: RunContext[Any]) -> str | None:
    """The run's prompt; of a run without one, the latest of the conversation."""
    if ctx.prompt:
        return _read_text(ctx.prompt)
    prompts = [
        part.content
        for message in ctx.messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return _read_text(prompts[-1]) if prompts else None


def _list_said(result: AgentRunResult[Any]) -> Iterator[tuple[Any, str]]:
    """The role and text of what was said in a run; an output that is no text as JSON."""
    has_answer = False
    for message in result.new_messages():
        if isinstance(message, ModelResponse):
            has_answer = bool(message.text)
            yield "agent", message.text or ""
        else:
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    yield "user", _read_text(part.content)
    if not has_answer and not isinstance(result.output, DeferredToolRequests | None):
        yield "agent", to_json(result.output, fallback=str).decode()


def _read_text(content: str | Sequence[UserContent]) -> str:
    parts = [content] if isinstance(content, str) else content
    texts = [part.content if isinstance(part, TextContent) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


def _make_key(ctx: RunContext[Any], name: object, text: str) -> str:
    """The key of a text of a run. A run that is carried out again may say another one."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f"{ctx.run_id}/{name}/{digest[:16]}"
