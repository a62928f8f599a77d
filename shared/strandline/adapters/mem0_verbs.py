"""mem0's verbs with its arguments, as procedures of requests for both clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid5

from strandline.adapters.mem0_records import (
    MemoryRecords,
    MemoryState,
    make_change_key,
    make_created_at,
    make_memory_event,
    name_participants,
)
from strandline.adapters.mem0_shapes import (
    ENTITIES,
    IDENTITIES,
    Filters,
    clean_date,
    clean_entity,
    list_messages,
    require_no_more,
    require_threshold,
    require_top_k,
)
from strandline.adapters.session_records import RetryKeys
from strandline.client.verb_declarations import Steps

logger = logging.getLogger(__name__)

KEEP: Any = object()
"""The default of an argument whose field a change leaves as it is."""


class Mem0Verbs:
    """The verbs. `user` and `agent` are those of calls that name none. All methods are procedures
    of requests (`run_steps`); they raise ValueError as mem0 does, and ServiceError."""

    def __init__(self, user: str | None, agent: str | None) -> None:
        self._defaults = {
            "user_id": clean_entity(user, "user"),
            "agent_id": clean_entity(agent, "agent"),
        }
        self._records = MemoryRecords(name_participants(self._defaults))
        self._keys = RetryKeys()

    def add(
        self,
        messages: object,
        *,
        ids: Mapping[str, Any],
        metadata: Mapping[str, Any] | None,
        timestamp: datetime | float | str | None,
        expiration_date: object,
        infer: bool,
        memory_type: str | None,
        prompt: str | None,
        llm: object = None,
    ) -> Steps[dict[str, Any]]:
        """Store messages, each a memory."""
        for name, value in (("memory_type", memory_type), ("prompt", prompt), ("llm", llm)):
            if value is not None:
                raise ValueError(
                    f"{name}: no language model is called when a memory is added; leave it out"
                )
        scope = self._with_default_ids(ids)
        participants = _require_user(scope)
        note: dict[str, Any] = {
            **scope,
            "event": "ADD",
            "metadata": _drop_identities(metadata),
            "expiration_date": clean_date(expiration_date),
        }
        turns = list_messages(messages)
        content = [note, turns, timestamp]
        events: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        with self._keys.attempt([content]) as (key,):
            for place, (role, text, name) in enumerate(turns):
                one = {**note, "id": _make_id(key, place), "role": role, "actor_id": name}
                event = make_memory_event(one, text, participants, f"mem0:{one['id']}")
                if timestamp is not None:
                    event = {**event, "occurred_at": timestamp}
                events.append(event)
                result = {"id": one["id"], "memory": text, "event": "ADD"}
                results.append(result if infer else {**result, "actor_id": name, "role": role})
            yield from self._records.add(events)
        return {"results": results}

    def search(
        self,
        query: str,
        *,
        top_k: int,
        filters: Filters | None,
        threshold: float | None,
        explain: bool,
        reference_date: object,
        show_expired: bool,
        more: Mapping[str, Any],
    ) -> Steps[dict[str, Any]]:
        """Memories that answer a query."""
        if reference_date is not None:
            raise ValueError("reference_date is not supported: leave it out")
        require_no_more(more, "search")
        if not isinstance(query, str) or not query.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("Invalid query: must be a non-empty string.")
        all_filters, readers = self._resolve_filters_and_participants(filters)
        results = yield from self._records.search(
            readers,
            query.strip(),
            all_filters,
            require_top_k(top_k),
            require_threshold(threshold),
            with_expired=show_expired,
            explain=explain,
        )
        return {"results": results}

    def get_all(
        self, *, filters: Filters | None, top_k: int, show_expired: bool, more: Mapping[str, Any]
    ) -> Steps[dict[str, Any]]:
        """Memories, the newest first."""
        require_no_more(more, "get_all")
        all_filters, readers = self._resolve_filters_and_participants(filters)
        items = yield from self._records.list_items(
            readers, all_filters, require_top_k(top_k), with_expired=show_expired
        )
        return {"results": items}

    def get(self, memory_id: str) -> Steps[dict[str, Any] | None]:
        """One memory; None where there is none."""
        states = yield from self._records.read_states(str(memory_id))
        if not states or states[0].is_removal:
            return None
        return (yield from self._records.read_item(states[0]))

    def update(
        self,
        memory_id: str,
        *,
        text: str | None,
        metadata: Mapping[str, Any] | None,
        expiration_date: object,
        data: str | None,
    ) -> Steps[dict[str, Any]]:
        """Change a memory."""
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is KEEP:
            raise ValueError("At least one of text, metadata, or expiration_date must be provided.")
        if text is not None and (not isinstance(text, str) or not text.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("text: give a text that is not empty")
        changes: dict[str, Any] = {"event": "UPDATE", "is_change": True}
        if expiration_date is not KEEP:
            changes["expiration_date"] = clean_date(expiration_date)
        own_metadata = _drop_identities(metadata)
        with self._keys.attempt([[memory_id, text, own_metadata, changes]]) as (key,):
            own_changes = {**changes, "update_id": key}
            yield from self._records.change(
                partial(self._make_update, memory_id, text, own_metadata, own_changes)
            )
        return {"message": "Memory updated successfully!"}

    def _make_update(
        self,
        memory_id: str,
        text: str | None,
        metadata: Mapping[str, Any] | None,
        changes: Mapping[str, Any],
    ) -> Steps[dict[str, Any] | None]:
        """The event that changes a memory as it is now; None where an attempt whose answer was lost
        stored it."""
        states = yield from self._require_states(memory_id)
        if any(state.note.get("update_id") == changes["update_id"] for state in states):
            return None
        newest = states[0]
        note = {name: value for name, value in newest.note.items() if name != "updated_at"}
        note |= {**changes, "created_at": make_created_at(newest)}
        if metadata is not None:
            note["metadata"] = {**note.get("metadata", {}), **metadata}
        item = yield from self._records.read_item(newest)
        return make_memory_event(
            note, text or item["memory"], newest.participants, make_change_key(newest)
        )

    def delete(self, memory_id: str) -> Steps[dict[str, Any]]:
        """Remove a memory with its history."""
        list_states = partial(self._records.read_states, str(memory_id))
        if not (yield from self._records.remove(list_states)):
            raise _make_absence_error(memory_id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(self, ids: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        """Remove all memories with these ids."""
        if not any(value is not None for value in ids.values()):
            raise ValueError(
                "At least one filter is required to delete all memories: user_id, agent_id, run_id"
            )
        scope = self._with_default_ids(ids)
        readers = _require_user(scope)
        yield from self._records.remove(partial(self._records.list_states, readers, scope))
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> Steps[list[dict[str, Any]]]:
        """What became of a memory, the oldest first."""
        return (yield from self._records.read_history(str(memory_id)))

    def _require_states(self, memory_id: str) -> Steps[list[MemoryState]]:
        states = yield from self._records.read_states(str(memory_id))
        if not states or states[0].is_removal:
            raise _make_absence_error(memory_id)
        return states

    def _with_default_ids(self, ids: Mapping[str, Any]) -> dict[str, Any]:
        """The ids of a call, and the defaults where it names none."""
        own_ids = {name: clean_entity(ids.get(name), name) for name in ENTITIES}
        return {
            name: value
            for name in ENTITIES
            if (value := own_ids[name] or self._defaults.get(name)) is not None
        }

    def _resolve_filters_and_participants(
        self, filters: Filters | None
    ) -> tuple[dict[str, Any], list[str]]:
        """The filters with the defaults, and on whose behalf they read. Raises ValueError."""
        all_filters = dict(filters or {})
        for name in ENTITIES:
            if isinstance(all_filters.get(name), Mapping) or all_filters.get(name) == "*":
                raise ValueError(f"filters: {name} is one id here, not {all_filters[name]!r}")
        if not any(name in all_filters for name in ENTITIES) and not self._defaults["user_id"]:
            raise ValueError(
                "filters must contain at least one of: user_id, agent_id, run_id."
                " Example: filters={'user_id': 'u1'}"
            )
        all_filters |= self._with_default_ids(all_filters)
        return all_filters, _require_user(all_filters)


def _make_absence_error(memory_id: str) -> ValueError:
    return ValueError(f"Memory with id {memory_id} not found")


def _require_user(ids: Mapping[str, Any]) -> list[str]:
    """The participants of ids. Raises ValueError unless a user is among them."""
    if "user_id" not in ids:
        raise ValueError(
            "user_id: name the user whose memory this is, or one for all calls, as in"
            " Memory(user='alice'); what belongs to no user would be read for all"
        )
    return name_participants(ids)


def _make_id(key: str, place: int) -> str:
    """The id of a message's memory, the same for each attempt."""
    return str(uuid5(UUID(key), str(place)))


def _drop_identities(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Metadata without ids, which it cannot set."""
    if metadata is None:
        return None
    names = sorted({*metadata} & {*IDENTITIES})
    if names:
        logger.warning("ids cannot be set through metadata: %s is ignored", ", ".join(names))
    return {name: value for name, value in metadata.items() if name not in IDENTITIES}
