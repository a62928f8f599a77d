"""The values of a JSON document or of JSON Lines as pieces of text, one after the other: one piece
at a time is in memory, and one that is broken or too large costs itself alone."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TextIO, cast

MAX_PIECE_BYTES = 64 * 1024 * 1024
"""The most bytes of one conversation, or of one line."""
_CHUNK_CHARS = 64 * 1024
_HEAD_CHARS = 4096
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BRACKETS = re.compile(rf'{_STRING}|["\[\]{{}}]', re.DOTALL)
_BRACKETS_AND_COMMAS = re.compile(rf'{_STRING}|["\[\]{{}},]', re.DOTALL)
_ESCAPE_OR_QUOTE = re.compile(r'["\\]')


@dataclass(frozen=True)
class JsonValueText:
    """The text of one value."""

    place: str
    """`entry 3` or `line 3`."""
    text: str | None
    """None: it is over the limit."""
    head: str
    """Its first characters."""


def open_as_decoded_text(stream: BinaryIO) -> TextIO:
    """A stream as text, in the encoding that its first bytes tell: UTF-8, UTF-16 or UTF-32, with a
    byte order mark or without. A byte that is not UTF-8 becomes a lone surrogate."""
    buffer = io.BufferedReader(cast("io.RawIOBase", stream))
    encoding = json.detect_encoding(buffer.peek(4)[:4])
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    return io.TextIOWrapper(buffer, encoding, errors, newline="\n")


def split_json_lines(text: TextIO, limit: int = MAX_PIECE_BYTES) -> Iterator[JsonValueText]:
    """The lines that are not blank."""
    number = 0
    while line := text.readline(limit + 1):
        number += 1
        head = line[:_HEAD_CHARS]
        is_over = len(line) > limit or _count_utf8_bytes(line) > limit
        is_whole = line.endswith("\n")
        while not is_whole and (rest := text.readline(_CHUNK_CHARS)):
            is_over, is_whole = True, rest.endswith("\n")
        if is_over or line.strip():
            yield JsonValueText(f"line {number}", None if is_over else line, head)


def split_json_values(
    text: TextIO, limit: int = MAX_PIECE_BYTES, chunk_chars: int = _CHUNK_CHARS
) -> Iterator[JsonValueText]:
    """The entries of an array, or the document's values where it is no array."""
    splitter = _JsonValueSplitter(limit)
    while chunk := text.read(chunk_chars):
        yield from splitter.feed(chunk)
    yield from splitter.finish_document()


class _JsonValueSplitter:
    """Finds where values end, by their brackets; what is between is not understood here."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._base = self._depth = self._number = 0
        self._is_in_string = self._is_escape = False
        self._parts: list[str] = []
        self._head = ""
        self._size = 0

    def feed(self, chunk: str) -> Iterator[JsonValueText]:
        """The values that end in this chunk."""
        begin = position = 0
        while position < len(chunk):
            if self._is_in_string:
                position = self._skip_string(chunk, position)
                continue
            if self._depth > self._base:
                position = end = self._skip_value(chunk, position)
                is_end = self._depth == self._base
            else:
                position, end, is_end = self._go_to_next_mark(chunk, begin, position)
            if is_end:
                self._collect_text(chunk[begin:end])
                begin = position
                yield from self._yield_collected_value()
        self._collect_text(chunk[begin:])

    def finish_document(self) -> Iterator[JsonValueText]:
        """The value that the document breaks off in, or a bare one."""
        yield from self._yield_collected_value()

    def _skip_value(self, chunk: str, position: int) -> int:
        """Go to the end of a value, or into a string that goes on after the chunk."""
        depth = self._depth
        for match in _BRACKETS.finditer(chunk, position):
            place = match.start()
            mark = chunk[place]
            if mark == '"':
                if match.end() - place == 1:
                    self._is_in_string = True
                    self._depth = depth
                    return place + 1
            elif mark in "[{":
                depth += 1
            else:
                depth -= 1
                if depth == self._base:
                    self._depth = depth
                    return place + 1
        self._depth = depth
        return len(chunk)

    def _go_to_next_mark(self, chunk: str, begin: int, position: int) -> tuple[int, int, bool]:
        """Go to the next mark between values: where it ends, and where the value that it ends, if
        it ends one."""
        match = _BRACKETS_AND_COMMAS.search(chunk, position)
        if match is None:
            return len(chunk), len(chunk), False
        place, after = match.span()
        mark = chunk[place]
        if mark == '"':
            self._is_in_string = after - place == 1
        elif mark == "[" and self._depth == 0 and not self._has_pending_text(chunk[begin:place]):
            self._base = self._depth = 1  # the array of all entries
            return after, place, True
        elif mark in "[{":
            self._depth += 1
        elif mark == "," or (mark == "]" and self._base == 1):
            self._base = self._depth = self._base if mark == "," else 0
            return after, place, True
        return after, after, False

    def _skip_string(self, chunk: str, position: int) -> int:
        if self._is_escape:
            self._is_escape = False
            return position + 1
        match = _ESCAPE_OR_QUOTE.search(chunk, position)
        if match is None:
            return len(chunk)
        self._is_escape = match[0] == "\\"
        self._is_in_string = self._is_escape
        return match.end()

    def _has_pending_text(self, before: str) -> bool:
        return bool(before.strip()) or any(part.strip() for part in self._parts)

    def _collect_text(self, text: str) -> None:
        if not text:
            return
        if self._size <= self._limit:
            self._parts.append(text)
            self._size += _count_utf8_bytes(text)
        if len(self._head) < _HEAD_CHARS:
            self._head = (self._head + text)[:_HEAD_CHARS]
        if self._size > self._limit:
            self._parts = []

    def _yield_collected_value(self) -> Iterator[JsonValueText]:
        text, head, is_over = "".join(self._parts), self._head, self._size > self._limit
        self._parts, self._head, self._size = [], "", 0
        if is_over or text.strip():
            yield JsonValueText(f"entry {self._number}", None if is_over else text, head)
            self._number += 1


def _count_utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
