"""What a request may carry to say who asks, and what every way in makes of it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from strandline.auth.principals import Principal

KEY_PREFIX = "strandline_"
"""What tells an API key from a JWT, where both may come as Authorization: Bearer."""


class AuthRequest(NamedTuple):
    """A request, as far as it says who asks."""

    headers: Mapping[str, str]
    """By lower-case name. Whoever sends a request writes them."""
    certificate: Mapping[str, Any] | None = None
    """`requestContext.identity.clientCert`: of the certificate that the TLS handshake proved to the
    gateway. No caller writes here."""

    @property
    def bearer_token(self) -> str:
        """The word of Authorization: Bearer, or empty."""
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else ""


class AuthMethod(Protocol):
    """A way in."""

    @property
    def credential_hint(self) -> str:
        """Its credential and where it goes, for a person."""
        ...

    @property
    def challenge(self) -> str:
        """Its scheme in WWW-Authenticate."""
        ...

    def find_credential(self, request: AuthRequest) -> str | None:
        """Its credential in a request, or None."""
        ...

    def check(self, credential: str) -> object:
        """Raises Unauthorized for a credential that is not of this deployment. Asks no database."""
        ...

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """Whom the credential stands for. Raises Unauthorized, Forbidden, Unavailable."""
        ...
