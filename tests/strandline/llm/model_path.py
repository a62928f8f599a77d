"""A service with a model on loopback, and a conversation that is folded by it."""

import importlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.local.lambda_context import LambdaContext
from strandline.resources import Resources
from tests.model_server import ModelServer, serving
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import Gateway, ScratchDatabase, Tell

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)


@pytest.fixture
def embedder() -> WordEmbedder:
    """Of a space without calibration: every pair of messages is a question."""
    return WordEmbedder("words/16", 16)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """In the settings of every function; comes before them."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        for name, value in {
            "PROVIDER": "openai",
            "BASE_URL": provider.url,
            "MODEL": "tiny",
        }.items():
            monkeypatch.setenv(f"STRANDLINE_LLM_{name}", value)
        yield provider


@pytest.fixture
def front(provider: ModelServer, gateway: Gateway) -> Iterator[Gateway]:
    """The service with a model; its clients are closed in the end."""
    del provider
    yield gateway
    for name in ("worker", "sweeper", "query"):
        service: Resources = importlib.import_module(f"functions.{name}.handler").resources
        if "llm" in service.__dict__:
            usage: Any = service.llm.__dict__["_provider"]
            usage.close()


def talk(tell: Tell, key: str) -> str:
    """Two messages on one topic, and one long after; gives their scope."""
    for minutes, text in ((0, "Mara moves the launch"), (1, "to Friday"), (60, "Good evening")):
        at = (START + timedelta(minutes=minutes)).isoformat()
        receipt = tell(key, text, session_id="s-1", occurred_at=at)
    return receipt["scope_id"]


def deliver(scope: str) -> None:
    """The message, as SQS gives it."""
    handler = importlib.import_module("functions.worker.handler").lambda_handler
    body = json.dumps({"tenant": "acme", "scopes": [scope]})
    records = {"Records": [{"messageId": "m", "body": body}]}
    assert handler(records, LambdaContext("worker", 120)) == {"batchItemFailures": []}


def versions(base: ScratchDatabase) -> list[dict[str, Any]]:
    return [
        row for (row,) in base.rows("select to_jsonb(v) from chain_versions v order by version")
    ]
