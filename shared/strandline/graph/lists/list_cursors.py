"""Cursors of the graph's lists: sealed positions in a list's order."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from strandline.cursors import is_pg_snapshot
from strandline.db.database import TenantDb
from strandline.errors import Malformed
from strandline.log.store_erasure_marks import refuse_erased_since
from strandline.sealing import UnsealError


class ListCursors:
    """The cursors of one list, with its filters, for one caller."""

    def __init__(self, access: TenantDb, name: str, *filters: object) -> None:
        """`filters` is everything that filters or orders the list."""
        caller = access.caller
        document = json.dumps([name, caller.tenant, caller.viewer, *filters], default=str)
        self._list_hash = hashlib.sha256(document.encode()).hexdigest()[:16]
        self._access = access

    def encode(self, pg_snapshot: str, *fields: object) -> str:
        """The cursor of a position, given as JSON values, on a page that shows this database
        snapshot."""
        document = [self._list_hash, pg_snapshot, *fields]
        return self._access.sealer.seal("cursor", self._access.caller.tenant, document)

    def decode[Key](self, cursor: str | None, parse: Callable[[Sequence[Any]], Key]) -> Key | None:
        """The position in a cursor, converted from its fields by `parse`; None for the first page.
        Raises Malformed for a cursor of another list, and Gone for a cursor from before an
        erasure."""
        if cursor is None:
            return None
        try:
            document = cast(
                "object",
                self._access.sealer.unseal("cursor", self._access.caller.tenant, cursor),
            )
            list_hash, pg_snapshot, *fields = cast("list[Any]", document)
            if list_hash != self._list_hash or not is_pg_snapshot(pg_snapshot):
                raise UnsealError
            position = parse(fields)
        except (UnsealError, ValueError, TypeError):
            raise Malformed(
                "cursor: is not one of this list: send next_cursor unchanged, with the same"
                " filters, participants and credential, or restart the list without one",
                field="cursor",
            ) from None
        refuse_erased_since(self._access, pg_snapshot)
        return position
