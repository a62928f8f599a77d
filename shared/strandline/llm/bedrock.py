"""A language model on Amazon Bedrock, called with the function's own role: it needs no key and no
URL.

Built and tested from the shapes of the Converse API in botocore's service model; it was never
called against the real service.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError

from strandline.aws import client_factory
from strandline.errors import (
    InvalidModelAnswer,
    ModelMisconfigured,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRefused,
    ModelTimeout,
    ModelUnavailable,
)
from strandline.llm.provider import (
    DEFAULT_RATE_PAUSE,
    LATE_TEXT,
    ModelReply,
    ModelRequest,
)

MAX_CHARACTERS = 64 * 1024
"""A longer answer is rejected."""
_MISCONFIGURED = {
    "AccessDeniedException": "the function's role may not use this model",
    "ExpiredTokenException": "the credentials are out of date",
    "ResourceNotFoundException": "it has no such model in this Region: check STRANDLINE_LLM_MODEL",
    "UnrecognizedClientException": "it does not accept the credentials",
}
"""Refusals of the settings, and what they mean."""


class BedrockModel:
    """A provider that calls Converse; the structured answer is the input of a tool that the model
    must use."""

    output_mode = "tool"

    def __init__(self, model: str, make_client: Callable[[Config], Any] | None = None) -> None:
        """`make_client` creates a client of `bedrock-runtime` from a botocore config; for tests."""
        self.name = f"bedrock:{model}"
        self._model = model
        self._make_client = make_client or partial(client_factory.make_client, "bedrock-runtime")
        self._clients: dict[int, Any] = {}

    def _get_client_with_timeout(self, seconds: float) -> Any:
        """boto3 binds a timeout to a client, not to a call: there is one client for each whole
        second."""
        whole_seconds = max(1, int(seconds))
        if whole_seconds not in self._clients:
            config = Config(
                connect_timeout=min(5, whole_seconds),
                read_timeout=whole_seconds,
                retries={"total_max_attempts": 1},  # the caller knows its deadline and the breaker
            )
            self._clients[whole_seconds] = self._make_client(config)
        return self._clients[whole_seconds]

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """Send one request; see `ModelProvider.ask`."""
        start = time.monotonic()
        try:
            answer = _converse(
                self._get_client_with_timeout(timeout),
                _build_converse_request(request, self._model),
            )
        except (ConnectTimeoutError, ReadTimeoutError):
            raise ModelTimeout(LATE_TEXT) from None
        except ClientError as error:  # without its cause, which quotes the request
            raise _to_model_error(client_factory.error_code(error)) from None
        except BotoCoreError:
            raise ModelUnavailable(
                "Bedrock cannot be reached, or there are no AWS credentials."
            ) from None
        if time.monotonic() - start > timeout:
            raise ModelTimeout(LATE_TEXT)
        return _parse_converse_reply(answer)


def _build_converse_request(request: ModelRequest, model: str) -> dict[str, Any]:
    tool = {
        "name": request.task,
        "description": "Gives the answer.",
        "inputSchema": {"json": dict(request.schema)},
    }
    return {
        "modelId": model,
        "system": [{"text": request.system}],
        "messages": [{"role": "user", "content": [{"text": request.user_message}]}],
        "inferenceConfig": {"maxTokens": request.max_tokens},
        "toolConfig": {
            "tools": [{"toolSpec": tool}],
            "toolChoice": {"tool": {"name": request.task}},
        },
    }


def _parse_converse_reply(answer: dict[str, Any]) -> ModelReply:
    if answer.get("stopReason") in ("guardrail_intervened", "content_filtered"):
        raise ModelRefused
    parts: list[dict[str, Any]] = answer.get("output", {}).get("message", {}).get("content", [])
    texts = [json.dumps(part["toolUse"]["input"]) for part in parts if "toolUse" in part]
    text = texts[0] if texts else "".join(part["text"] for part in parts if "text" in part)
    if len(text) > MAX_CHARACTERS:
        raise InvalidModelAnswer(
            f"The language model's answer is over {MAX_CHARACTERS} characters."
        )
    usage: dict[str, int | None] = answer.get("usage") or {}
    return ModelReply(
        text,
        usage.get("inputTokens"),
        usage.get("outputTokens"),
        is_cut=answer.get("stopReason") == "max_tokens",
    )


def _converse(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    return client_factory.call_again_if_closed(client.converse, **request)


def _to_model_error(code: str) -> ModelUnavailable | ModelRefused:
    if code == "ModelTimeoutException":
        return ModelTimeout(LATE_TEXT)
    if code == "ValidationException":
        return ModelRequestRefused(
            "Bedrock refused the request (ValidationException). If it refuses every request, check"
            " STRANDLINE_LLM_MODEL."
        )
    if code == "ThrottlingException":
        return ModelRateLimited(
            f"Bedrock answered {code}: the account's quota for this model is used up for the"
            " moment. Raise it in Service Quotas, or lower STRANDLINE_LLM_CALLS_PER_MINUTE.",
            DEFAULT_RATE_PAUSE,
        )
    if code in _MISCONFIGURED:
        return ModelMisconfigured(f"Bedrock answered {code}: {_MISCONFIGURED[code]}.")
    return ModelUnavailable(f"Bedrock answered {code}.")
