"""The one function of the edge that says who a request comes from, by the ways in that are on."""

import functools

from strandline.auth.api_keys import ApiKeyAuth
from strandline.auth.client_certificates import CertificateAuth
from strandline.auth.credentials import AuthMethod, AuthRequest
from strandline.auth.principals import Principal
from strandline.config_auth import AuthSettings
from strandline.db.database import Database
from strandline.errors import Forbidden, Misconfigured, Unauthorized


class Authenticator:
    """Verifies credentials. What it looks up it remembers for less than a minute. Shared by
    threads.

    Of several credentials the first of API key, JWT and certificate decides alone: one that does
    not hold is not made good by the next, which may allow more. Where all are required, all decide.
    """

    def __init__(self, database: Database, settings: AuthSettings) -> None:
        methods: list[AuthMethod] = []
        self._keys = self._certificates = None
        if settings.key_secret:
            self._keys = ApiKeyAuth(database, settings.key_secret)
            methods.append(self._keys)
        if settings.jwt_enabled:
            from strandline.auth.jwt import JwtAuth  # pays for PyJWT and cryptography

            methods.append(JwtAuth(database, settings))
        if settings.client_certificates:
            self._certificates = CertificateAuth(database)
            methods.append(self._certificates)
        if not methods:
            raise Misconfigured("No way to authenticate is on.")
        self._methods, self._require_all = methods, settings.auth_require_all

    @property
    def challenge(self) -> str:
        """WWW-Authenticate of a 401."""
        return ", ".join(dict.fromkeys(way.challenge for way in self._methods))

    def require_issued(self, request: AuthRequest) -> None:
        """Raises Unauthorized unless the request carries a credential that this deployment made, or
        trusts the maker of. Asks no database: for what must answer while there is none."""
        for method, credential in self._select_credentials(request):
            method.check(credential)

    def authenticate(self, request: AuthRequest, deadline: float | None = None) -> Principal:
        """Who the request comes from. Raises Unauthorized; Forbidden for a tenant that is not, or
        credentials that contradict each other; Unavailable when it cannot be told."""
        credentials = self._select_credentials(request)
        if not self._require_all:
            ((method, credential),) = credentials
            return method.authenticate(credential, deadline)
        for method, credential in credentials:  # no made-up one has the others looked up
            method.check(credential)
        return functools.reduce(
            _intersect, [method.authenticate(c, deadline) for method, c in credentials]
        )

    def forget_key(self, key_id: str) -> None:
        """Look this key up again before it is next believed: it was just revoked or rotated. Other
        processes do within a minute."""
        if self._keys:
            self._keys.forget(key_id)

    def forget_certificates(self) -> None:
        """As `forget_key`, after a certificate's subject was entered or revoked."""
        if self._certificates:
            self._certificates.forget()

    def _select_credentials(self, request: AuthRequest) -> list[tuple[AuthMethod, str]]:
        """The credentials that decide, each with its way. Raises Unauthorized where one is
        missing."""
        credentials: list[tuple[AuthMethod, str]] = []
        for method in self._methods:
            credential = method.find_credential(request)
            if credential is not None:
                if not self._require_all:
                    return [(method, credential)]
                credentials.append((method, credential))
        if len(credentials) < len(self._methods):
            requirement = (" and " if self._require_all else " or ").join(
                method.credential_hint for method in self._methods
            )
            raise Unauthorized(f"Send {requirement}.")
        return credentials


def _intersect(first: Principal, second: Principal) -> Principal:
    """Who two credentials of one request stand for: each narrows the other."""
    if first.tenant != second.tenant:
        raise Forbidden("The credentials of this request are of different tenants.")
    if first.user and second.user and first.user != second.user:
        raise Forbidden("The credentials of this request are bound to different users.")
    rights = _expand_rights(first.rights) & _expand_rights(second.rights)
    return Principal(first.tenant, first.user or second.user, rights, first.key_id or second.key_id)


def _expand_rights(rights: frozenset[str]) -> frozenset[str]:
    """An admin reads and writes."""
    return rights | {"read", "write"} if "admin" in rights else rights
