"""Providers of embeddings through the whole service, as they are configured: what is stored is
embedded as a text, and what is asked as a question."""

import hashlib
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from strandline.background.calibrate_space import read_calibration_text_groups
from strandline.config import get_settings
from strandline.local.lambda_context import LambdaContext
from tests.strandline.embeddings.model_server import ModelServer, serve_model
from tests.support import Gateway, ScratchDatabase, user_message

BUOY = "The buoy at the north pier is painted green."
QUESTION = "Which colour has the buoy at the pier?"


def word_vector(text: str, dimensions: int) -> list[float]:
    """By its words alone, far from length 1."""
    vector = [0.01] * dimensions
    for word in text.lower().strip("?.").split():
        vector[hashlib.sha256(word.encode()).digest()[0] % dimensions] += 3.0
    return vector


def openai_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Of an endpoint that speaks OpenAI's protocol."""
    vectors = [word_vector(text, 16) for text in request["input"]]
    return {"data": [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]}


def cohere_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Of Cohere Embed v4 on Bedrock."""
    vectors = [word_vector(text, request["output_dimension"]) for text in request["texts"]]
    return {"embeddings": {"float": vectors}, "response_type": "embeddings_by_type"}


def titan_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Of Titan Text Embeddings V2 on Bedrock."""
    vector = word_vector(request["inputText"], request["dimensions"])
    return {"embedding": vector, "inputTextTokenCount": 9, "embeddingsByType": {"float": vector}}


def texts_of(request: dict[str, Any]) -> list[str]:
    """A request's texts, each after what says what it is for."""
    kind = f"{request['input_type']} " if "input_type" in request else ""
    texts: list[str] = request.get("texts") or request.get("input") or [request["inputText"]]
    return [f"{kind}{text}" for text in texts]


class Provider(NamedTuple):
    """A provider, and what it is to get."""

    answer: Callable[[dict[str, Any]], dict[str, Any]]
    settings: Mapping[str, str]
    space: str
    text_form: str
    question_form: str


PROVIDERS = {
    "openai with prefixes": Provider(
        openai_answer,
        {
            "PROVIDER": "openai",
            "MODEL": "tiny",
            "DIMENSIONS": "16",
            "TEXT_PREFIX": "passage: ",
            "QUESTION_PREFIX": "query: ",
        },
        "openai:tiny+passage: /16",
        "passage: ",
        "query: ",
    ),
    "bedrock by Cohere": Provider(
        cohere_answer,
        {"PROVIDER": "bedrock", "MODEL": "eu.cohere.embed-v4:0", "DIMENSIONS": "256"},
        "bedrock:cohere.embed-v4:0/256",
        "search_document ",
        "search_query ",
    ),
    "bedrock by Titan": Provider(
        titan_answer,
        {"PROVIDER": "bedrock", "MODEL": "amazon.titan-embed-text-v2:0", "DIMENSIONS": "256"},
        "bedrock:amazon.titan-embed-text-v2:0/256",
        "",
        "",
    ),
}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    return PROVIDERS[request.param]


@pytest.fixture
def model_server(
    provider: Provider, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModelServer]:
    """The provider's server, with the service deployed to use it: what the functions share of a
    model that ships is given up, so that each makes its own from the settings."""
    with serve_model(provider.answer, monkeypatch) as running:
        settings = dict(provider.settings)
        if settings["PROVIDER"] == "openai":
            settings["BASE_URL"] = running.url
        else:
            monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", running.origin)
        for name, value in settings.items():
            monkeypatch.setenv(f"STRANDLINE_EMBEDDING_{name}", value)
        monkeypatch.setenv("STRANDLINE_QUERY_VECTOR_SECONDS", "20")
        get_settings.cache_clear()
        for name in ("query", "worker"):
            handler: Any = importlib.import_module(f"functions.{name}.handler")
            del handler.resources.__dict__["embedder"]
        yield running


def work(base: ScratchDatabase) -> None:
    """The worker's turn, for all that is due."""
    worker: Any = importlib.import_module("functions.worker.handler")
    scopes = [scope for (scope,) in base.rows("select distinct scope_id::text from scope_work")]
    message = {"messageId": "m", "body": json.dumps({"tenant": "acme", "scopes": scopes})}
    answer = worker.lambda_handler({"Records": [message]}, LambdaContext("worker", 120))
    assert answer == {"batchItemFailures": []}


def test_embedding_provider_serves_worker_and_recall(
    provider: Provider, model_server: ModelServer, gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    for text in (BUOY, "Bo sells smoked eel on Fridays.", "The tide table hangs in the office."):
        event = user_message(text, "user:alice")
        assert gateway.call("POST", "/api/v1/events", event, key=key).status == 201
    work(scratch_db)
    stored = [text for request in model_server.requests for text in texts_of(request)]
    assert sum(text.endswith(BUOY) for text in stored) == 1
    # By these the space is measured first.
    questions = Counter(
        f"{provider.question_form}{one.question}" for one in read_calibration_text_groups()
    )
    assert questions <= Counter(stored)
    others = Counter(stored) - questions
    assert all(text.startswith(provider.text_form) for text in others)
    assert scratch_db.rows("select space, count(*) from event_vectors group by space") == [
        (provider.space, 3)
    ]
    model_server.requests.clear()
    asking = {"query": QUESTION, "participants": ["user:alice"]}
    reply = gateway.call("POST", "/api/v1/recall", asking, key=key)
    assert (reply.status, reply.body["degraded"]) == (200, [])
    assert reply.body["hits"][0]["text"] == BUOY
    asked = [text for request in model_server.requests for text in texts_of(request)]
    assert asked == [f"{provider.question_form}{QUESTION}"]


def test_embedding_provider_outage_leaves_words(
    provider: Provider, model_server: ModelServer, gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """A throttled worker stores nothing and comes again; recall answers by words meanwhile."""
    key = gateway.key()
    event = user_message(BUOY, "user:alice")
    assert gateway.call("POST", "/api/v1/events", event, key=key).status == 201
    model_server.status = 429
    model_server.answer_headers = {"x-amzn-ErrorType": "ThrottlingException"}
    worker: Any = importlib.import_module("functions.worker.handler")
    ((scope,),) = scratch_db.rows("select distinct scope_id::text from scope_work")
    message = {"messageId": "m", "body": json.dumps({"tenant": "acme", "scopes": [scope]})}
    worker.lambda_handler({"Records": [message]}, LambdaContext("worker", 120))
    assert scratch_db.rows("select count(*) from event_vectors") == [(0,)]
    asking = {"query": QUESTION, "participants": ["user:alice"]}
    reply = gateway.call("POST", "/api/v1/recall", asking, key=key)
    assert reply.status == 200
    assert "no_query_vector" in reply.body["degraded"]
    assert reply.body["hits"][0]["text"] == BUOY
    model_server.status = 200
    scratch_db.rows("update scope_work set due_at = now() returning 1")
    work(scratch_db)
    assert scratch_db.rows("select space from event_vectors") == [(provider.space,)]
