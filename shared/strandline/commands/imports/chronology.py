"""Events in the order in which they happened. Exports begin with the newest conversation, and the
log's latest events are those that were stored last."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from types import TracebackType

from strandline.commands.imports.items import NewEvent, parse_iso_time

_WITHOUT_TIME = float("inf")
"""An event without a time gets that of its storing, and so comes last."""
_SORTED = "SELECT begin, size FROM events ORDER BY moment, begin"


class ChronologicalSpool:
    """Keeps events in temporary files, because memory must not grow with an export. Raises
    OSError."""

    def __init__(self) -> None:
        self._thread: str | None = None
        self._moment = 0.0
        with ExitStack() as stack:
            self._texts = stack.enter_context(tempfile.TemporaryFile())
            # A database without a name is a temporary file, too.
            self._order = stack.enter_context(closing(sqlite3.connect("", isolation_level=None)))
            self._order.execute("PRAGMA journal_mode = OFF")
            self._order.execute("PRAGMA synchronous = OFF")
            self._order.execute("CREATE TABLE events (moment REAL, begin INTEGER, size INTEGER)")
            self._order.execute("BEGIN")
            self._stack = stack.pop_all()

    def __enter__(self) -> ChronologicalSpool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # texts that have no room, as was said, are written once more
            self._stack.close()

    def add_event(self, item: NewEvent, thread: str) -> None:
        """Keep an event, which comes after those of its thread that were added directly before."""
        time = parse_iso_time(item.event.get("occurred_at"))
        moment = _WITHOUT_TIME if time is None else time.timestamp()
        self._moment = max(moment, self._moment) if thread == self._thread else moment
        self._thread = thread
        text = json.dumps([item.event, item.place]).encode()
        try:
            row = (self._moment, self._texts.tell(), len(text))
            self._texts.write(text)
            self._order.execute("INSERT INTO events VALUES (?, ?, ?)", row)
        except (OSError, sqlite3.OperationalError) as error:
            raise _explain_lack_of_room(error) from None

    def iterate_events(self) -> Iterator[NewEvent]:
        """All of them, the oldest first; those of one moment as they were added."""
        try:
            for begin, size in self._order.execute(_SORTED):
                self._texts.seek(begin)
                event, place = json.loads(self._texts.read(size))
                yield NewEvent(event, place)
        except (OSError, sqlite3.OperationalError) as error:
            raise _explain_lack_of_room(error) from None


def _explain_lack_of_room(error: Exception) -> OSError:
    return OSError(
        f"the temporary files in which events are sorted cannot be kept ({error}). Set TMPDIR to a "
        "directory that has room for all texts of the export."
    )
