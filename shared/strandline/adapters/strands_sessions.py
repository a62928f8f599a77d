"""Strands Agents: a repository for its session manager.

sessions = StrandlineSessionRepository(user="alice", agent="helper")
manager = RepositorySessionManager("tour-7", session_repository=sessions)
agent = Agent(session_manager=manager)
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from strandline.adapters.client_pairs import ClientPair, join_participants_and_require_user
from strandline.adapters.session_records import (
    NewRecord,
    RetryKeys,
    SessionRecords,
    StoredRecord,
    TextPath,
)
from strandline.adapters.step_runners import run_steps
from strandline.client.clients import Strandline
from strandline.client.errors import KeyConflictError, ServiceError
from strandline.client.memory import EventType
from strandline.client.verb_declarations import Steps

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

T = TypeVar("T")


class StrandlineSessionRepository(SessionRepository):
    """A `SessionRepository` for `RepositorySessionManager`: sessions, the state of their agents and
    their messages, exactly as they were.

    A session is a session of the service, and belongs to these participants alone: give those of
    several users different ids. What a message says is an event, which recall and contexts find.
    `url` and `key` are by default STRANDLINE_URL and STRANDLINE_API_KEY; a client of your own may
    be given instead. Safe for threads.

    A message that is updated, as when it is redacted, and a session that is deleted are erased
    where the key has the right `erase`; without it they are hidden, and a warning says so once.
    Raises ValueError where no user is named, and SessionException.
    """

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
    ) -> None:
        self._participants = join_participants_and_require_user(user, agent, participants)
        self._clients = ClientPair(url, key, client=client)
        self._records = SessionRecords("strands")
        self._keys = RetryKeys()

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Create a session. Raises SessionException where there is one of its id."""
        if self.read_session(session.session_id) is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        self._store_state(session.session_id, {"record": "session"}, session.to_dict())
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """A session; None where there is none."""
        record = self._read_newest(session_id, {"record": "session"})
        return Session.from_dict(record.body) if record else None

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents and messages."""
        records = self._run(self._records.read(self._participants, session_id))
        ids = [record.event_id for record in records]
        if not ids:
            raise SessionException(f"Session {session_id} does not exist")
        self._run(self._records.remove(self._participants, session_id, ids, is_all=True))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Store the state of an agent."""
        labels = {"record": "agent", "agent_id": session_agent.agent_id}
        self._store_state(session_id, labels, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """The state of an agent; None where there is none."""
        record = self._read_newest(session_id, {"record": "agent", "agent_id": agent_id})
        return SessionAgent.from_dict(record.body) if record else None

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Store the new state of an agent; the former one stays in the log."""
        previous = self.read_agent(session_id, session_agent.agent_id)
        if previous is None:
            raise SessionException(
                f"Agent {session_agent.agent_id} in session {session_id} does not exist"
            )
        session_agent.created_at = previous.created_at
        self.create_agent(session_id, session_agent)

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Store a message of an agent, once where it is tried again after an error."""
        labels = _label_message(agent_id, session_message.message_id)
        body = session_message.to_dict()
        self._append(session_id, _make_message_record(body, labels), [labels, body["message"]])

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        """A message; None where there is none."""
        record = self._read_newest(session_id, _label_message(agent_id, message_id))
        return SessionMessage.from_dict(record.body) if record else None

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Store a message in place of the one of its id. Of one that is redacted, what it said
        before is not stored again."""
        labels = _label_message(agent_id, session_message.message_id)
        former = self._run(self._records.read(self._participants, session_id, labels))
        if not former:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        session_message.created_at = former[-1].body["created_at"]
        body = session_message.to_dict()
        if body.get("redact_message") is not None:
            body["message"] = copy.deepcopy(body["redact_message"])
        self._append(session_id, _make_message_record(body, labels), [labels, body])
        ids = [record.event_id for record in former]
        self._run(self._records.remove(self._participants, session_id, ids))

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """The messages of an agent in order, from the one at `offset`, at most `limit`."""
        labels = {"record": "message", "agent_id": agent_id}
        records = self._run(self._records.read(self._participants, session_id, labels))
        newest = {record.labels["message_id"]: record for record in records}
        bodies = [newest[number].body for number in sorted(newest)]
        end = None if limit is None else offset + limit
        return [SessionMessage.from_dict(body) for body in bodies[offset:end]]

    def create_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """Store the state of a group of agents."""
        labels = {"record": "multi_agent", "agent_id": multi_agent.id}
        self._store_state(session_id, labels, multi_agent.serialize_state())

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> dict[str, Any] | None:
        """The state of a group of agents; None where there is none."""
        labels = {"record": "multi_agent", "agent_id": multi_agent_id}
        record = self._read_newest(session_id, labels)
        return record.body if record else None

    def update_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """Store the new state of a group of agents."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self.create_multi_agent(session_id, multi_agent)

    def close(self) -> None:
        """Close the connections of the client that this repository made."""
        self._clients.close()

    def _store_state(
        self, session_id: str, labels: Mapping[str, Any], body: Mapping[str, Any]
    ) -> None:
        summary = f"State of the {labels['record']} {labels.get('agent_id', session_id)}."
        record = NewRecord(body, None, "agent", "observation", summary, labels)
        self._append(session_id, record, [labels, body])

    def _append(self, session_id: str, record: NewRecord, content: object) -> None:
        try:
            with self._keys.attempt([[session_id, content]]) as (key,):
                steps = self._records.append(self._participants, session_id, [record], key)
                # A conflict: the attempt before was stored, with another time in it.
                with suppress(KeyConflictError):
                    run_steps(self._clients.blocking, steps)
        except ServiceError as error:
            raise SessionException(str(error)) from error

    def _read_newest(self, session_id: str, labels: Mapping[str, Any]) -> StoredRecord | None:
        records = self._run(self._records.read(self._participants, session_id, labels, limit=1))
        return records[0] if records else None

    def _run(self, steps: Steps[T]) -> T:
        try:
            return run_steps(self._clients.blocking, steps)
        except ServiceError as error:
            raise SessionException(str(error)) from error


def _label_message(agent_id: str, message_id: int) -> Mapping[str, Any]:
    return {"record": "message", "agent_id": agent_id, "message_id": message_id}


def _make_message_record(body: Mapping[str, Any], labels: Mapping[str, Any]) -> NewRecord:
    """A message as a record: who says it, and what of it is text."""
    content: list[Mapping[str, Any]] = body["message"]["content"]
    text_at = _find_longest_text(content)
    is_output = any("toolResult" in block for block in content)
    is_call = any("toolUse" in block for block in content)
    event_type: EventType = "observation" if is_output else "message"
    if is_call and text_at is None:
        event_type = "action"
    is_users = body["message"]["role"] == "user" and not is_output
    call_names = " ".join(
        str(block["toolUse"].get("name")) for block in content if "toolUse" in block
    )
    return NewRecord(
        body, text_at, "user" if is_users else "agent", event_type, call_names or "message", labels
    )


def _find_longest_text(content: Sequence[Mapping[str, Any]]) -> TextPath | None:
    """Where the longest text of a message stands, that of results of tools included."""
    places: list[tuple[int, TextPath]] = []
    for number, block in enumerate(content):
        path: list[str | int] = ["message", "content", number]
        if isinstance(block.get("text"), str):
            places.append((len(block["text"]), [*path, "text"]))
        for part_number, part in enumerate(block.get("toolResult", {}).get("content", [])):
            if isinstance(part.get("text"), str):
                way = [*path, "toolResult", "content", part_number, "text"]
                places.append((len(part["text"]), way))
    return max(places, key=lambda place: place[0])[1] if places else None
