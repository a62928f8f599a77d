"""How to reach the service: its address and the credential, as people paste them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.client.errors import InvalidFieldError
from strandline.client.request_building import Call
from strandline.client.retries import Retry
from strandline.client.service_addresses import normalize_service_url, strip_credential

_MAX_SECONDS = 86_400
_SENDABLE = re.compile("[ -~]*")


@dataclass(frozen=True)
class Settings:
    """How to reach the service. Its text shows neither address nor credential."""

    url: str = field(repr=False)
    """Its address, without a slash at the end."""
    headers: Mapping[str, str] = field(repr=False)
    """The credential, sent to the service alone."""
    timeout: float
    """Seconds to wait for an answer."""
    retry: Retry

    @property
    def shown_url(self) -> str:
        """The address as messages show it: without a user and password."""
        scheme, _, rest = self.url.partition("://")
        authority, slash, path = rest.partition("/")
        return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"

    def make_call_url(self, call: Call[Any]) -> str:
        """Where a request goes."""
        return call.path if leaves_service(call) else self.url + call.path

    def make_call_headers(self, call: Call[Any]) -> dict[str, str]:
        """The headers of a request. Raises InvalidFieldError for one that cannot be sent."""
        for name, value in call.headers.items():
            if not _SENDABLE.fullmatch(value):
                raise InvalidFieldError(
                    f"{name}: has a sign that no header can carry; use ASCII without line breaks",
                    details={"field": name},
                )
        if leaves_service(call):
            return dict(call.headers)
        content = {"Content-Type": "application/json"} if call.body is not None else {}
        return {"User-Agent": "strandline-client", **content, **self.headers, **call.headers}


def leaves_service(call: Call[Any]) -> bool:
    """Whether a request goes to another place than the service, as the payload store: without the
    credential."""
    return call.path.startswith(("https://", "http://"))


def make_connection_settings(
    url: str | None, key: str | None, token: str | None, timeout: float, retry: Retry | None
) -> Settings:
    """The settings of a client. Raises ValueError where no address is known, and for an address, a
    credential or a time that cannot be used."""
    address = normalize_service_url(url or os.environ.get("STRANDLINE_URL", ""))
    key = key or (None if token else os.environ.get("STRANDLINE_API_KEY"))
    headers: dict[str, str] = {}
    if key := strip_credential("key", key):
        headers["X-API-Key"] = key
    if token := strip_credential("token", token):
        headers["Authorization"] = f"Bearer {token}"
    _require_valid_timeout(timeout)
    return Settings(address, headers, timeout, retry or Retry())


def _require_valid_timeout(seconds: object) -> None:
    if not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"timeout: give seconds, above 0 and at most {_MAX_SECONDS:,}")
