"""How to reach the service: its address and the credential, as people paste them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from strandline.client.errors import InvalidFieldError
from strandline.client.request_building import Call
from strandline.client.retries import Retry

_MAX_SECONDS = 86_400
_BLANKS = " \t\r\n\ufeff"
"""What a file or a form adds to what is copied from it."""
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
    address = _normalize_service_url(url or os.environ.get("STRANDLINE_URL", ""))
    key = key or (None if token else os.environ.get("STRANDLINE_API_KEY"))
    headers: dict[str, str] = {}
    if key := _strip_credential("key", key):
        headers["X-API-Key"] = key
    if token := _strip_credential("token", token):
        headers["Authorization"] = f"Bearer {token}"
    _require_valid_timeout(timeout)
    return Settings(address, headers, timeout, retry or Retry())


def _normalize_service_url(text: str) -> str:
    scheme, colon, rest = text.strip(_BLANKS).partition("://")
    address = f"{scheme.lower()}{colon}{rest}".rstrip("/").removesuffix("/api/v1")
    if not address.startswith(("http://", "https://")):
        raise ValueError(
            "url: give the service's address, as in Strandline('http://127.0.0.1:8080', key), or "
            "set STRANDLINE_URL"
        )
    if "?" in address or "#" in address:
        raise ValueError("url: give the address without what follows ? or #")
    try:
        parts = urlsplit(address)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    if not has_host or re.search(r"[\s\x00-\x1f]", address):
        raise ValueError("url: give a host and, if need be, a port, as in http://127.0.0.1:8080")
    return address


def _require_valid_timeout(seconds: object) -> None:
    if not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"timeout: give seconds, above 0 and at most {_MAX_SECONDS:,}")


def _strip_credential(name: str, value: object) -> str | None:
    """A credential without blanks around it. An error does not show it."""
    if value is None:
        return None
    if not isinstance(value, str) or not _SENDABLE.fullmatch(value := value.strip(_BLANKS)):
        raise ValueError(f"{name}: has a sign that no credential has; copy it anew, on one line")
    return value
