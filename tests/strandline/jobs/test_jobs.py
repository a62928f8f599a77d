"""The state machine end to end, and jobs over HTTP."""

import importlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from strandline import function_specs
from strandline.aws.run_requests import JobQueue
from strandline.jobs import admin_verbs, store_failures
from strandline.jobs.schemas import JobKind
from strandline.local.aws import LocalAws
from strandline.local.state_machine import StateMachine
from strandline.resources import Resources
from tests.strandline.jobs.deployed_machine import (
    DEFINITION,
    JOBS,
    SECONDS,
    AtOnce,
    handlers,
    wait_for,
)
from tests.support import Gateway, ScratchDatabase, user_message

KINDS: list[str] = TypeAdapter(JobKind).json_schema()["enum"]


@pytest.fixture
def machine(
    gateway: Gateway, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StateMachine]:
    """The definition that is deployed, with the real functions; the admin function knows it."""
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as running:
        running.add_handlers(handlers())
        service: Resources = importlib.import_module("functions.admin.handler").resources
        monkeypatch.setitem(service.__dict__, "job_queue", AtOnce(running.arn))
        yield running


def test_job_run_works_through_all_tenants(
    scratch_db: ScratchDatabase, gateway: Gateway, machine: StateMachine
) -> None:
    for tenant in ("acme", "globex"):
        key = gateway.key(tenant)
        assert gateway.call("POST", "/api/v1/events", user_message("hello"), key=key).status == 201
    execution = machine.wait(machine.start("sweeper"), SECONDS)
    assert execution["status"] == "SUCCEEDED", execution
    assert scratch_db.rows("select count(*) from event_vectors") == [(2,)]
    assert scratch_db.rows("select tenant_id, kind, state from jobs order by 1") == [
        ("acme", "sweeper", "done"),
        ("globex", "sweeper", "done"),
    ]
    assert '"jobs_done": 2' in execution["output"] or '"jobs_done":2' in execution["output"]


def test_job_run_with_nothing_due_makes_no_job(
    scratch_db: ScratchDatabase, gateway: Gateway, machine: StateMachine
) -> None:
    gateway.key("acme")
    assert machine.wait(machine.start("sweeper"), SECONDS)["status"] == "SUCCEEDED"
    scratch_db.rows("delete from jobs")
    assert machine.wait(machine.start("sweeper"), SECONDS)["status"] == "SUCCEEDED"
    assert scratch_db.rows("select count(*) from jobs") == [(0,)]


def failing(monkeypatch: pytest.MonkeyPatch, times: int, tenant: str = "acme") -> Callable[[], int]:
    """Let the archiver fail so often in one tenant; gives how often it was tried there."""
    archiver = importlib.import_module("strandline.background.archiver")
    real = archiver.work_on_shard
    attempts: list[int] = []

    def work_on_shard(tools: Any, lease: Any, part: Any, now: Any) -> Any:
        if lease.tenant == tenant:
            attempts.append(1)
            if len(attempts) <= times:
                raise RuntimeError("the words of a memory")
        return real(tools, lease, part, now)

    monkeypatch.setattr(archiver, "work_on_shard", work_on_shard)
    return lambda: len(attempts)


def test_job_shard_failure_is_retried(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    machine: StateMachine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = failing(monkeypatch, 1)
    gateway.key("acme")
    assert machine.wait(machine.start("archiver"), SECONDS)["status"] == "SUCCEEDED"
    assert tries() == 2
    assert scratch_db.rows("select state, reason from jobs") == [("done", "")]
    assert scratch_db.rows("select lease_no from job_shards") == [(2,)]


def test_job_shard_failure_is_isolated_and_explained(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    machine: StateMachine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = failing(monkeypatch, 3)
    key, other = (gateway.key(tenant, rights=("admin",)) for tenant in ("acme", "globex"))
    execution = machine.wait(machine.start("archiver"), SECONDS)
    assert execution["status"] == "SUCCEEDED"
    assert tries() == 3
    assert "words" not in str(execution)
    (job,) = gateway.call("GET", JOBS, key=key).body["jobs"]
    assert (job["state"], job["reason"]) == ("failed", "RuntimeError")
    assert job["job_id"] in job["advice"]
    assert gateway.call("GET", JOBS, key=other).body["jobs"][0]["state"] == "done"

    again = gateway.call("POST", f"{JOBS}/{job['job_id']}/retry", key=key)
    assert again.status == 202, again.text
    assert again.body["attempts"] == 2
    result = wait_for(gateway, job["job_id"], key)
    assert (result["state"], result["reason"], result["advice"]) == ("done", "", "")
    reply = gateway.call("POST", f"{JOBS}/{job['job_id']}/retry", key=key)
    assert reply.status == 409


def test_job_shard_waits_for_busy_function(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    machine: StateMachine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two runs of a job share its function's reserved instances: who finds none tries for minutes,
    and longer than an item may take. That is none of the tries of a shard that fails."""
    archiver, tries = handlers()["archiver"], list[str]()
    throttled: type[Exception] = type("Lambda.TooManyRequestsException", (Exception,), {})

    def busy(event: Any, context: Any) -> Any:
        tries.append(event["verb"])
        if tries.count("shard") in (1, 2, 3):
            raise throttled
        return archiver(event, context)

    machine.add_handlers({"archiver": busy})
    gateway.key("acme")
    assert machine.wait(machine.start("archiver"), SECONDS)["status"] == "SUCCEEDED"
    assert scratch_db.rows("select state from jobs") == [("done",)]
    assert tries.count("shard") == 4
    child = json.loads(DEFINITION.read_text())["States"]["map"]["ItemProcessor"]["States"]["shard"]
    retry = child["Retry"][0]
    assert retry["ErrorEquals"] == ["Lambda.TooManyRequestsException"]
    waits = [
        retry["IntervalSeconds"] * retry["BackoffRate"] ** n for n in range(retry["MaxAttempts"])
    ]
    assert sum(waits) > child["TimeoutSeconds"]


def test_job_start_by_admin_runs_own_tenant(
    scratch_db: ScratchDatabase, gateway: Gateway, machine: StateMachine
) -> None:
    key = gateway.key("acme", rights=("admin",))
    gateway.key("globex")
    started = gateway.call("POST", f"{JOBS}/archiver", key=key)
    assert started.status == 202, started.text
    job = wait_for(gateway, started.body["job_id"], key)
    assert job["state"] == "done"
    assert scratch_db.rows("select distinct tenant_id from jobs") == [("acme",)]
    assert scratch_db.rows(
        "select route, target->>'job' from audit_log where target ? 'job_id'"
    ) == [("POST /api/v1/admin/jobs/{job}", "archiver")]


def test_job_second_start_in_tenant_is_refused(
    scratch_db: ScratchDatabase, gateway: Gateway, machine: StateMachine
) -> None:
    key = gateway.key("acme", rights=("admin",))
    queued = uuid.uuid4()
    scratch_db.rows(
        "insert into jobs (tenant_id, job_id, kind, run, state, leased_until)"
        " values ('acme', %s, 'archiver', 'another', 'running', now() + interval '1 minute')",
        queued,
    )
    reply = gateway.call("POST", f"{JOBS}/archiver", key=key)
    assert reply.status == 409
    assert reply.error["details"]["job_id"] == str(queued)
    gateway.run_job("archiver")
    assert scratch_db.rows("select run, state from jobs") == [("another", "running")]
    scratch_db.rows("update jobs set leased_until = now() - interval '1 second'")
    gateway.run_job("archiver")
    assert scratch_db.rows("select state, reason from jobs order by created_at") == [
        ("failed", "lease_expired"),
        ("done", ""),
    ]


def test_job_unknown_or_forbidden_is_refused(gateway: Gateway, machine: StateMachine) -> None:
    key = gateway.key("acme", rights=("admin",))
    unknown = gateway.call("POST", f"{JOBS}/gardener", key=key)
    assert unknown.status == 404
    assert "archiver" in unknown.error["message"]
    assert gateway.call("GET", f"{JOBS}/{uuid.uuid4()}", key=key).status == 404
    assert gateway.call("POST", f"{JOBS}/archiver", key=gateway.key("acme")).status in (202, 403)
    reader = gateway.key("acme", rights=("read",))
    assert gateway.call("GET", JOBS, key=reader).status == 403


def test_job_start_without_queue_leaves_failed_job(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    service: Resources = importlib.import_module("functions.admin.handler").resources
    monkeypatch.setitem(service.__dict__, "job_queue", JobQueue(""))
    key = gateway.key("acme", rights=("admin",))
    answer = gateway.call("POST", f"{JOBS}/archiver", key=key)
    assert answer.status == 503
    assert scratch_db.rows("select state, reason from jobs") == [("failed", "not_started")]


def test_job_list_is_paged(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    key = gateway.key("acme", rights=("admin",))
    for n in range(5):
        scratch_db.rows(
            "insert into jobs (tenant_id, job_id, kind, state, created_at)"
            " values ('acme', uuidv7(), %s, 'done', now() + make_interval(secs => %s))",
            "sweeper" if n % 2 else "archiver",
            n,
        )
    first = gateway.call("GET", JOBS, key=key, query={"limit": 2}).body
    assert len(first["jobs"]) == 2
    second = gateway.call(
        "GET", JOBS, key=key, query={"limit": 2, "cursor": first["next_cursor"]}
    ).body
    job_ids = [job["job_id"] for page in (first, second) for job in page["jobs"]]
    assert len(set(job_ids)) == 4
    only = gateway.call("GET", JOBS, key=key, query={"kind": "sweeper", "state": "done"}).body
    assert {job["kind"] for job in only["jobs"]} == {"sweeper"}
    assert len(only["jobs"]) == 2


def test_job_table_names_every_job_and_module() -> None:
    names = [job.name for job in function_specs.JOBS]
    places = {job.name: f"shared/strandline/{job.module}" for job in function_specs.JOBS}
    assert names == [*get_args(function_specs.JobName.__value__)]
    assert {*names} < {fn.name for fn in function_specs.FUNCTIONS}
    for name in names:
        handler = importlib.import_module(f"functions.{name}.handler")
        (module,) = (value for value in vars(handler).values() if hasattr(value, "plan_shards"))
        assert (module.name, Path(module.__file__)) == (name, DEFINITION.parents[1] / places[name])


def test_job_request_refuses_unknown_field_or_kind(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    """A body where none is read, and a kind of job that there is not."""
    key = gateway.key("acme", rights=("admin",))
    for path in (f"{JOBS}/archiver", f"{JOBS}/{uuid.uuid4()}/retry"):
        reply = gateway.call("POST", path, {"tenant": "globex"}, key=key)
        assert (reply.status, reply.error["details"]["field"]) == (422, "tenant")
        assert gateway.call("POST", path, raw=b"{", key=key).status == 400
        assert gateway.call("POST", path, [], key=key).status == 422
    assert scratch_db.rows("select from jobs") == []
    assert gateway.call("POST", f"{JOBS}/{uuid.uuid4()}/retry", {}, key=key).status == 404
    for kind in KINDS:
        assert gateway.call("GET", JOBS, query={"kind": kind}, key=key).status == 200
    wrong = gateway.call("GET", JOBS, query={"kind": "gardener"}, key=key)
    assert (wrong.status, wrong.error["details"]["field"]) == (422, "kind")
    assert "archiver" in wrong.error["message"]


def test_job_kinds_include_every_kind() -> None:
    assert {*KINDS} == {
        *(*admin_verbs.JOB_NAMES, "enrich", store_failures.CONTINUES_KIND),
        *(store_failures.FOLD_KIND, store_failures.EMBED_KIND, store_failures.GROW_KIND),
        store_failures.PROMOTE_KIND,
        store_failures.ANALYZE_KIND,
    }
