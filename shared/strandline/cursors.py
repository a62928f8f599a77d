"""Where a page ended, as one opaque word; and the mark of what a list's pages show."""

import hashlib
import json
import re
import secrets
from datetime import datetime
from typing import NamedTuple, cast
from uuid import UUID

from strandline.errors import Malformed
from strandline.sealing import Sealer, Unsealable


class Position(NamedTuple):
    """Where a page ended: the snapshot its list shows, and its last row."""

    mark: str
    at: datetime
    row_id: UUID
    """What tells rows of one moment apart: a scope's id, a key's, an audit row's."""
    seq: int = 0


_SNAPSHOT = re.compile(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII)


class Cursors:
    """The cursors of one reading of a list: its first page or, after `decode`, a further one.

    A first page takes a word by lot, and further ones keep it. So the cursor and the mark of two
    first pages always differ, and do not tell whether anything was written in between, whoever
    wrote it; while a page asked for again by its cursor is the same to the byte.
    """

    def __init__(self, sealer: Sealer, tenant: str, name: str, *narrowed: object) -> None:
        """`narrowed`: who asks, and by what the list is narrowed."""
        document = json.dumps([name, tenant, *narrowed], sort_keys=True, default=str)
        self._list = hashlib.sha256(document.encode()).hexdigest()[:16]
        self._sealer, self._tenant = sealer, tenant
        self._lot = secrets.token_hex(8)

    def encode(self, position: Position) -> str:
        """The word for a position."""
        fields = [position.mark, position.at.isoformat(), str(position.row_id), position.seq]
        return self._sealer.seal("cursor", self._tenant, [*fields, self._list, self._lot])

    def decode(self, cursor: str | None) -> Position | None:
        """The position of a word; None for the first page. Raises Malformed for a word that we
        never gave to this tenant, or gave for another list: there it would silently leave rows
        out."""
        if cursor is None:
            return None
        try:
            document = cast("object", self._sealer.unseal("cursor", self._tenant, cursor))
            fields = cast("tuple[str, str, str, int, str, str]", document)
            mark, at, row_id, seq, given_list, lot = fields
            found = Position(mark, datetime.fromisoformat(at), UUID(row_id), seq)
            counted = type(seq) is int and 0 <= seq < 2**63
            if not (_is_snapshot(mark) and found.at.tzinfo is not None and counted):
                raise Unsealable
        except (Unsealable, ValueError, TypeError, AttributeError):
            raise Malformed(
                "cursor: send back next_cursor as it was given, or begin the list anew without one",
                field="cursor",
            ) from None
        if given_list != self._list:
            raise Malformed(
                "cursor: belongs to another list: send it back where it came from, with the same "
                "filters, participants and credential",
                field="cursor",
            )
        self._lot = lot
        return found

    def seal_mark(self, snapshot: str) -> str:
        """The mark of an answer: the same on all pages of a reading."""
        return self._sealer.seal("mark", self._tenant, [snapshot, self._lot])


def _is_snapshot(mark: str) -> bool:
    """What Postgres takes for a pg_snapshot: xmin:xmax:those under way between them, in order."""
    found = _SNAPSHOT.fullmatch(mark)
    if found is None:
        return False
    low, high = int(found[1]), int(found[2])
    running = [int(xid) for xid in found[3].split(",") if xid]
    return 0 < low <= high and running == sorted(running) and all(low <= x < high for x in running)
