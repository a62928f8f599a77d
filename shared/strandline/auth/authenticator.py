"""Authenticates a request by the methods that the settings enable.

Of client certificates: the gateway's TLS handshake proves that the caller holds the key of a
certificate whose authority is in the trust store. This module reads the names from the certificate
itself, checks its validity period again, and looks up the principal that an operator registered.
"""

import functools
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.auth import store_certificates, x509_names
from strandline.auth.api_keys import ApiKeyAuth
from strandline.auth.credentials import KEY_PREFIX, AuthMethod, AuthRequest
from strandline.auth.principals import Principal
from strandline.auth.ttl_cache import TtlCache
from strandline.auth.x509_names import CertificateInfo
from strandline.config_auth import AuthSettings
from strandline.db.database import Database
from strandline.errors import Forbidden, Misconfigured, Unauthorized, Unavailable

_MAX_KNOWN = 10_000


@dataclass(frozen=True)
class _CachedCertificateSubject:
    """The result of a subject lookup."""

    principal: Principal | None
    """None: nobody registered it, or its row was revoked."""
    expires_at: datetime | None


class CertificateAuth:
    """Authentication by client certificate. Lookups are cached by subject and issuer."""

    credential_hint = "a client certificate (mutual TLS)"
    challenge = "ClientCertificate"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = TtlCache[_CachedCertificateSubject]()

    def find_credential(self, request: AuthRequest) -> str | None:
        """The PEM certificate that the gateway reports for the connection; never read from a
        header."""
        if request.certificate is None:
            return None
        return str(request.certificate.get("clientCertPem") or "")

    def verify_offline(self, credential: str) -> CertificateInfo:
        """The certificate's names and validity period. Raises Unauthorized for an unreadable
        certificate, or outside that period."""
        try:
            info = x509_names.parse_certificate_names(credential)
        except ValueError:
            raise Unauthorized("The client certificate cannot be read.") from None
        if not info.not_before <= datetime.now(UTC) <= info.not_after:
            raise Unauthorized("The client certificate has expired, or is not valid yet.")
        return info

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """The principal of the certificate's subject. Raises Unauthorized, or Unavailable when the
        subject is not cached and the database cannot be reached. `deadline` is in time.monotonic()
        seconds."""
        info = self.verify_offline(credential)
        names = (info.subject, info.issuer)
        entry = self._cache.get(names) or self._cache.put(
            names, self._look_up_subject(info, deadline)
        )
        if entry.principal is None:
            raise Unauthorized("The client certificate's subject is not registered here.")
        if entry.expires_at is not None and entry.expires_at <= datetime.now(UTC):
            raise Unauthorized("The registration of the client certificate's subject has expired.")
        return entry.principal

    def forget(self) -> None:
        """Drop every subject from the cache: one was registered or revoked."""
        self._cache.remove_where(lambda _: True)

    def _look_up_subject(
        self, info: CertificateInfo, deadline: float | None
    ) -> _CachedCertificateSubject:
        connection = self._database.connection(deadline)
        row = store_certificates.find_certificate_principal(connection, info.subject, info.issuer)
        if row is None:
            return _CachedCertificateSubject(None, None)
        principal = Principal(
            row.tenant_id,
            row.user_name,
            frozenset(row.scopes),
            row.certificate_id.hex,
            row.agents_share,
            row.reading_space,
        )
        return _CachedCertificateSubject(principal, row.expires_at)


class Authenticator:
    """Verifies credentials. Lookups are cached for less than a minute. Safe for threads.

    If a request carries several credentials, the first of API key, JWT and certificate decides
    alone: when it fails, the next one is not tried, because that one may allow more. If the
    settings require all methods, all of them decide.
    """

    def __init__(self, database: Database, settings: AuthSettings) -> None:
        methods: list[AuthMethod] = []
        self._keys = self._certificates = None
        self._known: dict[bytes, Principal] = {}
        """By a hash of the credentials: whom they authenticated last."""
        if settings.key_secret:
            self._keys = ApiKeyAuth(database, settings.key_secret)
            methods.append(self._keys)
        if settings.jwt_enabled:
            from strandline.auth.jwt import JwtAuth  # imports PyJWT and cryptography

            methods.append(JwtAuth(database, settings))
        if settings.client_certificates:
            self._certificates = CertificateAuth(database)
            methods.append(self._certificates)
        if not methods:
            raise Misconfigured("No authentication method is enabled.")
        self._methods, self._require_all = methods, settings.auth_require_all
        self._tells_keys_by_prefix = bool(self._keys) and not settings.jwt_enabled
        """Whether a token in Authorization can be nothing but a key."""

    @property
    def challenge(self) -> str:
        """The value of WWW-Authenticate in a 401."""
        return ", ".join(dict.fromkeys(method.challenge for method in self._methods))

    def require_issued_credential(self, request: AuthRequest) -> None:
        """Raise Unauthorized unless the request carries a credential that this deployment issued,
        or whose issuer it trusts. Reads no database, so that routes work while the database is
        down."""
        for method, credential in self._select_deciding_credentials(request):
            method.verify_offline(credential)

    def authenticate(self, request: AuthRequest, deadline: float | None = None) -> Principal:
        """The request's principal. Raises Unauthorized; Forbidden for an unknown tenant, or for
        credentials that contradict each other; Unavailable when a lookup is not possible.
        `deadline` is in time.monotonic() seconds."""
        credentials = self._select_deciding_credentials(request)
        digest = _hash_credentials(credentials)
        try:
            principal = self._look_up_principal(credentials, deadline)
        except Unavailable:
            raise
        except BaseException:
            self._known.pop(digest, None)
            raise
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[digest] = principal
        return principal

    def get_last_known_principal(self, request: AuthRequest) -> Principal | None:
        """Whom the request's credentials authenticated last in this process, however long ago; None
        if they never did. Only for what tells nothing of a tenant, while the database is away.
        Raises Unauthorized for credentials that this deployment did not issue."""
        credentials = self._select_deciding_credentials(request)
        for method, credential in credentials:
            method.verify_offline(credential)
        return self._known.get(_hash_credentials(credentials))

    def _look_up_principal(
        self, credentials: list[tuple[AuthMethod, str]], deadline: float | None
    ) -> Principal:
        if not self._require_all:
            ((method, credential),) = credentials
            return method.authenticate(credential, deadline)
        # all are checked first, so that a forged one causes no lookup of the others
        for method, credential in credentials:
            method.verify_offline(credential)
        return functools.reduce(
            _intersect_principals, [method.authenticate(c, deadline) for method, c in credentials]
        )

    def uses_client_certificates_alone(self, request: AuthRequest) -> bool:
        """Whether a browser sends by itself, for any page, all that authenticates this request:
        client certificates alone. Raises Unauthorized when a credential is missing."""
        credentials = self._select_deciding_credentials(request)
        return all(method is self._certificates for method, _ in credentials)

    def forget_key(self, key_id: str) -> None:
        """Drop this key from the cache: it was just revoked or rotated. Other processes see the
        change within a minute."""
        if self._keys:
            self._keys.forget(key_id)

    def forget_certificates(self) -> None:
        """Like `forget_key`, after a certificate's subject was added or revoked."""
        if self._certificates:
            self._certificates.forget()

    def _select_deciding_credentials(self, request: AuthRequest) -> list[tuple[AuthMethod, str]]:
        """The credentials that decide, each with its method. Raises Unauthorized when one is
        missing."""
        credentials: list[tuple[AuthMethod, str]] = []
        for method in self._methods:
            credential = method.find_credential(request)
            if credential is not None:
                if not self._require_all:
                    return [(method, credential)]
                credentials.append((method, credential))
        if len(credentials) < len(self._methods):
            if self._tells_keys_by_prefix and _has_other_authorization(request):
                raise Unauthorized(
                    "What the Authorization header holds is no credential of this deployment: an "
                    f"API key begins with {KEY_PREFIX}, after the word Bearer."
                )
            requirement = (" and " if self._require_all else " or ").join(
                method.credential_hint for method in self._methods
            )
            raise Unauthorized(f"Send {requirement}.")
        return credentials


def _has_other_authorization(request: AuthRequest) -> bool:
    """Whether there is an Authorization header, without an API key in it, and no X-API-Key."""
    authorization = request.headers.get("authorization", "").strip()
    has_key = request.headers.get("x-api-key") or request.bearer_token.startswith(KEY_PREFIX)
    return bool(authorization) and not has_key


def _hash_credentials(credentials: list[tuple[AuthMethod, str]]) -> bytes:
    texts = [credential for _, credential in credentials]
    return hashlib.sha256(repr(texts).encode("utf-8", "surrogatepass")).digest()


def _intersect_principals(first: Principal, second: Principal) -> Principal:
    """The principal of two credentials of one request: each narrows the other. Raises Forbidden
    when they contradict each other."""
    if first.tenant != second.tenant:
        raise Forbidden("The credentials of this request are of different tenants.")
    if first.user and second.user and first.user != second.user:
        raise Forbidden("The credentials of this request are bound to different users.")
    rights = _expand_rights(first.rights) & _expand_rights(second.rights)
    return Principal(
        first.tenant,
        first.user or second.user,
        rights,
        first.key_id or second.key_id,
        # they differ while a change of the setting reaches the caches
        first.agents_share and second.agents_share,
        first.reading_space or second.reading_space,
    )


def _expand_rights(rights: frozenset[str]) -> frozenset[str]:
    """The rights with those that `admin` implies: read and write."""
    return rights | {"read", "write"} if "admin" in rights else rights
