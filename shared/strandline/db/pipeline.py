"""Statements to the database and their answers, all of them in one round trip.

The driver's own pipeline ends with Sync and then Flush. The server sets its timer for idle sessions
when it has answered the Sync; the Flush stops that timer and does not set it again, and so the
session would last for ever, and Aurora never pause. Here the Sync is the last that is said.
"""

import functools
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import errors, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

type Asked = tuple[LiteralString, Mapping[str, object]]
"""A statement with `%(name)s` in it, and what the names stand for."""


def exchange(connection: psycopg.Connection[Any], *asked: Asked) -> list[PGresult]:
    """The answers to statements that go over together, up to one Sync: outside of a transaction
    they are one, which any error undoes. Values are adapted as the driver does, and errors are
    the driver's. A connection that did not hear the end of it is closed."""
    sent = [_sent(connection, statement, params) for statement, params in asked]
    wire = connection.pgconn
    try:
        wire.enter_pipeline_mode()
        for text, values, types, formats in sent:
            wire.send_query_params(text, values, types, formats)
        wire.pipeline_sync()
        heard = connection.wait(_heard(wire))
        if whole := bool(heard) and heard[-1].status == ExecStatus.PIPELINE_SYNC:
            wire.exit_pipeline_mode()
    except BaseException:
        connection.close()
        raise
    if not whole:
        connection.close()
    for result in heard:
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
    if not whole:
        raise psycopg.OperationalError("the connection was lost")
    return heard[:-1]


def rows_of[Row](
    connection: psycopg.Connection[Any], row: type[Row], answer: PGresult
) -> list[Row]:
    """An answer's rows, its columns by name."""
    names = [(answer.fname(column) or b"").decode() for column in range(answer.nfields)]
    transformer = Transformer(connection)
    transformer.set_pgresult(answer)

    def make(values: Sequence[Any]) -> Row:
        return row(**dict(zip(names, values, strict=True)))

    return transformer.load_rows(0, answer.ntuples, make)


def _sent(
    connection: psycopg.Connection[Any], statement: str, params: Mapping[str, object]
) -> tuple[bytes, Sequence[Any], Sequence[int] | None, Sequence[int] | None]:
    """As libpq takes it: text, values, their types, their formats."""
    text, names = _numbered(statement)
    transformer = Transformer(connection)
    values = transformer.dump_sequence(
        [params[name] for name in names], [PyFormat.AUTO] * len(names)
    )
    return text, values, transformer.types, transformer.formats


@functools.lru_cache(maxsize=1024)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with `$1` for its first name, and so on; and the names."""
    places: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        name = found[1]
        return "%" if name is None else f"${places.setdefault(name, len(places) + 1)}"

    text = re.sub(r"%(?:%|\((\w+)\)s)", place, statement)
    return text.encode(), tuple(places)


def _heard(wire: PGconn) -> Generator[Any, Any, list[PGresult]]:
    """What the server says, up to the answer to the Sync or to its last word."""
    yield from generators.send(wire)
    heard: list[PGresult] = []
    while results := (yield from generators.fetch_many(wire)):
        heard += results
        if results[-1].status == ExecStatus.PIPELINE_SYNC:
            break
    return heard
