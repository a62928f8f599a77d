"""What CloudWatch bills as metrics of a stage, counted in what its functions print."""

import io
from collections.abc import Iterator
from typing import Any, cast

import pytest

from infra import prices
from strandline.function_specs import JOBS
from strandline.observability import logger
from tests.infra.alarms import emitted_metrics
from tests.mcp_calls import call_tool
from tests.strandline.llm.model_path import deliver, talk
from tests.support import Gateway, Tell, user_message

ALICE = {"participants": ["user:alice"]}


@pytest.fixture
def log_output(gateway: Gateway) -> Iterator[io.StringIO]:
    """What the very handler that prints in Lambda prints from here on."""
    del gateway
    stream, handler = io.StringIO(), cast(Any, logger.registered_handler)
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def test_stage_metrics_at_rest_are_those_of_sweep(
    gateway: Gateway, tell: Tell, log_output: io.StringIO
) -> None:
    """Each morning's: one that finds nothing due, in a tenant that has memory."""
    deliver(talk(tell, gateway.key()))
    gateway.run_job("sweeper", "acme")
    log_output.truncate(0)
    log_output.seek(0)
    gateway.run_job("sweeper", "acme")
    assert len(emitted_metrics(log_output.getvalue())) == prices.SWEEP_METRICS


def test_stage_metrics_of_use_are_counted_in_price(
    gateway: Gateway, tell: Tell, log_output: io.StringIO
) -> None:
    """By agents that append, recall, ask contexts and use a tool, one of them refused once, with
    the worker and every job behind them, without a language model."""
    key = gateway.key(rights=["read", "write", "erase"])
    scope = talk(tell, key)
    batch = {"events": [user_message("One."), user_message("Two.")]}
    for method, path, body, status in (
        ("POST", "/api/v1/events/batch", batch, 200),
        ("POST", "/api/v1/events", {}, 422),
        ("POST", "/api/v1/recall", {"query": "When is the launch?", **ALICE}, 200),
        ("POST", "/api/v1/context", {"query": "When is the launch?", **ALICE}, 200),
        ("GET", "/api/v1/health", None, 200),
    ):
        reply = gateway.call(method, path, body, key=key)
        assert reply.status == status, reply.text
    assert not call_tool(gateway, "recall", {"query": "the launch", **ALICE}, key=key)[1]
    deliver(scope)
    gateway.call("POST", "/api/v1/erasures", {"scope_id": scope}, key=key)
    for job in JOBS:
        gateway.run_job(job.name, "acme")
    assert len(emitted_metrics(log_output.getvalue())) == prices.USE_METRICS
