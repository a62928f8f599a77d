"""Where a page ended, as one opaque word; and the mark of what a list's pages show."""

import hashlib
import json
import re
import secrets
from datetime import datetime
from typing import NamedTuple, cast
from uuid import UUID

from strandline.errors import Malformed
from strandline.sealing import Sealer, UnsealError


class Position(NamedTuple):
    """Where a page ended: the snapshot its list shows, and its last row."""

    pg_snapshot: str
    at: datetime
    row_id: UUID
    """What tells rows of one moment apart: a scope's id, a key's, an audit row's."""
    seq: int = 0


_PG_SNAPSHOT = re.compile(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII)


class Cursors:
    """The cursors of one reading of a list: its first page or, after `decode`, a further one.

    A first page takes a word by lot, and further ones keep it. So the cursor and the mark of two
    first pages always differ, and do not tell whether anything was written in between, whoever
    wrote it; while a page asked for again by its cursor is the same to the byte.
    """

    def __init__(self, sealer: Sealer, tenant: str, name: str, *filters: object) -> None:
        """`filters`: who asks, and by what the list is narrowed."""
        document = json.dumps([name, tenant, *filters], sort_keys=True, default=str)
        self._list_hash = hashlib.sha256(document.encode()).hexdigest()[:16]
        self._sealer, self._tenant = sealer, tenant
        self._nonce = secrets.token_hex(8)

    def encode(self, position: Position) -> str:
        """The word for a position."""
        fields = [position.pg_snapshot, position.at.isoformat(), str(position.row_id), position.seq]
        return self._sealer.seal("cursor", self._tenant, [*fields, self._list_hash, self._nonce])

    def decode(self, cursor: str | None) -> Position | None:
        """The position of a word; None for the first page. Raises Malformed for a word that we
        never gave to this tenant, or gave for another list: there it would silently leave rows
        out."""
        if cursor is None:
            return None
        try:
            document = cast("object", self._sealer.unseal("cursor", self._tenant, cursor))
            fields = cast("tuple[str, str, str, int, str, str]", document)
            pg_snapshot, at, row_id, seq, list_hash, nonce = fields
            position = Position(pg_snapshot, datetime.fromisoformat(at), UUID(row_id), seq)
            is_valid_seq = type(seq) is int and 0 <= seq < 2**63
            if not (
                _is_pg_snapshot(pg_snapshot) and position.at.tzinfo is not None and is_valid_seq
            ):
                raise UnsealError
        except (UnsealError, ValueError, TypeError, AttributeError):
            raise Malformed(
                "cursor: send back next_cursor as it was given, or begin the list anew without one",
                field="cursor",
            ) from None
        if list_hash != self._list_hash:
            raise Malformed(
                "cursor: belongs to another list: send it back where it came from, with the same "
                "filters, participants and credential",
                field="cursor",
            )
        self._nonce = nonce
        return position

    def seal_snapshot(self, snapshot: str) -> str:
        """The mark of an answer: the same on all pages of a reading."""
        return self._sealer.seal("mark", self._tenant, [snapshot, self._nonce])


def _is_pg_snapshot(text: str) -> bool:
    """What Postgres takes for a pg_snapshot: xmin:xmax:those under way between them, in order."""
    match = _PG_SNAPSHOT.fullmatch(text)
    if match is None:
        return False
    low, high = int(match[1]), int(match[2])
    running = [int(xid) for xid in match[3].split(",") if xid]
    return 0 < low <= high and running == sorted(running) and all(low <= x < high for x in running)
