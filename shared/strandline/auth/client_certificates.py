"""Client certificates: a subject that an operator registered authenticates a principal.

The gateway's TLS handshake proves that the caller holds the key of a certificate whose authority is
in the trust store. This module reads the names from the certificate itself, checks its validity
period again, and looks the names up.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.auth import store_certificates, x509_names
from strandline.auth.credentials import AuthRequest
from strandline.auth.principals import Principal
from strandline.auth.ttl_cache import TtlCache
from strandline.auth.x509_names import CertificateInfo
from strandline.db.database import Database
from strandline.errors import Unauthorized


@dataclass(frozen=True)
class _CachedSubject:
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
        self._cache = TtlCache[_CachedSubject]()

    def find_credential(self, request: AuthRequest) -> str | None:
        """The PEM certificate that the gateway reports for the connection; never read from a
        header."""
        if request.certificate is None:
            return None
        return str(request.certificate.get("clientCertPem") or "")

    def check(self, credential: str) -> CertificateInfo:
        """The certificate's names and validity period. Raises Unauthorized for an unreadable
        certificate, or outside that period."""
        try:
            info = x509_names.read_certificate(credential)
        except ValueError:
            raise Unauthorized("The client certificate cannot be read.") from None
        if not info.not_before <= datetime.now(UTC) <= info.not_after:
            raise Unauthorized("The client certificate has expired, or is not valid yet.")
        return info

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """The principal of the certificate's subject. Raises Unauthorized, or Unavailable when the
        subject is not cached and the database cannot be reached. `deadline` is in time.monotonic()
        seconds."""
        info = self.check(credential)
        names = (info.subject, info.issuer)
        entry = self._cache.get(names) or self._cache.put(names, self._look_up(info, deadline))
        if entry.principal is None:
            raise Unauthorized("The client certificate's subject is not registered here.")
        if entry.expires_at is not None and entry.expires_at <= datetime.now(UTC):
            raise Unauthorized("The registration of the client certificate's subject has expired.")
        return entry.principal

    def forget(self) -> None:
        """Drop every subject from the cache: one was registered or revoked."""
        self._cache.remove_where(lambda _: True)

    def _look_up(self, info: CertificateInfo, deadline: float | None) -> _CachedSubject:
        connection = self._database.connection(deadline)
        row = store_certificates.find_principal(connection, info.subject, info.issuer)
        if row is None:
            return _CachedSubject(None, None)
        principal = Principal(
            row.tenant_id,
            row.user_name,
            frozenset(row.scopes),
            row.certificate_id.hex,
            row.agents_share,
        )
        return _CachedSubject(principal, row.expires_at)
