"""What a request may carry to authenticate its caller, and the interface of every method."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from strandline.auth.principals import Principal

KEY_PREFIX = "strandline_"
"""Distinguishes an API key from a JWT: both may be sent as Authorization: Bearer."""


class AuthRequest(NamedTuple):
    """The parts of a request that authenticate its caller."""

    headers: Mapping[str, str]
    """By lower-case name. The caller writes them, so they prove nothing by themselves."""
    certificate: Mapping[str, Any] | None = None
    """`requestContext.identity.clientCert`: the certificate that the TLS handshake proved to the
    gateway. A caller cannot write it."""

    @property
    def bearer_token(self) -> str:
        """The token of Authorization: Bearer, or the empty string."""
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else ""


class AuthMethod(Protocol):
    """One way to authenticate."""

    @property
    def credential_hint(self) -> str:
        """Names the credential and the header that carries it, for error messages."""
        ...

    @property
    def challenge(self) -> str:
        """The method's scheme in WWW-Authenticate."""
        ...

    def find_credential(self, request: AuthRequest) -> str | None:
        """This method's credential in a request, or None."""
        ...

    def verify_offline(self, credential: str) -> object:
        """Raise Unauthorized for a credential that is not of this deployment. Reads no database."""
        ...

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """The credential's principal. Raises Unauthorized, Forbidden or Unavailable. `deadline` is
        in time.monotonic() seconds."""
        ...
