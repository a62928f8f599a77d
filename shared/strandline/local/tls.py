"""HTTPS on one machine: the server's certificates, and the client's certificate passed to the
handlers as API Gateway passes it."""

import asyncio
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from strandline.admin import certificates
from strandline.auth import x509_names
from strandline.db.database import TenantDb
from strandline.errors import Misconfigured, StateConflict
from strandline.tenants.store_audit import AuditContext

PEER = "client_certificate"
"""The key in a request's ASGI state of the client certificate that the handshake verified, as
DER."""


@dataclass(frozen=True)
class TlsFiles:
    """The certificate files of the server."""

    certificate: Path
    key: Path
    authority: Path | None = None
    """The authority of client certificates; None requests none."""
    client: Path | None = None
    client_key: Path | None = None
    """A client certificate issued here, by `authority`, which then issued the server's as well."""

    def client_context(self) -> ssl.SSLContext:
        """For this machine's own tools: trusts the server, sends the client certificate."""
        context = ssl.create_default_context(cafile=self.authority if self.client else None)
        if self.client and self.client_key:
            context.load_cert_chain(self.client, self.client_key)
        return context

    @property
    def server_names(self) -> list[str]:
        """The names that the server's certificate is for, in lower case."""
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return []
        return [name.lower() for name in names.value.get_values_for_type(x509.DNSName)]

    def uvicorn_options(self) -> dict[str, Any]:
        """uvicorn's options for TLS. A client certificate is optional, because a key can
        authenticate too; one of another authority ends the handshake."""
        cert_reqs = ssl.CERT_OPTIONAL if self.authority else ssl.CERT_NONE
        return {
            "ssl_certfile": self.certificate,
            "ssl_keyfile": self.key,
            "ssl_ca_certs": self.authority,
            "ssl_cert_reqs": cert_reqs,
        }


def load_or_issue_tls_files(directory: Path) -> TlsFiles | None:
    """The files that STRANDLINE_TLS_CERT, _KEY and _CLIENT_CA name, or with STRANDLINE_TLS=1 those
    of a local authority in `directory`; None serves plain HTTP. Raises Misconfigured."""
    values = [os.environ.get(f"STRANDLINE_TLS_{name}") for name in ("CERT", "KEY", "CLIENT_CA")]
    paths = [Path(name) if name else None for name in values]
    missing = [str(path) for path in paths if path and not path.is_file()]
    certificate, key, authority = paths
    if missing:
        raise Misconfigured(f"STRANDLINE_TLS_…: there is no file {', '.join(missing)}.")
    if certificate and key:
        return TlsFiles(certificate, key, authority)
    if any(paths):
        raise Misconfigured(
            "Set STRANDLINE_TLS_CERT and STRANDLINE_TLS_KEY together; "
            "STRANDLINE_TLS_CLIENT_CA needs both."
        )
    is_enabled = os.environ.get("STRANDLINE_TLS", "").lower() in ("1", "true", "yes", "on")
    return _issue_certificates_once(directory / "tls") if is_enabled else None


def _issue_certificates_once(directory: Path) -> TlsFiles:
    """Certificates of an authority that is created once; its key is not stored."""
    files = TlsFiles(*(directory / name for name in ("server.pem", "server.key", "authority.pem")))
    client, client_key = directory / "client.pem", directory / "client.key"
    if not client_key.exists():  # written last
        import trustme

        directory.mkdir(mode=0o700, exist_ok=True)
        authority = trustme.CA(organization_name="Strandline on this machine")
        authority.cert_pem.write_to_path(directory / "authority.pem")
        server = authority.issue_cert("localhost", "127.0.0.1")
        client_certificate = authority.issue_cert("client@localhost", common_name="local client")
        for leaf, certificate, key in (
            (server, files.certificate, files.key),
            (client_certificate, client, client_key),
        ):
            leaf.cert_chain_pems[0].write_to_path(certificate)
            key.touch(0o600)
            leaf.private_key_pem.write_to_path(key)
    return TlsFiles(files.certificate, files.key, files.authority, client, client_key)


def register_local_client_certificate(access: TenantDb, tls: TlsFiles | None) -> None:
    """Register the client certificate that was issued here for the caller's tenant."""
    if tls is None or tls.client is None:
        return
    info = x509_names.parse_certificate_names(tls.client.read_text())
    try:
        certificates.add_certificate(
            access,
            AuditContext("console certificate"),
            subject=info.subject,
            issuer=info.issuer,
            rights=("read", "write", "admin"),
            label="made by make run",
        )
    except StateConflict:
        return  # registered at an earlier start


def make_client_cert_of_event(der: bytes) -> dict[str, Any]:
    """A certificate in the form of `requestContext.identity.clientCert`."""
    from cryptography.x509 import load_der_x509_certificate

    certificate, pem = load_der_x509_certificate(der), ssl.DER_cert_to_PEM_cert(der)
    info = x509_names.parse_certificate_names(pem)
    digits = f"{certificate.serial_number:x}"
    serial = digits.zfill(len(digits) + len(digits) % 2)
    return {
        "clientCertPem": pem,
        "subjectDN": info.subject,
        "issuerDN": info.issuer,
        "serialNumber": ":".join(serial[at : at + 2] for at in range(0, len(serial), 2)),
        "validity": {
            "notBefore": _format_certificate_time(info.not_before),
            "notAfter": _format_certificate_time(info.not_after),
        },
    }


def _format_certificate_time(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    return f"{moment:%b} {moment.day:2} {moment:%H:%M:%S %Y} GMT"


class PeerCertificateProtocol(H11Protocol):
    """uvicorn's protocol, with the client's certificate in the state of each request. Only a
    certificate that the handshake verified is there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Called when the handshake is done."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        peer = tls.getpeercert(binary_form=True) if tls is not None else None
        if peer is not None:
            self.app_state = {**self.app_state, PEER: peer}
