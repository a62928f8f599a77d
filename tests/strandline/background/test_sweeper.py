"""The sweep: everything that is due, no matter who forgot to say so."""

import importlib
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from strandline.background import sweeper
from strandline.background.compute_event_vectors import embed_texts
from strandline.db.database import Caller
from strandline.embeddings.embedder import Purpose
from strandline.errors import EmbeddingRefused
from strandline.jobs import runner, store_failures, store_runs
from strandline.jobs.worker_resources import JobMetrics, WorkerResources
from strandline.local.lambda_context import LambdaContext
from strandline.log import store_uploads
from tests.support import Gateway, NullJobQueue, ScratchDatabase, Tell, begin_run, user_message

JOBS = "/api/v1/admin/jobs"
SWEEPER: Any = sweeper
"""And its steps."""


def test_sweeper_does_work_of_lost_message(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    tell(gateway.key(), "The buoy goes out on Friday.")
    gateway.sweep()
    assert scratch_db.rows("select count(*) from event_vectors") == [(1,)]
    assert scratch_db.rows("select last_seq - folded_seq from scopes") == [(0,)]
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]


def test_sweeper_finds_unlisted_work_once_per_day(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key()
    tell(key, "one")
    gateway.sweep()
    tell(key, "two")
    scratch_db.rows("delete from scope_work")
    gateway.sweep()
    assert scratch_db.rows("select count(*) from event_vectors") == [(1,)]
    scratch_db.rows("update tenants set swept_at = swept_at - interval '25 hours'")
    gateway.sweep()
    assert scratch_db.rows("select count(*) from event_vectors") == [(2,)]


def test_sweeper_closes_quiet_lane(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    tell(gateway.key(), "The buoy goes out on Friday.", session_id="s-1")
    gateway.sweep()
    assert scratch_db.rows("select count(*) from chain_events") == [(0,)]
    scratch_db.rows("update lanes set idle_at = now() - interval '1 second'")
    gateway.sweep()
    assert scratch_db.rows("select count(*) from chain_events") == [(1,)]


def test_sweeper_continues_after_failed_step(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(gateway.key(), "one")

    def fail(*args: Any) -> int:
        raise RuntimeError("the words of a memory")

    monkeypatch.setattr("strandline.chains.fold_scope.close_idle_lanes", fail)
    gateway.sweep()
    assert scratch_db.rows("select count(*) from event_vectors") == [(1,)]
    assert scratch_db.rows(
        "select measured is not null from quotas where quota = 'stored_bytes'"
    ) in (
        [],
        [(True,)],
    )
    assert scratch_db.rows("select state, reason from jobs") == [("failed", "RuntimeError")]


def test_sweeper_removes_old_jobs(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    gateway.key()
    scratch_db.rows(
        "insert into jobs (tenant_id, job_id, kind, state, finished_at) select 'acme', uuidv7(),"
        " 'archiver', 'done', now() - make_interval(days => d) from unnest(array[29, 31]) d"
    )
    gateway.sweep()
    kinds = scratch_db.rows("select kind from jobs where finished_at < now() - interval '1 day'")
    assert kinds == [("archiver",)]


def test_sweeper_fails_run_with_expired_lease(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    gateway.key()
    gateway.sweep()
    scratch_db.rows(
        "insert into jobs (tenant_id, job_id, kind, run, state, leased_until) values"
        " ('acme', uuidv7(), 'archiver', 'dead', 'running', now() - interval '1 second')"
    )
    gateway.sweep()
    assert scratch_db.rows("select state, reason from jobs where run = 'dead'") == [
        ("failed", store_runs.LEASE_EXPIRED)
    ]


def test_sweeper_retries_model_failure_on_request(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure waits for somebody who asks, is tried by the next sweep, and is done with."""
    key = gateway.key("acme", rights=("read", "write", "admin"))
    receipt = tell(key, "The buoy goes out on Friday.", session_id="s-1")
    gateway.sweep()
    scratch_db.rows("update lanes set idle_at = now() - interval '1 second'")
    gateway.sweep()
    ((chain_id,),) = scratch_db.rows("select chain_id from chains")
    access = gateway.database.connect_as(Caller.background("acme"))
    about: dict[str, Any] = {
        "kind": "enrich",
        "scope_id": receipt["scope_id"],
        "participants": ["agent:helper", "user:alice"],
        "reason": "unavailable",
        "advice": "Try it again.",
        "ref": chain_id,
    }
    job_id = store_failures.record_retryable_failure(access, **about)
    assert store_failures.record_retryable_failure(access, **about) == job_id

    admin: Any = importlib.import_module("functions.admin.handler")
    started: list[str] = []

    class Started(NullJobQueue):
        def start_run(self, job: str, tenant: str, run: str) -> None:
            started.append(f"{job} {tenant} {bool(run)}")

    monkeypatch.setitem(admin.resources.__dict__, "job_queue", Started())
    reply = gateway.call("POST", f"{JOBS}/{job_id}/retry", key=key)
    assert (reply.status, reply.body["state"], reply.body["attempts"]) == (202, "queued", 3)
    assert started == ["sweeper acme True"]
    gateway.sweep()
    body = gateway.call("GET", f"{JOBS}/{job_id}", key=key).body
    assert (body["state"], body["ref"]) == ("done", str(chain_id))
    assert (body["reason"], body["advice"]) == ("", "")
    assert scratch_db.rows("select max(version) from chain_versions") == [(2,)]


def test_sweeper_lost_lease_commits_nothing(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    """A shard that was taken by another, and one whose job was given up."""
    gateway.key()
    access, now = gateway.database.connect_as(Caller.background("acme")), datetime.now(UTC)
    assert begin_run(gateway.database, "archiver", "r", 2, now)
    with access.transaction():
        first = store_runs.lease_shard(access, "archiver", "r", 0, now)
        again = store_runs.lease_shard(access, "archiver", "r", 0, now)
        assert first is not None
        assert again is not None
        assert not store_runs.lock_leased_shard(access, first)
        assert store_runs.lock_leased_shard(access, again)
        store_runs.mark_shard_done(access, again, {"things": 2}, now)
        assert store_runs.lease_shard(access, "archiver", "r", 0, now) is None
    assert not begin_run(gateway.database, "archiver", "another", 1, now)
    assert scratch_db.rows("select state from jobs") == [("running",)]
    with access.transaction():
        last = store_runs.lease_shard(access, "archiver", "r", 1, now)
        assert last is not None
        store_runs.mark_shard_done(access, last, {"things": 3}, now)
    assert scratch_db.rows("select state, totals from jobs") == [("done", {"things": 5})]
    assert begin_run(gateway.database, "archiver", "third", 1, now)
    with access.transaction():
        shard = store_runs.lease_shard(access, "archiver", "third", 0, now)
        assert shard is not None
        assert store_runs.fail_expired_jobs(access, None, now + timedelta(hours=1)) == 1
        assert not store_runs.lock_leased_shard(access, shard)


def test_sweeper_retry_failure_is_isolated(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be tried is refused alone, whatever is wrong with it."""
    gateway.key()
    scratch_db.rows(
        "insert into jobs (tenant_id, job_id, kind, state, ref) select 'acme', uuidv7(), 'enrich',"
        " 'queued', 'chain ' || n from generate_series(1, 2) n returning 1"
    )
    attempts: list[str] = []

    def fail(_worker: Any, _tenant: str, chain_id: str, _now: Any) -> int:
        attempts.append(chain_id)
        if chain_id == "chain 1":
            raise RuntimeError("the words of a memory")
        return 2

    monkeypatch.setattr("strandline.background.sweeper.UUID", str)
    monkeypatch.setattr("strandline.chains.retry_enrichment.retry_enrichment", fail)
    gateway.sweep()
    assert attempts == ["chain 1", "chain 2"]
    assert scratch_db.rows("select state, reason from jobs where ref is not null order by ref") == [
        ("failed", "RuntimeError"),
        ("done", ""),
    ]


def test_sweeper_continues_long_work_soon(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large import in one scope, due for more than a day; a sweep gets one batch of it done."""
    key = gateway.key()
    for _ in range(2):
        items = [user_message(f"Buoy {n} reports on the weather.") for n in range(100)]
        answer = gateway.call("POST", "/api/v1/events/batch", {"events": items}, key=key)
        assert answer.status == 200
    scratch_db.rows("update scope_work set due_at = now() - interval '30 hours'")
    query = "select next_sweep(null, '{}', '5 minutes', now()) - now()"
    scratch_db.rows("update quotas set leased = 0")
    assert scratch_db.rows(query) == [(None,)], "a day late"

    def after_a_batch(worker: WorkerResources) -> bool:
        return worker.tally.embedded_events > 0

    monkeypatch.setattr(WorkerResources, "is_out_of_time", after_a_batch)
    totals = gateway.run_job("sweeper", "acme")
    assert scratch_db.rows("select embedded_seq from embedding_progress") == [(128,)]
    assert totals["events_embedded"] == 128
    ((pause,),) = scratch_db.rows(query)
    assert pause <= timedelta(minutes=5)


def test_sweeper_is_due_at_once_for_requested_retry(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is known: not when a lease that nobody took would end."""
    key = gateway.key(rights=["read", "write", "admin"])
    receipt = tell(key, "The buoy goes out on Friday.")
    gateway.sweep()
    access = gateway.database.connect_as(Caller.background("acme"))
    who = ["agent:helper", "user:alice"]
    ids = [
        store_failures.record_retryable_failure(
            access, kind="enrich", scope_id=receipt["scope_id"], participants=who,
            reason="unavailable", advice="Try it again.", ref=uuid4(),
        )
        for _ in range(3)
    ]  # fmt: skip
    scratch_db.rows("update jobs set created_at = created_at - interval '3 days'")
    admin: Any = importlib.import_module("functions.admin.handler")
    monkeypatch.setitem(admin.resources.__dict__, "job_queue", NullJobQueue())
    scratch_db.rows("update lanes set idle_at = now() + interval '1 day'")
    scratch_db.rows("update quotas set leased = 0")
    for job_id in ids:
        reply = gateway.call("POST", f"{JOBS}/{job_id}/retry", key=key)
        assert (reply.status, reply.body["state"]) == (202, "queued")
    ((ahead,),) = scratch_db.rows("select next_sweep(null, '{}', '10 seconds', now()) - now()")
    assert ahead <= timedelta(seconds=10)


def test_sweeper_stops_after_losing_lease(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first step took too long, and another run has the tenant's job."""
    monkeypatch.setattr(runner, "_RENEW_SECONDS", 0.0)
    tell(gateway.key(), "The buoy goes out on Friday.")
    handler: Any = importlib.import_module("functions.sweeper.handler")

    def step(verb: str, run: str, **request: object) -> Any:
        event = {"verb": verb, "run": run, "input": {**request, "job": "sweeper"}}
        return handler.lambda_handler(event, LambdaContext("sweeper", 900))

    def slow(*_: object) -> int:
        scratch_db.rows("update jobs set leased_until = now() - interval '1 second'")
        assert step("plan", "B", tenant="acme")["shards"] == 1
        return 0

    assert step("plan", "A", tenant="acme")["shards"] == 1
    steps = dict(SWEEPER._STEPS)
    monkeypatch.setattr(sweeper, "_STEPS", {**steps, "jobs_expired": slow})
    step("shard", "A", tenant="acme", shard=0)
    assert scratch_db.rows("select count(*) from event_vectors") == [(0,)]
    assert scratch_db.rows("select run, state from jobs order by run") == [
        ("A", "failed"),
        ("B", "running"),
    ]
    del steps["jobs_expired"]
    monkeypatch.setattr(sweeper, "_STEPS", steps)
    step("shard", "B", tenant="acme", shard=0)
    assert scratch_db.rows("select count(*) from event_vectors") == [(1,)]


def test_sweeper_long_loops_renew_lease_or_end(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a sweep that goes on and on, and a model that is asked one by one."""
    monkeypatch.setattr(runner, "_RENEW_SECONDS", 0.0)
    monkeypatch.setattr(sweeper, "_ROWS_PER_COMMIT", 1)
    gateway.key()
    service: Any = importlib.import_module("functions.sweeper.handler").resources
    access, now = gateway.database.connect_as(Caller.background("acme")), datetime.now(UTC)

    def five(*_: object) -> list[str]:
        return [f"user:{n}" for n in range(5)]

    monkeypatch.setattr(store_uploads, "list_writers_with_expired_uploads", five)

    def again(*_: object) -> int:
        attempts.append(1)
        if len(attempts) == 3:
            scratch_db.rows("update jobs set state = 'failed'")
        return 1

    monkeypatch.setattr("strandline.chains.fold_recalls_into_heat.recompute_heat_times", again)
    monkeypatch.setattr("strandline.chains.fold_recalls_into_heat.delete_old_recalls", again)
    monkeypatch.setattr("strandline.log.presigned_uploads._remove_upload_objects_and_rows", again)
    for step in (
        SWEEPER._fold_recalls_into_heat,
        SWEEPER._prune_recalls,
        SWEEPER._remove_expired_uploads,
    ):
        attempts: list[int] = []
        scratch_db.rows("delete from jobs")
        assert begin_run(gateway.database, "sweeper", "r", 1, now)
        with access.transaction():
            shard = store_runs.lease_shard(access, "sweeper", "r", 0, now)
        assert shard is not None
        lease = runner.Lease(access, shard, time.monotonic() + 60, lambda: datetime.now(UTC))
        step(service, lease, now)
        assert (step.__name__, len(attempts)) == (step.__name__, 3)
        assert lease.is_lost

    renewed: list[str] = []

    class Odd:
        space = "odd"

        def embed(
            self, texts: list[str], *, timeout: float, purpose: Purpose = "text"
        ) -> list[list[float]]:
            if "odd" in texts:
                raise EmbeddingRefused("odd")
            return [[1.0] for _ in texts]

    worker: Any = SimpleNamespace(
        embedder=Odd(), tally=JobMetrics(), renew=lambda: bool(renewed.append("")) or True
    )
    vectors = embed_texts(worker, {n: "odd" if n == 2 else "even" for n in range(4)})
    assert [isinstance(one, str) for one in vectors.values()] == [False, False, True, False]
    assert len(renewed) == 5, "before each text, and before the one that none refuses"
