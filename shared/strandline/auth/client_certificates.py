"""Client certificates: a subject that an operator entered stands for a principal.

The gateway's TLS handshake proves that the caller holds the key of a certificate whose authority is
in the trust store. Here its names are read from the certificate itself, its time is looked at
again, and the names are looked up.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.auth import store_certificates, x509_names
from strandline.auth.credentials import Sent
from strandline.auth.principals import Principal
from strandline.auth.ttl_cache import Believed
from strandline.auth.x509_names import Named
from strandline.db.database import Database
from strandline.errors import Unauthorized


@dataclass(frozen=True)
class _Known:
    """A subject that was looked up."""

    principal: Principal | None
    """None: nobody entered it, or its row was revoked."""
    expires_at: datetime | None


class Certificates:
    """Client certificates as a way in. Remembers whom a subject and issuer stand for."""

    asks_for = "a client certificate (mutual TLS)"
    challenge = "ClientCertificate"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = Believed[_Known]()

    def find(self, sent: Sent) -> str | None:
        """The certificate that the gateway says the caller has; never a header."""
        if sent.certificate is None:
            return None
        return str(sent.certificate.get("clientCertPem") or "")

    def check(self, credential: str) -> Named:
        """What the certificate says of itself. Raises Unauthorized outside of its time."""
        try:
            named = x509_names.read(credential)
        except ValueError:
            raise Unauthorized("The client certificate cannot be read.") from None
        if not named.not_before <= datetime.now(UTC) <= named.not_after:
            raise Unauthorized("The client certificate has expired, or is not valid yet.")
        return named

    def principal(self, credential: str, deadline: float | None) -> Principal:
        """Whom the certificate's subject stands for. Raises Unauthorized, or Unavailable when it is
        not known from before and the database is away."""
        named = self.check(credential)
        names = (named.subject, named.issuer)
        known = self._known.get(names) or self._known.keep(names, self._look_up(named, deadline))
        if known.principal is None:
            raise Unauthorized("The client certificate's subject stands for nobody here.")
        if known.expires_at is not None and known.expires_at <= datetime.now(UTC):
            raise Unauthorized("What the client certificate's subject stood for has expired.")
        return known.principal

    def forget(self) -> None:
        """Look every subject up again before it is next believed: one was entered or revoked."""
        self._known.forget(lambda _: True)

    def _look_up(self, named: Named, deadline: float | None) -> _Known:
        connection = self._database.connection(deadline)
        row = store_certificates.find(connection, named.subject, named.issuer)
        if row is None:
            return _Known(None, None)
        principal = Principal(
            row.tenant_id, row.user_name, frozenset(row.scopes), row.certificate_id.hex
        )
        return _Known(principal, row.expires_at)
