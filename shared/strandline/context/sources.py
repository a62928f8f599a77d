"""Stored events as sources of lines."""

from strandline.context.lines import EventSource
from strandline.recall.store import HitEvent


def to_source(event: HitEvent, stands_for: int = 1) -> EventSource:
    """An event as it may be shown, on behalf of so many recent ones."""
    return EventSource(
        event_id=event.event_id,
        said_at=event.occurred_at or event.recorded_at,
        place=(event.recorded_at, event.scope_id, event.seq),
        speaker=event.speaker,
        origin=event.origin,
        text=event.content or _describe_payload(event),
        stands_for=stands_for,
        session_id=event.session_id,
    )


def _describe_payload(event: HitEvent) -> str:
    """What stands for the text of an event whose content is a payload."""
    name = f'"{event.file_name}", ' if event.file_name else ""
    return f"(a file: {name}{event.blob_size or 0:,} bytes)"
