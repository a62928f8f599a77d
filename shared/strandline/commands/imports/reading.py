"""Files of conversations as items: each value goes to the reader of its format."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, cast
from uuid import UUID

from strandline.commands.imports.chatgpt import read_chatgpt_conversation
from strandline.commands.imports.chronology import ChronologicalSpool
from strandline.commands.imports.claude import read_claude_conversation
from strandline.commands.imports.exported_lines import ORIGIN
from strandline.commands.imports.files import (
    ARCHIVES,
    READ_ERRORS,
    ConversationFile,
    FoundFile,
    walk_paths,
)
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
    RefusedItem,
    SkippedFile,
    quote_shortened_name,
    replace_unstorable_characters,
    shorten_uniquely,
)
from strandline.commands.imports.json_pieces import (
    MAX_PIECE_BYTES,
    JsonValueText,
    open_as_decoded_text,
    split_json_lines,
    split_json_values,
)
from strandline.commands.imports.locomo import read_locomo_sample
from strandline.commands.imports.mem0 import read_mem0_list, read_mem0_memory

WAY_OUT = (
    'Write one event per line as .jsonl, such as {"participants": ["user:ann", "agent:helper"], '
    '"role": "user", "content": "..."}: docs/commands.md, “Files of another shape”.'
)
FORMATS = (
    "Import reads JSON Lines of events (*.jsonl, *.ndjson), JSON with conversations of ChatGPT, "
    "Claude or LoCoMo, and memories of mem0 in both: files, folders and ZIP archives. "
    f"{WAY_OUT}"
)
_NO_CONVERSATION = "no conversation of ChatGPT, Claude or LoCoMo, and no memory of mem0"
_MAX_TEXTS = 100
"""Pieces of a file that are refused one by one as no JSON; beyond, only their number is kept."""
_READERS: tuple[tuple[str, Callable[[Json, ImportOptions, str], Items]], ...] = (
    ("mapping", read_chatgpt_conversation),
    ("chat_messages", read_claude_conversation),
    ("conversation", read_locomo_sample),
    ("memory", read_mem0_memory),
    ("results", read_mem0_list),
    ("memories", read_mem0_list),
)
"""The member by which a conversation is recognised."""
_TITLE = re.compile(
    r'"(?:title|name|conversation_id|uuid|id|source_event_key)"\s*:\s*"((?:[^"\\]|\\.){1,200})"'
)


def read_import_items(paths: Sequence[Path], options: ImportOptions) -> Iterator[Item]:
    """Everything in these files, folders and archives: lines as they stand there, then the events
    of conversations and memories, the oldest first. A file at a time is open, and a conversation
    in memory."""
    with ChronologicalSpool() as spool:
        for found_file in walk_paths(paths):
            for item in _read_found_file(found_file, options):
                if isinstance(item, NewEvent) and item.thread is not None:
                    spool.add_event(item, item.thread)
                else:
                    yield item
        yield from spool.iterate_events()


def _read_found_file(found_file: FoundFile, options: ImportOptions) -> Items:
    if isinstance(found_file, ConversationFile):
        yield from _read_conversation_file(found_file, options)
    else:
        yield found_file


@dataclass
class _UnusablePieces:
    """What in a file is no conversation: values of another shape, and text that is not JSON."""

    first_unknown_place: str = ""
    unknown_value_count: int = 0
    has_object: bool = False
    texts: list[RefusedItem] = field(default_factory=list[RefusedItem])
    text_count: int = 0

    def add_unknown_value(self, place: str, piece: JsonValueText) -> None:
        self.first_unknown_place = self.first_unknown_place or place
        self.unknown_value_count += 1
        self.has_object = self.has_object or _begins_object(piece)

    def add_text(self, refusal: RefusedItem) -> None:
        self.text_count += 1
        if len(self.texts) < _MAX_TEXTS:
            self.texts.append(refusal)

    def sum_up_file(self, file: ConversationFile, *, has_items: bool) -> Items:
        """One refusal, or skipping, of a file with nothing else in it; else one for each text."""
        if self.texts and not has_items and not self.has_object:
            is_packed = PurePath(file.name).suffix.lower() in ARCHIVES
            way_out = "Unpack it, and import what is in it." if is_packed else WAY_OUT
            yield RefusedItem(file.name, f"it is not JSON. {way_out}")
            return
        yield from self.texts
        if more_texts := self.text_count - len(self.texts):
            yield RefusedItem(file.name, "more of it is not JSON", more_texts)
        if has_items or self.texts:
            if self.unknown_value_count:
                more = (
                    f" and {self.unknown_value_count - 1} more"
                    if self.unknown_value_count > 1
                    else ""
                )
                place = f"{self.first_unknown_place}{more}"
                yield RefusedItem(place, f"it is {_NO_CONVERSATION}", self.unknown_value_count)
        elif file.is_named:
            yield RefusedItem(file.name, f"it holds {_NO_CONVERSATION}. {WAY_OUT}")
        else:
            yield SkippedFile(file.name, "it holds no conversation")


def _begins_object(piece: JsonValueText) -> bool:
    return piece.head.lstrip("[ \t\r\n").startswith("{")


def _read_conversation_file(file: ConversationFile, options: ImportOptions) -> Items:
    """What a file holds. One that is not JSON, and one that the caller named and in which no value
    is a conversation, is refused whole. Of a folder or an archive the latter, as an account's
    settings, is skipped; where other values are conversations, such a value is refused."""
    unusable_pieces, has_items = _UnusablePieces(), False
    try:
        with file.open() as stream, open_as_decoded_text(stream) as text:
            for piece in (
                split_json_lines(text) if file.has_value_per_line else split_json_values(text)
            ):
                place = f"{file.name}, {piece.place}"
                items = _read_json_value(piece, place, file, options)
                if items is None:
                    unusable_pieces.add_unknown_value(place, piece)
                    continue
                if isinstance(items, RefusedItem):
                    unusable_pieces.add_text(items)
                    continue
                for item in items:
                    has_items = True
                    yield from (
                        replace_unstorable_characters(item)
                        if isinstance(item, NewEvent)
                        else (item,)
                    )
    except READ_ERRORS as error:
        has_items = True
        yield RefusedItem(file.name, f"it cannot be read to its end ({error})")
    yield from unusable_pieces.sum_up_file(file, has_items=has_items)


def _read_json_value(
    piece: JsonValueText, place: str, file: ConversationFile, options: ImportOptions
) -> Items | RefusedItem | None:
    """The items of a value; a refusal of text that is not JSON and begins no object; None where the
    value's format is not known."""
    if piece.text is None:
        limit = f"{MAX_PIECE_BYTES // 1024**2} MiB"
        return iter(
            [RefusedItem(f"{place}{_find_title_in_head(piece.head)}", f"it is over {limit}")]
        )
    try:
        value: object = json.loads(piece.text, object_pairs_hook=_make_object_without_double_names)
    except (ValueError, RecursionError) as error:
        title = _find_title_in_head(piece.head)
        refusal = RefusedItem(f"{place}{title}", f"it is not JSON ({error})")
        return iter([refusal]) if _begins_object(piece) else refusal
    entry = cast("Event", value) if isinstance(value, dict) else {}
    for member, reader in _READERS:
        if member in entry:
            return _turn_reader_fault_into_refusal(reader(entry, options, place), place)
    if not file.has_value_per_line:
        return None
    if not isinstance(value, dict):
        return iter([RefusedItem(place, "it is no object")])
    return iter([_read_event_line(entry, place, f"{file.name}:{piece.place.split()[-1]}")])


def _make_object_without_double_names(pairs: list[tuple[str, Any]]) -> Event:
    """Raises ValueError where a name occurs twice: one of its values would be lost."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        double = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise ValueError(f"the name {quote_shortened_name(double)} occurs twice in one object")
    return fields


def _turn_reader_fault_into_refusal(items: Items, place: str) -> Items:
    """The items, up to a fault that no reader foresaw: it costs one conversation."""
    try:
        yield from items
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        yield RefusedItem(place, f"it cannot be read ({type(error).__name__}: {error})")


def _read_event_line(line: Event, place: str, key: str) -> NewEvent:
    """An event as `strandline export` writes and POST /api/v1/events takes it. Without a key of its
    own it gets one by its place."""
    event = {name: value for name, value in line.items() if name not in ORIGIN}
    is_without_key = event.get("source_event_key") is None
    if is_without_key:
        event |= {"channel": CHANNEL, "source_event_key": shorten_uniquely(key, MAX_KEY_CHARS)}
    return NewEvent(event, place, _parse_export_origin(line), is_without_key)


def _parse_export_origin(line: Event) -> ExportOrigin | None:
    event_id, scope_id, seq = (line.get(name) for name in ORIGIN)
    try:
        return ExportOrigin(UUID(event_id), UUID(scope_id), int(cast("Any", seq)))
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def _find_title_in_head(head: str) -> str:
    """What a text that is not parsed calls itself."""
    match = _TITLE.search(head)
    return f" {quote_shortened_name(match[1])}" if match else ""
