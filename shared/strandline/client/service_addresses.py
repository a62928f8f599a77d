"""The service's address and a credential as people paste them. Imports nothing but `re`: programs
that start for one question use it, too."""

import re
from typing import NamedTuple

_BLANKS = " \t\r\n\ufeff"
"""What a file or a form adds to what is copied from it."""
_SENDABLE = "[ -~]*"
_ADDRESS = (
    r"(?P<scheme>https?)://(?:(?P<user>[^/]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.~-]+)?\]|[^/:@\[\]]+)(?::(?P<port>\d{0,5}))?(?P<path>/.*)?"
)
_MAX_PORT = 65_535


class ServiceAddress(NamedTuple):
    """The parts of the service's address."""

    scheme: str
    host: str
    """Without the square brackets of an IPv6 address."""
    port: int
    path: str
    """What stands before the path of each call."""
    has_user: bool
    """Whether it holds a user and password, for a proxy before the service."""


def normalize_service_url(text: str) -> str:
    """The address without what people paste around it. Raises ValueError."""
    scheme, colon, rest = text.strip(_BLANKS).partition("://")
    address = f"{scheme.lower()}{colon}{rest}".rstrip("/").removesuffix("/api/v1")
    if not address.startswith(("http://", "https://")):
        raise ValueError(
            "url: give the service's address, as in Strandline('http://127.0.0.1:8080', key), or "
            "set STRANDLINE_URL"
        )
    if "?" in address or "#" in address:
        raise ValueError("url: give the address without what follows ? or #")
    split_service_url(address)
    return address


def split_service_url(url: str) -> ServiceAddress:
    """The parts of an address that was normalised. Raises ValueError."""
    match = None if re.search(r"[\s\x00-\x1f]", url) else re.fullmatch(_ADDRESS, url)
    default_port = 443 if url.startswith("https:") else 80
    port = int(match["port"] or default_port) if match else 0
    if match is None or not 0 < port <= _MAX_PORT:
        raise ValueError("url: give a host and, if need be, a port, as in http://127.0.0.1:8080")
    host = match["host"].strip("[]")
    return ServiceAddress(
        match["scheme"], host, port, match["path"] or "", match["user"] is not None
    )


def strip_credential(name: str, value: object) -> str | None:
    """A credential without blanks around it. Raises ValueError, which does not show it."""
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(_SENDABLE, value := value.strip(_BLANKS)):
        raise ValueError(f"{name}: has a sign that no credential has; copy it again, on one line")
    return value
