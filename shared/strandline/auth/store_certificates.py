"""The registered subjects of client certificates, in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from strandline.cursors import Position
from strandline.db.connection import Connection, translate_errors
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class CertificatePrincipal:
    """What a subject authenticates: tenant, user and rights."""

    tenant_id: str
    certificate_id: UUID
    user_name: str | None
    scopes: list[str]
    expires_at: datetime | None
    agents_share: bool
    """The tenant's setting."""
    reading_space: str | None
    """The embedding space that the tenant reads."""


def find_certificate_principal(
    connection: Connection, subject: str, issuer: str
) -> CertificatePrincipal | None:
    """The principal of this subject and issuer, or None if there is none or it was revoked. Read
    before any tenant is known."""
    with (
        translate_errors(),
        connection.cursor(row_factory=class_row(CertificatePrincipal)) as cursor,
    ):
        return cursor.execute(
            "select c.*, s.agents_share, s.reading_space"
            " from find_certificate_principal(%s, %s) c"
            " cross join lateral request_settings_of(c.tenant_id) s",
            (subject, issuer),
        ).fetchone()


@dataclass(frozen=True)
class CertificateSubject:
    """A registered subject as an operator sees it."""

    certificate_id: UUID
    subject: str
    issuer: str | None
    user_name: str | None
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class _CertificateIdRow:
    certificate_id: UUID


def add_certificate(
    access: TenantDb,
    *,
    certificate_id: UUID,
    subject: str,
    issuer: str | None,
    user: str | None,
    scopes: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> bool:
    """Register a subject for the caller's tenant; needs a `transaction`. False if the names are
    taken: they authenticate one principal in the whole deployment."""
    rows = access.fetch(
        _CertificateIdRow,
        """
        insert into certificate_principals (tenant_id, certificate_id, subject, issuer, user_name,
            scopes, label, expires_at)
        values (%(tenant)s, %(certificate_id)s, %(subject)s, %(issuer)s, %(user)s, %(scopes)s,
            %(label)s, %(expires_at)s)
        on conflict (subject, coalesce(issuer, '')) where revoked_at is null do nothing
        returning certificate_id
        """,
        {
            "tenant": access.caller.tenant,
            "certificate_id": certificate_id,
            "subject": subject,
            "issuer": issuer,
            "user": user,
            "scopes": list(scopes),
            "label": label,
            "expires_at": expires_at,
        },
    )
    return bool(rows)


def get_certificate(access: TenantDb, certificate_id: UUID) -> CertificateSubject | None:
    """A registered subject of the caller's tenant, or None."""
    rows = access.fetch(
        CertificateSubject,
        "select certificate_id, subject, issuer, user_name, scopes, label, created_at, expires_at,"
        " revoked_at from certificate_principals where certificate_id = %(certificate_id)s",
        {"certificate_id": certificate_id},
    )
    return rows[0] if rows else None


def revoke_certificate(access: TenantDb, certificate_id: UUID) -> CertificateSubject | None:
    """Revoke a subject of the caller's tenant; a second call keeps the first time. Needs a
    `transaction`. None if there is no such subject."""
    access.execute(
        "update certificate_principals set revoked_at = coalesce(revoked_at, now())"
        " where certificate_id = %(certificate_id)s",
        {"certificate_id": certificate_id},
    )
    return get_certificate(access, certificate_id)


@dataclass(frozen=True)
class ListedCertificateSubject(CertificateSubject):
    """A subject on a page, and the database snapshot that the page shows."""

    pg_snapshot: str


def list_newest(
    access: TenantDb, after: Position | None, limit: int
) -> Sequence[ListedCertificateSubject]:
    """Subjects of the caller's tenant, newest first; further pages read the first page's
    snapshot."""
    return access.fetch(
        ListedCertificateSubject,
        """
        select c.certificate_id, c.subject, c.issuer, c.user_name, c.scopes, c.label, c.created_at,
            c.expires_at, c.revoked_at,
            coalesce(%(pg_snapshot)s, pg_current_snapshot()::text) as pg_snapshot
        from certificate_principals c
        where (%(pg_snapshot)s::text is null or is_in_snapshot(c.xid, %(pg_snapshot)s::pg_snapshot))
            and (%(at)s::timestamptz is null or (c.created_at, c.certificate_id) < (%(at)s, %(id)s))
        order by c.created_at desc, c.certificate_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "id": after and after.row_id,
            "limit": limit,
        },
    )
