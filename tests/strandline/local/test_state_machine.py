"""The machine: the definition as it is deployed."""

import json
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.local import state_machine
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.state_machine import (
    RUN_THREADS,
    StateMachine,
    is_execution_running,
    list_executions,
)

pytestmark = pytest.mark.integration

DEFINITION = Path(__file__).parents[3] / "infra" / "job.asl.json"


class Functions:
    """Jobs that have `shards` to do, and say what they were asked."""

    def __init__(self, aws: LocalAws, shards: int, seconds: float = 0.0) -> None:
        self.blobs, self.shards, self.seconds = BlobStore(aws.bucket), shards, seconds
        self.calls: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        with self.lock:
            self.calls.append(event)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.seconds)
        with self.lock:
            self.at_once -= 1
        if event["verb"] == "plan":
            items = [
                {"job": "one", "run": event["run"], "tenant": "acme", "shard": n}
                for n in range(self.shards)
            ]
            return {"key": self.blobs.put_shards(event["run"], items), "shards": self.shards}
        return {} if event["verb"] == "shard" else {"things": self.shards}

    def verbs(self) -> Counter[str]:
        return Counter(event["verb"] for event in self.calls)


def test_state_machine_runs_plan_shards_and_finish(aws: LocalAws) -> None:
    one = Functions(aws, 3)
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine:
        machine.add_handlers({"one": one})
        execution = machine.wait(machine.start("one", "acme"), 20)
    assert (execution["status"], json.loads(execution["output"])) == ("SUCCEEDED", {"things": 3})
    assert one.verbs() == {"plan": 1, "shard": 3, "finish": 1}
    assert one.calls[0]["input"] == {"job": "one", "tenant": "acme"}
    assert len({event["run"] for event in one.calls}) == 1
    shards = [event["input"]["shard"] for event in one.calls if event["verb"] == "shard"]
    assert sorted(shards) == [0, 1, 2]


def test_state_machine_ends_after_empty_plan(aws: LocalAws) -> None:
    one = Functions(aws, 0)
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine:
        machine.add_handlers({"one": one})
        assert machine.wait(machine.start("one"), 20)["status"] == "SUCCEEDED"
    assert one.verbs() == {"plan": 1}


def test_state_machine_runs_share_step_limit(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else runs that are slow, of many tenants, take all of the database's connections."""
    monkeypatch.setattr(state_machine, "_MAX_INVOCATIONS", 3)
    one = Functions(aws, 6, seconds=0.05)
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine:
        machine.add_handlers({"one": one})
        runs = [machine.start("one") for _ in range(4)]
        assert [machine.wait(run, 30)["status"] for run in runs] == ["SUCCEEDED"] * 4
    assert one.most_at_once == 3
    assert one.verbs() == {"plan": 4, "shard": 24, "finish": 4}


def test_state_machine_run_listed_before_start_is_running(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who looks at the runs in another thread may meet it just then."""
    from moto.stepfunctions.parser.backend.execution import Execution

    observations: list[tuple[bool, bool]] = []
    original_start = Execution.start

    def start(execution: Execution) -> None:
        observations.append((execution.exec_status is None, is_execution_running(execution)))
        original_start(execution)

    monkeypatch.setattr(Execution, "start", start)
    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine:
        machine.add_handlers({"one": Functions(aws, 0)})
        assert machine.wait(machine.start("one"), 20)["status"] == "SUCCEEDED"
        assert not any(is_execution_running(run) for run in list_executions())
    assert observations == [(True, True)]


def test_state_machine_keeps_latest_runs(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that schedules and run requests start, through the API."""
    monkeypatch.setattr(state_machine, "_MAX_EXECUTIONS", 2)
    with (
        StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine,
        closing(make_local_client("stepfunctions")) as states,
    ):
        machine.add_handlers({"one": Functions(aws, 0)})
        thread_counts: list[int] = []
        for n in range(5):
            execution = states.start_execution(
                stateMachineArn=machine.arn, name=f"run-{n}", input=json.dumps({"job": "one"})
            )
            assert machine.wait(execution["executionArn"], 20)["status"] == "SUCCEEDED"
            thread_counts.append(len(RUN_THREADS))
        kept = states.list_executions(stateMachineArn=machine.arn)["executions"]
    assert [execution["name"] for execution in kept] == ["run-4", "run-3", "run-2"]
    assert max(thread_counts) == thread_counts[0]


@pytest.mark.proof
def test_state_machine_retries_plan_and_finish(aws: LocalAws) -> None:
    """A run that breaks off requests no next one: nobody would come before the morning."""
    one, rest = Functions(aws, 1), {"plan": 5, "finish": 5}

    def failing(event: dict[str, Any], context: Any) -> dict[str, Any]:
        if rest.get(event["verb"], 0):
            rest[event["verb"]] -= 1
            raise RuntimeError("throttled")
        return one(event, context)

    with StateMachine(DEFINITION, aws.bucket, fast_retries=True) as machine:
        machine.add_handlers({"one": failing})
        assert machine.wait(machine.start("one"), 30)["status"] == "SUCCEEDED"
    states = json.loads(DEFINITION.read_text())["States"]
    for name in ("plan", "finish"):
        (retry,) = states[name]["Retry"]
        tries, first, rate = (
            retry[part] for part in ("MaxAttempts", "IntervalSeconds", "BackoffRate")
        )
        assert 600 < sum(first * rate**n for n in range(tries)) < 900
