"""mem0's memories as events: what is added, each change of it and its removal are events with one
id, of which the newest says what the memory is now."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from strandline.adapters.event_batches import erase_events, post_events
from strandline.adapters.mem0_shapes import (
    ENTITIES,
    Filters,
    is_expired,
    make_item,
    matches_filters,
)
from strandline.adapters.namespace_topics import NOBODY
from strandline.adapters.session_records import read_event_text
from strandline.adapters.step_runners import ask, read_items
from strandline.client import answers
from strandline.client.errors import (
    ForbiddenError,
    GoneError,
    InvalidFieldError,
    KeyConflictError,
    StateConflictError,
)
from strandline.client.memory import MemoryVerbs
from strandline.client.verb_declarations import Steps

logger = logging.getLogger(__name__)

KIND = "mem0"
_PAGE = 500
_MOST_FOUND = 100
_MOST_OWNERS = 100_000
_ATTEMPTS = 20


def name_participants(ids: Mapping[str, Any]) -> list[str]:
    """The participants that mem0's ids name: `user_id` and `agent_id`."""
    names = (("user", ids.get("user_id")), ("agent", ids.get("agent_id")))
    return [f"{kind}:{str(name).removeprefix(f'{kind}:')}" for kind, name in names if name]


def make_memory_event(
    note: Mapping[str, Any], text: str, participants: Sequence[str], key: str
) -> dict[str, Any]:
    """The event of a memory's state. `note` has its id, its fields and its metadata."""
    event: dict[str, Any] = {
        "participants": list(participants),
        "role": "agent" if note.get("role") == "assistant" else "user",
        "content": text,
        "metadata": {KIND: {name: value for name, value in note.items() if value is not None}},
        "source_event_key": key,
    }
    if note.get("run_id"):  # a session belongs to its participants
        facts = "\n".join([*sorted(participants), str(note["run_id"])])
        event["session_id"] = f"mem0-{hashlib.sha256(facts.encode()).hexdigest()[:32]}"
    return event


@dataclass(frozen=True)
class MemoryState:
    """What one event says of a memory."""

    event: answers.EventOut
    participants: Sequence[str]
    note: Mapping[str, Any]

    @property
    def time(self) -> datetime:
        """When it was stated."""
        return self.event.occurred_at or self.event.recorded_at

    @property
    def is_removal(self) -> bool:
        """Whether it says that the memory is removed."""
        return self.note.get("event") == "DELETE"


class MemoryRecords:
    """mem0's verbs on events. All methods are procedures of requests (`run_steps`), and raise
    ServiceError; those that take an id alone raise ValueError where nobody told whose it is."""

    def __init__(self, readers: Sequence[str]) -> None:
        self._readers = readers
        self._owners: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._has_told_of_history = False

    def add(self, events: Sequence[Mapping[str, Any]]) -> Steps[None]:
        """Store events, all or none of what a request holds."""
        yield from post_events(events)
        for event in events:
            self._remember_participants(event["metadata"][KIND]["id"], event["participants"])

    def list_states(
        self, readers: Sequence[str] | None, note: Mapping[str, Any]
    ) -> Steps[list[MemoryState]]:
        """The states of memories whose note has these fields, the newest first."""
        query = partial(
            MemoryVerbs.query.call,
            NOBODY,
            participants=readers,
            metadata={KIND: note},
            limit=_PAGE,
        )
        states = yield from read_items(query, _iter_states)
        states.sort(key=lambda one: (one.event.recorded_at, one.event.seq), reverse=True)
        for state in states:
            self._remember_participants(state.note["id"], state.participants)
        return states

    def list_items(
        self, readers: Sequence[str], filters: Filters, top_k: int, *, with_expired: bool
    ) -> Steps[list[dict[str, Any]]]:
        """Memories that the filters ask for, the newest first."""
        items: list[dict[str, Any]] = []
        states = yield from self.list_states(readers, _take_ids(filters))
        for state in _list_newest(states):
            if len(items) >= top_k:
                break
            item = make_item(
                state.note,
                (yield from read_event_text(state.event, state.participants)),
                state.time,
            )
            if matches_filters(item, filters) and (with_expired or not is_expired(item)):
                items.append(item)
        return items

    def search(
        self,
        readers: Sequence[str],
        query: str,
        filters: Filters,
        top_k: int,
        threshold: float,
        *,
        with_expired: bool,
        explain: bool,
    ) -> Steps[list[dict[str, Any]]]:
        """Memories that answer a query, best first, among the 100 most relevant events."""
        ids = _take_ids(filters)
        changes = yield from self.list_states(readers, {**ids, "is_change": True})
        newest = {state.note["id"]: state.event.event_id for state in reversed(changes)}
        call = MemoryVerbs.recall.call(
            NOBODY,
            query[:8000],
            participants=readers,
            metadata={KIND: ids},
            min_relevance=0,
            breadth=False,
            limit=_MOST_FOUND,
            include="full",
            explain=explain or None,
        )
        answer = yield from ask(call)
        items: list[dict[str, Any]] = []
        for hit in answer.hits:
            if hit.event is None or len(items) >= top_k:
                continue
            state = MemoryState(hit.event, hit.event.participants, hit.event.metadata[KIND])
            if newest.get(state.note["id"], hit.event_id) != hit.event_id or state.is_removal:
                continue
            self._remember_participants(state.note["id"], state.participants)
            item = make_item(
                state.note,
                (yield from read_event_text(state.event, state.participants)),
                state.time,
            )
            item["score"] = hit.relevance or 0.0
            if explain:
                item["score_details"] = dict(hit.features or {})
            is_found = item["score"] >= threshold and matches_filters(item, filters)
            if is_found and (with_expired or not is_expired(item)):
                items.append(item)
        return sorted(items, key=lambda item: item["score"], reverse=True)

    def read_states(self, memory_id: str) -> Steps[list[MemoryState]]:
        """All states of one memory, the newest first. Raises ValueError where nobody told whose it
        is."""
        with self._lock:
            readers = self._owners.get(memory_id) or self._readers or None
        try:
            return (yield from self.list_states(readers, {"id": memory_id}))
        except InvalidFieldError as error:
            if readers is None and error.field == "participants":
                raise ValueError(
                    f"whose memory {memory_id} is was told neither by a search nor by a list here:"
                    " name the user, as in Memory(user='alice')"
                ) from error
            raise

    def read_item(self, state: MemoryState) -> Steps[dict[str, Any]]:
        """What a state says, as mem0 gives it."""
        return make_item(
            state.note, (yield from read_event_text(state.event, state.participants)), state.time
        )

    def read_history(self, memory_id: str) -> Steps[list[dict[str, Any]]]:
        """What became of a memory, the oldest first."""
        entries: list[dict[str, Any]] = []
        before: str | None = None
        for state in reversed((yield from self.read_states(memory_id))):
            item = yield from self.read_item(state)
            after = None if state.is_removal else item["memory"]
            entries.append(
                {
                    "id": str(state.event.event_id),
                    "memory_id": memory_id,
                    "old_memory": before,
                    "new_memory": after,
                    "event": state.note.get("event", "ADD"),
                    "created_at": item["created_at"],
                    "updated_at": item["updated_at"],
                    "is_deleted": state.is_removal,
                    "actor_id": state.note.get("actor_id"),
                    "role": state.note.get("role"),
                }
            )
            before = after
        return entries

    def change(self, make_event: Callable[[], Steps[Mapping[str, Any] | None]]) -> Steps[None]:
        """Store the event that changes a memory, which `make_event` makes of its present state:
        again where others changed or removed it meanwhile; nothing for None."""
        for _ in range(_ATTEMPTS):
            event = yield from make_event()
            try:
                return (yield from self.add([event] if event else []))
            except (KeyConflictError, GoneError):
                continue
        raise _make_contention_error()

    def remove(self, list_states: Callable[[], Steps[list[MemoryState]]]) -> Steps[bool]:
        """Remove memories with their histories: whether there was anything. Stating that they are
        removed hides them at once, and takes the keys of those who change them meanwhile; then all
        of it is erased where the key may, also what an earlier attempt hid."""
        for _ in range(_ATTEMPTS):
            states = yield from list_states()
            removals = [_make_removal(state) for state in _list_newest(states)]
            try:
                removal_ids = yield from post_events(removals)
            except (KeyConflictError, GoneError):
                continue
            event_ids: list[UUID] = [state.event.event_id for state in reversed(states)]
            try:
                yield from erase_events([*event_ids, *removal_ids])
            except ForbiddenError:
                self._tell_of_history()
                return bool(removals)
            return bool(states)
        raise _make_contention_error()

    def _remember_participants(self, memory_id: str, participants: Sequence[str]) -> None:
        with self._lock:
            self._owners.pop(memory_id, None)
            self._owners[memory_id] = list(participants)
            while len(self._owners) > _MOST_OWNERS:
                del self._owners[next(iter(self._owners))]

    def _tell_of_history(self) -> None:
        if not self._has_told_of_history:
            self._has_told_of_history = True
            logger.warning(
                "this key has no right to erase: what is deleted is hidden, and stays in the log"
            )


def _iter_states(page: answers.EventTree) -> Iterator[MemoryState]:
    for scope in page.scopes:
        for event in scope.events:
            yield MemoryState(event, scope.participants, event.metadata[KIND])


def _take_ids(filters: Filters) -> dict[str, Any]:
    """The ids that filters demand."""
    return {name: filters[name] for name in ENTITIES if isinstance(filters.get(name), str)}


def _list_newest(states: Sequence[MemoryState]) -> Iterator[MemoryState]:
    """The present state of each memory that is not removed, of states of which the newest come
    first."""
    memory_ids = set[str]()
    for state in states:
        if state.note["id"] not in memory_ids:
            memory_ids.add(state.note["id"])
            if not state.is_removal:
                yield state


def make_change_key(state: MemoryState) -> str:
    """The idempotency key of what follows on a state: of two who do it at once, one gets an
    error."""
    return f"{KIND}:after-{state.event.event_id}"


def _make_contention_error() -> StateConflictError:
    return StateConflictError("Others change this memory all the time. Try again later.")


def _make_removal(state: MemoryState) -> dict[str, Any]:
    note = {
        name: value
        for name, value in state.note.items()
        if name in ("id", "role", "created_at", *ENTITIES, "actor_id")
    }
    note |= {"event": "DELETE", "is_change": True, "created_at": make_created_at(state)}
    event = make_memory_event(
        note, "Removed: a memory.", state.participants, make_change_key(state)
    )
    return {**event, "type": "observation", "role": "agent" if _has_agent(state) else "user"}


def make_created_at(state: MemoryState) -> str:
    """When a memory was first stated, as mem0 gives it."""
    return str(make_item(state.note, "", state.time)["created_at"])


def _has_agent(state: MemoryState) -> bool:
    return any(name.startswith("agent:") for name in state.participants)
