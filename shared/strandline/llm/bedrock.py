"""A language model on Amazon Bedrock, by the function's own role: no key, no address.

Built and tested from the shapes of the Converse API in botocore's service model; it was never
called against the real service.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError

from strandline.aws import clients as aws_clients
from strandline.errors import ModelLate, ModelRefused, ModelUnavailable, ModelUnusable
from strandline.llm.provider import Asked, Reply

MAX_CHARACTERS = 64 * 1024
_LATE = "The language model did not answer in time."


class BedrockModel:
    """Answers through Converse; structure comes as the input of a tool that it must use."""

    way = "tool"

    def __init__(self, model: str, make_client: Callable[[Config], Any] | None = None) -> None:
        """`make_client` gives a client of `bedrock-runtime`; for tests."""
        self.name = f"bedrock:{model}"
        self._model = model
        self._make = make_client or partial(aws_clients.client, "bedrock-runtime")
        self._clients: dict[int, Any] = {}

    def _client(self, seconds: float) -> Any:
        """boto3 binds a time to a client and not to a call: there is one for each whole second."""
        whole = max(1, int(seconds))
        if whole not in self._clients:
            config = Config(
                connect_timeout=min(5, whole),
                read_timeout=whole,
                retries={"total_max_attempts": 1},  # whoever asks knows its time and the breaker
            )
            self._clients[whole] = self._make(config)
        return self._clients[whole]

    def ask(self, asked: Asked, way: str, *, sure: bool, seconds: float) -> Reply:
        """One request, see `Provider`."""
        started = time.monotonic()
        try:
            answer = _converse(self._client(seconds), _request(asked, self._model))
        except (ConnectTimeoutError, ReadTimeoutError):
            raise ModelLate(_LATE) from None
        except ClientError as error:  # without its cause: it quotes what was sent
            raise _failure(_code(error)) from None
        except BotoCoreError:
            raise ModelUnavailable(
                "Bedrock cannot be reached, or no credentials are there."
            ) from None
        if time.monotonic() - started > seconds:
            raise ModelLate(_LATE)
        return _reply(answer)


def _request(asked: Asked, model: str) -> dict[str, Any]:
    tool = {
        "name": asked.task,
        "description": "Gives the answer.",
        "inputSchema": {"json": dict(asked.schema)},
    }
    return {
        "modelId": model,
        "system": [{"text": asked.system}],
        "messages": [{"role": "user", "content": [{"text": asked.user}]}],
        "inferenceConfig": {"maxTokens": asked.max_tokens},
        "toolConfig": {
            "tools": [{"toolSpec": tool}],
            "toolChoice": {"tool": {"name": asked.task}},
        },
    }


def _reply(answer: dict[str, Any]) -> Reply:
    if answer.get("stopReason") in ("guardrail_intervened", "content_filtered"):
        raise ModelRefused
    parts: list[dict[str, Any]] = answer.get("output", {}).get("message", {}).get("content", [])
    written = [json.dumps(part["toolUse"]["input"]) for part in parts if "toolUse" in part]
    written += [part["text"] for part in parts if "text" in part]
    text = written[0] if written else ""
    if len(text) > MAX_CHARACTERS:
        raise ModelUnusable(f"The language model's answer is over {MAX_CHARACTERS} characters.")
    usage: dict[str, int] = answer.get("usage", {})
    return Reply(text, usage.get("inputTokens"), usage.get("outputTokens"))


def _converse(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    return client.converse(**request)


def _code(error: ClientError) -> str:
    response = cast("dict[str, dict[str, str]]", error.response)
    return response.get("Error", {}).get("Code", "an error without a code")


def _failure(code: str) -> ModelUnavailable | ModelRefused | ModelLate:
    if code == "ModelTimeoutException":
        return ModelLate(_LATE)
    if code == "ValidationException":
        return ModelRefused("Bedrock refused the request (ValidationException).")
    return ModelUnavailable(f"Bedrock answered {code}.")
