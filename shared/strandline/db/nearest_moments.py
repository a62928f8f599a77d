"""Times in the database that Python cannot hold: before the year 1 or after the year 9999 in UTC.

No caller can store one, and the schema refuses one. If one stands there all the same, it is read as
the nearest time that can be held, so that one row never takes down a list, a context or a search.
All readers get their rows from `pipeline.parse_rows`, so it is done there and nowhere else.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.types.datetime import TimestamptzLoader

from strandline.moments import FIRST_MOMENT, LAST_MOMENT
from strandline.observability import logger


class NearestMoment(datetime):
    """The nearest time to one that Python cannot hold. Readers use it as any time; who must give
    the exact one asks `list_nearest_moment_fields` first."""


def list_nearest_moment_fields(row: object) -> Iterator[str]:
    """The names of the fields of a row, a dataclass or None, that hold a NearestMoment."""
    for name, value in vars(row).items() if row is not None else ():
        if isinstance(value, NearestMoment):
            yield name


class _NearestMomentLoader(TimestamptzLoader):
    """Loads any timestamptz."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            is_early = text.startswith(b"-") or text.endswith(b"BC")
            nearest = FIRST_MOMENT if is_early else LAST_MOMENT
            return NearestMoment.combine(nearest.date(), nearest.timetz())


class NearestMomentContext:
    """Where values are loaded as on a connection, but any time can be."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.adapters = AdaptersMap(connection.adapters)
        self.adapters.register_loader("timestamptz", _NearestMomentLoader)
        logger.warning("a row has a time outside of the years 1 to 9999 in UTC")
