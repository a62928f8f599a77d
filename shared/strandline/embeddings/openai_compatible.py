"""Embeddings from any endpoint that speaks OpenAI's protocol."""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

# httpx2 is openai's own transport. Its errors while a body is read arrive unwrapped.
import httpx2
import openai
from pydantic import BaseModel, ConfigDict, FailFast, FiniteFloat, ValidationError

from strandline.embeddings.embedder import Purpose, require_utf8_encodable, to_unit_length
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable
from strandline.model_transport import (
    UnusableAnswer,
    limit_exchange_time_and_size,
    make_limited_http_client,
)

OPENAI_URL = "https://api.openai.com/v1"

# The protocol's limits are 2,048 texts and 300,000 tokens a request. A token can be as short as one
# character, and smaller endpoints have lower limits.
MAX_TEXTS = 256
MAX_CHARACTERS = 250_000
# Seconds. A request without an answer for so long is not worth waiting for.
MAX_SECONDS = 15.0
_VALUE_BYTES = 48
"""Of an answer, for each number of its vectors: 17 digits, sign, exponent and indentation."""
_ENVELOPE_BYTES = 64 * 1024
"""Of an answer, for everything but the vectors."""

# Bad request, too large, unprocessable: the same text would get the same answer again. All other
# statuses, such as those for a wrong key or model, say nothing about the text.
_REFUSALS = frozenset({400, 413, 422})
_MISCONFIGURED = frozenset({401, 403, 404})
_TIMEOUT_MESSAGE = "The embedding provider did not answer in time."


class _EmbeddingItem(BaseModel):
    model_config = ConfigDict(strict=True)

    # Gateways that write protobuf as JSON leave out a zero.
    index: int = 0
    embedding: Annotated[list[FiniteFloat], FailFast()]


class _EmbeddingsAnswer(BaseModel):
    """The part of an answer that is used; compatible endpoints differ in the rest."""

    data: Annotated[list[_EmbeddingItem], FailFast()]


class OpenAICompatibleEmbedder:
    """Embeds through an endpoint. Safe for threads; `close` it when done."""

    def __init__(
        self,
        *,
        base_url: str | None,
        model: str,
        api_key: str | None,
        dimensions: int,
        prefixes: Mapping[Purpose, str] = MappingProxyType({}),
    ) -> None:
        """`base_url` comes only from the deployment's settings; None is OpenAI itself. `prefixes`
        stand before a text by what it is embedded for. Vectors of texts with another prefix are
        another space."""
        self._text_prefix = prefixes.get("text", "")
        self._question_prefix = prefixes.get("question", "")
        form = f"+{self._text_prefix}" if self._text_prefix else ""
        self.space = f"openai:{model}{form}/{dimensions}"
        self.dimensions = dimensions
        self._model = model
        # The older models refuse the parameter, and so do most compatible endpoints.
        self._dimensions_param = dimensions if model.startswith("text-embedding-3") else openai.omit
        self._client = openai.OpenAI(
            # With None the client would read them from OPENAI_*: only the address and key of the
            # settings may be used. Endpoints without keys ignore the placeholder.
            base_url=base_url or OPENAI_URL,
            api_key=api_key or "none",
            # The caller retries: it knows its deadline and the circuit breaker.
            max_retries=0,
            http_client=make_limited_http_client(),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Return one unit vector per text, in order, all within `timeout` seconds. Each request may
        take at most 15 s of them.

        Raises EmbeddingUnavailable (unreachable, late, 429, 5xx, wrong key or model, not JSON, too
        large) and EmbeddingRefused (400, 413, 422, or vectors of the wrong number or dimension).
        """
        require_utf8_encodable(texts)
        prefix = self._question_prefix if purpose == "question" else self._text_prefix
        deadline = time.monotonic() + timeout
        vectors: list[list[float]] = []
        for batch in _split_batches([prefix + text for text in texts]):
            vectors += self._parse_vectors(self._fetch_answer(batch, deadline), len(batch))
        return vectors

    def _fetch_answer(self, batch: list[str], deadline: float) -> bytes:
        """Send one batch and return the answer's body."""
        now = time.monotonic()
        deadline = min(deadline, now + MAX_SECONDS)
        if deadline <= now:
            raise EmbeddingUnavailable(_TIMEOUT_MESSAGE)
        seconds, max_bytes = (
            deadline - now,
            len(batch) * self.dimensions * _VALUE_BYTES + _ENVELOPE_BYTES,
        )
        try:
            with (
                limit_exchange_time_and_size(seconds, max_bytes),
                self._client.embeddings.with_streaming_response.create(
                    model=self._model,
                    input=batch,
                    encoding_format="float",
                    dimensions=self._dimensions_param,
                    timeout=seconds,
                ) as response,
            ):
                body = response.read()
        except UnusableAnswer as error:
            raise EmbeddingUnavailable(
                f"The embedding provider's answer {error} Is its dimension that of"
                " STRANDLINE_EMBEDDING_DIMENSIONS?"
            ) from None
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            # Without the cause: providers quote the text, and the transport the key.
            raise _to_embedding_error(error) from None
        if time.monotonic() > deadline:
            raise EmbeddingUnavailable(_TIMEOUT_MESSAGE)
        return body

    def _parse_vectors(self, body: bytes, count: int) -> list[list[float]]:
        items = sorted(_parse_answer(body).data, key=lambda item: item.index)
        if [item.index for item in items] != list(range(count)):
            raise EmbeddingRefused(
                f"The embedding provider's answer does not hold {count} vectors, one per text."
            )
        for item in items:
            if len(item.embedding) != self.dimensions:
                raise EmbeddingRefused(
                    f"The embedding provider returned {len(item.embedding)} dimensions instead of "
                    f"{self.dimensions}: check STRANDLINE_EMBEDDING_DIMENSIONS."
                )
        return [to_unit_length(item.embedding) for item in items]


def _split_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == MAX_TEXTS or characters + len(text) > MAX_CHARACTERS):
            yield batch
            batch, characters = [], 0
        # The protocol forbids the empty text, and one would refuse its whole batch.
        batch.append(text or " ")
        characters += len(text)
    if batch:
        yield batch


def _parse_answer(body: bytes) -> _EmbeddingsAnswer:
    try:
        return _EmbeddingsAnswer.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
    # An error inside an item is an unusable vector. An error further out is not an answer of the
    # model: a proxy's page, or an error with status 200.
    if all(len(fault["loc"]) > 1 for fault in faults):
        raise EmbeddingRefused(
            "The embedding provider returned a vector that is not finite numbers."
        )
    raise EmbeddingUnavailable("The embedding provider's answer is not a list of embeddings.")


def _to_embedding_error(error: Exception) -> EmbeddingUnavailable | EmbeddingRefused:
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        if status in _REFUSALS:
            return EmbeddingRefused(f"The embedding provider refused the request (HTTP {status}).")
        hint = ": check STRANDLINE_EMBEDDING_*" if status in _MISCONFIGURED else ""
        return EmbeddingUnavailable(f"The embedding provider answered HTTP {status}{hint}.")
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException)):
        return EmbeddingUnavailable(_TIMEOUT_MESSAGE)
    return EmbeddingUnavailable("The embedding provider cannot be reached.")
