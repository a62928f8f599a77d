"""Samples in LoCoMo's shape: two people, sessions with a date, turns in order."""

from __future__ import annotations

import re
from datetime import datetime

from strandline.commands.imports.items import (
    CHANNEL,
    MAX_KEY_CHARS,
    MAX_SESSION_CHARS,
    ImportOptions,
    Items,
    Json,
    NewEvent,
    RefusedItem,
    list_or_empty,
    object_or_empty,
    quote_shortened_name,
    shorten_uniquely,
    stripped_text_or_empty,
)

_SESSION = re.compile(r"session_(\d{1,9})")


def read_locomo_sample(sample: Json, options: ImportOptions, place: str) -> Items:
    """The turns of a sample, which names its own people."""
    del options
    conversation = object_or_empty(sample.get("conversation"))
    names = [stripped_text_or_empty(conversation.get(name)) for name in ("speaker_a", "speaker_b")]
    if not all(names):
        yield RefusedItem(place, "speaker_a or speaker_b is no name")
        return
    identity = str(sample.get("sample_id", "-".join(names)))
    place = f"{place} {quote_shortened_name(identity)}"
    numbers = sorted(int(m[1]) for name in conversation if (m := _SESSION.fullmatch(name)))
    for number in numbers:
        try:
            moment = parse_locomo_time(
                stripped_text_or_empty(conversation.get(f"session_{number}_date_time"))
            )
        except ValueError as error:
            yield RefusedItem(f"{place}, session {number}", f"its time cannot be read ({error})")
            continue
        for position, turn in enumerate(list_or_empty(conversation.get(f"session_{number}"))):
            turn_id = str(object_or_empty(turn).get("dia_id", f"{number}:{position}"))
            speaker, text = (
                stripped_text_or_empty(object_or_empty(turn).get(n)) for n in ("speaker", "text")
            )
            if not speaker or not text:
                yield RefusedItem(f"{place}, turn {turn_id}", "speaker or text is no text")
                continue
            event = {
                "participants": [f"user:{name}" for name in names],
                "speaker": f"user:{speaker}",
                "role": "user",
                "content": text,
                "channel": CHANNEL,
                "source_event_key": shorten_uniquely(f"locomo:{identity}:{turn_id}", MAX_KEY_CHARS),
                "session_id": shorten_uniquely(f"locomo-{identity}-{number}", MAX_SESSION_CHARS),
                "occurred_at": moment.isoformat(),
            }
            yield NewEvent(event, f"{place}, turn {turn_id}", thread=identity)


def parse_locomo_time(text: str) -> datetime:
    """`1:56 pm on 8 May, 2023`, as UTC. Raises ValueError."""
    return datetime.strptime(text.strip() + " +0000", "%I:%M %p on %d %B, %Y %z")
