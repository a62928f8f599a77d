"""Distinguished names in one canonical form, so that equal names are equal strings (RFC 4514, with
the parts of a multi-valued RDN in order). `cryptography` parses them. They are read from the
certificate: nothing promises how the gateway's `subjectDN` is spelled."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import Invalid

if TYPE_CHECKING:
    from cryptography.x509 import Name, ObjectIdentifier

MAX_LENGTH = 1024
"""Characters of a name in canonical form."""


class CertificateInfo(NamedTuple):
    """A certificate's names and validity period."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime


def parse_certificate_names(pem: str) -> CertificateInfo:
    """Read a PEM certificate; nothing is verified here. Raises ValueError."""
    from cryptography.x509 import InvalidVersion, load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(pem.encode("ascii"))
    except InvalidVersion:
        raise ValueError("neither of version 1 nor of version 3") from None
    return CertificateInfo(
        _format_name(certificate.subject),
        _format_name(certificate.issuer),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


def canonicalize_name(text: str, field: str) -> str:
    """A name as a person wrote it, in canonical form. Raises Invalid naming `field`."""
    from cryptography.x509 import Name

    try:
        by_text = {short: oid for oid, short in _list_openssl_attribute_names().items()}
        result = _format_name(Name.from_rfc4514_string(text, by_text))
    except ValueError:
        result = ""
    if not 0 < len(result) <= MAX_LENGTH:
        raise Invalid(
            f"{field}: must be a distinguished name in RFC 4514 form, most specific part first, no "
            "space after a comma, like `CN=helper,O=Acme`; `openssl x509 -noout -subject -nameopt "
            "RFC2253` prints it",
            field=field,
        )
    return result


def _format_name(name: "Name") -> str:
    short_names = _list_openssl_attribute_names()
    return ",".join(
        "+".join(sorted(part.rfc4514_string(short_names) for part in rdn))
        for rdn in reversed(name.rdns)
    )


def _list_openssl_attribute_names() -> "Mapping[ObjectIdentifier, str]":
    """Attribute names that openssl prints, beyond those of RFC 4514; any other is written as its
    dotted OID."""
    from cryptography.x509 import NameOID

    return {
        NameOID.EMAIL_ADDRESS: "emailAddress",
        NameOID.SERIAL_NUMBER: "serialNumber",
        NameOID.GIVEN_NAME: "GN",
        NameOID.SURNAME: "SN",
        NameOID.TITLE: "title",
        NameOID.DN_QUALIFIER: "dnQualifier",
    }
