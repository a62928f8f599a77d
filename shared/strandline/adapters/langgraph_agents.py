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
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, tool

from strandline.adapters.client_pairs import ClientPair, choose_participants, require_user
from strandline.adapters.langgraph import ChooseParticipants
from strandline.adapters.session_records import require_all_stored
from strandline.client.clients import AsyncStrandline, Strandline

_BUDGET = 1000


class _Memory:
    """Whose memory it is, and the clients."""

    def __init__(
        self,
        user: str | None,
        agent: str | None,
        participants: Iterable[str] | ChooseParticipants | None,
        clients: ClientPair,
    ) -> None:
        self.clients = clients
        self._choose: ChooseParticipants | None = None
        self._fixed_participants: list[str] = []
        if callable(participants):
            self._choose = participants
        else:
            self._fixed_participants = choose_participants(user, agent, participants)

    def list_participants(self, config: RunnableConfig) -> list[str]:
        """Whose memory a run is about."""
        if self._choose is None:
            return self._fixed_participants
        return require_user(self._choose((), cast("Mapping[str, Any]", config)))


def memory_context_node(
    *,
    user: str | None = None,
    agent: str | None = None,
    participants: Iterable[str] | ChooseParticipants | None = None,
    budget: int = _BUDGET,
    url: str | None = None,
    key: str | None = None,
    client: Strandline | None = None,
    async_client: AsyncStrandline | None = None,
) -> Runnable[Any, dict[str, Any]]:
    """A node that puts what memory holds about the latest message before the messages that the
    model gets: the `pre_model_hook` of `create_react_agent`. It gives `llm_input_messages`, so that
    the block is in no state and in no checkpoint.

    `user`, `agent`, `participants` and the rest are those of `StrandlineStore`; `budget` is in
    tokens, from 100 to 8,000. Raises ValueError where no user is named, and ServiceError."""
    memory = _Memory(user, agent, participants, ClientPair(url, key, client, async_client))

    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = _list_messages(state)
        block = memory.clients.blocking.context(
            _find_question(messages), participants=memory.list_participants(config), budget=budget
        )
        return _put_first(block.text, messages)

    async def run_async(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = _list_messages(state)
        block = await memory.clients.asynchronous.context(
            _find_question(messages), participants=memory.list_participants(config), budget=budget
        )
        return _put_first(block.text, messages)

    return RunnableLambda(run, run_async, name="memory_context")


def remember_messages_node(
    *,
    user: str | None = None,
    agent: str | None = None,
    participants: Iterable[str] | ChooseParticipants | None = None,
    url: str | None = None,
    key: str | None = None,
    client: Strandline | None = None,
    async_client: AsyncStrandline | None = None,
) -> Runnable[Any, dict[str, Any]]:
    """A node that stores what was said since the latest message of the user, that message
    included: the `post_model_hook` of `create_react_agent`. Each message is stored once, under its
    own id and text, in the session that the run's `thread_id` names; results of tools and calls
    without a text are left out. Parameters and errors are those of `memory_context_node`."""
    memory = _Memory(user, agent, participants, ClientPair(url, key, client, async_client))

    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        events = _make_events(state, config, memory.list_participants(config))
        if events:
            require_all_stored(memory.clients.blocking.add_batch(events, atomic=True))
        return {}

    async def run_async(state: Any, config: RunnableConfig) -> dict[str, Any]:
        events = _make_events(state, config, memory.list_participants(config))
        if events:
            answer = await memory.clients.asynchronous.add_batch(events, atomic=True)
            require_all_stored(answer)
        return {}

    return RunnableLambda(run, run_async, name="remember_messages")


def make_memory_tools(
    *,
    user: str | None = None,
    agent: str | None = None,
    participants: Iterable[str] | ChooseParticipants | None = None,
    url: str | None = None,
    key: str | None = None,
    client: Strandline | None = None,
    async_client: AsyncStrandline | None = None,
) -> list[BaseTool]:
    """The tools `recall_memory` and `save_memory`. What a call saves is stored once, however often
    the graph carries it out. Parameters and errors are those of `memory_context_node`."""
    memory = _Memory(user, agent, participants, ClientPair(url, key, client, async_client))

    @tool
    def recall_memory(query: str, config: RunnableConfig) -> str:
        """Find what was said or saved in earlier conversations about a question."""
        who = memory.list_participants(config)
        return memory.clients.blocking.context(query, participants=who, budget=_BUDGET).text

    @tool
    def save_memory(
        text: str, config: RunnableConfig, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> str:
        """Save one fact, preference or decision for later conversations, as a whole sentence."""
        memory.clients.blocking.add(
            text,
            participants=memory.list_participants(config),
            role="agent",
            source_event_key=_make_key(config, tool_call_id, text),
        )
        return "Saved."

    return [recall_memory, save_memory]


def _list_messages(state: Any) -> list[AnyMessage]:
    return list(cast("Any", state)["messages"] if isinstance(state, dict) else state.messages)


def _find_question(messages: Sequence[BaseMessage]) -> str | None:
    """The text of the user's latest message."""
    texts = [message.text for message in messages if message.type == "human"]
    return texts[-1][:8000] if texts and texts[-1].strip() else None


def _put_first(block: str, messages: Sequence[AnyMessage]) -> dict[str, Any]:
    return {"llm_input_messages": [SystemMessage(block), *messages]}


def _get_thread(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id", ""))


def _make_key(config: RunnableConfig, name: str, text: str) -> str:
    """The key of a message or a call of a thread. Some models number their calls anew in each
    turn, so the text counts, too."""
    return f"{_get_thread(config)}/{name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _make_events(
    state: Any, config: RunnableConfig, participants: Sequence[str]
) -> list[dict[str, Any]]:
    """The events of the texts since the user's latest message."""
    messages = _list_messages(state)
    latest = max((n for n, one in enumerate(messages) if one.type == "human"), default=0)
    thread = _get_thread(config)
    return [
        {
            "participants": list(participants),
            "role": "user" if message.type == "human" else "agent",
            "content": message.text,
            "source_event_key": _make_key(config, message.id, message.text),
            **({"session_id": thread} if thread else {}),
        }
        for message in messages[latest:]
        if message.type in ("human", "ai") and message.text.strip() and message.id
    ]
