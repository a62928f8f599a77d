"""The scheduler, called as SQS calls it, and who sends it run requests."""

import copy
import importlib
import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from strandline.aws.run_requests import MIN_SPACING, JobQueue, find_next_run_slot
from strandline.aws.scheduler import RunStarter
from strandline.background.run_request_handler import SchedulerResources
from strandline.errors import Misconfigured, Unavailable
from strandline.function_specs import DAILY_SWEEP_SCHEDULE
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.event_sources import GROUP, ROLE, LocalScheduler, create_daily_schedule
from strandline.local.lambda_context import LambdaContext
from strandline.local.state_machine import StateMachine
from tests.support import EVENTS, Gateway, ScratchDatabase, Tell

NOW = datetime(2026, 11, 21, 20, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DEFINITION = Path(__file__).parents[3] / "infra" / "job.asl.json"


class IdleJob:
    """A job's function that has nothing to do."""

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.now = NOW
        self.ticker: LocalScheduler

    def __call__(self, event: dict[str, Any], context: object) -> dict[str, Any]:
        self.inputs.append(event["input"])
        return {"key": "", "shards": 0}


@pytest.fixture
def idle_job(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[IdleJob]:
    """A state machine whose jobs do nothing, a scheduler and a ticker at NOW, or later."""
    function = IdleJob()
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine:
        machine.add_handlers({"sweeper": function, "archiver": function})
        for name, value in {
            "STATE_MACHINE": machine.arn,
            "SCHEDULE_GROUP": GROUP,
            "SCHEDULER_ROLE": ROLE,
        }.items():
            monkeypatch.setenv(f"STRANDLINE_{name}", value)
        handler = importlib.import_module("functions.scheduler.handler")
        monkeypatch.setattr(handler, "scheduler", SchedulerResources(lambda: NOW))
        function.ticker = LocalScheduler(lambda: function.now)
        yield function
        machine.wait_for_runs()
        with closing(make_local_client("scheduler")) as scheduler:
            scheduler.delete_schedule_group(Name=GROUP)


def schedules() -> list[dict[str, Any]]:
    with closing(make_local_client("scheduler")) as scheduler:
        listing = scheduler.list_schedules(GroupName=GROUP)["Schedules"]
        return [scheduler.get_schedule(GroupName=GROUP, Name=one["Name"]) for one in listing]


def executions() -> list[str]:
    with closing(make_local_client("stepfunctions")) as states:
        (machine,) = states.list_state_machines()["stateMachines"]
        result = states.list_executions(stateMachineArn=machine["stateMachineArn"])
        return sorted(one["name"] for one in result["executions"])


def wake(*bodies: str) -> list[str]:
    """The messages that the scheduler gives back."""
    (first, *_) = json.loads((EVENTS / "scheduler.json").read_text())["Records"]
    records = [copy.deepcopy(first) for _ in bodies]
    for n, body in enumerate(bodies):
        records[n] |= {"messageId": f"m{n}", "body": body}
    handler = importlib.import_module("functions.scheduler.handler").lambda_handler
    answer = handler({"Records": records}, LambdaContext("scheduler", 30))
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def run_request(at: datetime, job: str = "sweeper") -> str:
    return json.dumps({"job": job, "at": at.isoformat(), "trace": ""})


def test_scheduler_run_request_makes_one_schedule(idle_job: IdleJob) -> None:
    at = NOW + 5 * MINUTE
    assert wake(run_request(at), run_request(at)) == []
    assert wake(run_request(at), run_request(at, "archiver")) == []
    schedules_ = schedules()
    assert [one["Name"] for one in schedules_] == [
        "archiver-20261121T200530Z",
        "sweeper-20261121T200530Z",
    ]
    assert schedules_[1]["ScheduleExpression"] == "at(2026-11-21T20:05:30)"
    assert schedules_[1]["ActionAfterCompletion"] == "DELETE"
    assert json.loads(schedules_[1]["Target"]["Input"]) == {"job": "sweeper"}
    assert schedules_[1]["Target"]["RoleArn"] == ROLE
    assert executions() == []


def test_scheduler_late_run_request_starts_once(idle_job: IdleJob) -> None:
    assert wake(run_request(NOW - MINUTE), run_request(NOW - MINUTE)) == []
    assert wake(run_request(NOW - MINUTE)) == []
    assert schedules() == []
    assert executions() == ["sweeper-20261121T195930Z"]


def test_scheduler_near_run_request_starts_at_its_time(
    idle_job: IdleJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule for a time that is past is refused; a run before its time finds nothing due."""
    waits: list[tuple[float, list[str]]] = []

    def wait(seconds: float) -> None:
        waits.append((seconds, executions()))

    handler = importlib.import_module("functions.scheduler.handler")
    monkeypatch.setattr(handler.scheduler, "wait", wait, raising=False)
    near = run_request(NOW + timedelta(seconds=4))
    assert wake(near, near) == []
    assert waits == [(4.0, []), (4.0, ["sweeper-20261121T200034Z"])]
    assert (
        wake(run_request(NOW + timedelta(seconds=4)), run_request(NOW + timedelta(seconds=30)))
        == []
    )
    assert [one["Name"] for one in schedules()] == ["sweeper-20261121T200100Z"]
    assert executions() == ["sweeper-20261121T200034Z"]


def test_scheduler_takes_migration_as_run(idle_job: IdleJob) -> None:
    assert wake(run_request(NOW + 5 * MINUTE, "migrate")) == []
    assert len(schedules()) == 1


def test_scheduler_admin_run_starts_at_once(idle_job: IdleJob) -> None:
    body = json.dumps({"job": "archiver", "tenant": "acme", "run": "r-1", "trace": "nonsense"})
    assert wake(body, body) == []
    assert wake(body) == []
    assert executions() == ["r-1"]


def test_scheduler_serves_recorded_batch(idle_job: IdleJob) -> None:
    handler = importlib.import_module("functions.scheduler.handler").lambda_handler
    document = json.loads((EVENTS / "scheduler.json").read_text())
    assert handler(document, LambdaContext("scheduler", 30)) == {"batchItemFailures": []}
    assert len(schedules()) == 1
    assert len(executions()) == 1


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no JSON",
        "[]",
        '{"job": "sweeper"}',
        '{"job": "sweeper", "at": "soon"}',
        '{"job": "sweeper", "at": "2026-11-21T20:05:30"}',
        '{"job": "../sweeper", "at": "2026-11-21T20:05:30Z"}',
        '{"job": "tidier", "at": "2026-11-21T20:05:30Z"}',
        '{"job": "sweeper", "run": "r", "tenant": "A/1"}',
        '{"job": "sweeper", "run": "r", "at": "2026-11-21T20:05:30Z"}',
    ],
)
def test_scheduler_returns_malformed_message_alone(idle_job: IdleJob, body: str) -> None:
    assert wake(body, run_request(NOW + 5 * MINUTE)) == ["m0"]
    assert len(schedules()) == 1


def test_scheduler_returns_message_refused_by_aws_alone(
    idle_job: IdleJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has AWS's code, which says what to mend."""
    handler: Any = importlib.import_module("functions.scheduler.handler")
    handler.scheduler.__dict__["run_starter"] = RunStarter(
        "arn:aws:states:us-east-1:1:no", GROUP, ROLE
    )
    run = json.dumps({"job": "archiver", "run": "r"})
    assert wake(run, run_request(NOW + 5 * MINUTE)) == ["m0"]
    assert vars(caplog.records[0])["reason"] == "InvalidArn"


def test_scheduler_names_missing_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRANDLINE_SCHEDULE_GROUP", "g")
    with pytest.raises(Misconfigured, match="STATE_MACHINE, STRANDLINE_SCHEDULER_ROLE"):
        RunStarter.from_environment()


def test_scheduler_slots_are_whole_and_spaced() -> None:
    five = MIN_SPACING["sweeper"]
    for seconds in range(0, 1200, 7):
        now = NOW + timedelta(seconds=seconds)
        for due in (now - timedelta(days=2), now, now + MINUTE, now + 7 * MINUTE):
            slot = find_next_run_slot(due, now, five)
            assert slot.timestamp() % 300 == 0
            assert slot >= due
            assert slot - max(due, now - MINUTE) + MINUTE >= MINUTE
            assert MINUTE <= slot - now <= max(due - now, MINUTE) + five
    assert find_next_run_slot(NOW + 10 * MINUTE, NOW, timedelta(minutes=60)).hour == 21


def sent_messages(aws: LocalAws, url: str) -> list[dict[str, Any]]:
    """What lies in a queue, taken out of it."""
    with closing(make_local_client("sqs")) as sqs:
        results: list[dict[str, Any]] = []
        while got := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in got:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                results.append(json.loads(message["Body"]))
        return results


def test_scheduler_process_requests_slot_once(aws: LocalAws) -> None:
    runs = JobQueue(aws.job_queue_url)
    for _ in range(3):
        runs.request_run("sweeper", NOW, NOW)
    runs.request_run("sweeper", NOW + 30 * MINUTE, NOW)
    runs.request_run("archiver", NOW, NOW)
    assert runs.is_run_requested("sweeper", NOW)
    assert runs.is_run_requested("sweeper", NOW + 2 * MINUTE)
    assert not runs.is_run_requested("sweeper", NOW + 4 * MINUTE), "that run may have begun already"
    runs.request_run("sweeper", NOW, NOW + 10 * MINUTE)
    requests = [(one["job"], one["at"][11:16]) for one in sent_messages(aws, aws.job_queue_url)]
    assert requests == [
        ("sweeper", "20:05"),
        ("sweeper", "20:35"),
        ("archiver", "21:00"),
        ("sweeper", "20:15"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionClosedError(endpoint_url="https://sqs"),
        ReadTimeoutError(endpoint_url="https://sqs"),
    ],
)
def test_scheduler_request_survives_dead_connection(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One that was kept while the process was frozen. Nobody else sends a run request."""
    runs, errors = JobQueue(aws.job_queue_url), [error]
    sqs = vars(runs)["_sqs"]
    send = sqs.send_message

    def send_after_error(**parameters: Any) -> Any:
        if errors:
            raise errors.pop()
        return send(**parameters)

    monkeypatch.setattr(sqs, "send_message", send_after_error)
    assert runs.request_run("eraser", NOW, NOW)
    assert [one["job"] for one in sent_messages(aws, aws.job_queue_url)] == ["eraser"]


def test_scheduler_queue_outage_fails_only_admin_run(aws: LocalAws) -> None:
    runs = JobQueue(aws.job_queue_url + "-gone")
    runs.request_run("sweeper", NOW, NOW)
    assert not runs.is_run_requested("sweeper", NOW), "it is tried again"
    with pytest.raises(Unavailable):
        runs.start_run("sweeper", "acme", "r")
    with pytest.raises(Unavailable, match="STRANDLINE_JOB_QUEUE_URL"):
        JobQueue("").start_run("sweeper", "acme", "r")
    JobQueue("").request_run("sweeper", NOW, NOW)


@pytest.fixture
def run_requests(gateway: Gateway, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker and jobs have a queue of runs."""
    sent_messages(aws, aws.job_queue_url)
    for name in ("worker", "sweeper", "archiver"):
        service = importlib.import_module(f"functions.{name}.handler").resources
        monkeypatch.setitem(service.__dict__, "job_queue", JobQueue(aws.job_queue_url))


def requested_runs(aws: LocalAws) -> dict[str, timedelta]:
    """The earliest run request for each job, from now."""
    results: dict[str, timedelta] = {}
    for one in sent_messages(aws, aws.job_queue_url):
        ahead = datetime.fromisoformat(one["at"]) - datetime.now(UTC)
        results[one["job"]] = min(ahead, results.get(one["job"], ahead))
    return results


@pytest.mark.usefixtures("run_requests")
def test_scheduler_jobs_request_next_run(
    scratch_db: ScratchDatabase, gateway: Gateway, aws: LocalAws, tell: Tell
) -> None:
    receipt = tell(gateway.key(), "The buoy goes out on Friday.", session_id="s-1")
    gateway.sweep()
    ahead = requested_runs(aws)["sweeper"]
    assert 9 * MINUTE < ahead < 17 * MINUTE, "the bytes are to be counted"
    scratch_db.rows("update quotas set measured = level")
    handler = importlib.import_module("functions.worker.handler").lambda_handler
    message = {
        "messageId": "m",
        "body": json.dumps({"tenant": "acme", "scopes": [receipt["scope_id"]]}),
    }
    handler({"Records": [message]}, LambdaContext("worker", 120))
    coming = requested_runs(aws)
    assert 29 * MINUTE < coming["sweeper"] < 36 * MINUTE, "the lane falls idle"
    assert timedelta(hours=24) < coming["archiver"] < timedelta(hours=31), "payloads are looked at"
    scratch_db.rows("update lanes set idle_at = now() - interval '1 second'")
    gateway.sweep()
    scratch_db.rows("update quotas set measured = level")
    gateway.sweep()
    assert requested_runs(aws).get("sweeper") is None


@pytest.mark.usefixtures("run_requests")
def test_scheduler_failed_plan_is_tried_again(
    gateway: Gateway, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.key()

    def fail(*_: object, **__: object) -> Any:
        raise Unavailable("The database cannot be reached.")

    monkeypatch.setattr("strandline.jobs.store_sweeps.list_tenants_to_sweep", fail)
    with pytest.raises(Unavailable):
        gateway.sweep()
    assert "sweeper" not in requested_runs(aws), "the database says that there is nothing to do"
    monkeypatch.setattr("strandline.jobs.next_runs.find_next_run_times", fail)
    with pytest.raises(Unavailable):
        gateway.sweep()
    assert timedelta(minutes=59) < requested_runs(aws)["sweeper"] < timedelta(minutes=66)


TRIES = """
select extract(epoch from next_retry_at(due, '5 minutes', due + n * interval '1 minute') - due)
from generate_series(0, 1500) n, (values (timestamptz '2026-11-21T20:00Z')) d (due)
order by n
"""


def test_scheduler_overdue_retries_back_off_and_end(
    scratch_db: ScratchDatabase,
) -> None:
    tries = [None if at is None else float(at) for (at,) in scratch_db.rows(TRIES)]
    assert set(tries[:1440]) == {300.0 * 2**n for n in range(9)} | {300.0 * 2**9}
    assert all(at is not None and at >= 60 * n for n, at in enumerate(tries[:1440]))
    assert set(tries[1440:]) == {None}


def test_scheduler_sweep_day_begins_with_daily_sweep(scratch_db: ScratchDatabase) -> None:
    query = "select sweep_day_start(%s::timestamptz) at time zone 'UTC'"
    for now, day in (
        ("2026-11-21T03:28:59Z", "2026-11-20 03:29"),
        ("2026-11-21T03:29:01Z", "2026-11-21 03:29"),  # a clock that is a moment behind
        ("2026-11-21T03:30:00Z", "2026-11-21 03:29"),
        ("2026-11-22T03:28:00Z", "2026-11-21 03:29"),
    ):
        ((result,),) = scratch_db.rows(query, now)
        assert f"{result:%Y-%m-%d %H:%M}" == day


def test_scheduler_ticker_starts_due_runs(idle_job: IdleJob) -> None:
    """Once what has one time, and what was missed; daily what is daily."""
    wake(run_request(NOW + 5 * MINUTE), run_request(NOW + 60 * MINUTE))
    for hours, rest, started in ((0.05, 2, 0), (0.1, 1, 1), (0.2, 1, 1), (3, 0, 2)):
        idle_job.now = NOW + timedelta(hours=hours)
        idle_job.ticker.fire_due_schedules()
        assert (len(schedules()), len(executions())) == (rest, started)
    create_daily_schedule(
        "morning",
        DAILY_SWEEP_SCHEDULE,
        os.environ["STRANDLINE_STATE_MACHINE"],
        '{"job": "sweeper"}',
    )
    for hours, started in ((7, 2), (8, 3), (24, 3), (31, 3), (32, 4)):
        idle_job.now = NOW + timedelta(hours=hours)
        idle_job.ticker.fire_due_schedules()
        assert (len(schedules()), len(executions())) == (1, started)
