"""Opaque cursors of paged lists, and the sealed database snapshot (`mark`) of a list's pages."""

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
    """Where a page ended: the snapshot of its list, and its last row."""

    pg_snapshot: str
    at: datetime
    row_id: UUID
    """Orders rows of the same time: the id of a scope, a key, an audit row."""
    seq: int = 0


_PG_SNAPSHOT = re.compile(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII)


class Cursors:
    """The cursors for one page of a list: the first page or, after `decode`, a further one.

    A first page draws a random nonce, and further pages keep it. So cursor and mark of two first
    pages always differ, and do not reveal whether anything was written in between, by anyone. A
    page that is requested again with its cursor is the same to the byte.
    """

    def __init__(self, sealer: Sealer, tenant: str, name: str, *filters: object) -> None:
        """`filters`: the caller, and whatever narrows the list."""
        document = json.dumps([name, tenant, *filters], sort_keys=True, default=str)
        self._list_hash = hashlib.sha256(document.encode()).hexdigest()[:16]
        self._sealer, self._tenant = sealer, tenant
        self._nonce = secrets.token_hex(8)

    def encode(self, position: Position) -> str:
        """The cursor of a position."""
        fields = [position.pg_snapshot, position.at.isoformat(), str(position.row_id), position.seq]
        return self._sealer.seal("cursor", self._tenant, [*fields, self._list_hash, self._nonce])

    def decode(self, cursor: str | None) -> Position | None:
        """The position of a cursor; None for the first page. Raises Malformed for a cursor that was
        not issued to this tenant, or was issued for another list, where it would silently skip
        rows."""
        if cursor is None:
            return None
        try:
            document = cast("object", self._sealer.unseal("cursor", self._tenant, cursor))
            fields = cast("tuple[str, str, str, int, str, str]", document)
            pg_snapshot, at, row_id, seq, list_hash, nonce = fields
            position = Position(pg_snapshot, datetime.fromisoformat(at), UUID(row_id), seq)
            is_valid_seq = type(seq) is int and 0 <= seq < 2**63
            if not (
                is_pg_snapshot(pg_snapshot) and position.at.tzinfo is not None and is_valid_seq
            ):
                raise UnsealError
        except (UnsealError, ValueError, TypeError, AttributeError):
            raise Malformed(
                "cursor: is not valid: send next_cursor unchanged, or restart the list without one",
                field="cursor",
            ) from None
        if list_hash != self._list_hash:
            raise Malformed(
                "cursor: belongs to another list: send it to the route that returned it, with "
                "the same filters, participants and credential",
                field="cursor",
            )
        self._nonce = nonce
        return position

    def seal_snapshot(self, snapshot: str) -> str:
        """The mark of an answer: the same on all pages that follow one first page."""
        return self._sealer.seal("mark", self._tenant, [snapshot, self._nonce])


def is_pg_snapshot(text: str) -> bool:
    """Whether Postgres accepts the text as a pg_snapshot: xmin:xmax:xip_list, with the running
    transactions between the two, in order."""
    match = _PG_SNAPSHOT.fullmatch(text)
    if match is None:
        return False
    low, high = int(match[1]), int(match[2])
    running = [int(xid) for xid in match[3].split(",") if xid]
    return 0 < low <= high and running == sorted(running) and all(low <= x < high for x in running)
