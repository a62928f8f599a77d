"""Embeddings from Amazon Bedrock, called with the function's own role: no key and no URL.

Built and tested from the documented formats of each model and from botocore's service model; it was
never called against the real service.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Annotated, Any, NamedTuple, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from pydantic import ConfigDict, FailFast, FiniteFloat, TypeAdapter, ValidationError

from strandline.aws import client_factory
from strandline.embeddings.bedrock_models import ModelFamily, require_bedrock_model
from strandline.embeddings.embedder import Purpose, require_utf8_encodable, to_unit_length
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable

PARALLEL_CALLS = 8
"""Calls at once; Titan takes one text a call."""
MAX_SECONDS = 15.0
"""Seconds. A call without an answer for so long is not worth waiting for."""
MAX_CACHED_VECTORS = 256
"""Vectors of a failed call that the next one need not ask for again. A quota of requests a minute
can be smaller than what is embedded at once, and would otherwise never let it finish."""
_VALUE_BYTES = 48
"""Of an answer, for each number: 17 digits, sign, exponent and indentation."""
_ENVELOPE_BYTES = 64 * 1024
"""Of an answer, for everything but the vectors and the texts, which Cohere's models repeat."""
_INPUT_TYPES: Mapping[Purpose, str] = {"text": "search_document", "question": "search_query"}

_MODEL_HINT = "check STRANDLINE_EMBEDDING_MODEL and STRANDLINE_EMBEDDING_REGION"
_MISCONFIGURED = {
    "AccessDeniedException": (
        "the function's role may not call this model, or the account has no access to it: "
        "deploy with settings.embedding_model, which allows it, or set another model in "
        "STRANDLINE_EMBEDDING_MODEL"
    ),
    "ExpiredTokenException": "the credentials are out of date",
    "ResourceNotFoundException": f"the Region has no such model: {_MODEL_HINT}",
    "UnrecognizedClientException": "it does not accept the credentials",
}
"""Refusals of the settings, and what they mean."""
_MODEL_FAULTS = {
    "Invocation of model ID": (
        "the Region offers this model through an inference profile only: set "
        "STRANDLINE_EMBEDDING_MODEL to one, such as eu.cohere.embed-v4:0"
    ),
    "The provided model identifier is invalid": f"the model's name is none here: {_MODEL_HINT}",
}
"""Beginnings of a ValidationException's message that say nothing of the text."""
_TIMEOUT_MESSAGE = "Bedrock did not answer in time."
_UNREACHABLE_MESSAGE = "Bedrock cannot be reached, or there are no AWS credentials or Region."
_VECTORS: TypeAdapter[list[list[float]]] = TypeAdapter(
    Annotated[list[Annotated[list[FiniteFloat], FailFast()]], FailFast()],
    config=ConfigDict(strict=True),
)


class _TextBatch(NamedTuple):
    """What one call embeds."""

    purpose: Purpose
    texts: tuple[str, ...]


class BedrockEmbedder:
    """Embeds through Bedrock. Safe for threads."""

    def __init__(
        self,
        model_id: str,
        dimensions: int,
        region: str | None = None,
        make_client: Callable[[Config], Any] | None = None,
    ) -> None:
        """`region` is the function's own if None; `make_client` creates a client of
        `bedrock-runtime` from a botocore config, for tests. Raises Misconfigured for a model or
        dimension that cannot be used.

        The space names the model itself: its vectors are the same through every inference profile.
        """
        model = require_bedrock_model(model_id, dimensions)
        self.space = f"bedrock:{model.name}/{dimensions}"
        self.dimensions = dimensions
        self._model_id = model_id
        self._family = model.family
        self._region = region
        self._make_client = make_client or partial(client_factory.make_client, "bedrock-runtime")
        self._client: Any = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(PARALLEL_CALLS, thread_name_prefix="bedrock")
        self._cached: dict[_TextBatch, list[list[float]]] = {}

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Return one unit vector per text, in order, all within `timeout` seconds. A text that is
        longer than the model reads is represented by its beginning.

        Raises EmbeddingUnavailable (throttled, late, unreachable, 5xx, no permission, no such
        model) and EmbeddingRefused (a text that the model does not accept, or vectors of the wrong
        number or dimension).
        """
        require_utf8_encodable(texts)
        deadline = time.monotonic() + timeout
        batches = self._split_into_batches(texts, purpose)
        if not batches:
            return []
        if timeout <= 0:
            raise EmbeddingUnavailable(_TIMEOUT_MESSAGE)
        with self._lock:
            vectors = {one: self._cached[one] for one in batches if one in self._cached}
        client = self._get_client()
        futures = {
            self._pool.submit(self._embed_batch, client, one): one
            for one in dict.fromkeys(batches)
            if one not in vectors
        }
        errors = _collect_vectors(futures, vectors, deadline)
        if errors:
            self._cache_vectors(vectors)
            # An outage first: what is refused, a later call finds out.
            raise min(errors, key=lambda error: isinstance(error, EmbeddingRefused))
        self._drop_cached(batches)
        return [vector for one in batches for vector in vectors[one]]

    def _split_into_batches(self, texts: Sequence[str], purpose: Purpose) -> list[_TextBatch]:
        size, characters = self._family.max_texts, self._family.max_characters
        # An empty text is refused by Titan, and would refuse its whole batch.
        shortened = [text[:characters] or " " for text in texts]
        return [
            _TextBatch(purpose, tuple(shortened[start : start + size]))
            for start in range(0, len(shortened), size)
        ]

    def _get_client(self) -> Any:
        """One client for all calls: how long a call waits, the caller's deadline decides."""
        with self._lock:  # boto3's session is not safe for threads, and its clients are
            if self._client is None:
                config = Config(
                    region_name=self._region,
                    connect_timeout=5,
                    read_timeout=MAX_SECONDS,
                    retries={"total_max_attempts": 1},  # the caller retries: it knows its deadline
                    max_pool_connections=PARALLEL_CALLS,
                )
                try:
                    self._client = self._make_client(config)
                except BotoCoreError:
                    raise EmbeddingUnavailable(_UNREACHABLE_MESSAGE) from None
            return self._client

    def _cache_vectors(self, vectors: dict[_TextBatch, list[list[float]]]) -> None:
        count = MAX_CACHED_VECTORS // self._family.max_texts
        with self._lock:
            self._cached = dict([*(self._cached | vectors).items()][-count:])

    def _drop_cached(self, batches: Sequence[_TextBatch]) -> None:
        with self._lock:
            for one in batches:
                self._cached.pop(one, None)

    def _embed_batch(self, client: Any, batch: _TextBatch) -> list[list[float]]:
        return self._parse_vectors(self._fetch_answer(client, batch), len(batch.texts))

    def _fetch_answer(self, client: Any, batch: _TextBatch) -> bytes:
        """The answer of one call, or of a few: Titan does not truncate, so that a text of too many
        tokens is halved until it is accepted."""
        least = self._family.least_characters
        while True:
            try:
                return self._invoke(client, batch)
            except EmbeddingRefused:
                length = max(map(len, batch.texts))
                if least is None or length <= least:
                    raise
                shorter = tuple(text[: max(least, length // 2)] for text in batch.texts)
                batch = batch._replace(texts=shorter)

    def _invoke(self, client: Any, batch: _TextBatch) -> bytes:
        """The answer's body."""
        max_bytes = (
            _ENVELOPE_BYTES
            + 2 * len(batch.texts) * self.dimensions * _VALUE_BYTES  # Titan has each twice
            + 12 * sum(map(len, batch.texts))  # a character as two escapes of six bytes
        )
        try:
            body = _invoke_model(
                client,
                modelId=self._model_id,
                contentType="application/json",
                accept="application/json",
                body=_build_body(self._family, batch, self.dimensions),
            )["body"]
            answer = bytearray()
            with body:
                # To its end, where botocore compares its length with what was announced.
                while len(answer) <= max_bytes and (piece := body.read(max_bytes + 1)):
                    answer += piece
        except (ConnectTimeoutError, ReadTimeoutError):
            raise EmbeddingUnavailable(_TIMEOUT_MESSAGE) from None
        except ClientError as error:  # without its cause, which may quote the text
            raise _to_embedding_error(error) from None
        except BotoCoreError:
            raise EmbeddingUnavailable(_UNREACHABLE_MESSAGE) from None
        if len(answer) > max_bytes:
            raise EmbeddingUnavailable(
                f"Bedrock's answer is over {max_bytes} bytes. Is its dimension that of "
                "STRANDLINE_EMBEDDING_DIMENSIONS?"
            )
        return bytes(answer)

    def _parse_vectors(self, body: bytes, count: int) -> list[list[float]]:
        try:
            vectors = _VECTORS.validate_python(_find_vectors(body))
        except ValidationError:  # without its cause, which quotes the answer
            raise EmbeddingRefused(
                "Bedrock returned a vector that is not finite numbers."
            ) from None
        if len(vectors) != count:
            raise EmbeddingRefused(f"Bedrock's answer does not hold {count} vectors, one per text.")
        for vector in vectors:
            if len(vector) != self.dimensions:
                raise EmbeddingRefused(
                    f"Bedrock returned {len(vector)} dimensions instead of {self.dimensions}: "
                    "check STRANDLINE_EMBEDDING_DIMENSIONS."
                )
        return [to_unit_length(vector) for vector in vectors]


def _collect_vectors(
    futures: Mapping[Future[list[list[float]]], _TextBatch],
    vectors: dict[_TextBatch, list[list[float]]],
    deadline: float,
) -> list[Exception]:
    """Wait for the calls and add their vectors. After the first failure no further call begins;
    those that have begun are waited for, because their vectors are kept. Returns the failures."""
    wait(futures, max(0.0, deadline - time.monotonic()), FIRST_EXCEPTION)
    begun = [future for future in futures if not future.cancel()]
    wait(begun, max(0.0, deadline - time.monotonic()))
    errors: list[Exception] = []
    for future in begun:
        if not future.done():
            errors.append(EmbeddingUnavailable(_TIMEOUT_MESSAGE))
        elif error := future.exception():
            errors.append(cast("Exception", error))
        else:
            vectors[futures[future]] = future.result()
    if not errors and len(begun) < len(futures):
        errors.append(EmbeddingUnavailable(_TIMEOUT_MESSAGE))
    return errors


def _build_body(family: ModelFamily, batch: _TextBatch, dimensions: int) -> bytes:
    """The request in the model's own format."""
    cohere = {"texts": batch.texts, "input_type": _INPUT_TYPES[batch.purpose]}
    by_form: dict[str, dict[str, Any]] = {
        "titan": {"inputText": batch.texts[0], "dimensions": dimensions, "normalize": True},
        "cohere_v3": cohere | {"truncate": "END"},
        "cohere_v4": cohere
        | {"embedding_types": ["float"], "output_dimension": dimensions, "truncate": "RIGHT"},
    }
    return json.dumps(by_form[family.form], ensure_ascii=False).encode()


def _find_vectors(body: bytes) -> list[Any]:
    """What stands in an answer where its vectors are. Cohere's models give a list, or one for each
    type of number, whichever was documented for the request."""
    try:
        answer: Any = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        fields = cast("dict[str, Any]", answer)
        if isinstance(fields.get("embedding"), list):
            return [fields["embedding"]]
        vectors = fields.get("embeddings")
        if isinstance(vectors, dict):
            vectors = cast("dict[str, Any]", vectors).get("float")
        if isinstance(vectors, list):
            return cast("list[Any]", vectors)
    raise EmbeddingUnavailable("Bedrock's answer is not a list of embeddings.")


def _invoke_model(client: Any, **parameters: Any) -> dict[str, Any]:
    return client_factory.call_again_if_closed(client.invoke_model, **parameters)


def _to_embedding_error(error: ClientError) -> EmbeddingUnavailable | EmbeddingRefused:
    code = client_factory.error_code(error)
    message = str(cast("dict[str, dict[str, str]]", error.response)["Error"].get("Message", ""))
    faults = [fault for start, fault in _MODEL_FAULTS.items() if message.startswith(start)]
    if code == "ValidationException" and not faults:
        return EmbeddingRefused("Bedrock refused the request (ValidationException).")
    if code == "ModelTimeoutException":
        return EmbeddingUnavailable(_TIMEOUT_MESSAGE)
    hint = faults[0] if faults else _MISCONFIGURED.get(code)
    return EmbeddingUnavailable(f"Bedrock answered {code}{f': {hint}' if hint else ''}.")
