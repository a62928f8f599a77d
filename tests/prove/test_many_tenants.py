"""Promise: a run over 100,000 tenants is planned and ended in a fraction of its functions' 15
minutes, passes on no state over 256 KiB, and a tenant that fails fails alone."""

import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline.jobs import multi_tenant_runs
from strandline.jobs.runner import MAX_PACKED
from strandline.local.lambda_context import LambdaContext
from tests.machine_states import MAX_STATE_BYTES, state_sizes
from tests.support import Gateway, ScratchDatabase, planned_items

TENANTS, SAMPLE = 100_000, 1000
PER_CALL = 50
"""How many of them share a round trip and a commit."""
SECONDS = 225.0
"""A quarter of the time that plan and finish have."""
RUN = "f" * 80
"""As long as an execution's name may be."""
FILL = "insert into tenants (tenant_id) select lpad(n::text, 63, 't') from generate_series(1, %s) n"
FAIL_IN_SOME = """
create function fail_here() returns trigger language plpgsql as $$
begin
    if new.tenant_id like '%77' then
        raise exception 'the words of a memory' using errcode = '23514';
    end if;
    return new;
end $$;
create trigger fail_here before insert on job_shards for each row execute function fail_here();
"""
"""In each hundredth tenant the plan cannot write the job's shards."""
STATES = "select state, reason, count(*) from jobs group by 1, 2 order by 3"
pytestmark = pytest.mark.own_database


def step(verb: str, **fields: Any) -> tuple[Any, float]:
    """A step of a sweep by the function that is deployed, and how many seconds it took."""
    handler: Any = importlib.import_module("functions.sweeper.handler")
    event = {"verb": verb, "run": RUN, "input": {"job": "sweeper", **fields}}
    begin = time.monotonic()
    answer = handler.lambda_handler(event, LambdaContext("sweeper", 900))
    return answer, time.monotonic() - begin


def test_many_tenants_run_is_planned_and_ended(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    request: pytest.FixtureRequest,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = TENANTS if request.config.getoption("--full") else SAMPLE
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as admin:
        admin.execute(FILL, (count,))
        admin.execute(FAIL_IN_SOME.encode())
    failing = count // 100
    calls = count_calls(monkeypatch)
    plan, plan_seconds = step("plan")
    items = planned_items(RUN)
    assert plan["shards"] == count - failing
    assert len(items) == -(-plan["shards"] // MAX_PACKED)
    planned = [tuple(shard) for item in items for shard in item["shards"]]
    assert len(set(planned)) == len(planned) == plan["shards"]
    assert not [tenant for tenant, _ in planned if tenant.endswith("77")]
    assert scratch_db.rows(STATES) == [
        ("failed", "CheckViolation", failing),
        ("running", "", count - failing),
    ]
    _, item_seconds = step("shard", **items[0])
    totals, finish_seconds = step("finish")
    done_count = len(items[0]["shards"])
    assert scratch_db.rows(STATES)[-1] == ("failed", "not_finished", count - failing - done_count)
    assert totals["jobs_done"] == done_count
    # Each call is a round trip and a commit.
    batches = -(-count // PER_CALL)
    assert calls["begin_run_in_one_transaction"] == batches
    assert calls["fail_run_in_one_transaction"] <= batches + failing // PER_CALL + 1
    definition = json.loads((repository / "infra" / "job.asl.json").read_text())
    run_input = {"job": "sweeper", "tenant": "t" * 63}
    sizes = state_sizes(definition, run_input, plan, items, totals)
    largest = max(sizes, key=lambda name: sizes[name])
    print(f"  plan {plan_seconds:.1f} s, finish {finish_seconds:.1f} s: {count} tenants")
    print(f"  an item of {done_count} tenants: {item_seconds:.1f} s")
    print(f"  largest state: {largest}, {sizes[largest]} bytes; {len(items)} items")
    assert sizes[largest] < MAX_STATE_BYTES, largest
    # Of a sample: what grows with the square of tenants is not a multiple of it.
    assert plan_seconds < SECONDS
    assert finish_seconds < SECONDS


def count_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often each call for many tenants is made."""
    calls = {"begin_run_in_one_transaction": 0, "fail_run_in_one_transaction": 0}

    def count(name: str) -> Callable[..., Any]:
        real = getattr(multi_tenant_runs, name)

        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return real(*args, **options)

        return call

    for name in calls:
        monkeypatch.setattr(multi_tenant_runs, name, count(name))
    return calls


def test_many_tenants_test_detects_too_large_states(repository: Path) -> None:
    """Planted: an item's answer is passed on, or the error of one that failed, which names lines of
    code; and a list in the plan's answer."""
    definition = json.loads((repository / "infra" / "job.asl.json").read_text())
    items = [{"shards": [["t" * 63, 0]] * MAX_PACKED}] * (TENANTS // MAX_PACKED)
    plan = {"key": f"_jobs/{RUN}/shards.json", "shards": TENANTS}
    run_input = {"job": "sweeper"}

    def largest(plan: dict[str, Any]) -> int:
        return max(state_sizes(definition, run_input, plan, items, {"jobs_done": 1}).values())

    assert largest(plan) < MAX_STATE_BYTES
    child = definition["States"]["map"]["ItemProcessor"]["States"]
    without = child["shard"].pop("OutputPath"), child["shard"].pop("ResultPath")
    assert without == (None, None)
    assert largest(plan) > MAX_STATE_BYTES
    child["shard"] |= {"OutputPath": None, "ResultPath": None}
    child["ShardFailed"]["Cause"] = "x" * 200
    assert largest(plan) > MAX_STATE_BYTES
    child["ShardFailed"]["Cause"] = ""
    definition["States"]["plan"]["ResultSelector"]["list.$"] = "$.Payload.list"
    assert largest({**plan, "list": ["t" * 63] * TENANTS}) > MAX_STATE_BYTES
