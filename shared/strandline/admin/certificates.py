"""Client certificates: operators add, list and revoke subjects, over HTTP and at the console."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.admin.keys import parse_bound_user, require_known_rights, require_valid_expiry
from strandline.admin.schemas import CertificateOut, CertificatePage
from strandline.admin.tenants import require_tenant_name
from strandline.auth import store_certificates, store_tenants_and_keys, x509_names
from strandline.auth.principals import RIGHTS
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import NotFound, StateConflict
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext


def add_certificate(
    access: TenantDb,
    audit_context: AuditContext,
    *,
    subject: str,
    issuer: str | None = None,
    user: str | None = None,
    rights: Sequence[str] = ("read", "write"),
    label: str = "",
    expires_at: datetime | None = None,
) -> CertificateOut:
    """Add a subject: client certificates with it authenticate the tenant of `access`.

    With `issuer`, only that issuer's certificates count; with `user`, the principal is bound to
    that user. At the console the tenant is created if it is new. Raises Invalid as `make_key`, or
    for an invalid distinguished name; StateConflict where this subject and issuer are already
    taken, in any tenant.
    """
    require_tenant_name(access.caller.tenant)
    require_known_rights(rights)
    user = parse_bound_user(user)
    require_valid_expiry(expires_at, datetime.now(UTC))
    subject = x509_names.canonicalize_name(subject, "subject")
    issuer = None if issuer is None else x509_names.canonicalize_name(issuer, "issuer")
    certificate_id = uuid7()
    with access.transaction():
        if audit_context.tenant is None:
            store_tenants_and_keys.insert_tenant(access)
        if not store_certificates.add_certificate(
            access,
            certificate_id=certificate_id,
            subject=subject,
            issuer=issuer,
            user=user,
            scopes=[right for right in RIGHTS if right in rights],
            label=label,
            expires_at=expires_at,
        ):
            raise StateConflict(
                "subject: is already taken: revoke the existing entry first, or name the issuer",
                field="subject",
            )
        certificate = store_certificates.get_certificate(access, certificate_id)
        assert certificate is not None, "this transaction wrote it"
        store_audit.add_audit_entry(
            access,
            audit_context,
            {"certificate_id": str(certificate_id)},
            _make_audit_details(certificate),
        )
    return _to_certificate_out(certificate)


def revoke_certificate(
    access: TenantDb, audit_context: AuditContext, certificate_id: UUID
) -> CertificateOut:
    """Revoke a subject for good: its certificates are refused within 60 seconds. Idempotent. Raises
    NotFound."""
    with access.transaction():
        certificate = store_certificates.revoke_certificate(access, certificate_id)
        if certificate is None:
            raise NotFound
        store_audit.add_audit_entry(access, audit_context, {"certificate_id": str(certificate_id)})
    return _to_certificate_out(certificate)


def get_certificate(access: TenantDb, certificate_id: UUID) -> CertificateOut:
    """A subject of the tenant of `access`. Raises NotFound."""
    certificate = store_certificates.get_certificate(access, certificate_id)
    if certificate is None:
        raise NotFound
    return _to_certificate_out(certificate)


def list_client_certificates(access: TenantDb, limit: int, cursor: str | None) -> CertificatePage:
    """List the subjects of the tenant of `access`, newest first. Raises Malformed for an invalid
    cursor."""
    cursors = Cursors(access.sealer, access.caller.tenant, "certificates")
    rows = store_certificates.list_newest(access, cursors.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.pg_snapshot, last.created_at, last.certificate_id)
    return CertificatePage(
        certificates=[_to_certificate_out(row) for row in rows],
        next_cursor=after and cursors.encode(after),
    )


def _to_certificate_out(row: store_certificates.CertificateSubject) -> CertificateOut:
    return CertificateOut.model_validate({**vars(row), "user": row.user_name, "rights": row.scopes})


def _make_audit_details(row: store_certificates.CertificateSubject) -> dict[str, object]:
    """The details of the audit entry of an added subject. Its names and label are left out: they
    are free text."""
    expires = row.expires_at and row.expires_at.astimezone(UTC).isoformat()
    return {"rights": row.scopes, "user": row.user_name, "expires_at": expires}
