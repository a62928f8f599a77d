"""For whom the subjects of client certificates stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from strandline.cursors import Position
from strandline.db.database import Access, Connection, translated


@dataclass(frozen=True)
class PrincipalRow:
    """For whom a subject stands."""

    tenant_id: str
    certificate_id: UUID
    user_name: str | None
    scopes: list[str]
    expires_at: datetime | None


def find(connection: Connection, subject: str, issuer: str) -> PrincipalRow | None:
    """The principal of these names, unless it was revoked: read before any tenant is known."""
    with translated(), connection.cursor(row_factory=class_row(PrincipalRow)) as cursor:
        return cursor.execute(
            "select * from find_certificate_principal(%s, %s)", (subject, issuer)
        ).fetchone()


@dataclass(frozen=True)
class Certificate:
    """A subject as an operator sees it."""

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
class _Id:
    certificate_id: UUID


def add(
    access: Access,
    *,
    certificate_id: UUID,
    subject: str,
    issuer: str | None,
    user: str | None,
    scopes: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> bool:
    """Enter a subject for the asker's tenant; inside of `transaction`. Says whether it was free:
    names stand for one principal in the whole deployment."""
    made = access.fetch(
        _Id,
        """
        insert into certificate_principals (tenant_id, certificate_id, subject, issuer, user_name,
            scopes, label, expires_at)
        values (%(tenant)s, %(certificate_id)s, %(subject)s, %(issuer)s, %(user)s, %(scopes)s,
            %(label)s, %(expires_at)s)
        on conflict (subject, coalesce(issuer, '')) where revoked_at is null do nothing
        returning certificate_id
        """,
        {
            "tenant": access.asker.tenant,
            "certificate_id": certificate_id,
            "subject": subject,
            "issuer": issuer,
            "user": user,
            "scopes": list(scopes),
            "label": label,
            "expires_at": expires_at,
        },
    )
    return bool(made)


def get(access: Access, certificate_id: UUID) -> Certificate | None:
    """A subject of the asker's tenant."""
    rows = access.fetch(
        Certificate,
        "select certificate_id, subject, issuer, user_name, scopes, label, created_at, expires_at,"
        " revoked_at from certificate_principals where certificate_id = %(certificate_id)s",
        {"certificate_id": certificate_id},
    )
    return rows[0] if rows else None


def revoke(access: Access, certificate_id: UUID) -> Certificate | None:
    """Revoke a subject of the asker's tenant; the first time counts. Inside of `transaction`."""
    access.execute(
        "update certificate_principals set revoked_at = coalesce(revoked_at, now())"
        " where certificate_id = %(certificate_id)s",
        {"certificate_id": certificate_id},
    )
    return get(access, certificate_id)


@dataclass(frozen=True)
class ListedCertificate(Certificate):
    """A subject on a page, and the database snapshot that the page shows."""

    mark: str


def newest(access: Access, after: Position | None, limit: int) -> Sequence[ListedCertificate]:
    """Subjects of the asker's tenant, newest first; further pages see the snapshot of the first."""
    return access.fetch(
        ListedCertificate,
        """
        select c.certificate_id, c.subject, c.issuer, c.user_name, c.scopes, c.label, c.created_at,
            c.expires_at, c.revoked_at, coalesce(%(mark)s, pg_current_snapshot()::text) as mark
        from certificate_principals c
        where (%(mark)s::text is null or seen_by(c.xid, %(mark)s::pg_snapshot))
            and (%(at)s::timestamptz is null or (c.created_at, c.certificate_id) < (%(at)s, %(id)s))
        order by c.created_at desc, c.certificate_id desc
        limit %(limit)s
        """,
        {
            "mark": after and after.mark,
            "at": after and after.at,
            "id": after and after.row_id,
            "limit": limit,
        },
    )
