"""Tenants and API keys. Only a hash of a key's secret is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from strandline.db import Access, Connection, translated


@dataclass(frozen=True)
class KeyRow:
    """What a key stands for."""

    tenant_id: str
    user_name: str | None
    scopes: list[str]
    expires_at: datetime | None


def find(connection: Connection, key_id: str, secret_hash: bytes) -> KeyRow | None:
    """The key with this id and secret, unless it was revoked: read before any tenant is known."""
    with translated(), connection.cursor(row_factory=class_row(KeyRow)) as cursor:
        return cursor.execute(
            "select * from find_api_key(%s, %s)", (key_id, secret_hash)
        ).fetchone()


def add_tenant(access: Access) -> None:
    """Make the asker's tenant, if it is new."""
    access.execute(
        "insert into tenants (tenant_id) values (%(tenant)s) on conflict do nothing",
        {"tenant": access.asker.tenant},
    )


def add(
    access: Access,
    *,
    key_id: str,
    secret_hash: bytes,
    user: str | None,
    scopes: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> None:
    """Store a key of the asker's tenant."""
    access.execute(
        """
        insert into api_keys (tenant_id, key_id, secret_hash, user_name, scopes, label, expires_at)
        values (%(tenant)s, %(key_id)s, %(secret_hash)s, %(user)s, %(scopes)s, %(label)s,
            %(expires_at)s)
        """,
        {
            "tenant": access.asker.tenant,
            "key_id": key_id,
            "secret_hash": secret_hash,
            "user": user,
            "scopes": list(scopes),
            "label": label,
            "expires_at": expires_at,
        },
    )


def revoke(access: Access, key_id: str) -> bool:
    """Revoke a key of the asker's tenant; says whether there was one."""
    return (
        access.execute(
            "update api_keys set revoked_at = coalesce(revoked_at, now())"
            " where key_id = %(key_id)s",
            {"key_id": key_id},
        )
        > 0
    )


@dataclass(frozen=True)
class Listed:
    """A key as its tenant's operator sees it: nothing secret."""

    key_id: str
    user_name: str | None
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def listing(access: Access) -> Sequence[Listed]:
    """The keys of the asker's tenant, newest first."""
    return access.fetch(
        Listed,
        "select key_id, user_name, scopes, label, created_at, expires_at, revoked_at"
        " from api_keys order by created_at desc, key_id",
        {},
    )
