"""The interface to a provider of language models: one request, one reply."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

LATE_TEXT = (
    "The language model did not answer in time: use a faster one, or raise STRANDLINE_LLM_SECONDS"
    " and STRANDLINE_LLM_SUMMARY_SECONDS."
)
"""What an answer that is late means, and what to do."""
REFUSED_TEXT = (
    "If it refuses every request, check STRANDLINE_LLM_MODEL, STRANDLINE_LLM_API_KEY and"
    " STRANDLINE_LLM_BASE_URL."
)
"""What to do about a request that is refused: for its text, or for a setting."""
DEFAULT_RATE_PAUSE = 20.0
"""Seconds until a provider is asked again that accepts no more requests for now, and does not say
for how long."""


@dataclass(frozen=True)
class ModelRequest:
    """One request to a model."""

    task: str
    """A short name of the task, of letters and underscores."""
    system: str
    """The instructions."""
    data: str
    """The quoted data that the instructions are about."""
    schema: Mapping[str, Any]
    """JSON Schema of the answer: objects closed, all members required."""
    max_tokens: int
    """The most tokens that the answer may have."""
    fault: str = ""
    """What was wrong with the previous answer; empty in the first request."""

    def with_fault(self, fault: str) -> "ModelRequest":
        """The same request again, after an unusable answer."""
        return replace(self, fault=fault)

    @property
    def user_message(self) -> str:
        """Everything that is sent after the system prompt."""
        if not self.fault:
            return self.data
        return (
            f"{self.data}\n\nYour last answer could not be used: {self.fault}. Answer again, "
            "with the JSON object alone."
        )

    @property
    def character_count(self) -> int:
        """The number of characters sent."""
        return len(self.system) + len(self.user_message) + len(str(self.schema))


@dataclass(frozen=True)
class ModelReply:
    """A model's text, and the tokens it used."""

    text: str
    tokens_in: int | None
    """None where the provider does not say."""
    tokens_out: int | None
    is_cut: bool = False
    """Whether the answer ends where the limit of its length is."""


class ModelProvider(Protocol):
    """A language model. Several threads may share one."""

    name: str
    """As in `openai:gpt-4o-mini`."""
    output_mode: str
    """How structured output is requested while nothing is known about the model."""

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """Send one request. `mode` is how structured output is requested, `is_proven` says that the
        model has accepted it before, `timeout` is in seconds.

        Raises ModelFormatUnsupported (there is a simpler mode), ModelRefused, ModelUnavailable,
        ModelRateLimited, ModelTimeout, ModelMisconfigured, InvalidModelAnswer. What they say
        holds no text of the provider.
        """
        ...
