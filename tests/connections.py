"""Database sessions that outlive a test: the next test on the same database takes them over.

A new session costs 10 ms of processor time, and its caches are empty: each first statement on a
table and each first call of a function costs several more. A connection of SESSIONS that is closed
leaves its session to the next one with the same URL. For the one who closed it, it is closed.
"""

from typing import Any

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from strandline.db import connection as db_connection
from strandline.db.connection import AuthMode, Connection
from strandline.db.prepared_statements import PREPARED_BY_SESSION, PreparedStatements

MAX_SPARE = 4
"""Sessions that are kept for a URL."""
_RESET = (
    b"reset all; reset session authorization; reset role; close all; unlisten *; discard temp;"
    b" select pg_advisory_unlock_all()"
)
connect_anew = db_connection.connect


class SessionCache:
    """The spare sessions of some databases, by the URL that they were opened with."""

    def __init__(self) -> None:
        self._spare: dict[str, list[PGconn]] = {}

    def open(self, *urls: str) -> None:
        """Keep the sessions of these URLs from now on."""
        for url in urls:
            self._spare.setdefault(url, [])

    def close(self, *urls: str) -> None:
        """End the spare sessions of these URLs, and keep none any more."""
        for url in urls:
            for session in self._spare.pop(url, []):
                session.finish()

    def list_pids(self, *urls: str) -> list[int]:
        """The server's processes that serve the spare sessions of these URLs."""
        return [session.backend_pid for url in urls for session in self._spare.get(url, [])]

    def connect(self, url: str) -> Connection:
        """A connection that commits each statement."""
        return self._reuse(url) or self._adopt(psycopg.connect(url, autocommit=True), url)

    def connect_service(
        self, url: str, auth: AuthMode = "password", seconds: float = 20.0
    ) -> Connection:
        """What `strandline.db.connection.connect` gives."""
        spare = self._reuse(url) if auth == "password" else None
        return spare or self._adopt(connect_anew(url, auth, seconds), url)

    def take_back(self, url: str, session: PGconn) -> bool:
        """Keep a session that is idle and whose URL is open here. Returns whether it is kept."""
        spare = self._spare.get(url)
        if spare is None or len(spare) >= MAX_SPARE or not _is_idle(session):
            return False
        spare.append(session)
        return True

    def _reuse(self, url: str) -> Connection | None:
        spare = self._spare.get(url, [])
        while spare:
            session = spare.pop()
            if _reset(session):
                return _CachedConnection.on(session, self, url)
            session.finish()
        return None

    def _adopt(self, connection: Connection, url: str) -> Connection:
        if url not in self._spare:
            return connection
        session, connection.pgconn = connection.pgconn, _closed_session()
        return _CachedConnection.on(session, self, url)


class _CachedConnection(psycopg.Connection[Any]):
    """A connection that leaves its session to the cache when it is closed."""

    _cache: SessionCache
    _url: str

    @classmethod
    def on(cls, session: PGconn, cache: SessionCache, url: str) -> "_CachedConnection":
        """A connection that commits each statement. The driver prepares none, as their names would
        stay; what the service prepares stays known with the session, for the tests that follow."""
        connection = cls(session)
        connection._cache, connection._url = cache, url
        connection._autocommit = True
        connection.prepare_threshold = None
        PREPARED_BY_SESSION.setdefault(session, PreparedStatements(1))
        return connection

    def close(self) -> None:
        """Close the connection, and end its session unless the cache takes it."""
        if not self.closed and self._cache.take_back(self._url, self.pgconn):
            self.pgconn = _closed_session()
        super().close()


def _is_idle(session: PGconn) -> bool:
    return (
        session.status == pq.ConnStatus.OK
        and session.transaction_status == pq.TransactionStatus.IDLE
        and session.pipeline_status == pq.PipelineStatus.OFF
    )


def _reset(session: PGconn) -> bool:
    """Make a session as new, its plans and caches apart. Returns whether it is alive."""
    session.notice_handler = session.notify_handler = None
    return _is_idle(session) and session.exec_(_RESET).status == pq.ExecStatus.TUPLES_OK


def _closed_session() -> PGconn:
    session = pq.PGconn.connect_start(b"host=/nowhere")
    session.finish()
    return session


SESSIONS = SessionCache()
"""The cache of this process."""
