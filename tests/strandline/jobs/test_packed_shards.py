"""A run over many tenants: its items have several shards, of which each fails alone."""

import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from strandline.background import sweeper
from strandline.jobs import runner
from strandline.jobs.runner import (
    MAX_CONCURRENCY,
    MAX_PACKED,
    Lease,
    Shard,
    ShardFailed,
    pack_shards_into_items,
)
from strandline.local.lambda_context import LambdaContext
from tests.support import Gateway, ScratchDatabase, planned_items, user_message

TENANTS = [f"tenant-{n:02}" for n in range(45)]


def shards(count: int) -> list[Shard]:
    return [Shard(f"t{n}") for n in range(count)]


def test_packed_shards_fill_machine_with_few_items(repository: Path) -> None:
    definition = json.loads((repository / "infra" / "job.asl.json").read_text())
    assert definition["States"]["map"]["MaxConcurrency"] == MAX_CONCURRENCY
    for count, items, most in (
        (1, 1, 1),
        (20, 20, 1),
        (21, 11, 2),
        (1000, 20, 50),
        (100_000, 2000, MAX_PACKED),
    ):
        packed = pack_shards_into_items(shards(count))
        assert (len(packed), max(map(len, packed))) == (items, most)
        assert [shard for item in packed for shard in item] == shards(count)


def test_packed_shards_machine_has_timeout(repository: Path) -> None:
    """Else the alarm on runs that time out could never be raised."""
    definition = json.loads((repository / "infra" / "job.asl.json").read_text())
    assert 3600 < definition["TimeoutSeconds"] < 24 * 3600
    states = definition["States"]
    tasks = [states["plan"], states["finish"]]
    tasks.append(states["map"]["ItemProcessor"]["States"]["shard"])
    assert [task["TimeoutSeconds"] for task in tasks] == [930] * 3


@pytest.fixture
def shard_plan(gateway: Gateway) -> list[dict[str, Any]]:
    """The items of a sweep of all tenants."""
    for tenant in TENANTS:
        key = gateway.key(tenant)
        assert gateway.call("POST", "/api/v1/events", user_message("Hello."), key=key).status == 201
    assert step("plan")["shards"] == len(TENANTS)
    items = planned_items("r")
    assert [len(item["shards"]) for item in items] == [3] * 15
    return items


def handler() -> Any:
    return importlib.import_module("functions.sweeper.handler")


def step(verb: str, **fields: Any) -> Any:
    event = {"verb": verb, "run": "r", "input": {"job": "sweeper", **fields}}
    return handler().lambda_handler(event, LambdaContext("sweeper", 900))


def test_packed_shards_tenant_fails_alone(
    shard_plan: list[dict[str, Any]], scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_value = "tenant-01"
    real = sweeper.work_on_shard

    def work_on_shard(resources: Any, lease: Lease, part: Shard, now: Any) -> Any:
        if part.tenant == bad_value:
            raise MemoryError
        return real(resources, lease, part, now)

    monkeypatch.setattr(sweeper, "work_on_shard", work_on_shard)
    with pytest.raises(ShardFailed, match="sweeper: 1 of 3 shards failed"):
        step("shard", **shard_plan[0])
    states = "select tenant_id, state from jobs where tenant_id < 'tenant-03' order by 1"
    assert scratch_db.rows(states) == [
        ("tenant-00", "done"),
        (bad_value, "running"),
        ("tenant-02", "done"),
    ]
    monkeypatch.setattr(sweeper, "work_on_shard", real)  # tried again: what is done is passed over
    step("shard", **shard_plan[0])
    assert [state for _, state in scratch_db.rows(states)] == ["done"] * 3
    for item in shard_plan[1:]:
        step("shard", **item)
    totals = step("finish")
    assert totals["jobs_done"] == totals["events_embedded"] == len(TENANTS)


def test_packed_shards_retry_shards_not_begun(
    shard_plan: list[dict[str, Any]], scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a tenant with much to do leaves half of the time to those behind it."""
    deadlines: list[float] = []
    real = sweeper.work_on_shard

    def work_on_shard(resources: Any, lease: Lease, part: Shard, now: Any) -> Any:
        deadlines.append(lease.deadline - time.monotonic())
        return real(resources, lease, part, now)

    monkeypatch.setattr(sweeper, "work_on_shard", work_on_shard)
    step("shard", **shard_plan[0])
    assert [round(seconds, -1) for seconds in deadlines] == [440, 440, 890]
    late = LambdaContext("sweeper", 5)
    event = {"verb": "shard", "run": "r", "input": shard_plan[1]}
    with pytest.raises(ShardFailed, match="3 shards were not begun in time"):
        handler().lambda_handler(event, late)
    assert scratch_db.rows("select count(*) from jobs where state = 'done'") == [(3,)]


def test_packed_shards_read_item_of_older_release() -> None:
    assert runner.parse_item_shards({"tenant": "acme", "shard": 2}) == [Shard("acme", 2)]
    assert runner.parse_item_shards({"shards": [["acme", 0], ["globex", 1]]}) == [
        Shard("acme"),
        Shard("globex", 1),
    ]
