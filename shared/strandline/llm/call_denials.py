"""Why a call of a language model may not be made, and what its caller is told."""

import math
from typing import Literal

from strandline.clock import read_uptime

type DenialReason = Literal[
    "budget_spent", "rate_limited", "breaker_open", "unavailable", "erasing", "misconfigured"
]


class CallDenied(Exception):
    """The call may not be made; `reason` says why."""

    def __init__(
        self,
        reason: DenialReason,
        retry_after: float | None = None,
        text: str = "",
        tried_again_in: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason: DenialReason = reason
        self.retry_after = retry_after
        """Seconds after which the call may be made; None where waiting does not help."""
        self.text = text
        """What happened before, in sentences for the caller; may be empty."""
        self.tried_again_in = tried_again_in
        """Seconds after which a model that failed is tried again; None if it did not fail."""


def make_misconfigured_denial(text: str, until: float) -> CallDenied:
    """The denial of a call to a model that refused the settings, until this uptime; `text` says
    what it refused."""
    seconds = max(0.0, until - read_uptime())
    return CallDenied(
        "misconfigured", None, f"{text} {describe_pause(seconds)}", tried_again_in=seconds
    )


def describe_pause(seconds: float) -> str:
    """A sentence for the caller: when a model that failed is tried again."""
    return f"It is tried again in {math.ceil(seconds)} s."
