"""Files of conversations as items: each value goes to the reader of its format."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from strandline.commands.imports.chatgpt import read_chatgpt
from strandline.commands.imports.claude import read_claude
from strandline.commands.imports.exported_lines import ORIGIN
from strandline.commands.imports.files import READ_ERRORS, ConversationFile, find_files
from strandline.commands.imports.items import (
    CHANNEL,
    MAX_KEY_CHARS,
    Event,
    ExportOrigin,
    ImportOptions,
    Item,
    Items,
    Json,
    NewEvent,
    Refusal,
    SkippedFile,
    quote_name,
    replace_unstorable,
    shorten,
)
from strandline.commands.imports.json_pieces import (
    MAX_PIECE_BYTES,
    Piece,
    open_text,
    split_lines,
    split_values,
)
from strandline.commands.imports.locomo import read_locomo

FORMATS = (
    "Import reads JSON Lines of events (*.jsonl, *.ndjson) and JSON with conversations of ChatGPT, "
    "Claude or LoCoMo: files, folders and ZIP archives."
)
_READERS: tuple[tuple[str, Callable[[Json, ImportOptions, str], Items]], ...] = (
    ("mapping", read_chatgpt),
    ("chat_messages", read_claude),
    ("conversation", read_locomo),
)
"""The member by which a conversation is recognised."""
_TITLE = re.compile(
    r'"(?:title|name|conversation_id|uuid|id|source_event_key)"\s*:\s*"((?:[^"\\]|\\.){1,200})"'
)


def read_paths(paths: Sequence[Path], options: ImportOptions) -> Iterator[Item]:
    """Everything in these files, folders and archives, in order; a file at a time is open, and a
    conversation in memory."""
    for found in find_files(paths):
        if isinstance(found, ConversationFile):
            yield from _read_file(found, options)
        else:
            yield found


def _read_file(file: ConversationFile, options: ImportOptions) -> Items:
    """What a file holds. One in which no value is a conversation, as an account's settings, is
    skipped; where others are, such a value is refused."""
    first_stranger, stranger_count, has_items = "", 0, False
    try:
        with file.open() as stream, open_text(stream) as text:
            for piece in split_lines(text) if file.is_lines else split_values(text):
                place = f"{file.name}, {piece.place}"
                items = _read_piece(piece, place, file, options)
                if items is None:
                    first_stranger = first_stranger or place
                    stranger_count += 1
                    continue
                for item in items:
                    has_items = True
                    yield from replace_unstorable(item) if isinstance(item, NewEvent) else (item,)
    except READ_ERRORS as error:
        has_items = True
        yield Refusal(file.name, f"it cannot be read to its end ({error})")
    if not has_items:
        yield SkippedFile(file.name, "it holds no conversation")
    elif stranger_count:
        more = f" and {stranger_count - 1} more" if stranger_count > 1 else ""
        reason = "it is no conversation of ChatGPT, Claude or LoCoMo"
        yield Refusal(f"{first_stranger}{more}", reason, stranger_count)


def _read_piece(
    piece: Piece, place: str, file: ConversationFile, options: ImportOptions
) -> Items | None:
    """The items of a value; None where its format is not known."""
    if piece.text is None:
        limit = f"{MAX_PIECE_BYTES // 1024**2} MiB"
        return iter([Refusal(f"{place}{_find_title(piece.head)}", f"it is over {limit}")])
    try:
        value: object = json.loads(piece.text, object_pairs_hook=_make_object)
    except (ValueError, RecursionError) as error:
        return iter([Refusal(f"{place}{_find_title(piece.head)}", f"it is not JSON ({error})")])
    entry = cast("Event", value) if isinstance(value, dict) else {}
    for member, reader in _READERS:
        if member in entry:
            return _guard(reader(entry, options, place), place)
    if not file.is_lines:
        return None
    if not isinstance(value, dict):
        return iter([Refusal(place, "it is no object")])
    return iter([_read_line(entry, place, f"{file.name}:{piece.place.split()[-1]}")])


def _make_object(pairs: list[tuple[str, Any]]) -> Event:
    """Raises ValueError where a name occurs twice: one of its values would be lost."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        double = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise ValueError(f"the name {quote_name(double)} occurs twice in one object")
    return fields


def _guard(items: Items, place: str) -> Items:
    """The items, up to a fault that no reader foresaw: it costs one conversation."""
    try:
        yield from items
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        yield Refusal(place, f"it cannot be read ({type(error).__name__}: {error})")


def _read_line(line: Event, place: str, key: str) -> NewEvent:
    """An event as `strandline export` writes and POST /api/v1/events takes it. Without a key of its
    own it gets one by its place."""
    event = {name: value for name, value in line.items() if name not in ORIGIN}
    is_without_key = event.get("source_event_key") is None
    if is_without_key:
        event |= {"channel": CHANNEL, "source_event_key": shorten(key, MAX_KEY_CHARS)}
    return NewEvent(event, place, _find_origin(line), is_without_key)


def _find_origin(line: Event) -> ExportOrigin | None:
    event_id, scope_id, seq = (line.get(name) for name in ORIGIN)
    try:
        return ExportOrigin(UUID(event_id), UUID(scope_id), int(cast("Any", seq)))
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def _find_title(head: str) -> str:
    """What a text that is not parsed calls itself."""
    match = _TITLE.search(head)
    return f" {quote_name(match[1])}" if match else ""
