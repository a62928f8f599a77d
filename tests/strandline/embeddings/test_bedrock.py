"""Bedrock's embedding models by the formats that are documented for each, checked by botocore
against its service model, and over HTTP as they are configured."""

import io
import json
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError, NoRegionError
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from strandline.aws import client_factory
from strandline.config import ServiceSettings
from strandline.embeddings import bedrock
from strandline.embeddings.bedrock import MAX_CACHED_VECTORS, PARALLEL_CALLS, BedrockEmbedder
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.factory import make_embedder
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable, Misconfigured
from tests.strandline.embeddings.model_server import ModelServer, serve_model, stay_silent

TITAN = "amazon.titan-embed-text-v2:0"
ENGLISH = "cohere.embed-english-v3"
V4 = "eu.cohere.embed-v4:0"
SECRET = "the text that nobody may see"


def settings(**options: Any) -> ServiceSettings:
    values: dict[str, Any] = {"embedding_provider": "bedrock"} | options
    return ServiceSettings(database_url="postgresql://", bucket="b", key_secret="k" * 32, **values)


def vector(text: str, dimensions: int) -> list[float]:
    """Numbers that tell texts apart, far from length 1."""
    return [len(text) + 1.0, float(sum(text.encode())), *[7.0] * (dimensions - 2)]


def unit(text: str, dimensions: int) -> Any:
    numbers = vector(text, dimensions)
    return pytest.approx([value / math.hypot(*numbers) for value in numbers])


def titan(request: dict[str, Any]) -> dict[str, Any]:
    """As the user guide of Titan Text Embeddings V2 has it."""
    numbers = vector(request["inputText"], request["dimensions"])
    return {
        "embedding": numbers,
        "inputTextTokenCount": 7,
        "embeddingsByType": {"float": numbers},
    }


def cohere_v3(request: dict[str, Any]) -> dict[str, Any]:
    """As the user guide of Cohere Embed v3 has it for floats."""
    return {
        "embeddings": [vector(text, 1024) for text in request["texts"]],
        "id": "8a3f1b0e",
        "response_type": "embeddings_floats",
        "texts": [text.lower() for text in request["texts"]],
    }


def cohere_v4(request: dict[str, Any]) -> dict[str, Any]:
    """As the service answers, and its user guide where several types are requested."""
    dimensions = request["output_dimension"]
    return {
        "id": "836a33cc-61ec-4e65-afaf-c4628171a315",
        "embeddings": {"float": [vector(text, dimensions) for text in request["texts"]]},
        "response_type": "embeddings_by_type",
        "texts": request["texts"],
    }


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")


class Stub:
    """A client whose answers are in a list (botocore's stubber), or made by a function, where many
    calls come at once."""

    def __init__(self) -> None:
        self.client = client_factory.make_client("bedrock-runtime", Config())
        self.stubber: Any = Stubber(self.client)
        self.bodies: list[dict[str, Any]] = []
        self.is_used = False

    def make_client(self, config: Config) -> Any:
        options: Any = config
        assert options.retries == {"total_max_attempts": 1}
        self.is_used = True
        return self.client

    def expect(self, model: str, sent: dict[str, Any] | None, answer: object) -> None:
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        expected = {
            "modelId": model,
            "contentType": "application/json",
            "accept": "application/json",
            "body": json.dumps(sent, ensure_ascii=False).encode() if sent else ANY,
        }
        body = StreamingBody(io.BytesIO(raw), len(raw))
        result = {"body": body, "contentType": "application/json"}
        self.stubber.add_response("invoke_model", result, expected)

    def answer_with(self, answer: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]) -> None:
        def handle(params: dict[str, Any], **_more: Any) -> Any:
            body = json.loads(params["body"])
            self.bodies.append(body)
            status, parsed = answer(body)
            if status == 200:
                raw = json.dumps(parsed).encode()
                parsed = {"body": StreamingBody(io.BytesIO(raw), len(raw))}
            return SimpleNamespace(status_code=status, headers={}), parsed

        self.client.meta.events.register("before-call.bedrock-runtime.InvokeModel", handle)


@pytest.fixture
def stub() -> Iterator[Stub]:
    result = Stub()
    yield result
    result.stubber.assert_no_pending_responses()


@pytest.fixture
def stubbed(stub: Stub) -> Iterator[Stub]:
    with stub.stubber:
        yield stub


def make(stub: Stub, model: str, dimensions: int) -> BedrockEmbedder:
    return BedrockEmbedder(model, dimensions, make_client=stub.make_client)


def failure(
    kind: type[EmbeddingUnavailable | EmbeddingRefused],
    embedder: Embedder,
    texts: Sequence[str] = (SECRET,),
    timeout: float = 10,
) -> str:
    """The error's message; a log of it shows no text."""
    with pytest.raises(kind) as error:
        embedder.embed(texts, timeout=timeout)
    assert type(error.value) is kind
    assert SECRET not in "".join(traceback.format_exception(error.value))
    return error.value.message


# --- formats


def test_bedrock_titan_takes_one_text_with_its_dimension(stubbed: Stub) -> None:
    sent = {"inputText": "Ebb. é", "dimensions": 256, "normalize": True}
    stubbed.expect(TITAN, sent, titan(sent))
    embedder = make(stubbed, TITAN, 256)
    assert embedder.embed(["Ebb. é"], timeout=10) == [unit("Ebb. é", 256)]
    assert (embedder.space, embedder.dimensions) == (
        "bedrock:amazon.titan-embed-text-v2:0/256",
        256,
    )


@pytest.mark.parametrize(
    ("purpose", "kind"), [("text", "search_document"), ("question", "search_query")]
)
def test_bedrock_cohere_v3_gets_input_type(stubbed: Stub, purpose: Any, kind: str) -> None:
    sent = {"texts": ["Ebb.", " "], "input_type": kind, "truncate": "END"}
    stubbed.expect(ENGLISH, sent, cohere_v3(sent))
    embedder = make(stubbed, ENGLISH, 1024)
    vectors = embedder.embed(["Ebb.", ""], timeout=10, purpose=purpose)
    assert vectors == [unit("Ebb.", 1024), unit(" ", 1024)]
    assert embedder.space == "bedrock:cohere.embed-english-v3/1024"


@pytest.mark.parametrize("is_flat", [False, True], ids=["by type", "floats"])
def test_bedrock_cohere_v4_answers_in_both_forms(stubbed: Stub, is_flat: bool) -> None:
    sent = {
        "texts": ["Ebb.", "Flow."],
        "input_type": "search_document",
        "embedding_types": ["float"],
        "output_dimension": 512,
        "truncate": "RIGHT",
    }
    answer = cohere_v4(sent)
    if is_flat:
        answer["embeddings"] = answer["embeddings"]["float"]
        answer["response_type"] = "embeddings_floats"
    stubbed.expect(V4, sent, answer)
    vectors = make(stubbed, V4, 512).embed(["Ebb.", "Flow."], timeout=10)
    assert vectors == [unit("Ebb.", 512), unit("Flow.", 512)]


@pytest.mark.parametrize(
    "model",
    [
        "cohere.embed-v4:0",
        V4,
        "global.cohere.embed-v4:0",
        "us-gov.cohere.embed-v4:0",
        "arn:aws:bedrock:eu-west-1::foundation-model/cohere.embed-v4:0",
        "arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.cohere.embed-v4:0",
    ],
)
def test_bedrock_space_is_same_by_every_profile(stub: Stub, model: str) -> None:
    assert make(stub, model, 1536).space == "bedrock:cohere.embed-v4:0/1536"


# --- batches


def test_bedrock_cohere_splits_batches_and_keeps_order(stub: Stub) -> None:
    stub.answer_with(lambda body: (200, cohere_v3(body)))
    texts = [f"{n} tides" for n in range(200)]
    vectors = make(stub, ENGLISH, 1024).embed(texts, timeout=60)
    assert vectors == [unit(text, 1024) for text in texts]
    assert sorted(len(body["texts"]) for body in stub.bodies) == [8, 96, 96]


def test_bedrock_titan_asks_several_at_once_in_order(stub: Stub) -> None:
    full = threading.Barrier(PARALLEL_CALLS)

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if int(body["inputText"].split()[0]) < PARALLEL_CALLS:
            full.wait(30)  # only if so many come at once
        return 200, titan(body)

    stub.answer_with(answer)
    texts = [f"{n} tides" for n in range(40)]
    assert make(stub, TITAN, 256).embed(texts, timeout=60) == [unit(text, 256) for text in texts]
    assert len(stub.bodies) == 40


def test_bedrock_gets_no_request_without_texts_or_time(stub: Stub) -> None:
    embedder = make(stub, TITAN, 256)
    assert embedder.embed([], timeout=10) == []
    assert "in time" in failure(EmbeddingUnavailable, embedder, timeout=0)
    failure(EmbeddingRefused, embedder, [f"{SECRET} \ud83d"])
    assert not stub.is_used


THROTTLED = (429, {"Error": {"Code": "ThrottlingException", "Message": f"Too many: {SECRET}"}})


def test_bedrock_throttled_batch_goes_on_where_it_was(stub: Stub) -> None:
    """A quota that is smaller than a batch lets it through in the end."""
    left = [10]

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        left[0] -= 1
        return (200, titan(body)) if left[0] >= 0 else THROTTLED

    stub.answer_with(answer)
    embedder, texts = make(stub, TITAN, 256), [f"{n} tides" for n in range(24)]
    for _ in range(2):
        assert "ThrottlingException" in failure(EmbeddingUnavailable, embedder, texts)
        left[0] = 10
    assert embedder.embed(texts, timeout=10) == [unit(text, 256) for text in texts]
    asked = len(stub.bodies)
    left[0] = 24
    assert len(embedder.embed(texts, timeout=10)) == 24
    assert len(stub.bodies) == asked + 24, "vectors are kept of calls that failed alone"


def test_bedrock_keeps_few_vectors_of_failed_call(stub: Stub) -> None:
    stub.answer_with(lambda body: THROTTLED if "last" in body["inputText"] else (200, titan(body)))
    embedder = make(stub, TITAN, 256)
    texts = [f"{n} tides" for n in range(MAX_CACHED_VECTORS + 50)]
    failure(EmbeddingUnavailable, embedder, [*texts, "the last"], timeout=60)
    asked = len(stub.bodies)
    assert len(embedder.embed(texts, timeout=60)) == len(texts)
    assert len(stub.bodies) - asked >= 50


def test_bedrock_refused_text_refuses_its_call(stub: Stub) -> None:
    refusal = {"Error": {"Code": "ValidationException", "Message": f"Malformed: {SECRET}"}}
    stub.answer_with(lambda body: (400, refusal) if SECRET in body["texts"] else (200, {}))
    embedder = make(stub, V4, 256)
    assert "ValidationException" in failure(EmbeddingRefused, embedder, ["Ebb.", SECRET])


def test_bedrock_outage_goes_before_refusal(stub: Stub) -> None:
    """While a part of a batch is throttled, nothing is said of the texts: they are tried again."""
    both = threading.Barrier(2)
    refusal = {"Error": {"Code": "ValidationException", "Message": "no"}}

    def answer(_: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return (400, refusal) if both.wait(30) else THROTTLED

    stub.answer_with(answer)
    for _ in range(4):  # whichever is first
        message = failure(EmbeddingUnavailable, make(stub, TITAN, 256), ["Ebb.", "Flow."])
        assert "ThrottlingException" in message


# --- long texts


def test_bedrock_cohere_v3_gets_2048_characters_at_most(stubbed: Stub) -> None:
    sent = {"texts": ["é" * 2048], "input_type": "search_document", "truncate": "END"}
    stubbed.expect(ENGLISH, sent, cohere_v3(sent))
    make(stubbed, ENGLISH, 1024).embed(["é" * 5000], timeout=10)


def test_bedrock_cohere_v4_truncates_by_itself(stub: Stub) -> None:
    stub.answer_with(lambda body: (200, cohere_v4(body)))
    make(stub, V4, 256).embed(["tide " * 100_000], timeout=10)
    assert [len(body["texts"][0]) for body in stub.bodies] == [500_000]


@pytest.mark.parametrize(
    ("characters", "accepted", "lengths"),
    [
        (60_000, 50_000, [50_000]),
        (60_000, 9000, [50_000, 25_000, 12_500, 8192]),
        (12_000, 8192, [12_000, 8192]),
        (8192, 8192, [8192]),
    ],
)
def test_bedrock_titan_halves_text_of_too_many_tokens(
    stub: Stub, characters: int, accepted: int, lengths: list[int]
) -> None:
    too_long = {"Code": "ValidationException", "Message": "400 Bad Request: Too many input tokens."}
    stub.answer_with(
        lambda body: (
            (200, titan(body)) if len(body["inputText"]) <= accepted else (400, {"Error": too_long})
        )
    )
    make(stub, TITAN, 256).embed(["潮" * characters], timeout=10)
    assert [len(body["inputText"]) for body in stub.bodies] == lengths


def test_bedrock_titan_refuses_text_that_is_not_too_long(stubbed: Stub) -> None:
    stubbed.stubber.add_client_error("invoke_model", "ValidationException", f"no: {SECRET}")
    assert "ValidationException" in failure(EmbeddingRefused, make(stubbed, TITAN, 256))


# --- errors


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("ThrottlingException", "ThrottlingException"),
        ("ServiceQuotaExceededException", "ServiceQuotaExceededException"),
        ("ModelTimeoutException", "in time"),
        ("ModelNotReadyException", "ModelNotReadyException"),
        ("ModelErrorException", "ModelErrorException"),
        ("InternalServerException", "InternalServerException"),
        ("ServiceUnavailableException", "ServiceUnavailableException"),
        ("AccessDeniedException", "STRANDLINE_EMBEDDING_MODEL"),
        ("ResourceNotFoundException", "STRANDLINE_EMBEDDING_REGION"),
        ("UnrecognizedClientException", "credentials"),
        ("ExpiredTokenException", "credentials"),
        ("Bad <code>", "an error without a code"),
    ],
)
def test_bedrock_errors_are_outages(stubbed: Stub, code: str, words: str) -> None:
    stubbed.stubber.add_client_error("invoke_model", code, f"about {SECRET}")
    assert words in failure(EmbeddingUnavailable, make(stubbed, ENGLISH, 1024))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "Invocation of model ID cohere.embed-v4:0 with on-demand throughput isn't supported."
            " Retry your request with the ID or ARN of an inference profile that contains this"
            " model.",
            "inference profile only: set STRANDLINE_EMBEDDING_MODEL",
        ),
        ("The provided model identifier is invalid.", "check STRANDLINE_EMBEDDING_MODEL"),
    ],
)
def test_bedrock_model_fault_refuses_no_text(stubbed: Stub, message: str, words: str) -> None:
    stubbed.stubber.add_client_error("invoke_model", "ValidationException", message)
    assert words in failure(EmbeddingUnavailable, make(stubbed, "cohere.embed-v4:0", 1536))


def test_bedrock_without_region_or_credentials_is_outage() -> None:
    def fail(_: Config) -> Any:
        raise NoRegionError

    embedder = BedrockEmbedder(TITAN, 256, make_client=fail)
    assert "Region" in failure(EmbeddingUnavailable, embedder)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"embeddings": [[1.0] * 1024]}, "does not hold 2 vectors"),
        ({"embeddings": [[1.0] * 1024] * 3}, "does not hold 2 vectors"),
        ({"embeddings": []}, "does not hold 2 vectors"),
        ({"embeddings": [[1.0] * 1024, [1.0] * 1023]}, "1023 dimensions instead of 1024"),
        ({"embeddings": [[1.0] * 1024, ["1"] * 1024]}, "not finite numbers"),
        ({"embeddings": [[1.0] * 1024, [math.nan] * 1024]}, "not finite numbers"),
        ({"embeddings": [[1.0] * 1024, [None] * 1024]}, "not finite numbers"),
        ({"embeddings": [[1.0] * 1024, SECRET]}, "not finite numbers"),
        ({"embeddings": [[1.0] * 1024, [0.0] * 1024]}, "zero vector"),
        (
            b'{"embeddings": [%s, [1e999]]}' % json.dumps([1.0] * 1024).encode(),
            "not finite numbers",
        ),
    ],
)
def test_bedrock_unusable_vectors_are_refusal(stubbed: Stub, answer: object, words: str) -> None:
    stubbed.expect(ENGLISH, None, answer)
    assert words in failure(EmbeddingRefused, make(stubbed, ENGLISH, 1024), [SECRET, "Ebb."])


@pytest.mark.parametrize(
    "answer",
    [b"<html>", b"", b"[]", {"message": SECRET}, {"embeddings": SECRET}, {"embeddings": {}}],
)
def test_bedrock_unknown_answer_is_outage(stubbed: Stub, answer: object) -> None:
    stubbed.expect(ENGLISH, None, answer)
    message = failure(EmbeddingUnavailable, make(stubbed, ENGLISH, 1024))
    assert "not a list of embeddings" in message


def test_bedrock_titan_wrong_dimension_is_refusal(stubbed: Stub) -> None:
    stubbed.expect(TITAN, None, {"embedding": [1.0] * 1024, "inputTextTokenCount": 3})
    message = failure(EmbeddingRefused, make(stubbed, TITAN, 256))
    assert "STRANDLINE_EMBEDDING_DIMENSIONS" in message


def test_bedrock_huge_answer_is_outage(stubbed: Stub) -> None:
    stubbed.expect(TITAN, None, b" " * 200_000)
    message = failure(EmbeddingUnavailable, make(stubbed, TITAN, 256))
    assert "STRANDLINE_EMBEDDING_DIMENSIONS" in message


# --- as it is configured, over HTTP


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with serve_model(cohere_v4, monkeypatch) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", running.origin)
        yield running


def configured(**options: Any) -> Embedder:
    return make_embedder(settings(embedding_model=V4, embedding_dimensions=256, **options))


@pytest.mark.parametrize(
    ("options", "region"),
    [({}, "eu-central-1"), ({"embedding_region": "eu-west-3"}, "eu-west-3")],
)
def test_bedrock_configured_is_called_in_its_region(
    server: ModelServer, options: dict[str, Any], region: str
) -> None:
    embedder = configured(**options)
    assert isinstance(embedder, BedrockEmbedder)
    assert embedder.embed(["Ebb.", "Flow."], timeout=30) == [unit("Ebb.", 256), unit("Flow.", 256)]
    assert server.paths == ["/model/eu.cohere.embed-v4%3A0/invoke"]
    assert f"/{region}/bedrock/aws4_request" in server.headers[0]["authorization"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "ThrottlingException", EmbeddingUnavailable),
        (400, "ValidationException", EmbeddingRefused),
        (500, "", EmbeddingUnavailable),
    ],
)
def test_bedrock_http_error_is_not_retried(
    server: ModelServer, status: int, code: str, kind: Any
) -> None:
    server.status = status
    server.answer_headers = {"x-amzn-ErrorType": f"{code}:http://internal.amazon.com/"}
    server.answer = lambda request: {"message": f"{request['texts']}"}
    assert code in failure(kind, configured(), timeout=30)
    assert len(server.requests) == 1


def test_bedrock_dead_connection_is_replaced_once(stub: Stub) -> None:
    """One that was kept while Lambda had frozen the process."""
    closed = ConnectionClosedError(endpoint_url="https://bedrock")
    errors: list[Exception] = [closed]

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if errors:
            raise errors.pop()
        return 200, titan(body)

    stub.answer_with(answer)
    embedder = make(stub, TITAN, 256)
    assert len(embedder.embed(["The ebb began."], timeout=10)) == 1
    errors += [closed, closed]
    assert "cannot be reached" in failure(EmbeddingUnavailable, embedder)
    assert len(stub.bodies) == 4


def test_bedrock_silence_ends_with_callers_time(server: ModelServer) -> None:
    embedder = configured()
    embedder.embed(["warm"], timeout=30)
    server.hold = stay_silent
    started = time.monotonic()
    assert "in time" in failure(EmbeddingUnavailable, embedder, timeout=0.3)
    assert time.monotonic() - started < 3, "not the client's own limit"
    server.let_go.set()


def test_bedrock_silence_ends_with_clients_limit(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bedrock, "MAX_SECONDS", 0.3)
    server.hold = stay_silent
    started = time.monotonic()
    assert "in time" in failure(EmbeddingUnavailable, configured(), timeout=25)
    assert time.monotonic() - started < 20


def test_bedrock_broken_answer_is_outage(server: ModelServer) -> None:
    def break_off(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"embeddings": [')
        raise ConnectionAbortedError

    server.hold = break_off
    assert "cannot be reached" in failure(EmbeddingUnavailable, configured(), timeout=30)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"embedding_model": "some.model-v1:0"}, "STRANDLINE_EMBEDDING_MODEL=some.*Set amazon.tit"),
        ({"embedding_model": "amazon.titan-embed-text-v1"}, "STRANDLINE_EMBEDDING_MODEL"),
        (
            {"embedding_model": "arn:aws:bedrock:eu-west-1:1:application-inference-profile/a1"},
            "such as eu.cohere.embed-v4:0",
        ),
        ({"embedding_dimensions": 300}, "STRANDLINE_EMBEDDING_DIMENSIONS=300.*512, 1024 or 1536"),
        ({"embedding_model": ENGLISH, "embedding_dimensions": 512}, "of cohere.*: set 1024"),
        ({"embedding_model": TITAN, "embedding_dimensions": 1536}, "set 256, 512 or 1024"),
        ({"embedding_base_url": "https://m.example"}, "BASE_URL is for .*PROVIDER=openai"),
        ({"embedding_api_key": "sk-none"}, "STRANDLINE_EMBEDDING_API_KEY is for .*Unset it"),
        ({"embedding_text_prefix": "passage: "}, "STRANDLINE_EMBEDDING_TEXT_PREFIX is for"),
        ({"embedding_question_prefix": "query: "}, "STRANDLINE_EMBEDDING_QUESTION_PREFIX is for"),
        ({"embedding_model": None}, "STRANDLINE_EMBEDDING_PROVIDER=bedrock needs"),
        ({"embedding_dimensions": None}, "STRANDLINE_EMBEDDING_DIMENSIONS"),
    ],
)
def test_bedrock_refuses_setting_with_way_out(options: dict[str, Any], words: str) -> None:
    values: dict[str, Any] = {"embedding_model": V4, "embedding_dimensions": 256}
    with pytest.raises(Misconfigured, match=words) as error:
        make_embedder(settings(**values | options))
    assert "sk-none" not in error.value.message


def test_bedrock_region_beside_other_provider_is_refused() -> None:
    other: dict[str, Any] = {"embedding_provider": "local", "embedding_region": "eu-west-1"}
    with pytest.raises(Misconfigured, match="EMBEDDING_REGION is for the provider bedrock"):
        make_embedder(settings(**other))
