"""Statements that a connection prepares: Postgres parses and plans them once a session, which takes
longer than to run them over a small log.

A plan serves every tenant: the planner does not look up the value of `current_tenant()`. After an
ANALYZE or a change of a table Postgres plans again by itself.
"""

import itertools
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

_THRESHOLD = 3
"""A statement is prepared when a session is sent it for the third time."""
_PROXY_HOST = b".proxy-"
"""What the host name of every RDS Proxy holds. A proxy pins a connection that prepares."""
_MAX_STATEMENTS = 200
"""The most statements that one connection prepares. Each holds about 50 KB of the server."""


class EncodedStatement(NamedTuple):
    """A statement in libpq's form."""

    text: bytes
    values: Sequence[Any]
    types: Sequence[int] | None
    formats: Sequence[int] | None

    @property
    def key(self) -> tuple[bytes, tuple[int, ...]]:
        """What Postgres plans: the text, and the types of the values."""
        return self.text, tuple(self.types or ())


class PreparedStatements:
    """The prepared statements of one connection, by what was sent on it before. A statement is
    prepared when it is sent for the `threshold`-th time; None: never. It is prepared again after
    ten, a hundred and a thousand times as many: tables that were empty have rows since, and a plan
    that is kept would read them whole until they are analyzed."""

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._uses: Counter[tuple[bytes, tuple[int, ...]]] = Counter()
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._numbers = itertools.count(1)

    def send(
        self, pgconn: PGconn, statement: EncodedStatement
    ) -> Iterator[tuple[EncodedStatement, bytes | None]]:
        """Send a statement in a pipeline, prepared if it is known well enough. Yields each message,
        with the name that it prepares, if it prepares one."""
        name = self._names.get(statement.key)
        if new_name := self._count_use(statement):
            name = new_name
            pgconn.send_prepare(name, statement.text, statement.types)
            yield statement, name
        if name is None:
            pgconn.send_query_params(
                statement.text, statement.values, statement.types, statement.formats
            )
        else:
            pgconn.send_query_prepared(name, statement.values, statement.formats)
        yield statement, None

    def execute(self, pgconn: PGconn, statement: EncodedStatement) -> PGresult:
        """Run a statement by itself, outside a pipeline, prepared if it is known well enough. The
        result may be an error, also that of its preparation."""
        if new_name := self._count_use(statement):
            preparation = pgconn.prepare(new_name, statement.text, statement.types)
            if preparation.status != ExecStatus.COMMAND_OK:
                return preparation
            self._names[statement.key] = new_name
        name = self._names.get(statement.key)
        if name is None:
            return pgconn.exec_params(
                statement.text, statement.values, statement.types, statement.formats
            )
        return pgconn.exec_prepared(name, statement.values, statement.formats)

    def take_results(
        self,
        sent: Sequence[tuple[EncodedStatement, bytes | None]],
        results: Sequence[PGresult],
    ) -> list[PGresult]:
        """The results of the statements, as far as there are any, without those of their
        preparation. What was prepared is known from now on: not earlier, as the server passes over
        what follows an error."""
        of_statements: list[PGresult] = []
        for (statement, name), result in zip(sent, results, strict=False):
            if name is None:
                of_statements.append(result)
            elif result.status == ExecStatus.COMMAND_OK:
                self._names[statement.key] = name
        return of_statements

    def forget(self) -> bool:
        """Use none of them any more; they count as sent for the first time. Returns whether there
        were any. The session keeps them until it ends."""
        had_any = bool(self._names)
        self._names.clear()
        self._uses.clear()
        return had_any

    def _count_use(self, statement: EncodedStatement) -> bytes | None:
        """Count that a statement is sent. The name to prepare it by, if it is to be prepared."""
        self._uses[statement.key] += 1
        if self._is_worth_preparing(statement):
            return b"strandline_%d" % next(self._numbers)
        return None

    def _is_worth_preparing(self, statement: EncodedStatement) -> bool:
        if self._threshold is None:
            return False
        uses = self._uses[statement.key]
        if statement.key in self._names:
            return uses in (self._threshold * 10, self._threshold * 100, self._threshold * 1000)
        return uses >= self._threshold and len(self._names) < _MAX_STATEMENTS


PREPARED_BY_SESSION: weakref.WeakKeyDictionary[PGconn, PreparedStatements] = (
    weakref.WeakKeyDictionary()
)
"""What each session of this process has prepared."""


def get_prepared_statements(connection: psycopg.Connection[Any]) -> PreparedStatements:
    """The prepared statements of a connection's session."""
    session = connection.pgconn
    prepared = PREPARED_BY_SESSION.get(session)
    if prepared is None:
        is_proxy = _PROXY_HOST in session.host
        prepared = PREPARED_BY_SESSION[session] = PreparedStatements(
            None if is_proxy else _THRESHOLD
        )
    return prepared
