"""What each sweep measures in the whole stage, as it begins and as it ends."""

import io
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from strandline.background import stage_backlog
from strandline.observability import logger
from tests.support import Gateway, ScratchDatabase, Tell

METRICS = ("ScopesStuck", "OldestUnembeddedSeconds", "OldestUnfoldedSeconds")


@pytest.fixture
def log_output() -> Iterator[io.StringIO]:
    """What the handlers print from here on."""
    stream, handler = io.StringIO(), cast(Any, logger.registered_handler)
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def read_gauges(output: io.StringIO) -> list[tuple[float, ...]]:
    """The gauges in the order in which CloudWatch gets them, and forget them."""
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    output.truncate(0)
    output.seek(0)
    printed = [line for line in lines if any(metric in line for metric in METRICS)]
    assert all(line["job"] == "sweeper" and line["function"] == "sweeper" for line in printed)
    return [tuple(line[metric] for metric in METRICS) for line in printed]


def test_stage_backlog_of_one_tenant_is_in_every_sweep(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, log_output: io.StringIO
) -> None:
    """Also in the sweep of another, and while nothing of it is due: its pauses grow as it fails."""
    for tenant in ("acme", "globex"):
        tell(gateway.key(tenant), "The buoy is out.", "user:alice")
    scratch_db.rows(
        "update scope_work set attempts = 7, due_at = now() + interval '2 hours'"
        " where tenant_id = 'acme'"
    )
    gateway.run_job("sweeper")
    before, after = read_gauges(log_output)
    assert before[0] == after[0] == 1, "it was not due"
    _, unembedded, unfolded = before
    assert 0 < unembedded < 60
    assert unfolded == pytest.approx(unembedded, abs=1)
    gateway.run_job("sweeper", "globex")
    assert [stuck for stuck, _, _ in read_gauges(log_output)] == [1, 1]
    scratch_db.rows("update scope_work set due_at = now()")
    gateway.run_job("sweeper")
    assert [stuck for stuck, _, _ in read_gauges(log_output)] == [1, 0], "mended, and it is said"
    gateway.run_job("sweeper", "globex")
    assert read_gauges(log_output) == [(0, 0, 0)] * 2


def test_stage_backlog_of_unreadable_tenant_stops_no_sweep(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    log_output: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for tenant in ("acme", "globex"):
        tell(gateway.key(tenant), "The buoy is out.", "user:alice")
    scratch_db.rows("update scope_work set attempts = 7")
    read_due_work, failures = stage_backlog.read_due_work, [RuntimeError()]

    def fail_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return read_due_work(*arguments)

    monkeypatch.setattr(stage_backlog, "read_due_work", fail_once)
    assert gateway.run_job("sweeper")["scopes_embedded"] == 2
    assert [gauge[0] for gauge in read_gauges(log_output)] == [1, 0]
