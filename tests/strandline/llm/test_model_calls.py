"""What language models cost a tenant, through the real handlers: ledger, use and budget."""

import importlib
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.llm.types import PromptEvent, TaskContext
from strandline.observability import logger
from strandline.resources import Resources
from tests.model_server import ModelServer, completion, error, serving
from tests.support import Gateway

CALLS, USAGE, ACME = "/api/v1/model-calls", "/api/v1/usage", "/api/v1/admin/tenants/acme"
ADMIN = ("read", "write", "admin")
SCOPE = "0199a6f0-0000-7000-8000-00000000000a"
SECRET = "what the harbour hides"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        for name, value in {
            "PROVIDER": "openai",
            "BASE_URL": provider.url,
            "MODEL": "tiny",
            "USD_PER_MILLION_IN": "10",
            "USD_PER_MILLION_OUT": "40",
        }.items():
            monkeypatch.setenv(f"STRANDLINE_LLM_{name}", value)
        yield provider


@pytest.fixture
def ask(provider: ModelServer, gateway: Gateway) -> Iterator[Callable[[str, int], list[Any]]]:
    """So many questions for a tenant, by the worker's own model; gives why the heuristic model
    answered."""
    get_settings.cache_clear()
    service: Resources = importlib.import_module("functions.worker.handler").resources

    def ask(tenant: str, times: int) -> list[Any]:
        task = TaskContext(tenant, SCOPE, ("user:mara",), scope_id=SCOPE, job="fold")
        messages = [PromptEvent(1, "user:mara", "user", "message", SECRET, datetime.now(UTC))]
        fell = [service.llm.topic(task, messages).fallback_reason for _ in range(times)]
        service.llm.store_call_records(service.database.connect_as(Caller.background(tenant)))
        return fell

    yield ask
    provider_used: Any = service.llm.__dict__["_provider"]
    provider_used.close()


@pytest.fixture
def log_output() -> Iterator[io.StringIO]:
    """What the very handler that prints in Lambda prints from here on."""
    stream, handler = io.StringIO(), cast("Any", logger.registered_handler)
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def test_model_calls_are_listed_for_tenant_admin(
    gateway: Gateway, provider: ModelServer, ask: Callable[[str, int], list[Any]]
) -> None:
    key = gateway.key(rights=ADMIN)
    other, member = gateway.key("globex", rights=ADMIN), gateway.key(user="user:mara")
    provider.script = [error(500)]
    assert ask("acme", 5) == ["unavailable", None, None, None, None]
    assert ask("globex", 1) == [None]
    calls: list[Any] = []
    cursor: dict[str, object] = {}
    while True:
        page = gateway.call("GET", CALLS, key=key, query={"limit": 2, **cursor})
        assert page.status == 200, page.text
        calls += page.body["calls"]
        if page.body["next_cursor"] is None:
            break
        cursor = {"cursor": page.body["next_cursor"]}
    assert [call["outcome"] for call in calls] == ["ok"] * 4 + ["unavailable"]
    assert calls[0] | {"call_id": 0, "at": 0, "milliseconds": 0} == {
        "call_id": 0,
        "at": 0,
        "task": "topic",
        "model": "openai:tiny",
        "prompt": "topic/1",
        "tokens_in": 100,
        "tokens_out": 20,
        "cost_usd": pytest.approx(0.0018),
        "milliseconds": 0,
        "outcome": "ok",
        "scope_id": SCOPE,
        "job": "fold",
    }
    assert len(gateway.call("GET", CALLS, key=other).body["calls"]) == 1
    assert gateway.call("GET", CALLS, key=member).status == 403
    foreign = gateway.call("GET", CALLS, key=other, query=cursor)
    assert foreign.error["details"] == {"field": "cursor"}


def test_model_calls_breaker_is_shown_by_other_process(
    gateway: Gateway, provider: ModelServer, ask: Callable[[str, int], list[Any]]
) -> None:
    """The worker's process shut the breaker; another one answers, and knows it by the database."""
    key, other = gateway.key(rights=ADMIN), gateway.key("globex", rights=ADMIN)
    assert gateway.call("GET", USAGE, key=key).body["models"]["resting_until"] is None
    provider.otherwise = lambda _: error(500)
    start = datetime.now(UTC)
    assert ask("acme", 6)[-1] == "breaker_open"
    until = gateway.call("GET", USAGE, key=key).body["models"]["resting_until"]
    remaining_time = datetime.fromisoformat(until) - start
    assert 50 < remaining_time.total_seconds() < 90
    assert gateway.call("GET", USAGE, key=other).body["models"]["resting_until"] is None
    health = gateway.call("GET", "/api/v1/health", key=key)
    language = health.body["language"]
    assert language["provider"] == "openai:tiny"
    assert language["failure"] == (
        "The language model's provider answered HTTP 500: see the log or the status page of that"
        " server."
    )
    assert language["resting_until"] is not None


def test_model_calls_budget_of_nothing_is_shown_for_free_model(
    gateway: Gateway,
    provider: ModelServer,
    ask: Callable[[str, int], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("IN", "OUT"):
        monkeypatch.setenv(f"STRANDLINE_LLM_USD_PER_MILLION_{name}", "0")
    get_settings.cache_clear()
    key, operator = gateway.key(rights=ADMIN), gateway.key("operations", rights=("operator",))
    assert gateway.call("GET", "/api/v1/health", key=key).body["warnings"] == []
    gateway.call("PATCH", ACME, {"model_usd_per_month": 0}, key=operator)
    assert ask("acme", 1) == ["budget_spent"]
    (warning,) = gateway.call("GET", "/api/v1/health", key=key).body["warnings"]
    assert "is spent: 0 of 0 USD" in warning


def test_model_calls_budget_is_set_by_operator(
    gateway: Gateway, provider: ModelServer, ask: Callable[[str, int], list[Any]]
) -> None:
    key = gateway.key(rights=ADMIN)
    operator = gateway.key("operations", rights=("operator",))
    before = gateway.call("GET", USAGE, key=key).body["models"]
    assert gateway.call("GET", "/api/v1/health", key=key).body["warnings"] == []
    assert (before["calls"], before["budget_usd"], before["remaining_usd"]) == (0, None, None)
    for wrong in (-1, "1", 10**10, True):
        reply = gateway.call("PATCH", ACME, {"model_usd_per_month": wrong}, key=operator)
        assert (reply.status, reply.error["details"]["field"]) == (422, "model_usd_per_month")
    # A call costs 0.0018, and may cost 0.08 and its text: it is asked only while that is left.
    response = gateway.call("PATCH", ACME, {"model_usd_per_month": 0.1}, key=operator)
    assert response.body["limits"]["model_usd_per_month"] == 0.1
    fell = ask("acme", 20)
    count = fell.count(None)
    assert 0 < count < 20
    assert fell == [None] * count + ["budget_spent"] * (20 - count)
    models = gateway.call("GET", USAGE, key=key).body["models"]
    assert models["calls"] == count
    (warning,) = gateway.call("GET", "/api/v1/health", key=key).body["warnings"]
    assert f"is spent: {models['cost_usd']:.4g} of 0.1 USD" in warning
    assert models["budget_usd"] == 0.1
    assert models["cost_usd"] == pytest.approx(0.0018 * count)
    assert models["remaining_usd"] == pytest.approx(0.1 - 0.0018 * count)
    trail = gateway.call("GET", f"{ACME}/audit", key=operator).body["entries"]
    assert {"model_usd_per_month": {"from": None, "to": 0.1}} in [one["details"] for one in trail]


def test_model_calls_log_no_memory_text(
    gateway: Gateway,
    provider: ModelServer,
    ask: Callable[[str, int], list[Any]],
    log_output: io.StringIO,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway.key()
    provider.script = [error(400, SECRET), error(500, SECRET), completion(SECRET)]
    ask("acme", 3)
    assert log_output.getvalue().count('"model call"') == 5
    assert SECRET in str(provider.requests), "the model was shown it"
    assert SECRET not in log_output.getvalue() + caplog.text
