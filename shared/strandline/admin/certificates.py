"""Client certificates: subjects entered, listed and revoked by operators, over HTTP and at the
console."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.admin.keys import bound_user, require_ahead, require_rights
from strandline.admin.schemas_certificates import CertificateOut, CertificatePage
from strandline.admin.tenants import require_name
from strandline.auth import store_certificates, store_keys, x509_names
from strandline.auth.principals import RIGHTS
from strandline.cursors import Cursors, Position
from strandline.db.database import Access
from strandline.errors import NotFound, StateConflict
from strandline.tenants import store_audit
from strandline.tenants.store_audit import Act


def enter(
    access: Access,
    act: Act,
    *,
    subject: str,
    issuer: str | None = None,
    user: str | None = None,
    rights: Sequence[str] = ("read", "write"),
    label: str = "",
    expires_at: datetime | None = None,
) -> CertificateOut:
    """Let certificates of this subject, of this issuer if given, stand for the asker's tenant,
    bound to `user` if given. At the console the tenant is made if it is new.

    Raises Invalid as `make_key` does, and for what is no distinguished name; StateConflict where
    these names stand for somebody already, in whatever tenant.
    """
    require_name(access.asker.tenant)
    require_rights(rights)
    user = bound_user(user)
    require_ahead(expires_at, datetime.now(UTC))
    subject = x509_names.canonical(subject, "subject")
    issuer = None if issuer is None else x509_names.canonical(issuer, "issuer")
    certificate_id = uuid7()
    with access.transaction():
        if act.tenant is None:
            store_keys.add_tenant(access)
        if not store_certificates.add(
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
                "subject: stands for somebody already: revoke that row first, or name the issuer",
                field="subject",
            )
        made = store_certificates.get(access, certificate_id)
        assert made is not None, "this transaction wrote it"
        store_audit.add(access, act, {"certificate_id": str(certificate_id)}, _told(made))
    return _shown(made)


def revoke(access: Access, act: Act, certificate_id: UUID) -> CertificateOut:
    """Revoke a subject for good: refused within 60 seconds. Again changes nothing. Raises
    NotFound."""
    with access.transaction():
        revoked = store_certificates.revoke(access, certificate_id)
        if revoked is None:
            raise NotFound
        store_audit.add(access, act, {"certificate_id": str(certificate_id)})
    return _shown(revoked)


def get(access: Access, certificate_id: UUID) -> CertificateOut:
    """A subject of the asker's tenant. Raises NotFound."""
    found = store_certificates.get(access, certificate_id)
    if found is None:
        raise NotFound
    return _shown(found)


def listed(access: Access, limit: int, cursor: str | None) -> CertificatePage:
    """The subjects of the asker's tenant, newest first."""
    of = Cursors(access.sealer, access.asker.tenant, "certificates")
    rows = store_certificates.newest(access, of.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.mark, last.created_at, last.certificate_id)
    return CertificatePage(
        certificates=[_shown(row) for row in rows],
        next_cursor=after and of.encode(after),
    )


def _shown(row: store_certificates.Certificate) -> CertificateOut:
    return CertificateOut.model_validate({**vars(row), "user": row.user_name, "rights": row.scopes})


def _told(row: store_certificates.Certificate) -> dict[str, object]:
    """What the trail says of one that was entered; its names and label are somebody's words."""
    expires = row.expires_at and row.expires_at.astimezone(UTC).isoformat()
    return {"rights": row.scopes, "user": row.user_name, "expires_at": expires}
