"""When a request is repeated, and after how long."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from strandline.client.errors import (
    ConnectionFailedError,
    OutcomeUnknownError,
    QuotaExceededError,
    ServiceError,
    ThrottledError,
    UnavailableError,
)
from strandline.client.request_building import Call

_SECONDS = re.compile(r"\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class Retry:
    """How long a failed request is repeated: after `base` seconds at first, then twice as long each
    time up to `cap`, with jitter, and never sooner than the service's Retry-After says."""

    seconds: float = 60.0
    """After so many the error is raised; 0: nothing is repeated."""
    base: float = 0.25
    cap: float = 10.0

    def choose_pause_seconds(
        self, call: Call[Any], error: ServiceError, attempt: int, elapsed: float
    ) -> float | None:
        """Seconds until the next attempt after the attempt with this number, from 0; None: there
        is none."""
        if not may_repeat_call(call, error):
            return None
        longest = min(self.cap, self.base * 2 ** min(attempt, 30))
        seconds = random.uniform(0, longest)  # noqa: S311 - spreads clients, hides nothing
        seconds += error.retry_after or longest / 2
        return seconds if elapsed + seconds <= self.seconds else None


def choose_final_error(first: ServiceError, last: ServiceError) -> ServiceError:
    """Which error of a repeated request is raised: the last, unless it says only that the language
    model rests after failures of which the first is one."""
    is_rest = last.details.get("reason") == "breaker_open"
    has_reason = isinstance(first.details.get("reason"), str)
    return first if is_rest and has_reason else last


def may_repeat_call(call: Call[Any], error: ServiceError) -> bool:
    """Whether the same request may succeed later, and does nothing a second time."""
    if isinstance(error, OutcomeUnknownError):  # the service knows less of the call
        return not call.once
    return error.retryable and (not call.once or was_surely_not_done(error))


def was_surely_not_done(error: ServiceError) -> bool:
    """Whether it is certain that the service did not carry out the request."""
    if isinstance(error, ConnectionFailedError):
        return not error.details.get("sent", True)
    if isinstance(error, OutcomeUnknownError):
        return False
    is_refusal = isinstance(error, ThrottledError | QuotaExceededError)
    # A proxy, which names no request, answers 503 as well where the service broke off.
    is_own = isinstance(error, UnavailableError) and error.request_id is not None
    return is_refusal or (is_own and error.status == 503)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a header Retry-After, which names them, or the moment after them by the clock
    of the one that answered; None if it says neither."""
    text = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    moment = _parse_http_date(text)
    if moment is None:
        return None
    now = _parse_http_date(headers.get("Date", "")) or datetime.now(timezone.utc)
    return max(0.0, (moment - now).total_seconds())


def _parse_http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
