"""Promise: whatever happens to the database, a caller gets an answer or is told to try again.

Twenty restarts, by SIGKILL and gentle (a fast shutdown, which says so to every session) in turn,
under a load of every operation of every function. A write that was answered by a 503 may have
happened or not: what was acknowledged is there.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pytest

from strandline.db import database as db_database
from strandline.jobs import store_runs
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from strandline.log import store_work
from strandline.sessions import store as sessions_store
from tests.prove.append_history import TENANT, Findings, check_log, make_rng, stored_in
from tests.prove.load import FIRST_OPS, WRITES, Load, list_reads
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import KEY_SECRET, TEMPLATE, Gateway, ScratchDatabase, wire_handlers

RESTARTS = 20
BACK_SECONDS = 5.0
"""The longest from the database's return to the first success."""
LEASE_SECONDS = 3
"""Instead of two minutes for a scope and five for a job, so that a lease can be seen to end."""


@pytest.fixture
def live_service(
    start_durable_server: Callable[..., EmbeddedPostgres],
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[EmbeddedPostgres, Load]]:
    """A load on a server that may be restarted, and that server."""
    server = start_durable_server()
    url = ScratchDatabase(server, TEMPLATE).url
    environment = {
        "STRANDLINE_DATABASE_URL": url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
        "STRANDLINE_TENANT_REQUESTS_PER_MINUTE": "1000000000",
        "STRANDLINE_TENANT_APPENDS_PER_MINUTE": "1000000000",
    }
    for leased in (store_work, store_runs):
        monkeypatch.setattr(leased, "LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(store_runs, "PLAN_LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(store_runs, "PLAN_LEASE_SECONDS", LEASE_SECONDS)
    services = wire_handlers(environment, monkeypatch, WordEmbedder("words/256", 256))
    gateway = Gateway(url)
    key = gateway.key(rights=["read", "write", "admin", "operator", "erase"])
    reads = list_reads(gateway, key)
    unserved = [path for _, path, _, _, status in reads if status not in (200, 201, 307)]
    refusals = ("/api/v1/admin/communities/", "/api/v1/admin/snapshots/1/difference", "/file/")
    assert all(path.startswith(refusals) for path in unserved), "a scope's, no `from`, no payload"
    assert len(unserved) == len(refusals)
    load = Load(gateway, key, reads)
    load.history.invocations |= FIRST_OPS
    yield server, load
    for database in [gateway.database, *(service.database for service in services)]:
        database.close()


def restart(server: EmbeddedPostgres, load: Load, times: int) -> float:
    """Restart the server so often under load; gives the longest time from its return to the first
    success. Ends early where something is wrong."""
    longest, chance = 0.0, make_rng("restart")
    with load.running():
        for turn in range(times):
            load.await_more(20)
            (server.stop if turn % 2 else server.kill)()
            time.sleep(chance.uniform(0, 1))
            server.start()
            back = time.monotonic()
            load.await_more(1)
            longest = max(longest, time.monotonic() - back)
            if load.faults:
                break
        load.await_more(20)
        load.await_every_write()
    return longest


@pytest.mark.proof
def test_restart_calls_succeed_or_say_retry(
    live_service: tuple[EmbeddedPostgres, Load],
    proof_size: Callable[[int], int],
    request: pytest.FixtureRequest,
) -> None:
    """And what was acknowledged is there, and no work is stuck."""
    (server, load), times = live_service, proof_size(RESTARTS)
    base, started = ScratchDatabase(server, TEMPLATE), time.monotonic()
    longest = restart(server, load, times)
    print(
        f"\n{times} restarts in {time.monotonic() - started:.1f} s: {load.served_count} appends,"
        f" {sum(load.acknowledged_writes.values())} other writes of "
        f"{len(load.acknowledged_writes)} kinds,"
        f" {sum(load.unavailable.values())} times 503 over {len(load.unavailable)} operations,"
        f" {len(load.faults)} wrong answers;"
        f" first success at most {longest:.2f} s after the database's return"
    )
    assert load.faults == []
    assert len(load.unavailable) > 3
    assert check_log(load.history, stored_in(base)) == Findings()
    assert set(load.acknowledged_writes) == WRITES
    assert missing(load, base) == []
    if request.config.getoption("--full"):
        assert longest <= BACK_SECONDS
    assert base.rows(HALVES) == []
    assert_no_work_is_stuck(load.gateway, base)


def missing(load: Load, base: ScratchDatabase) -> list[str]:
    """What was acknowledged and is not there: the statements that find nothing."""
    return [
        statement for statement, params in load.expected_rows if base.rows(statement, *params) == []
    ]


HALVES = """
    select min(source_event_key) from event_keys where source_event_key like 'in %%#%%'
    group by split_part(source_event_key, '#', 1) having count(*) <> 2
"""
"""Interactions that are there by half."""


def assert_no_work_is_stuck(gateway: Gateway, base: ScratchDatabase) -> None:
    """After twice the lease no work is held by anybody who died, and all of it is done."""
    until = time.monotonic() + 2 * LEASE_SECONDS
    while time.monotonic() < until:
        gateway.sweep()
        time.sleep(0.1)
    gateway.run_job("eraser", TENANT)  # a scope waits for the erasure that marked its events
    gateway.sweep()
    assert base.rows("select scope_id, attempts, last_error from scope_work") == []
    not_embedded = (
        "select count(*) from events e where e.erased_at is null and not exists ("
        "select from event_vectors v where v.event_id = e.event_id)"
    )
    assert base.rows(not_embedded) == [(0,)]
    assert base.rows("select scope_id from scopes where folded_seq <> last_seq") == []
    assert base.rows("select count(*) > 0 from chain_versions") == [(True,)]


@pytest.mark.proof
def test_restart_test_detects_untranslated_error(
    live_service: tuple[EmbeddedPostgres, Load], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the driver's words for 'away' reach the edge as they are."""

    @contextmanager
    def skip_translation(connection: object = None) -> Generator[None]:
        yield

    monkeypatch.setattr(db_database, "translate_errors", skip_translation)
    server, load = live_service
    restart(server, load, 4)
    assert any(": 500 " in wrong for wrong in load.faults), load.faults


@pytest.mark.proof
def test_restart_test_detects_false_acknowledgement(
    live_service: tuple[EmbeddedPostgres, Load], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: sessions that do not end, jobs that are not tried again, and interactions
    that lost their half, whatever the answers said."""

    def only_say_so(*_: object) -> int:
        return 3

    server, load = live_service
    base = ScratchDatabase(server, TEMPLATE)
    monkeypatch.setattr(sessions_store, "end_session", only_say_so)
    monkeypatch.setattr(store_runs, "requeue_failed_job", only_say_so)
    restart(server, load, 0)
    assert load.faults == []
    text = "\n".join(missing(load, base))
    assert "ended_at is not null" in text
    assert "attempts = 2" in text
    base.rows("delete from event_keys where source_event_key like 'in %%#agent'")
    assert base.rows(HALVES) != []
