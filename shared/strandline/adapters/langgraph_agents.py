"""LangGraph: nodes and tools that give an agent memory.

agent = create_react_agent(
    model,
    make_memory_tools(user="alice", agent="helper"),
    pre_model_hook=memory_context_node(user="alice", agent="helper"),
    post_model_hook=remember_messages_node(user="alice", agent="helper"),
)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from typing_extensions import Unpack

from strandline.adapters.agent_memory import DEFAULT_BUDGET, AgentMemory, MemoryOptions, SaidText
from strandline.client.verb_declarations import Steps


def memory_context_node(
    *, budget: int = DEFAULT_BUDGET, **whose: Unpack[MemoryOptions]
) -> Runnable[Any, dict[str, Any]]:
    """A node that puts what memory holds about the latest message before the messages that the
    model gets: the `pre_model_hook` of `create_react_agent`. It gives `llm_input_messages`, so that
    the block is in no state and in no checkpoint.

    `user`, `agent`, `participants`, `url`, `key`, `client` and `async_client` are those of
    `StrandlineStore`, a function of participants included; `budget` is in tokens, from 100 to
    8,000. Raises ValueError where no user is named, and ServiceError."""
    memory = AgentMemory(**whose)

    def read_block(state: Any, config: RunnableConfig) -> Steps[dict[str, Any]]:
        messages = _list_messages(state)
        text = yield from memory.read_block(
            memory.list_participants((), config), _find_question(messages), budget
        )
        return {"llm_input_messages": [SystemMessage(text), *messages]}

    return _make_node("memory_context", memory, read_block)


def remember_messages_node(**whose: Unpack[MemoryOptions]) -> Runnable[Any, dict[str, Any]]:
    """A node that stores what was said since the latest message of the user, that message
    included: the `post_model_hook` of `create_react_agent`. Each message is stored once, under its
    own id and text, in the session that the run's `thread_id` names; results of tools and calls
    without a text are left out. Parameters and errors are those of `memory_context_node`."""
    memory = AgentMemory(**whose)

    def store_messages(state: Any, config: RunnableConfig) -> Steps[dict[str, Any]]:
        participants = memory.list_participants((), config)
        yield from memory.store_texts(
            participants, _get_thread(config) or None, _list_said(state, config)
        )
        return {}

    return _make_node("remember_messages", memory, store_messages)


def make_memory_tools(**whose: Unpack[MemoryOptions]) -> list[BaseTool]:
    """The tools `recall_memory` and `save_memory`. What a call saves is stored once, however often
    the graph carries it out. Parameters and errors are those of `memory_context_node`."""
    memory = AgentMemory(**whose)

    @tool
    def recall_memory(query: str, config: RunnableConfig) -> str:
        """Find what was said or saved in earlier conversations about a question."""
        return memory.run(memory.read_block(memory.list_participants((), config), query))

    @tool
    def save_memory(
        text: str, config: RunnableConfig, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> str:
        """Save one fact, preference or decision for later conversations, as a whole sentence."""
        fact = SaidText("agent", text, _make_key(config, tool_call_id, text))
        memory.run(memory.store_texts(memory.list_participants((), config), None, [fact]))
        return "Saved."

    return [recall_memory, save_memory]


def _make_node(
    name: str,
    memory: AgentMemory,
    make_steps: Callable[[Any, RunnableConfig], Steps[dict[str, Any]]],
) -> Runnable[Any, dict[str, Any]]:
    """A node of a procedure, for graphs that block and for those that do not."""

    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return memory.run(make_steps(state, config))

    async def run_async(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await memory.run_async(make_steps(state, config))

    return RunnableLambda(run, run_async, name=name)


def _list_messages(state: Any) -> list[AnyMessage]:
    return list(cast("Any", state)["messages"] if isinstance(state, dict) else state.messages)


def _find_question(messages: Sequence[BaseMessage]) -> str | None:
    """The text of the user's latest message."""
    return next((one.text for one in reversed(messages) if one.type == "human"), None)


def _get_thread(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id", ""))


def _make_key(config: RunnableConfig, name: str, text: str) -> str:
    """The key of a message or a call of a thread. Some models number their calls anew in each
    turn, so the text counts, too."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f"{_get_thread(config)}/{name}/{digest[:16]}"


def _list_said(state: Any, config: RunnableConfig) -> list[SaidText]:
    """The texts since the user's latest message."""
    messages = _list_messages(state)
    latest = max((n for n, one in enumerate(messages) if one.type == "human"), default=0)
    return [
        SaidText(
            "user" if message.type == "human" else "agent",
            message.text,
            _make_key(config, message.id, message.text),
        )
        for message in messages[latest:]
        if message.type in ("human", "ai") and message.id
    ]
