"""Every function answers real events out of its built layers, under Lambda's own runtime client."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline.function_specs import FUNCTIONS, JOBS
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.event_sources import GROUP, ROLE
from strandline.local.state_machine import StateMachine
from tests.lambda_runtime import Answer, LambdaFunction
from tests.layers.function_imports import IMPORT_TIME, UNWANTED, wait_for_imports
from tests.support import EVENTS, Gateway, ScratchDatabase, user_message

pytestmark = pytest.mark.usefixtures("built_layers")

DEFINITION = Path(__file__).parents[2] / "infra" / "job.asl.json"
NAMES, JOB_NAMES = [fn.name for fn in FUNCTIONS], [job.name for job in JOBS]
OTHER_JOBS = {*JOB_NAMES} - {"archiver"}
"""`make test` has the one whose event plans a shard."""
_EVENT_ID, _SCOPE_ID = (
    "01934b6e-7a3c-7d2e-9f10-2b3c4d5e6f70",
    "8f14e45f-ceea-867a-9a36-dedd4bea2543",
)
_RUN = "0198c7a4-6a1e-7c3b-9d5f-2f4e8b6a1c0d"
_KEY = "strandline_REPLACED-BY-THE-TEST"


def body(answer: Answer, status: int = 200) -> Any:
    """What an HTTP function said, with this status."""
    assert answer.payload["statusCode"] == status, answer
    return json.loads(answer.payload["body"] or "null")


def check_recall(answer: Answer, base: ScratchDatabase) -> None:
    """By words and, out of the model layer, by meaning."""
    del base
    result = body(answer)
    assert result["degraded"] == []
    assert "battery" in result["hits"][0]["text"]


def check_embedding(answer: Answer, base: ScratchDatabase) -> None:
    assert answer.payload == {"batchItemFailures": []}
    assert base.rows("select count(*) from event_vectors") == [(1,)]


def check_migration(answer: Answer, base: ScratchDatabase) -> None:
    """Nothing was left to do: it compared every file of the layer with what the database has."""
    assert answer.payload["applied"] == []
    assert base.rows("select count(*) > 10 from schema_functions") == [(True,)]


def check_wake(answer: Answer, base: ScratchDatabase) -> None:
    """One whose time is over, and one that somebody asked for."""
    del base
    assert answer.payload == {"batchItemFailures": []}
    with closing(make_local_client("stepfunctions")) as states:
        (machine,) = states.list_state_machines()["stateMachines"]
        executions = states.list_executions(stateMachineArn=machine["stateMachineArn"])[
            "executions"
        ]
    assert {run["name"] for run in executions} == {"sweeper-20261121T200500Z", _RUN}


def check_plan(answer: Answer, base: ScratchDatabase) -> None:
    del base
    assert answer.payload["shards"] == 1


EXPECTED: Mapping[str, Callable[[Answer, ScratchDatabase], object]] = {
    **{f"{job}.json": lambda answer, _: answer.payload["shards"] == 0 for job in JOB_NAMES},
    "admin.json": lambda answer, _: body(answer)["keys"],
    "archiver.json": check_plan,
    "ingest.json": lambda answer, _: body(answer, 201)["seq"],
    "ingest_batch.json": lambda answer, _: body(answer)["stored"],
    "ingest_upload.json": lambda answer, _: body(answer, 201)["url"],
    "mcp.json": lambda answer, _: body(answer)["result"]["content"][0]["text"],
    "migrate.json": check_migration,
    "query_event.json": lambda answer, _: body(answer)["content"],
    "query_metrics.json": lambda answer, _: "strandline_" in answer.payload["body"],
    "query_recall.json": check_recall,
    "query_usage.json": lambda answer, _: body(answer)["quotas"],
    "sweeper.json": check_plan,
    "scheduler.json": check_wake,
    "worker.json": check_embedding,
}
"""What is to be seen of the answer to each recorded event. `job.json` is an event of every job; by
default nothing is due."""


@pytest.fixture
def environment(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> Iterator[dict[str, str]]:
    """What the stack tells a function, of this test's database, bucket, queue and state machine."""
    del gateway
    variables = {n: v for n, v in os.environ.items() if n.startswith(("AWS_", "STRANDLINE_"))}
    with StateMachine(DEFINITION, aws.bucket) as machine:
        idle: Mapping[str, Any] = {"key": "", "shards": 0}
        machine.add_handlers(dict.fromkeys(JOB_NAMES, lambda _event, _context: {**idle}))
        yield variables | {
            "STRANDLINE_OWNER_DATABASE_URL": scratch_db.owner_url,
            "STRANDLINE_STATE_MACHINE": machine.arn,
            "STRANDLINE_SCHEDULE_GROUP": GROUP,
            "STRANDLINE_SCHEDULER_ROLE": ROLE,
        }


@pytest.fixture
def recorded_event(gateway: Gateway) -> Callable[[str], Any]:
    """Gives a recorded event with ids and a key that this test's database knows."""
    rights: Mapping[str, Any] = {
        "admin.json": {"rights": ["operator"]},
        "query_metrics.json": {"rights": ["admin"]},
    }
    reply_body = gateway.call(
        "POST",
        "/api/v1/events",
        user_message("The harbour buoy gets its new battery on Friday."),
        key=gateway.key(),
    ).body

    def event(name: str) -> Any:
        job = name.removesuffix(".json")
        if job in JOB_NAMES:
            return json.loads((EVENTS / "job.json").read_text().replace("archiver", job))
        key = gateway.key(**rights.get(name, {}))
        text = (
            (EVENTS / name)
            .read_text()
            .replace(_KEY, key)
            .replace(_EVENT_ID, reply_body["event_id"])
        )
        return json.loads(text.replace(_SCOPE_ID, reply_body["scope_id"]))

    return event


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=(pytest.mark.proof,) if name in OTHER_JOBS else ())
        for name in NAMES
    ],
)
def test_layer_runtime_function_answers_from_built_layers(
    name: str,
    environment: dict[str, str],
    recorded_event: Callable[[str], Any],
    scratch_db: ScratchDatabase,
) -> None:
    """One process, all its recorded events: a row without one, or an event of which nobody says
    what is to be seen, fails."""
    is_job = name in JOB_NAMES
    files = [f"{name}.json"] if is_job else sorted(f.name for f in EVENTS.glob(f"{name}*.json"))
    assert files, f"no event for {name}"
    with LambdaFunction(name, environment, flags=IMPORT_TIME) as function:
        assert not wait_for_imports(function) & UNWANTED[name]
        for file in files:
            answer = function.invoke(recorded_event(file))
            assert not answer.failed, f"{answer.payload}\n{function.output()}"
            assert EXPECTED[file](answer, scratch_db) is not False
        assert '"level":"ERROR"' not in function.output()


def test_layer_runtime_function_needs_layers_to_start(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: were anything else importable, this would not be noticed."""
    monkeypatch.setattr(LambdaFunction, "path", property(lambda function: function.path_of("deps")))
    with LambdaFunction("ingest", environment) as function:
        with pytest.raises(AssertionError, match="ended"):
            function.wait_until_ready()
        assert function.init_error["errorMessage"].startswith(
            "Unable to import module 'handler': No module named 'strandline'"
        )


def test_layer_runtime_function_needs_configuration_to_start(environment: dict[str, str]) -> None:
    del environment["STRANDLINE_KEY_SECRET"]
    with LambdaFunction("ingest", environment) as function:
        with pytest.raises(AssertionError, match="ended"):
            function.wait_until_ready()
        assert "STRANDLINE_KEY_SECRET" in function.init_error["errorMessage"]
