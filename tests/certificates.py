"""Client certificates for tests, as a handshake would have proved them."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.tokens import ec_key


def certificate(
    subject: str | x509.Name,
    *,
    issuer: str = "CN=An authority",
    begins: timedelta = timedelta(hours=-1),
    ends: timedelta = timedelta(hours=1),
) -> bytes:
    """A certificate of this subject (RFC 4514), as DER. Who signed it is for the handshake to
    check."""
    key, now = ec_key("P-256"), datetime.now(UTC)
    name = x509.Name.from_rfc4514_string(subject) if isinstance(subject, str) else subject
    result = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name.from_rfc4514_string(issuer))
        .public_key(key.public_key())
        .serial_number(0xA1B2C3)
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .sign(key, hashes.SHA256())
    )
    return result.public_bytes(serialization.Encoding.DER)
