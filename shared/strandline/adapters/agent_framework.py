"""Microsoft Agent Framework: memory as a context provider, and a history of sessions.

agent = Agent(client, context_providers=[StrandlineContextProvider(user="alice", agent="helper")])
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from agent_framework import (
    AgentSession,
    ContextProvider,
    HistoryProvider,
    Message,
    SessionContext,
    SupportsAgentRun,
)
from typing_extensions import Unpack

from strandline.adapters.agent_memory import (
    DEFAULT_BUDGET,
    AgentMemory,
    AsyncMemoryOptions,
    SaidText,
)
from strandline.adapters.session_records import (
    NewRecord,
    RetryKeys,
    SessionRecords,
    StoredRecord,
    TextPath,
)
from strandline.client.memory import EventType
from strandline.client.verb_declarations import Steps

_ROLES: Mapping[str, Literal["user", "agent", "system"]] = {
    "user": "user",
    "assistant": "agent",
    "system": "system",
}

_SPEAKERS = ("user", "assistant")


class StrandlineContextProvider(ContextProvider):
    """A `ContextProvider`: before a run the model is given what memory holds about the question;
    after it what the user and the agent said is stored.

    `user`, `agent` and `participants` say whose memory it is, or `participants` is a function of
    the session's id and of the provider's own state in it, `session.state[source_id]`. `url` and
    `key` are by default STRANDLINE_URL and STRANDLINE_API_KEY; an `async_client` of your own may be
    given instead. `budget` is the size of the block in tokens, from 100 to 8,000.
    `store_messages=False` reads alone, beside a `StrandlineHistoryProvider`, which stores them too.

    A text is stored once: under its message's id if it has one, else under a key that it keeps
    until it is stored; a conversation that is handed over again from its beginning is known by its
    texts. A run that fails stores nothing. Raises ValueError where no user is named,
    and ServiceError, which ends the run.
    """

    def __init__(
        self,
        source_id: str = "strandline",
        *,
        budget: int = DEFAULT_BUDGET,
        store_messages: bool = True,
        **whose: Unpack[AsyncMemoryOptions],
    ) -> None:
        super().__init__(source_id)
        self._memory = AgentMemory(**whose)
        self._budget = budget
        self._stores_messages = store_messages

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Put what memory holds before the messages that the model gets, as a message of a user:
        instructions are no place for what others said."""
        texts = [message.text for message in context.input_messages if message.role == "user"]
        steps = self._memory.read_block(
            self._memory.list_participants(context.session_id, state),
            "\n".join(texts),
            self._budget,
        )
        block = await self._memory.run_async(steps)
        context.extend_messages(self, [Message("user", [block])])

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store what was said."""
        if context.response is None or not self._stores_messages:
            return
        participants = self._memory.list_participants(context.session_id, state)
        messages = [*context.input_messages, *context.response.messages]
        if context.session_id and _holds_former_turn(messages):
            steps = self._memory.read_said(participants, context.session_id)
            messages = _drop_replayed(messages, await self._memory.run_async(steps))
        texts = [
            SaidText(
                _ROLES[message.role], message.text, _make_key("text", context.session_id, message)
            )
            for message in messages
            if message.role in _SPEAKERS
        ]
        await self._memory.run_async(
            self._memory.store_texts(participants, context.session_id, texts)
        )

    async def aclose(self) -> None:
        """Close the connections of the client that this provider made."""
        await self._memory.clients.aclose()


class StrandlineHistoryProvider(HistoryProvider):
    """A `HistoryProvider` that keeps the messages of sessions in the service, exactly as they were,
    in order; what they say is found by recall and contexts.

    Parameters and errors are those of `StrandlineContextProvider`, and what to load and store is
    said as for any `HistoryProvider`. A session belongs to its participants: give those of several
    users different ids. What a request holds is stored all or none; a message that has an
    id is stored once, one that has none keeps its key until it is stored, and a conversation that
    is handed over again from its beginning is known by its texts.
    """

    def __init__(
        self,
        source_id: str = "strandline_history",
        *,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        **whose: Unpack[AsyncMemoryOptions],
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self._memory = AgentMemory(**whose)
        self._records = SessionRecords("agent_framework")
        self._keys = RetryKeys()

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The messages of a session, in order."""
        records = await self._memory.run_async(self._read(session_id, state))
        return [Message.from_dict(record.body) for record in records]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add messages at the end of a session."""
        if _holds_former_turn(messages):
            records = await self._memory.run_async(self._read(session_id, state))
            history = [Message.from_dict(record.body) for record in records]
            messages = _drop_replayed(messages, _list_said(history))
        bodies = [message.to_dict() for message in messages]
        records = [_make_record(body) for body in bodies]
        contents = [[session_id, body] for body in bodies]
        given = [_make_key("message", session_id, message) for message in messages]
        with self._keys.attempt(contents, given) as keys:
            await self._memory.run_async(
                self._records.append(*self._name_session(session_id, state), records, keys)
            )

    async def clear(self, session_id: str | None, *, state: dict[str, Any] | None = None) -> None:
        """Remove all messages of a session: erase them where the key has the right `erase`, else
        hide them, which a warning says once."""
        records = await self._memory.run_async(self._read(session_id, state))
        ids = [record.event_id for record in records]
        if ids:
            steps = self._records.remove(*self._name_session(session_id, state), ids, is_all=True)
            await self._memory.run_async(steps)

    async def aclose(self) -> None:
        """Close the connections of the client that this provider made."""
        await self._memory.clients.aclose()

    def _read(
        self, session_id: str | None, state: dict[str, Any] | None
    ) -> Steps[list[StoredRecord]]:
        return self._records.read(*self._name_session(session_id, state))

    def _name_session(
        self, session_id: str | None, state: dict[str, Any] | None
    ) -> tuple[list[str], str]:
        if not session_id:
            raise ValueError("session_id: a history is of a session: run the agent with one")
        return self._memory.list_participants(session_id, state or {}), session_id


def _make_key(kind: str, session_id: str | None, message: Message) -> str | None:
    """The key of a message, from its id; None if it has none. Of one that was changed since, the
    new words are another event."""
    if not message.message_id:
        return None
    named = json.dumps([kind, session_id, message.message_id, message.to_dict()], default=str)
    return f"agent_framework/{hashlib.sha256(named.encode()).hexdigest()}"


def _holds_former_turn(messages: Sequence[Message]) -> bool:
    """Whether an answer stands before a user's words without an id: the messages of one run have
    none there, so that a program hands over a conversation."""
    has_answer = False
    for message in messages:
        if has_answer and message.role == "user" and not message.message_id:
            return True
        has_answer = has_answer or message.role == "assistant"
    return False


def _drop_replayed(
    messages: Sequence[Message], history: Sequence[tuple[str, str]]
) -> list[Message]:
    """The messages without those at their beginning that are the whole of what a session said, up
    to an answer; all of them where they are not."""
    places = [place for place, message in enumerate(messages) if _list_said([message])]
    count = len(history)
    if not count or history[-1][0] != "agent" or len(places) < count:
        return [*messages]
    if _list_said([messages[place] for place in places[:count]]) != [*history]:
        return [*messages]
    return [*messages[places[count - 1] + 1 :]]


def _list_said(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Who said what, of the texts of users and of the assistant."""
    return [
        (_ROLES[message.role], message.text)
        for message in messages
        if message.role in _SPEAKERS and message.text.strip()
    ]


def _make_record(body: dict[str, Any]) -> NewRecord:
    """A message as a record: its contents decide what kind of event it is."""
    contents = cast("list[dict[str, Any]]", body.get("contents") or [])
    role = _ROLES.get(str(body["role"]), "agent")
    text_at = _find_longest(contents, "text", "text")
    if text_at:
        return NewRecord(body, text_at, role, "message")
    kinds: Iterable[tuple[str, str, EventType]] = (
        ("function_result", "result", "observation"),
        ("text_reasoning", "text", "thought"),
        ("function_call", "arguments", "action"),
    )
    for kind, member, event_type in kinds:
        if any(content["type"] == kind for content in contents):
            path = None if event_type == "action" else _find_longest(contents, kind, member)
            return NewRecord(body, path, role, event_type, _describe_calls(contents))
    return NewRecord(body, None, role, "message")


def _find_longest(contents: Sequence[Mapping[str, Any]], kind: str, member: str) -> TextPath | None:
    """Where the longest text of the contents of a kind stands."""
    sizes = {
        place: len(content[member])
        for place, content in enumerate(contents)
        if content["type"] == kind and isinstance(content.get(member), str)
    }
    return ["contents", max(sizes, key=sizes.__getitem__), member] if sizes else None


def _describe_calls(contents: Sequence[Mapping[str, Any]]) -> str:
    calls = [f"{one.get('name', '')} {one.get('arguments') or ''}".strip() for one in contents]
    return "; ".join(filter(None, calls))
