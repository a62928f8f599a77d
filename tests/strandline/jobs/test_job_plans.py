"""A plan that fails keeps nobody waiting, and no tenant holds up another; locks have one order."""

import importlib
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from strandline.background import archiver
from strandline.db.database import Caller, Database
from strandline.errors import Unavailable
from strandline.jobs import multi_tenant_runs, runner, store_runs
from strandline.jobs.runner import Shard
from strandline.jobs.worker_resources import JobMetrics
from tests.support import Gateway, ScratchDatabase

NOW = datetime.now(UTC)
WHO = "select current_tenant() as tenant, current_viewer() as viewer, current_writer() as writer"
STATES = "select tenant_id, state, reason from jobs order by created_at, tenant_id"


@dataclass(frozen=True)
class CallerRow:
    """On whose behalf a statement runs."""

    tenant: str
    viewer: list[str]
    writer: str


@pytest.fixture
def tools(gateway: Gateway) -> Any:
    """The archiver's service, and two tenants."""
    for tenant in ("acme", "globex"):
        gateway.key(tenant)
    handler: Any = importlib.import_module("functions.archiver.handler")
    return handler.resources


def plan(tools: Any, now: datetime = NOW, run: str = "", tenant: str | None = None) -> int:
    """How many shards a run has."""
    run = run or str(uuid.uuid4())
    return runner.plan_run(tools, archiver, run, now, tenant).shards


def away(times: int) -> Callable[..., str]:
    """A bucket that does not answer so often."""
    failures_left = [times]

    def put(self: Any, run: str, shards: Any) -> str:
        del self, shards
        failures_left[0] -= 1
        if failures_left[0] >= 0:
            raise Unavailable("The payload store does not answer.")
        return f"_jobs/{run}"

    return put


def test_job_plan_failure_releases_tenants(
    scratch_db: ScratchDatabase, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.aws.blobs.BlobStore.put_shards", away(1))
    with pytest.raises(Unavailable):
        plan(tools)
    assert scratch_db.rows(STATES) == [
        ("acme", "failed", "unavailable"),
        ("globex", "failed", "unavailable"),
    ]
    assert scratch_db.rows(
        "select count(*) from jobs where advice <> '' and finished_at is null"
    ) == [(0,)]
    assert plan(tools) == 2


def test_job_plan_retry_resumes_its_job(
    scratch_db: ScratchDatabase, tools: Any, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody started and was given an id of is what then runs."""
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        job_id = store_runs.queue_job_for_run(access, "archiver", "r", NOW)
    monkeypatch.setattr("strandline.aws.blobs.BlobStore.put_shards", away(1))
    with pytest.raises(Unavailable):
        plan(tools, run="r", tenant="acme")
    assert scratch_db.rows(STATES) == [("acme", "failed", "unavailable")]
    assert plan(tools, run="r", tenant="acme") == 1
    assert scratch_db.rows("select job_id, state, reason, finished_at from jobs") == [
        (job_id, "running", "", None)
    ]


def test_job_plan_failure_is_told_in_waiting_job(
    scratch_db: ScratchDatabase, tools: Any, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_runs.queue_job_for_run(access, "archiver", "r", NOW)

    def fail(*_: object) -> Any:
        raise RuntimeError("the words of a memory")

    monkeypatch.setattr(archiver, "plan_shards", fail)
    with pytest.raises(RuntimeError):
        plan(tools, run="r", tenant="acme")
    assert scratch_db.rows(STATES) == [("acme", "failed", "RuntimeError")]


FAIL_IN = """
create function fail_here() returns trigger language plpgsql as $$
begin
    if new.tenant_id = any ('{%s}') then
        raise exception 'the words of a memory' using errcode = '%s';
    end if;
    return new;
end $$;
create trigger fail_here before insert on job_shards for each row execute function fail_here();
"""
"""The shards of these tenants' jobs cannot be written, with this SQLSTATE."""


@pytest.mark.parametrize(
    ("sqlstate", "reason"),
    [("23514", "CheckViolation"), ("55P03", "unavailable"), ("ST999", "DatabaseError")],
)
def test_job_plan_skips_tenant_that_cannot_begin(
    scratch_db: ScratchDatabase, tools: Any, sqlstate: str, reason: str
) -> None:
    with psycopg.connect(scratch_db.admin_url) as admin:
        admin.execute((FAIL_IN % ("acme", sqlstate)).encode())
    assert plan(tools) == 1
    assert scratch_db.rows(STATES) == [("acme", "failed", reason), ("globex", "running", "")]
    assert scratch_db.rows("select tenant_id, count(*) from job_shards group by 1") == [
        ("globex", 1)
    ]


def test_job_plan_fails_after_three_tenants_in_row(
    scratch_db: ScratchDatabase, tools: Any, gateway: Gateway
) -> None:
    """Its cause is not the tenants': the state machine tries again, and each job says why."""
    for tenant in ("betty", "carol"):
        gateway.key(tenant)
    with psycopg.connect(scratch_db.admin_url) as admin:
        admin.execute((FAIL_IN % ("acme,betty,carol", "53100")).encode())
    with pytest.raises(Unavailable):
        plan(tools)
    tenants = ("acme", "betty", "carol", "globex")
    assert scratch_db.rows(STATES) == [(tenant, "failed", "unavailable") for tenant in tenants]


def test_job_plan_waits_one_second_for_locked_job(scratch_db: ScratchDatabase, tools: Any) -> None:
    assert plan(tools, run="r") == 2
    begin = time.monotonic()
    with psycopg.connect(scratch_db.admin_url) as admin:
        admin.execute("select from jobs where tenant_id = 'acme' for update")
        outcomes = multi_tenant_runs.begin_run_in_one_transaction(
            tools.database.connection(), "archiver", "r", {"acme": 1, "globex": 1}, NOW
        )
    assert [(o.tenant, o.is_claimed, type(o.error)) for o in outcomes] == [
        ("acme", False, Unavailable),
        ("globex", True, type(None)),
    ]
    assert 0.9 < time.monotonic() - begin < 4


def test_job_plan_restores_caller_after_many_tenants(
    scratch_db: ScratchDatabase, tools: Any
) -> None:
    """One who calls it for others is oneself again after it, also where the last of them failed."""
    access = tools.database.connect_as(Caller("globex", ("user:bob",), "user:bob"))
    with access.transaction():
        before = access.fetch(CallerRow, WHO, {})
        access.execute(
            "select claim_run('archiver', 'r', '{acme,nobody}', '{1,1}', %(ids)s, '1 minute',"
            " now())",
            {"ids": [uuid.uuid4(), uuid.uuid4()]},
        )
        access.execute(
            "select close_run('archiver', 'r', '{acme,nobody}', '{x,x}', null, '1 minute', now())",
            {},
        )
        assert access.fetch(CallerRow, WHO, {}) == before
    assert before == [CallerRow("globex", ["user:bob"], "user:bob")]
    assert scratch_db.rows(STATES) == [("acme", "failed", "x")]


def test_job_lease_without_heartbeat_expires(scratch_db: ScratchDatabase, tools: Any) -> None:
    """A plan that was killed after it, and a part that was: five minutes. What is at work says so,
    and keeps its tenant for as long as it takes."""
    assert plan(tools) == 2
    assert plan(tools, NOW + timedelta(minutes=4)) == 0
    access = tools.database.connect_as(Caller.background("acme"))
    ((run,),) = scratch_db.rows("select run from jobs where tenant_id = 'acme'")
    with access.transaction():
        shard = store_runs.lease_shard(access, "archiver", run, 0, NOW)
    assert shard is not None
    at_work = {"now": NOW + timedelta(minutes=4)}
    lease = runner.Lease(access, shard, time.monotonic() + 60, lambda: at_work["now"])
    lease.renew()
    assert scratch_db.rows("select leased_until from jobs where tenant_id = 'acme'") == [
        (NOW + timedelta(minutes=5),)
    ], "a sign of life a minute is enough"
    for minutes in (4, 8, 12):
        at_work["now"] = NOW + timedelta(minutes=minutes)
        lease.renewed_at = 0.0
        with lease.transaction():
            pass
    assert plan(tools, NOW + timedelta(minutes=16)) == 1
    assert scratch_db.rows("select tenant_id from jobs where state = 'failed'") == [("globex",)]
    assert plan(tools, NOW + timedelta(minutes=18), tenant="acme") == 1
    with pytest.raises(runner.LeaseLost), lease.transaction():
        pass
    lease.renewed_at = 0.0
    lease.renew()
    assert scratch_db.rows(
        "select count(*) from jobs where tenant_id = 'acme' and state = 'failed'"
    ) == [(1,)], "who lost it takes nothing back"


def test_job_shard_end_and_takeover_keep_lock_order(
    scratch_db: ScratchDatabase, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes the part at the very moment at which it ends: one of them has it, and neither
    finds the other in its way."""
    plan(tools, run="r", tenant="acme")
    tally = JobMetrics()
    real, matches, threads = store_runs.mark_shard_done, list[Exception](), list[threading.Thread]()
    other = Database(scratch_db.url)

    def take() -> None:
        access = other.connect_as(Caller.background("acme"))
        try:
            with access.transaction():
                store_runs.lease_shard(access, "archiver", "r", 0, NOW)
        except Exception as error:
            matches.append(error)

    def end_shard(*args: Any) -> Any:
        threads.append(threading.Thread(target=take))
        threads[0].start()
        until = time.monotonic() + 5
        while threads[0].is_alive() and time.monotonic() < until:
            if scratch_db.rows("select from pg_locks where not granted"):
                break
            time.sleep(0.01)
        return real(*args)

    monkeypatch.setattr(store_runs, "mark_shard_done", end_shard)
    try:
        with suppress(runner.ShardFailed):
            runner.run_shard(tools, archiver, "r", Shard("acme"), NOW, time.monotonic() + 60, tally)
    finally:
        threads[0].join()
        other.close()
    assert matches == []
    assert tally.failures == 0
    assert scratch_db.rows("select lease_no, state from job_shards") == [(2, "waiting")]
