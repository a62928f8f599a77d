"""What a reader finds in a file: events, and what it leaves out, refuses or changes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, cast
from uuid import UUID

from strandline.client.request_building import qualify_participant
from strandline.moments import parse_moment

CHANNEL = "import"
Event = dict[str, Any]
Json = Mapping[str, Any]
_MAX_NAME_CHARS = 60
MAX_SESSION_CHARS = 128
MAX_KEY_CHARS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LATEST_SECONDS = 253_402_214_400.0
"""The last day of the year 9999 begins: no time zone moves an earlier moment into the next year."""
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?\s*(Z|[+-]\d\d:?\d\d)?", re.I
)


@dataclass(frozen=True)
class ImportOptions:
    """Who takes part where a file does not say, and what is taken."""

    user: str = "user"
    agent: str = "assistant"
    include_do_not_remember: bool = False

    @property
    def participants(self) -> list[str]:
        """Both."""
        return [qualify_participant(self.user, "user"), qualify_participant(self.agent, "agent")]


@dataclass(frozen=True)
class ExportOrigin:
    """Where an event lay when it was exported."""

    event_id: UUID
    scope_id: UUID
    seq: int


@dataclass(frozen=True)
class NewEvent:
    """An event to store."""

    event: Event
    place: str
    """Where it lies, for people."""
    origin: ExportOrigin | None = None
    has_key_of_place: bool = False
    """Its key follows from the file's name and the line alone."""
    thread: str | None = None
    """What it belongs to, as a conversation: within it, order stands whatever the times say. None:
    a line, which stays where it is."""


@dataclass(frozen=True)
class LeftOutItem:
    """What is no event by design."""

    kind: str
    """In the plural, as in `hidden prompts`."""
    count: int = 1


@dataclass(frozen=True)
class RefusedItem:
    """What cannot be read, or is over a limit."""

    place: str
    reason: str
    count: int = 1


@dataclass(frozen=True)
class AlterationNote:
    """What was read, but not as it stands there."""

    text: str


@dataclass(frozen=True)
class SkippedFile:
    """A file without conversations."""

    name: str
    reason: str


Item = NewEvent | LeftOutItem | RefusedItem | AlterationNote | SkippedFile
Items = Iterator[Item]


# Values of a document that may be anything --------------------------------------------------------


def object_or_empty(value: object) -> Json:
    """The value if it is an object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def stripped_text_or_empty(value: object) -> str:
    """The value without space around it if it is a text, else an empty one."""
    return value.strip() if isinstance(value, str) else ""


def id_text_or_none(value: object) -> str | None:
    """The value if it can be an id."""
    return value if isinstance(value, str) and value else None


def quote_shortened_name(name: str) -> str:
    """A title or an id as a message shows it."""
    return f"“{name[:_MAX_NAME_CHARS]}…”" if len(name) > _MAX_NAME_CHARS else f"“{name}”"


# Times --------------------------------------------------------------------------------------------


def unix_seconds_to_rfc3339(value: object) -> str | None:
    """Unix seconds as RFC 3339; None for what is no time: zero, NaN, the year 300000."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _LATEST_SECONDS:
        return None
    return (_EPOCH + timedelta(seconds=value)).isoformat()


def iso_time_to_rfc3339(value: object) -> str | None:
    """An ISO time, UTC where it names no zone; None for what is no time."""
    text = value.strip() if isinstance(value, str) else ""
    moment = parse_iso_time(text)
    if moment is None:
        return None
    if unix_seconds_to_rfc3339((moment - _EPOCH).total_seconds()) is None:
        return None
    names_zone = any(mark in text[len("2026-05-08T13:56:00") :] for mark in "Zz+-")
    return text if names_zone else moment.isoformat()


def parse_iso_time(value: object) -> datetime | None:
    """The moment of an ISO time, of which each Python takes all forms; None for what is none."""
    match = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    day, time, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z", "z") else f"{zone[:3]}:{zone[-2:]}"
    try:
        return parse_moment(f"{day}T{time}.{fraction or '0':0<6}{offset}")
    except ValueError:
        return None


class LastMessageTime:
    """The time of a message without one: that of the message before it, else of the
    conversation."""

    def __init__(self, begin: str | None) -> None:
        self._moment = begin

    def make_time_field(self, moment: str | None) -> Event:
        """The field of an event with this time of its own."""
        self._moment = moment or self._moment
        return {} if self._moment is None else {"occurred_at": self._moment}


# Events -------------------------------------------------------------------------------------------


def make_conversation_event(
    source: str, conversation: str, message: str, options: ImportOptions, **fields: Any
) -> Event:
    """An event of a conversation with an assistant. Its key follows from the file's own ids, so
    that it is stored once however often it is imported."""
    return {
        "participants": options.participants,
        "channel": CHANNEL,
        "source_event_key": shorten_uniquely(f"{source}:{conversation}:{message}", MAX_KEY_CHARS),
        "session_id": shorten_uniquely(f"{source}-{conversation}", MAX_SESSION_CHARS),
        **fields,
    }


def shorten_uniquely(name: str, length: int) -> str:
    """A name of at most so many characters, another one for each name."""
    if len(name) <= length:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{name[: length - 33]}~{digest}"


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def replace_unstorable_characters(item: NewEvent) -> Items:
    """The event with U+FFFD for what no database and no UTF-8 can hold: NUL, and halves of
    characters. A note says where."""
    places = list[str]()
    event = cast("Event", _replace_characters_in_json(item.event, "", places))
    if places:
        places_text = ", ".join(dict.fromkeys(places))
        count = f"{len(places)} character{'s' if len(places) > 1 else ''}"
        yield AlterationNote(f"{item.place}: {places_text}: {count} became U+FFFD")
        item = replace(item, event=event)
    yield item


def _replace_characters_in_json(value: object, path: str, places: list[str]) -> object:
    if isinstance(value, str):
        if "\0" not in value and value.isascii():
            return value
        text, count = _UNSTORABLE.subn("\ufffd", value)
        places += [path] * count
        return text
    if isinstance(value, list):
        return [
            _replace_characters_in_json(item, path, places) for item in cast("list[object]", value)
        ]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {
            cast(
                "str", _replace_characters_in_json(name, path, places)
            ): _replace_characters_in_json(inner, f"{path}.{name}" if path else name, places)
            for name, inner in fields.items()
        }
    return value
