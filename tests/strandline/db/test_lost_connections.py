"""Sessions that the server ends: every request and every job leaves such, and outlives it."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from strandline.background import archiver
from strandline.config import get_settings
from strandline.db import connection as db_connection
from strandline.db.database import Database
from strandline.errors import OutcomeUnknown, Unavailable
from strandline.jobs import runner
from strandline.llm.tasks import LlmTasks
from tests.support import APP, Gateway, ScratchDatabase, user_message

pytestmark = pytest.mark.own_sessions
SESSIONS = "from pg_stat_activity where usename = 'strandline_app' and datname = current_database()"


def end_sessions(base: ScratchDatabase) -> None:
    """As the server does after a minute, or as it goes away."""
    assert base.rows(f"select pg_terminate_backend(pid, 5000) {SESSIONS}")


def test_connection_ends_after_request_or_sweep(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    statement = sql.SQL("alter role {} in database {} set idle_session_timeout = '1s'")
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
        administrator.execute(
            statement.format(sql.Identifier(APP), sql.Identifier(scratch_db.name))
        )
    key = gateway.key()
    who = {"participants": "user:alice"}
    asks: tuple[Callable[[], Any], ...] = (
        lambda: gateway.call("GET", "/api/v1/scopes", key=key, query=who),
        lambda: gateway.call(
            "POST",
            "/api/v1/recall",
            {"query": "buoy", "participants": ["user:alice", "agent:helper"]},
            key=key,
        ),
    )
    assert (
        gateway.call("POST", "/api/v1/events", user_message("The buoy is out."), key=key).status
        == 201
    )
    gateway.sweep()
    for ask in asks:
        assert ask().status == 200
        until = time.monotonic() + 10
        while scratch_db.rows(f"select count(*) {SESSIONS}") != [(0,)]:
            assert time.monotonic() < until, "a session that nobody ends"
            time.sleep(0.05)


def test_connection_lost_during_model_call_spares_sweep(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may take twice as long as the server waits for an idle session."""
    monkeypatch.setattr("strandline.db.connection._LIVENESS_TTL_SECONDS", 0.0)
    monkeypatch.setenv("STRANDLINE_TUNING", '{"flush_events":4}')
    get_settings.cache_clear()
    requests: list[int] = []
    summarise = LlmTasks.summarise

    def slowly(self: LlmTasks, *args: Any) -> Any:
        requests.append(1)
        end_sessions(scratch_db)
        return summarise(self, *args)

    monkeypatch.setattr(LlmTasks, "summarise", slowly)
    key = gateway.key()
    for n in range(8):
        text = f"Crane number {n} at Ostend needs a new gearbox."
        reply = gateway.call("POST", "/api/v1/events", user_message(text, session_id="s"), key=key)
        assert reply.status == 201
    gateway.run_job("sweeper")
    assert requests
    assert scratch_db.rows("select count(*) from chains") != [(0,)]
    assert scratch_db.rows("select state, reason from jobs") == [("done", "")]
    assert scratch_db.rows("select state, reason from job_shards") == [("done", "")]
    assert scratch_db.rows("select attempts, last_error from scope_work where attempts > 0") == []


@pytest.mark.parametrize(("away", "reason"), [(0, "outcome_unknown"), (1, "not_finished")])
def test_connection_lost_in_shard_fails_job(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    away: int,
    reason: str,
) -> None:
    """With a reason, if the database is there again to keep it; and nothing else is raised."""
    connect, outage = db_connection.connect, [away]

    def work_on_shard(
        tools: runner.JobResources, lease: runner.Lease, *_: object
    ) -> dict[str, int]:
        with lease.transaction():
            monkeypatch.setattr(db_connection, "connect", refuse)
            end_sessions(scratch_db)
        return {}

    def refuse(*args: Any) -> Any:
        if outage[0]:
            outage[0] -= 1
            raise Unavailable
        return connect(*args)

    monkeypatch.setattr(archiver, "work_on_shard", work_on_shard)
    gateway.key("acme")
    gateway.run_job("archiver", "acme")  # which raises all but ShardFailed
    assert scratch_db.rows("select state, reason from jobs") == [("failed", reason)]
    assert outage == [0]


EVENT = user_message("The buoy is out.")
KEYED = {**EVENT, "source_event_key": "k"}
SAFE: tuple[tuple[str, str, object, bool, bool], ...] = (
    ("POST", "/api/v1/events", EVENT, False, False),
    ("POST", "/api/v1/events", EVENT, True, True),
    ("POST", "/api/v1/events", KEYED, False, True),
    ("POST", "/api/v1/events/batch", {"events": [KEYED, EVENT]}, False, False),
    ("POST", "/api/v1/events/batch", {"events": [KEYED, KEYED]}, False, True),
    ("POST", "/api/v1/sonas", {"name": "Pilot"}, True, False),  # which takes no key
    ("POST", "/api/v1/recall", {"query": "buoy"}, False, True),
    ("DELETE", "/api/v1/sessions/s", None, False, True),
)


@pytest.mark.parametrize(("method", "path", "body", "has_key", "may_be_repeated"), SAFE)
def test_connection_lost_while_storing_is_retryable_under_key(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: object,
    has_key: bool,
    may_be_repeated: bool,
) -> None:
    """The write may be done, and without a key it would be done again."""

    def unsure(*_: object, **__: object) -> Any:
        raise OutcomeUnknown

    key = gateway.key(user="user:alice")
    gateway.call("GET", "/api/v1/usage", key=key)  # its credential and quota are known from here on
    monkeypatch.setattr(Database, "connect_as", unsure)
    headers = {"Idempotency-Key": "k"} if has_key else {}
    reply = gateway.call(method, path, body, key=key, headers=headers)
    assert (reply.status, reply.error["code"]) == (503, "outcome_unknown")
    assert reply.error["retryable"] is may_be_repeated
    assert ("Retry-After" in reply.headers) is may_be_repeated
