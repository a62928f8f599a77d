"""What a provider of language models is asked, and what it gives: one request at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol


@dataclass(frozen=True)
class ModelRequest:
    """One question to a model."""

    task: str
    """A short name for it, of letters and underscores."""
    system: str
    """What is to be done."""
    data: str
    """What it is to be done with, quoted."""
    schema: Mapping[str, Any]
    """JSON Schema of the answer: objects closed, all members required."""
    max_tokens: int
    fault: str = ""
    """What was wrong with the answer before this one."""

    def with_fault(self, fault: str) -> "ModelRequest":
        """The same question, after an answer that could not be used."""
        return replace(self, fault=fault)

    @property
    def user_message(self) -> str:
        """All that is said after the system prompt."""
        if not self.fault:
            return self.data
        return (
            f"{self.data}\n\nYour last answer could not be used: {self.fault}. Answer again, "
            "with the JSON object alone."
        )

    @property
    def character_count(self) -> int:
        """Of all that is sent."""
        return len(self.system) + len(self.user_message) + len(str(self.schema))


@dataclass(frozen=True)
class ModelReply:
    """What a model wrote, and what it took."""

    text: str
    tokens_in: int | None
    """None where the provider does not say."""
    tokens_out: int | None


class Provider(Protocol):
    """A language model somewhere. Several threads may share one."""

    name: str
    """As in `openai:gpt-4o-mini`."""
    output_mode: str
    """How it is asked for structure, where nothing is known of it yet."""

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """One request. `mode` is how structure is asked for, `is_proven` that it was taken before.

        Raises FormatRefused (there is a simpler way), ModelRefused, ModelUnavailable, ModelLate,
        ModelUnusable.
        """
        ...
