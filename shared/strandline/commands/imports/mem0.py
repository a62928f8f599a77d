"""Memories of mem0: what its `get_all` and its export give, a memory a line or a list of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from strandline.adapters.mem0_records import make_memory_event, name_participants
from strandline.adapters.mem0_shapes import ENTITIES, FIELDS_BESIDE_TEXT
from strandline.commands.imports.items import (
    CHANNEL,
    MAX_KEY_CHARS,
    ImportOptions,
    Items,
    Json,
    LeftOutItem,
    NewEvent,
    RefusedItem,
    id_text_or_none,
    iso_time_to_rfc3339,
    list_or_empty,
    object_or_empty,
    parse_iso_time,
    quote_shortened_name,
    shorten_uniquely,
)

_EVENTS = ("ADD", "UPDATE", "DELETE")
_OWN = {
    "id",
    "memory",
    "hash",
    "score",
    "metadata",
    "created_at",
    "updated_at",
    "history",
    *FIELDS_BESIDE_TEXT,
}
"""Members of a memory that have a place of their own; all others become metadata."""


class _InvalidMember(ValueError):
    """A member of a memory cannot be read; the text names it."""


def read_mem0_list(document: Json, options: ImportOptions, place: str) -> Items:
    """The memories of a document `{"results": [...]}` or `{"memories": [...]}`. Histories may stand
    beside them, as `{"history": [...]}` of mem0's rows, or within each memory."""
    histories: dict[str, list[Json]] = {}
    for row in list_or_empty(document.get("history")):
        entry = object_or_empty(row)
        histories.setdefault(str(entry.get("memory_id")), []).append(entry)
    name = "results" if "results" in document else "memories"
    memories = list_or_empty(document.get(name))
    if not isinstance(document.get(name), list):
        yield RefusedItem(place, f"{name} is no list")
        return
    if not memories:
        yield LeftOutItem("empty lists of memories")
    if relations := list_or_empty(document.get("relations")):
        yield LeftOutItem("relations of mem0's graph", len(relations))
    for number, value in enumerate(memories):
        memory = dict(object_or_empty(value))
        rows = histories.get(str(memory.get("id")))
        if rows and "history" not in memory:
            memory["history"] = rows
        yield from read_mem0_memory(memory, options, f"{place}, {name}[{number}]")


def read_mem0_memory(memory: Json, options: ImportOptions, place: str) -> Items:
    """A memory, and each change of it that its history has."""
    memory_id = id_text_or_none(memory.get("id"))
    if memory_id is None:
        yield RefusedItem(place, "id: it is no text")
        return
    place = f"{place} {quote_shortened_name(memory_id)}"
    try:
        events = [*_iterate_events(memory, memory_id, options)]
    except _InvalidMember as error:
        yield RefusedItem(place, str(error))
        return
    yield from (NewEvent(event, place, thread=memory_id) for event in events)


def _iterate_events(
    memory: Json, memory_id: str, options: ImportOptions
) -> Iterator[dict[str, Any]]:
    note = _make_note(memory, memory_id, options)
    participants = name_participants(note)
    created_at, updated_at = (_take_time(memory, name) for name in ("created_at", "updated_at"))
    text = _take_text(memory, "memory")
    states = [*_iterate_history(memory)]
    if not states or states[-1][1] != text:
        earlier = {"event": "UPDATE", "is_change": True} if states else {"event": "ADD"}
        if not states and updated_at and updated_at != created_at:
            earlier["updated_at"] = updated_at
        states.append(("", text, (updated_at if states else created_at) or updated_at, earlier))
    for row_id, state_text, moment, fields in states:
        one = {**note, **fields}
        if fields.get("is_change"):
            one["created_at"] = created_at
        key = f"mem0:{memory_id}:{row_id}" if row_id else f"mem0:{memory_id}"
        key = shorten_uniquely(key, MAX_KEY_CHARS)
        event = make_memory_event(one, state_text, participants, key)
        event["channel"] = CHANNEL
        yield {**event, "occurred_at": moment} if moment else event


def _iterate_history(memory: Json) -> Iterator[tuple[str, str, str | None, dict[str, Any]]]:
    """The states that a history has, the oldest first: the row's id, the text, when it was stated
    and what it was. A removal is no state of a memory that is there."""
    if memory.get("history") is None:
        return
    if not isinstance(memory["history"], list):
        raise _InvalidMember("history: it is no list")
    is_first = True
    for number, value in enumerate(list_or_empty(memory.get("history"))):
        row, where = object_or_empty(value), f"history[{number}]."
        row_id, event = id_text_or_none(row.get("id")), row.get("event")
        if row_id is None:
            raise _InvalidMember(f"{where}id: it is no text")
        if event not in _EVENTS:
            raise _InvalidMember(f"{where}event: it is none of {', '.join(_EVENTS)}")
        if event == "DELETE":
            continue
        text = _take_text(row, "new_memory", where)
        name = "created_at" if is_first or row.get("updated_at") is None else "updated_at"
        moment = _take_time(row, name, where)
        fields = {"event": "ADD"} if is_first else {"event": "UPDATE", "is_change": True}
        is_first = False
        yield row_id, text, moment, fields


def _make_note(memory: Json, memory_id: str, options: ImportOptions) -> dict[str, Any]:
    """What stands beside a memory's text. Without a user it is that of the command line."""
    note: dict[str, Any] = {"id": memory_id}
    for name in FIELDS_BESIDE_TEXT:
        value = memory.get(name)
        if value is not None and not isinstance(value, str | int):
            raise _InvalidMember(f"{name}: it is no text")
        if value not in (None, ""):
            note[name] = str(value)
    note.setdefault("user_id", options.user.removeprefix("user:"))
    for name in ENTITIES:
        if any(char.isspace() for char in note.get(name, "")):
            raise _InvalidMember(f"{name}: it has white space: {note[name]!r}")
    if "expiration_date" in note:
        try:
            note["expiration_date"] = date.fromisoformat(note["expiration_date"][:10]).isoformat()
        except ValueError:
            raise _InvalidMember("expiration_date: it is no day as YYYY-MM-DD") from None
    if not isinstance(memory.get("metadata"), dict | None):
        raise _InvalidMember("metadata: it is no object")
    more = {n: v for n, v in memory.items() if n not in _OWN and v not in (None, "", [], {})}
    note["metadata"] = {**more, **object_or_empty(memory.get("metadata"))} or None
    return note


def _take_text(fields: Json, name: str, where: str = "") -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _InvalidMember(f"{where}{name}: it is no text")
    return value


def _take_time(fields: Json, name: str, where: str = "") -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    moment = parse_iso_time(iso_time_to_rfc3339(value))
    if moment is None:
        raise _InvalidMember(f"{where}{name}: it is no time: {str(value)[:60]!r}")
    return moment.isoformat()
