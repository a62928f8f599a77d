"""Lines of an export: an event as an append takes it, with where it lay."""

from __future__ import annotations

from strandline.client import answers
from strandline.client.memory import EventFields
from strandline.commands.imports.items import Event

ORIGIN = ("event_id", "scope_id", "seq")
"""Members of a line that no append takes."""
_KEY = "export:"
_REWRITTEN = {"parts", "model", "blob", "edges", "source_event_key"}
_PORTABLE = (
    *("participants", "role", "content", "session_id"),
    *sorted(EventFields.__optional_keys__ - _REWRITTEN),
)
"""Fields of an event that an append takes back as they are."""
_OF_THE_EXPORT = (*ORIGIN, "occurred_at", "channel", "source_event_key")
"""Members in which a line may differ from its event: they are filled in, or the reader's."""


def to_export_line(event: answers.EventOut) -> Event:
    """The event as an append takes it, with where it lies. Its time is filled in where it has none
    of its own; without a key that the reader may see it has one of its id."""
    whole = event.model_dump(mode="json", exclude_none=True)
    line: Event = {name: whole[name] for name in _PORTABLE if name in whole}
    line |= {name: whole[name] for name in ORIGIN}
    line["source_event_key"] = event.source_event_key or f"{_KEY}{event.event_id}"
    line.setdefault("occurred_at", whole["recorded_at"])
    if event.parts is not None:
        line["parts"] = [part.model_dump(include={"content", "model"}) for part in event.parts]
    if event.blob is not None:
        line["blob"] = {"cid": event.blob.cid}
    if "parts" in line or "blob" in line:
        line.pop("content", None)
    return line


def matches_stored_event(line: Event, event: answers.EventOut) -> bool:
    """Whether a line says of its event what is stored."""
    stored = to_export_line(event)
    return all(
        stored.get(name) == value for name, value in line.items() if name not in _OF_THE_EXPORT
    )
