"""The lines of an export file. Each line is a JSON object with its number and, at its end, a hash
over itself and all lines before it. So the first line that was altered, or that follows a missing
line, is detected."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from strandline.errors import Invalid, Malformed
from strandline.schemas import check_storable, parse_json

FORMAT = "strandline-graph"
"""The name of the format, in the first line."""
FORMAT_VERSION = 1
_CHAIN = re.compile(rb',"chain":"([0-9a-f]{64})"\}')
_CHAIN_BYTES = len(',"chain":""}') + 64


class ParsedLine(NamedTuple):
    """A line of a file: its number, from 1, and its members."""

    number: int
    members: dict[str, Any]


def make_line_error(number: int, why: str) -> Invalid:
    """Build the error that rejects a file because of one of its lines."""
    return Invalid(f"line {number}: {why}", line=number)


class HashedLineWriter:
    """Writes a file into memory."""

    def __init__(self) -> None:
        self.line_count = 0
        self._buffer = bytearray()
        self._chain = b""

    @property
    def data(self) -> bytes:
        """The whole file."""
        return bytes(self._buffer)

    def write_next_line(self, kind: str, members: bytes) -> None:
        """Write the next line, with members encoded by `encode_members_unbraced`."""
        self.line_count += 1
        body = b'{"line":%d,"kind":"%s",%s' % (self.line_count, kind.encode(), members)
        self._chain = _hash_line(self._chain, body)
        self._buffer += body + b',"chain":"' + self._chain + b'"}\n'


def encode_members_unbraced(members: Mapping[str, Any]) -> bytes:
    """Encode the members of a line as JSON, without braces. There must be at least one."""
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return text[1:-1].encode()


def read_verified_lines(data: bytes) -> Iterator[ParsedLine]:
    """Read the lines of a file, in order. Raises Invalid, which names the line, at the first line
    that differs from what the export wrote."""
    chain, start, number = b"", 0, 0
    while start < len(data):
        number += 1
        end = data.find(b"\n", start)
        if end < 0:
            raise make_line_error(number, "is cut off: it does not end with a line feed")
        line = data[start:end]
        match = _CHAIN.fullmatch(line[-_CHAIN_BYTES:])
        if match is None:
            raise make_line_error(
                number, "is cut off or altered: it does not end with the hash `chain`"
            )
        body = line[:-_CHAIN_BYTES]
        chain = _hash_line(chain, body)
        if chain != match[1]:
            raise make_line_error(
                number,
                "is not what the export wrote here: it was altered, or lines before it were"
                " removed, duplicated or moved. Export again",
            )
        yield ParsedLine(number, _parse_members(number, body + b"}"))
        start = end + 1


def _hash_line(chain: bytes, body: bytes) -> bytes:
    return hashlib.sha256(chain + b"\n" + body).hexdigest().encode()


def _parse_members(number: int, text: bytes) -> dict[str, Any]:
    try:
        members = check_storable(parse_json(text))
    except Malformed:
        raise make_line_error(number, "is not a JSON object") from None
    except Invalid as error:
        raise make_line_error(number, error.message) from None
    fields = cast("dict[str, Any]", members) if isinstance(members, dict) else {}
    if fields.get("line") != number:
        raise make_line_error(number, "does not have its own number as `line`")
    return fields
