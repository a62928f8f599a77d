"""The clock by which a process tells how old is what it keeps: Lambda freezes it between requests,
and the system's monotonic clock may stand still meanwhile."""

import time
from contextlib import closing

import pytest

from strandline.clock import read_uptime
from strandline.db.connection import CachedConnection, connect
from tests.support import ScratchDatabase


def freeze(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """As if the process had just been frozen for so long."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


def test_clock_counts_frozen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_uptime()
    assert 0 <= read_uptime() - before < 5
    freeze(monkeypatch, 3600)
    assert 3599 < read_uptime() - before < 3605


def test_clock_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the time of day."""
    freeze(monkeypatch, 100)
    before = read_uptime()
    freeze(monkeypatch, -3700)
    assert 0 <= read_uptime() - before < 5
    freeze(monkeypatch, 100)
    assert 99 < read_uptime() - before < 105


def test_clock_of_kept_connection_counts_frozen_time(
    scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends an idle session meanwhile; the next request must not be the one to find
    out. After a minute, in which it surely has, it is not even asked: no answer may come."""
    with closing(connect(scratch_db.url, "password", 5)) as connection:
        kept = CachedConnection(connection, read_uptime())
        freeze(monkeypatch, 30)
        assert kept.is_usable()
        scratch_db.rows(f"select pg_terminate_backend({connection.info.backend_pid})")
        assert not kept.is_usable()
    with closing(connect(scratch_db.url, "password", 5)) as connection:
        kept = CachedConnection(connection, read_uptime())
        scratch_db.rows(f"select pg_terminate_backend({connection.info.backend_pid})")
        assert kept.is_usable(), "within a second it is not asked"
    with closing(connect(scratch_db.url, "password", 5)) as connection:
        kept = CachedConnection(connection, read_uptime())
        freeze(monkeypatch, 61)
        assert not kept.is_usable()
        assert connection.execute("select 1").fetchone() == (1,)
