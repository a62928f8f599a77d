"""A language model behind any endpoint that speaks OpenAI's protocol: OpenAI, Azure OpenAI,
Gemini's compatible endpoint, Ollama, a gateway."""

import json
import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

# httpx2 is openai's own transport. While a body is read, its errors come through unwrapped.
import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from strandline.errors import (
    FormatRefused,
    ModelLate,
    ModelRefused,
    ModelUnavailable,
    ModelUnusable,
    StrandlineError,
)
from strandline.llm.provider import Asked, Reply
from strandline.model_transport import UnusableAnswer, limits, make_client

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

OPENAI_URL = "https://api.openai.com/v1"
MAX_BYTES = 256 * 1024
"""Of an answer; more is not read. The longest that a task has is 2 % of it."""

_REFUSALS = frozenset({400, 413, 422})
_MAYBE_REFUSALS = frozenset({500, 501})
"""Some servers break over a format that they do not know, and say so."""
_MISCONFIGURED = frozenset({401, 403, 404})
_FORMATS = ("json_schema", "json_object_schema", "json_object", "text")
_LIMITS = ("max_completion_tokens", "max_tokens", "no_limit")
_NAMES_FORMAT = re.compile(r"response_format|json_schema|json_object|structured|schema", re.I)
_NAMES_LIMIT = re.compile(r"max_completion_tokens|max_tokens", re.I)


class _Way(NamedTuple):
    """How structure, and an end, are asked for. Newer models refuse `max_tokens`, older endpoints
    know no other word; each format is asked for where the one before was refused."""

    format: str
    limit: str

    def __str__(self) -> str:
        return f"{self.format} {self.limit}"

    @classmethod
    def read(cls, text: str) -> "_Way":
        format, _, limit = text.partition(" ")
        return cls(format, limit)

    def simpler(self, refusal: str, sure: bool) -> "_Way | None":
        """What to try after a refusal that says this; None where it is not the way's fault. A way
        that was never taken is blamed for a refusal that says nothing."""
        at, limit_at = _FORMATS.index(self.format), _LIMITS.index(self.limit)
        if _NAMES_LIMIT.search(refusal) and limit_at + 1 < len(_LIMITS):
            return self._replace(limit=_LIMITS[limit_at + 1])
        if (_NAMES_FORMAT.search(refusal) or not sure) and at + 1 < len(_FORMATS):
            return self._replace(format=_FORMATS[at + 1])
        return None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(default=0, ge=0, lt=2**31)
    completion_tokens: int = Field(default=0, ge=0, lt=2**31)


class _Answer(BaseModel):
    """The part of an answer that is used; compatible endpoints differ in the rest."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None


class ChatModel:
    """Answers through an endpoint. Several threads may share one; `close` it when done."""

    def __init__(
        self,
        *,
        base_url: str | None,
        model: str,
        api_key: str | None,
        azure_version: str | None = None,
    ) -> None:
        """`base_url` comes from the deployment's settings alone; None is OpenAI itself. With
        `azure_version` it is an Azure resource, and `model` a deployment of it."""
        kind = "azure" if azure_version else "openai"
        self.name = f"{kind}:{model}"
        own = kind == "azure" or base_url is None
        self.way = str(_Way("json_schema", "max_completion_tokens" if own else "max_tokens"))
        self._model = model
        http = make_client()
        # None would let the clients take either from the environment. Endpoints without keys ignore
        # the word. Retrying is left to who knows the time, the budget and the breaker.
        key, url = api_key or "none", base_url or OPENAI_URL
        self._client = (
            openai.AzureOpenAI(
                base_url=f"{url.rstrip('/')}/openai/deployments/{model}",
                api_version=azure_version,
                api_key=key,
                max_retries=0,
                http_client=http,
            )
            if azure_version
            else openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=http)
        )
        # These the clients take from OPENAI_* however they are made: no name and no key but those
        # of the settings are sent.
        self._client.organization = self._client.project = self._client.admin_api_key = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, asked: Asked, way: str, *, sure: bool, seconds: float) -> Reply:
        """One request, see `Provider`."""
        taken = _Way.read(way)
        try:
            with (
                limits(seconds, MAX_BYTES),
                self._client.chat.completions.with_streaming_response.create(
                    model=self._model,
                    messages=_messages(asked, taken),
                    extra_body=_wanted(asked, taken),
                    timeout=seconds,
                ) as response,
            ):
                body = response.read()
        except UnusableAnswer as error:
            raise ModelUnusable(f"The language model's answer {error}") from None
        except openai.APIStatusError as error:
            # Without its cause: providers quote the text, and the transport the key.
            raise _refusal(error, taken, sure) from None
        except (openai.APITimeoutError, httpx2.TimeoutException):
            raise ModelLate("The language model did not answer in time.") from None
        except (openai.OpenAIError, httpx2.HTTPError):
            raise ModelUnavailable("The language model cannot be reached.") from None
        return _reply(body)


def _messages(asked: Asked, way: _Way) -> "list[ChatCompletionMessageParam]":
    system = asked.system
    if way.format != "json_schema":
        system += f"\n\nThe answer is valid under this JSON Schema: {json.dumps(asked.schema)}"
    return [{"role": "system", "content": system}, {"role": "user", "content": asked.user}]


def _wanted(asked: Asked, way: _Way) -> dict[str, object]:
    """Structure and an end, as this way asks for them. No temperature: newer models refuse it, and
    what a model said once is stored."""
    wanted: dict[str, object] = {}
    if way.format == "json_schema":
        named = {"name": asked.task, "schema": asked.schema, "strict": True}
        wanted["response_format"] = {"type": "json_schema", "json_schema": named}
    elif way.format == "json_object_schema":  # as llama.cpp's and some gateways' servers want it
        wanted["response_format"] = {"type": "json_object", "schema": asked.schema}
    elif way.format == "json_object":
        wanted["response_format"] = {"type": "json_object"}
    if way.limit != "no_limit":
        wanted[way.limit] = asked.max_tokens
    return wanted


def _reply(body: bytes) -> Reply:
    try:
        answer = _Answer.model_validate_json(body)
    except ValidationError:
        raise ModelUnusable("The language model's answer is not a chat completion.") from None
    choice, usage = answer.choices[0], answer.usage
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise ModelRefused
    return Reply(
        choice.message.content or "",
        usage and usage.prompt_tokens,
        usage and usage.completion_tokens,
    )


def _refusal(error: openai.APIStatusError, way: _Way, sure: bool) -> StrandlineError:
    status = error.status_code
    blames = status in _REFUSALS
    said = f"The language model's provider refused the request (HTTP {status})."
    if blames or status in _MAYBE_REFUSALS:
        simpler = way.simpler(_words(error), sure or not blames)
        if simpler is not None:
            return FormatRefused(said, str(simpler))
    if blames:
        return ModelRefused(said)
    hint = ": check STRANDLINE_LLM_*" if status in _MISCONFIGURED else ""
    return ModelUnavailable(f"The language model's provider answered HTTP {status}{hint}.")


def _words(error: openai.APIStatusError) -> str:
    """What a refusal says. It may quote what was sent: to be searched, never told."""
    return str(error.body)[:4000]
