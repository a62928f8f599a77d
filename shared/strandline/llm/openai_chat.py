"""A language model behind any endpoint that speaks OpenAI's protocol: OpenAI, Azure OpenAI,
Gemini's compatible endpoint, Ollama, a gateway."""

import json
import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

# httpx2 is openai's own transport. While a body is read, its errors are not wrapped.
import httpx2
import openai
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from strandline.errors import (
    InvalidModelAnswer,
    ModelFormatUnsupported,
    ModelMisconfigured,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRefused,
    ModelTimeout,
    ModelUnavailable,
    StrandlineError,
)
from strandline.llm.provider import (
    DEFAULT_RATE_PAUSE,
    LATE_TEXT,
    REFUSED_TEXT,
    ModelReply,
    ModelRequest,
)
from strandline.model_transport import (
    UnusableAnswer,
    limit_exchange_time_and_size,
    make_limited_http_client,
)

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

OPENAI_URL = "https://api.openai.com/v1"
MAX_BYTES = 256 * 1024
"""The longest answer that is read. A task's longest valid answer is 2 % of it."""

_REFUSALS = frozenset({400, 413, 422})
_MAYBE_REFUSALS = frozenset({500, 501})
"""Some servers fail on a format that they do not know, and name it in the error."""
_MISCONFIGURED = {
    401: "it does not accept the key: check STRANDLINE_LLM_API_KEY",
    402: "its account has no credit left: check its billing at the provider",
    403: "the key may not use this model: check STRANDLINE_LLM_API_KEY and STRANDLINE_LLM_MODEL",
    404: "it has no such model or address: check STRANDLINE_LLM_MODEL and STRANDLINE_LLM_BASE_URL",
}
"""Refusals of the settings, by status, and what to do. What the provider itself says may quote the
request or the key, and is not repeated."""
_RATE_LIMITED = 429
_MAX_RATE_PAUSE = 3600.0
_SAYS_NO_CREDIT = re.compile(r"insufficient_quota", re.I)
"""What OpenAI's error says if it is not the rate that is too high: nothing is left to spend."""
_RESPONSE_FORMATS = ("json_schema", "json_object_schema", "json_object", "text")
_TOKEN_LIMITS = ("max_completion_tokens", "max_tokens", "no_limit")
_MENTIONS_FORMAT = re.compile(r"response_format|json_schema|json_object|structured|schema", re.I)
_MENTIONS_LIMIT = re.compile(r"max_completion_tokens|max_tokens", re.I)
_SAYS_CUT = re.compile(r"could not finish|output limit was reached", re.I)
"""What a reasoning model's error says if it thought up to the limit of its answer."""


class _OutputMode(NamedTuple):
    """How structured output, and a limit of its length, are requested. Newer models refuse
    `max_tokens`, older endpoints know only that; each format is tried where the one before was
    refused."""

    format: str
    limit: str

    def __str__(self) -> str:
        return f"{self.format} {self.limit}"

    @classmethod
    def parse(cls, text: str) -> "_OutputMode":
        format, _, limit = text.partition(" ")
        return cls(format, limit)

    def choose_simpler_mode(self, refusal: str, is_proven: bool) -> "_OutputMode | None":
        """The mode to try after a refusal with this text; None where the mode is not to blame. If
        the text names neither, a mode that the model has never accepted is blamed."""
        format_index, limit_index = (
            _RESPONSE_FORMATS.index(self.format),
            _TOKEN_LIMITS.index(self.limit),
        )
        if _MENTIONS_LIMIT.search(refusal) and limit_index + 1 < len(_TOKEN_LIMITS):
            return self._replace(limit=_TOKEN_LIMITS[limit_index + 1])
        if (_MENTIONS_FORMAT.search(refusal) or not is_proven) and format_index + 1 < len(
            _RESPONSE_FORMATS
        ):
            return self._replace(format=_RESPONSE_FORMATS[format_index + 1])
        return None


def _join_text_parts(content: object) -> object:
    """The text of a content that is a list of parts: without thoughts and unknown parts."""
    if not isinstance(content, list):
        return content
    texts: list[str] = []
    for part in cast("list[object]", content):
        fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type", "text") in ("text", "output_text") and isinstance(text, str):
            texts.append(text)
    return "".join(texts)


def _to_token_count_or_none(value: object) -> int | None:
    """A number of tokens; None for what is none, which must not cost the answer."""
    if isinstance(value, int | float) and 0 <= value < 2**31:
        return int(value)
    return None


def _object_or_none(value: object) -> object:
    return cast("object", value) if isinstance(value, dict) else None


class _Message(BaseModel):
    content: Annotated[str | None, BeforeValidator(_join_text_parts)] = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: Annotated[int | None, BeforeValidator(_to_token_count_or_none)] = None
    completion_tokens: Annotated[int | None, BeforeValidator(_to_token_count_or_none)] = None


class _ChatCompletion(BaseModel):
    """The part of an answer that is used; compatible endpoints differ in the rest."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Annotated[_Usage | None, BeforeValidator(_object_or_none)] = None


class OpenAiChatModel:
    """A provider that calls an endpoint. Several threads may share one; `close` it when done."""

    def __init__(
        self,
        *,
        base_url: str | None,
        model: str,
        api_key: str | None,
        azure_version: str | None = None,
    ) -> None:
        """`base_url` comes from the deployment's settings alone; None is OpenAI itself. With
        `azure_version` (an API version), `base_url` is an Azure resource and `model` a deployment
        in it."""
        provider = "azure" if azure_version else "openai"
        self.name = f"{provider}:{model}"
        is_official = provider == "azure" or base_url is None
        self.output_mode = str(
            _OutputMode("json_schema", "max_completion_tokens" if is_official else "max_tokens")
        )
        self._model = model
        http_client = make_limited_http_client()
        # None would let the clients read either from the environment. Endpoints without keys ignore
        # "none". Retries are left to the caller, which knows the deadline, budget and breaker.
        key, url = api_key or "none", base_url or OPENAI_URL
        self._client = (
            openai.AzureOpenAI(
                base_url=f"{url.rstrip('/')}/openai/deployments/{model}",
                api_version=azure_version,
                api_key=key,
                max_retries=0,
                http_client=http_client,
            )
            if azure_version
            else openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=http_client)
        )
        # The clients always read these from OPENAI_* variables: reset, so that no name and no key
        # but those of the settings are sent.
        self._client.organization = self._client.project = self._client.admin_api_key = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """Send one request; see `ModelProvider.ask`."""
        output_mode = _OutputMode.parse(mode)
        try:
            with (
                limit_exchange_time_and_size(timeout, MAX_BYTES),
                self._client.chat.completions.with_streaming_response.create(
                    model=self._model,
                    messages=_build_messages(request, output_mode),
                    extra_body=_build_options(request, output_mode),
                    timeout=timeout,
                ) as response,
            ):
                body = response.read()
        except UnusableAnswer as error:
            raise InvalidModelAnswer(f"The language model's answer {error}") from None
        except openai.APIStatusError as error:
            if error.status_code == 400 and _SAYS_CUT.search(_read_error_text(error)):
                return ModelReply("", None, None, is_cut=True)
            # Without its cause: providers quote the text, and the transport quotes the key.
            raise _to_model_error(error, output_mode, is_proven) from None
        except (openai.APITimeoutError, httpx2.TimeoutException):
            raise ModelTimeout(LATE_TEXT) from None
        except (openai.OpenAIError, httpx2.HTTPError):
            raise ModelUnavailable(
                "The language model cannot be reached: check the address in "
                "STRANDLINE_LLM_BASE_URL, and that the model's server runs."
            ) from None
        return _parse_chat_completion(body)


def _build_messages(request: ModelRequest, mode: _OutputMode) -> "list[ChatCompletionMessageParam]":
    system = request.system
    if mode.format != "json_schema":
        system += f"\n\nThe answer is valid under this JSON Schema: {json.dumps(request.schema)}"
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": request.user_message},
    ]


def _build_options(request: ModelRequest, mode: _OutputMode) -> dict[str, object]:
    """The options for structure and length in this mode. No temperature: newer models refuse it,
    and an answer is stored, so it need not be repeatable."""
    options: dict[str, object] = {}
    if mode.format == "json_schema":
        schema_format = {"name": request.task, "schema": request.schema, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": schema_format}
    elif mode.format == "json_object_schema":  # for llama.cpp's server and some gateways
        options["response_format"] = {"type": "json_object", "schema": request.schema}
    elif mode.format == "json_object":
        options["response_format"] = {"type": "json_object"}
    if mode.limit != "no_limit":
        options[mode.limit] = request.max_tokens
    return options


def _parse_chat_completion(body: bytes) -> ModelReply:
    try:
        answer = _ChatCompletion.model_validate_json(body)
    except ValidationError:
        raise InvalidModelAnswer(
            "The language model's answer is not a chat completion: check that"
            " STRANDLINE_LLM_BASE_URL is the address of such an API, as in https://…/v1."
        ) from None
    choice, usage = answer.choices[0], answer.usage
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise ModelRefused
    return ModelReply(
        choice.message.content or "",
        usage and usage.prompt_tokens,
        usage and usage.completion_tokens,
        is_cut=choice.finish_reason == "length",
    )


def _to_model_error(
    error: openai.APIStatusError, mode: _OutputMode, is_proven: bool
) -> StrandlineError:
    status = error.status_code
    is_refusal = status in _REFUSALS
    message = f"The language model's provider refused the request (HTTP {status})."
    if is_refusal or status in _MAYBE_REFUSALS:
        simpler_mode = mode.choose_simpler_mode(
            _read_error_text(error), is_proven or not is_refusal
        )
        if simpler_mode is not None:
            return ModelFormatUnsupported(message, str(simpler_mode))
    if is_refusal:
        return ModelRequestRefused(f"{message} {REFUSED_TEXT}")
    answered = f"The language model's provider answered HTTP {status}"
    if status in _MISCONFIGURED:
        return ModelMisconfigured(f"{answered}, {_MISCONFIGURED[status]}.")
    if status == _RATE_LIMITED and _SAYS_NO_CREDIT.search(_read_error_text(error)):
        return ModelMisconfigured(f"{answered}, {_MISCONFIGURED[402]}.")
    if status == _RATE_LIMITED:
        return ModelRateLimited(
            f"{answered}, it gets too many requests: check the account's limits and credit, or"
            " lower STRANDLINE_LLM_CALLS_PER_MINUTE.",
            _read_retry_after(error),
        )
    return ModelUnavailable(f"{answered}: see the log or the status page of that server.")


def _read_retry_after(error: openai.APIStatusError) -> float:
    """The seconds of a `Retry-After`."""
    text = error.response.headers.get("retry-after", "")
    seconds = float(text) if re.fullmatch(r"\d{1,6}(\.\d+)?", text) else DEFAULT_RATE_PAUSE
    return min(max(seconds, 1.0), _MAX_RATE_PAUSE)


def _read_error_text(error: openai.APIStatusError) -> str:
    """The text of a refusal. It may quote the request: it is searched, never shown or logged."""
    return str(error.body)[:4000]
