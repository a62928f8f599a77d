"""The ping with which a release calls each new version before its alias moves."""

import importlib
from collections.abc import Sequence
from typing import Any

import pytest

from strandline.config import get_settings
from strandline.errors import EmbeddingUnavailable, Unavailable
from strandline.function_specs import FUNCTIONS
from strandline.local.lambda_context import LambdaContext
from tests.support import Gateway

PINGED = [fn for fn in FUNCTIONS if fn.name != "migrate"]
"""`migrate` is called to migrate."""
WITH_DATABASE = [fn.name for fn in PINGED if "database" in fn.needs]
WITH_MODEL = [fn.name for fn in PINGED if "model" in fn.layers]


def ping(function: str) -> dict[str, Any]:
    handler = importlib.import_module(f"functions.{function}.handler")
    return handler.lambda_handler({"ping": True}, LambdaContext(f"strandline-dev-{function}", 29))


class BrokenModel:
    """A layer without the model's files."""

    space = "broken/1"

    def embed(self, texts: Sequence[str], **options: object) -> list[list[float]]:
        """Fails as the real one does."""
        del texts, options
        raise EmbeddingUnavailable


def test_ping_of_every_function_is_answered(gateway: Gateway) -> None:
    del gateway
    for fn in PINGED:
        answer = ping(fn.name)
        if "database" in fn.needs:
            assert answer == {"database": True, "embedded": fn.name in WITH_MODEL}


def test_ping_fails_without_model_where_layer_has_one(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model elsewhere may be away: memory does without it, and a release must be possible."""
    del gateway
    assert {"query", "mcp", "worker", "sweeper"} <= set(WITH_MODEL)
    for name in WITH_DATABASE:
        handler = importlib.import_module(f"functions.{name}.handler")
        monkeypatch.setitem(handler.resources.__dict__, "embedder", BrokenModel())
        if name not in WITH_MODEL:
            ping(name)
            continue
        with pytest.raises(EmbeddingUnavailable):
            ping(name)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_PROVIDER", "bedrock")
    get_settings.cache_clear()
    assert [ping(name)["embedded"] for name in WITH_MODEL] == [False] * len(WITH_MODEL)


def test_ping_fails_without_database(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    del gateway

    def refuse(*_: object) -> Any:
        raise Unavailable

    for name in WITH_DATABASE:
        handler = importlib.import_module(f"functions.{name}.handler")
        monkeypatch.setattr(handler.resources.database, "connection", refuse)
        with pytest.raises(Unavailable):
            ping(name)
