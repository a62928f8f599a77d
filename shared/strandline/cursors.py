"""Where a page ended, as one opaque word."""

import base64
import binascii
import hashlib
import json
import re
from datetime import datetime
from typing import NamedTuple, cast
from uuid import UUID

from strandline.errors import Malformed


class Position(NamedTuple):
    """Where a page ended: the snapshot its list shows, and its last row."""

    mark: str
    at: datetime
    row_id: UUID
    """What tells rows of one moment apart: a scope's id, a key's, an audit row's."""
    seq: int = 0


_SNAPSHOT = re.compile(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII)


def fingerprint(*what: object) -> str:
    """What a list is: its name, who asks, what it is narrowed by."""
    document = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(document.encode()).hexdigest()[:16]


def encode(position: Position, of: str) -> str:
    """The word for a position in the list that `of` is the fingerprint of."""
    fields = [position.mark, position.at.isoformat(), str(position.row_id), position.seq, of]
    document = json.dumps(fields)
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def decode(cursor: str | None, of: str) -> Position | None:
    """The position of a word. Raises Malformed for one that we never gave, or gave for another
    list: there it would silently leave rows out."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        document = cast(object, json.loads(base64.b64decode(padded, altchars=b"-_", validate=True)))
        mark, at, row_id, seq, given_of = cast("tuple[str, str, str, int, str]", document)
        moment = datetime.fromisoformat(at)
        counted = type(seq) is int and 0 <= seq < 2**63
        if given_of != of:
            raise Malformed(
                "cursor: belongs to another list: send it back where it came from, with the same "
                "filters, participants and credential",
                field="cursor",
            )
        if _is_snapshot(mark) and moment.tzinfo is not None and counted:
            return Position(mark, moment, UUID(row_id), seq)
    except (binascii.Error, ValueError, TypeError, AttributeError, RecursionError):
        pass  # refused below, like a mark that is none
    raise Malformed("cursor: send back next_cursor as it was given", field="cursor")


def _is_snapshot(mark: str) -> bool:
    """What Postgres takes for a pg_snapshot: xmin:xmax:those under way between them, in order."""
    found = _SNAPSHOT.fullmatch(mark)
    if found is None:
        return False
    low, high = int(found[1]), int(found[2])
    running = [int(xid) for xid in found[3].split(",") if xid]
    return 0 < low <= high and running == sorted(running) and all(low <= x < high for x in running)
