"""Erasures that take long, or end without a vacuum, are seen by who looks after the deployment."""

import io
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from strandline.erasure import eraser as eraser_job
from strandline.erasure import store_vacuum
from strandline.observability import logger
from tests.strandline.erasure.erasure_calls import ERASURES, forget
from tests.support import Gateway, ScratchDatabase, Tell


@pytest.fixture
def log_output() -> Iterator[io.StringIO]:
    """What the handlers print from here on."""
    stream, handler = io.StringIO(), cast(Any, logger.registered_handler)
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def values_of(output: io.StringIO, job: str, metric: str) -> list[float]:
    """What a job said of a metric, and forget it."""
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    output.truncate(0)
    output.seek(0)
    return [line[metric] for line in lines if line.get("job") == job and metric in line]


def test_erasure_waits_are_in_health_and_metrics(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    def waiting() -> tuple[int, int]:
        background = gateway.call("GET", "/api/v1/health", key=eraser).body["background"]
        count, age = background["erasures_waiting"], background["oldest_erasure_seconds"]
        text = gateway.call("GET", "/metrics", key=eraser).text
        assert f"\nstrandline_erasures_waiting {count}\n" in text
        (line,) = [
            one for one in text.splitlines() if one.startswith("strandline_oldest_erasure_age")
        ]
        assert age <= float(line.split()[1]) < age + 60
        return count, age

    assert waiting() == (0, 0)
    for _ in range(2):
        forget(gateway, tell, eraser)
    forget(gateway, tell, gateway.key("globex", rights=["read", "write", "erase"]))
    scratch_db.rows("update erasures set asked_at = asked_at - interval '2 hours'")
    count, age = waiting()
    assert (count, age // 60) == (2, 120)
    gateway.run_job("eraser", "acme")
    assert waiting() == (0, 0)


def test_erasure_waits_age_is_measured_by_every_sweep(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    log_output: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it begins and as it ends, of another tenant too; and not by the eraser, which sees its own
    tenant alone."""
    old, metric = forget(gateway, tell, eraser), "OldestErasureSeconds"
    forget(gateway, tell, eraser)
    gateway.key("globex")
    scratch_db.rows(
        "update erasures set asked_at = asked_at - interval '7 hours' where erasure_id = %s", old
    )
    gateway.run_job("sweeper", "globex")
    assert [age // 60 for age in values_of(log_output, "sweeper", metric)] == [420, 420]
    with monkeypatch.context() as patch:
        patch.setattr(eraser_job, "_complete_or_postpone_erasure", None)
        gateway.run_job("eraser", "acme")
    gateway.run_job("sweeper", "acme")
    assert [age // 60 for age in values_of(log_output, "sweeper", metric)] == [420, 420]
    gateway.run_job("eraser", "acme")
    assert values_of(log_output, "eraser", metric) == []
    gateway.run_job("sweeper", "globex")
    assert values_of(log_output, "sweeper", metric) == [0, 0]


def test_erasure_waits_metric_counts_abandoned_vacuum(
    gateway: Gateway,
    tell: Tell,
    eraser: str,
    log_output: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once for each erasure, at its receipt; a vacuum that comes in the end is none."""
    erasure_id, metric = forget(gateway, tell, eraser), "VacuumsGivenUp"

    def fail(*arguments: Any) -> store_vacuum.VacuumResult:
        del arguments
        return store_vacuum.VacuumResult(None, "out_of_time")

    with monkeypatch.context() as patch:
        patch.setattr(store_vacuum, "vacuum_tables_with_memory", fail)
        for _ in range(4):  # of five
            gateway.run_job("eraser", "acme")
            assert values_of(log_output, "eraser", metric) == []
        gateway.run_job("eraser", "acme")
        gateway.run_job("eraser", "acme")
    assert values_of(log_output, "eraser", metric) == [1]
    body = gateway.call("GET", f"{ERASURES}/{erasure_id}", key=eraser).body
    assert (body["state"], body["receipt"]["vacuumed_at"]) == ("complete", None)
    forget(gateway, tell, eraser)
    gateway.run_job("eraser", "acme")
    assert values_of(log_output, "eraser", metric) == []
