"""Client certificates: a subject that an operator entered stands for a principal.

The gateway's TLS handshake proves that the caller holds the key of a certificate whose authority is
in the trust store. Here its names are read from the certificate itself, its time is looked at
again, and the names are looked up.
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
    """A subject that was looked up."""

    principal: Principal | None
    """None: nobody entered it, or its row was revoked."""
    expires_at: datetime | None


class CertificateAuth:
    """Client certificates as a way in. Remembers whom a subject and issuer stand for."""

    credential_hint = "a client certificate (mutual TLS)"
    challenge = "ClientCertificate"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = TtlCache[_CachedSubject]()

    def find_credential(self, request: AuthRequest) -> str | None:
        """The certificate that the gateway says the caller has; never a header."""
        if request.certificate is None:
            return None
        return str(request.certificate.get("clientCertPem") or "")

    def check(self, credential: str) -> CertificateInfo:
        """What the certificate says of itself. Raises Unauthorized outside of its time."""
        try:
            info = x509_names.read_certificate(credential)
        except ValueError:
            raise Unauthorized("The client certificate cannot be read.") from None
        if not info.not_before <= datetime.now(UTC) <= info.not_after:
            raise Unauthorized("The client certificate has expired, or is not valid yet.")
        return info

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """Whom the certificate's subject stands for. Raises Unauthorized, or Unavailable when it is
        not known from before and the database is away."""
        info = self.check(credential)
        names = (info.subject, info.issuer)
        entry = self._cache.get(names) or self._cache.put(names, self._look_up(info, deadline))
        if entry.principal is None:
            raise Unauthorized("The client certificate's subject stands for nobody here.")
        if entry.expires_at is not None and entry.expires_at <= datetime.now(UTC):
            raise Unauthorized("What the client certificate's subject stood for has expired.")
        return entry.principal

    def forget(self) -> None:
        """Look every subject up again before it is next believed: one was entered or revoked."""
        self._cache.remove_where(lambda _: True)

    def _look_up(self, info: CertificateInfo, deadline: float | None) -> _CachedSubject:
        connection = self._database.connection(deadline)
        row = store_certificates.find_principal(connection, info.subject, info.issuer)
        if row is None:
            return _CachedSubject(None, None)
        principal = Principal(
            row.tenant_id, row.user_name, frozenset(row.scopes), row.certificate_id.hex
        )
        return _CachedSubject(principal, row.expires_at)
