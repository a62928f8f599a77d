"""The rows that a fixture made in one database, laid down in another one like it: in milliseconds,
where to tell and fold a conversation takes a second."""

from collections.abc import Callable, Collection
from typing import LiteralString

from psycopg import sql

from tests.connections import SESSIONS
from tests.databases import BOOKKEEPING
from tests.support import ScratchDatabase

_COLUMNS = """
select c.relname::text, array_agg(a.attname::text order by a.attnum)
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
    and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    and c.relname <> all (%s)
group by 1
"""


class SavedRows:
    """All rows of a database, but those of some tables."""

    def __init__(self, base: ScratchDatabase, besides: Collection[str] = ()) -> None:
        self._tables: dict[str, tuple[list[str], bytes]] = {}
        with SESSIONS.connect(base.admin_url) as administrator, administrator.cursor() as cursor:
            for name, columns in cursor.execute(_COLUMNS, [[*BOOKKEEPING, *besides]]).fetchall():
                with cursor.copy(_statement("copy {} ({}) to stdout", name, columns)) as copy:
                    self._tables[name] = columns, b"".join(map(bytes, copy))

    def restore(self, base: ScratchDatabase) -> None:
        """Put them in the place of the rows that are there, past triggers and foreign keys."""
        with (
            SESSIONS.connect(base.admin_url) as administrator,
            administrator.transaction(),
            administrator.cursor() as cursor,
        ):
            cursor.execute("set local session_replication_role = replica")
            for name, (columns, data) in self._tables.items():
                cursor.execute(sql.SQL("delete from {}").format(sql.Identifier(name)))
                if data:
                    with cursor.copy(_statement("copy {} ({}) from stdin", name, columns)) as copy:
                        copy.write(data)


class SavedFixture[T]:
    """What a fixture gives, with the rows behind it: made once, and then laid down."""

    def __init__(self, besides: Collection[str] = ()) -> None:
        self._besides = besides
        self._saved: list[tuple[SavedRows, T]] = []

    def lay_down(self, base: ScratchDatabase, make: Callable[[], T]) -> T:
        """What `make` gave first; `make` fills the database."""
        if self._saved:
            rows, value = self._saved[0]
            rows.restore(base)
            return value
        value = make()
        self._saved.append((SavedRows(base, self._besides), value))
        return value


def _statement(text: LiteralString, name: str, columns: Collection[str]) -> sql.Composed:
    return sql.SQL(text).format(
        sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
