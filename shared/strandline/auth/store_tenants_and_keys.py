"""Tenants and API keys. Only a hash of a key's secret is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from psycopg.rows import class_row

from strandline.cursors import Position
from strandline.db.connection import Connection, translate_errors
from strandline.db.database import TenantDb


@dataclass(frozen=True)
class KeyPrincipal:
    """What a key authenticates: tenant, user and rights."""

    tenant_id: str
    user_name: str | None
    scopes: list[str]
    expires_at: datetime | None
    agents_share: bool
    """The tenant's setting."""
    reading_space: str | None
    """The embedding space that the tenant reads; None: the configured one."""


def find_key_principal(
    connection: Connection, key_id: str, secret_hash: bytes
) -> KeyPrincipal | None:
    """The key with this id and secret, or None if there is none or it was revoked. Read before any
    tenant is known."""
    with translate_errors(), connection.cursor(row_factory=class_row(KeyPrincipal)) as cursor:
        return cursor.execute(
            "select k.*, s.agents_share, s.reading_space from find_api_key(%s, %s) k"
            " cross join lateral request_settings_of(k.tenant_id) s",
            (key_id, secret_hash),
        ).fetchone()


def insert_tenant(access: TenantDb) -> bool:
    """Create the caller's tenant. False if it exists already."""
    inserted_count = access.execute(
        "insert into tenants (tenant_id) values (%(tenant)s) on conflict do nothing",
        {"tenant": access.caller.tenant},
    )
    return inserted_count > 0


@dataclass(frozen=True)
class ListedTenant:
    """A tenant, and when it was created."""

    tenant_id: str
    created_at: datetime


@dataclass(frozen=True)
class TenantWithSettings(ListedTenant):
    """A tenant with its settings for reads."""

    agents_share: bool
    """Whether reads leave agents out of the participants on whose behalf they ask."""
    time_zone: str
    """The IANA name of the time zone of days that its questions name."""
    reading_space: str | None
    """The embedding space that it reads; None: the configured one."""
    embedding_switch: Literal["auto", "held"] | None
    """Its own setting of how it comes to read the configured one: `auto` or `held`."""


def get_tenant(access: TenantDb) -> TenantWithSettings | None:
    """The caller's tenant, or None if it does not exist."""
    rows = access.fetch(
        TenantWithSettings,
        """
        select tenant_id, created_at, agents_share, time_zone,
            coalesce(reading_space, swept_space) as reading_space, embedding_switch
        from tenants where tenant_id = %(tenant)s
        """,
        {"tenant": access.caller.tenant},
    )
    return rows[0] if rows else None


def set_agents_share(access: TenantDb, *, agents_share: bool) -> None:
    """Set whether the agents of the caller's tenant share; it is in force everywhere after a
    minute. Needs a `transaction`."""
    access.execute(
        "update tenants set agents_share = %(agents_share)s where tenant_id = %(tenant)s",
        {"agents_share": agents_share, "tenant": access.caller.tenant},
    )


@dataclass(frozen=True)
class _ExistenceRow:
    is_known: bool


def is_known_time_zone(access: TenantDb, name: str) -> bool:
    """Whether the database knows a time zone by this IANA name."""
    statement = """
        select exists (
            select from pg_timezone_names where name = %(name)s
                and name !~ '^(posix|right)/' and name not in ('Factory', 'localtime', 'posixrules')
        ) as is_known
        """
    return access.fetch(_ExistenceRow, statement, {"name": name})[0].is_known


def set_time_zone(access: TenantDb, time_zone: str) -> None:
    """Set the time zone of the caller's tenant; needs a `transaction`. The caller has checked that
    the database knows it."""
    access.execute(
        "update tenants set time_zone = %(time_zone)s where tenant_id = %(tenant)s",
        {"time_zone": time_zone, "tenant": access.caller.tenant},
    )


def lock_tenant(access: TenantDb) -> bool:
    """Lock the caller's tenant until the transaction ends. False if it does not exist."""
    row_count = access.execute(
        "select from tenants where tenant_id = %(tenant)s for no key update",
        {"tenant": access.caller.tenant},
    )
    return row_count > 0


def list_tenants(access: TenantDb, after: str, limit: int) -> Sequence[ListedTenant]:
    """All tenants by name, those after `after`: for an operator, past row-level security."""
    return access.fetch(
        ListedTenant,
        "select tenant_id, created_at from tenants_by_name(%(after)s, %(limit)s)",
        {"after": after, "limit": limit},
    )


@dataclass(frozen=True)
class ApiKey:
    """A key as an operator sees it: nothing secret."""

    key_id: str
    user_name: str | None
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The key that replaces it."""


def insert_key(
    access: TenantDb,
    *,
    key_id: str,
    secret_hash: bytes,
    user: str | None,
    scopes: Sequence[str],
    label: str,
    expires_at: datetime | None,
) -> ApiKey:
    """Store a key of the caller's tenant. Needs a `transaction`, as all that follows does but
    `get_key` and `list_newest_keys`. The result is read back by a statement of its own, so that a
    key has one form."""
    access.execute(
        """
        insert into api_keys (tenant_id, key_id, secret_hash, user_name, scopes, label, expires_at)
        values (%(tenant)s, %(key_id)s, %(secret_hash)s, %(user)s, %(scopes)s, %(label)s,
            %(expires_at)s)
        """,
        {
            "tenant": access.caller.tenant,
            "key_id": key_id,
            "secret_hash": secret_hash,
            "user": user,
            "scopes": list(scopes),
            "label": label,
            "expires_at": expires_at,
        },
    )
    return _read_back_key(access, key_id)


def get_key(access: TenantDb, key_id: str) -> ApiKey | None:
    """A key of the caller's tenant, or None."""
    rows = access.fetch(
        ApiKey,
        "select key_id, user_name, scopes, label, created_at, expires_at, revoked_at, rotated_to"
        " from api_keys where key_id = %(key_id)s",
        {"key_id": key_id},
    )
    return rows[0] if rows else None


def lock_key(access: TenantDb, key_id: str) -> ApiKey | None:
    """Like `get_key`, and locks the key until the transaction ends."""
    access.execute(
        "select from api_keys where key_id = %(key_id)s for no key update", {"key_id": key_id}
    )
    return get_key(access, key_id)  # read after the lock: sees what the last holder changed


def set_key_successor(access: TenantDb, key_id: str, successor: str, ends_at: datetime) -> ApiKey:
    """Name a key's successor, and let the key expire at `ends_at` or at its own expiry if that is
    earlier."""
    access.execute(
        "update api_keys set rotated_to = %(successor)s,"
        " expires_at = least(expires_at, %(until)s) where key_id = %(key_id)s",
        {"key_id": key_id, "successor": successor, "until": ends_at},
    )
    return _read_back_key(access, key_id)


def revoke_key(access: TenantDb, key_id: str) -> ApiKey | None:
    """Revoke a key of the caller's tenant; a second call keeps the first time. None if there is no
    such key."""
    access.execute(
        "update api_keys set revoked_at = coalesce(revoked_at, now()) where key_id = %(key_id)s",
        {"key_id": key_id},
    )
    return get_key(access, key_id)


def _read_back_key(access: TenantDb, key_id: str) -> ApiKey:
    key = get_key(access, key_id)
    assert key is not None, "this transaction wrote it"
    return key


@dataclass(frozen=True)
class ListedKey(ApiKey):
    """A key on a page, and the database snapshot that the page shows."""

    pg_snapshot: str


def list_newest_keys(access: TenantDb, after: Position | None, limit: int) -> Sequence[ListedKey]:
    """Keys of the caller's tenant, newest first; further pages read the first page's snapshot."""
    return access.fetch(
        ListedKey,
        """
        select k.key_id, k.user_name, k.scopes, k.label, k.created_at, k.expires_at, k.revoked_at,
            k.rotated_to, coalesce(%(pg_snapshot)s, pg_current_snapshot()::text) as pg_snapshot
        from api_keys k
        where (%(pg_snapshot)s::text is null or is_in_snapshot(k.xid, %(pg_snapshot)s::pg_snapshot))
            and (%(at)s::timestamptz is null or (k.created_at, k.key_id) < (%(at)s, %(key_id)s))
        order by k.created_at desc, k.key_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "key_id": after and after.row_id.hex,
            "limit": limit,
        },
    )
