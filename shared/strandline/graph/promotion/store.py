"""SQL for promotion: chains that are due, their evidence, and their earlier observations."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb
from strandline.jobs import store_failures


def list_due_tenants(
    connection: Connection,
    promotion: Mapping[str, object],
    heat: Mapping[str, object],
    now: datetime,
) -> list[str]:
    """Ids of the tenants where a promotion is due. `promotion` and `heat` are the deployment's
    settings."""
    params = (json.dumps(promotion), json.dumps(heat), now)
    statement = "select * from tenants_to_promote(%s::jsonb, %s::jsonb, %s)"
    return fetch_tenant_ids(connection, statement, params)


@dataclass(frozen=True)
class ChainToPromote:
    """The newest version of a chain that is to be promoted."""

    chain_id: UUID
    version: int
    scope_id: UUID
    participants: list[str]
    topic: str | None
    entities: list[dict[str, str]]
    importance: float
    density: float
    strength: float
    accessed_at: datetime
    content_hash: bytes = b""
    """The hash of its version. An erasure changes it."""


_SELECT_CHAIN = """
    select c.chain_id, c.version, c.scope_id, c.participants, v.topic, v.entities, c.importance,
        c.density, c.strength, c.accessed_at, v.content_hash
    from chains c join chain_versions v
        on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id and v.version = c.version
"""


def list_warm_unpromoted_chains(
    access: TenantDb, now: datetime, without: Collection[UUID], limit: int
) -> Sequence[ChainToPromote]:
    """Up to `limit` chains whose version is not promoted and that are warm enough or bear a change.
    Those that bear a change come first, then those that stay warm longest."""
    return access.fetch(
        ChainToPromote,
        _SELECT_CHAIN
        + """
        where c.tenant_id = current_tenant() and c.status = 'active'
            and c.promoted_version < c.version
            and (c.promote_until >= %(now)s or c.bears_change)
            and c.chain_id <> all (%(without)s)
        order by c.bears_change desc, c.promote_until desc, c.chain_id limit %(limit)s
        """,
        {"now": now, "without": list(without), "limit": limit},
    )


def list_cold_unpromoted_chains(
    access: TenantDb, now: datetime, without: Collection[UUID], limit: int
) -> Sequence[ChainToPromote]:
    """Up to `limit` chains that may be archived and whose version is not promoted, the longest cold
    first."""
    return access.fetch(
        ChainToPromote,
        _SELECT_CHAIN
        + """
        where c.tenant_id = current_tenant() and c.status = 'active'
            and c.promoted_version < c.version and c.cold_at <= %(now)s
            and c.chain_id <> all (%(without)s)
        order by c.cold_at, c.chain_id limit %(limit)s
        """,
        {"now": now, "without": list(without), "limit": limit},
    )


def list_chains_to_retry(access: TenantDb, limit: int) -> Sequence[ChainToPromote]:
    """Up to `limit` chains whose promotion an admin has asked to retry."""
    return access.fetch(
        ChainToPromote,
        _SELECT_CHAIN
        + """
        where c.tenant_id = current_tenant() and c.status <> 'rejected' and exists (
            select from jobs j
            where j.tenant_id = c.tenant_id and j.kind = %(kind)s and j.ref = c.chain_id::text
                and j.state = 'queued')
        order by c.chain_id limit %(limit)s
        """,
        {"kind": store_failures.PROMOTE_KIND, "limit": limit},
    )


def close_orphaned_retries(access: TenantDb, now: datetime) -> int:
    """Mark retries as done if their chains are gone or no longer hold memory. Returns how many. In
    a transaction."""
    return access.execute(
        """
        update jobs j set state = 'done', finished_at = %(now)s, reason = '', advice = ''
        where j.kind = %(kind)s and j.ref is not null and j.state = 'queued' and not exists (
            select from chains c
            where c.tenant_id = j.tenant_id and c.chain_id = j.ref::uuid and c.status <> 'rejected')
        """,
        {"kind": store_failures.PROMOTE_KIND, "now": now},
    )


@dataclass(frozen=True)
class EvidenceEvent:
    """An event of a chain."""

    event_id: UUID
    seq: int
    speaker: str | None
    role: str
    type: str
    origin: str
    text: str
    """The first 8,000 characters of its content, or the file name of a payload."""
    said_at: datetime
    recorded_at: datetime


def list_evidence_events(access: TenantDb, chain_id: UUID) -> Sequence[EvidenceEvent]:
    """A chain's events by seq, without erased ones and without those that repeat the answer of a
    recall."""
    return access.fetch(
        EvidenceEvent,
        """
        select e.event_id, e.seq, e.speaker, e.role, e.type, e.origin,
            coalesce(left(e.content, 8000), e.file_name, '') as text,
            coalesce(e.occurred_at, e.recorded_at) as said_at, e.recorded_at
        from chain_events l join events e on e.tenant_id = l.tenant_id and e.event_id = l.event_id
        where l.tenant_id = current_tenant() and l.chain_id = %(chain_id)s
            and e.erased_at is null and not is_echo(e.scope_id, e.event_id)
        order by e.seq
        """,
        {"chain_id": chain_id},
    )


@dataclass(frozen=True)
class _VersionHash:
    version: int
    content_hash: bytes


def lock_chain_if_unchanged(access: TenantDb, chain: ChainToPromote) -> bool:
    """Lock a chain until the transaction ends. Returns whether its newest version is still the one
    that was read, with the same content. An erasure may have removed events from it."""
    rows = access.fetch(
        _VersionHash,
        "select c.version, v.content_hash from chains c join chain_versions v"
        " on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id and v.version = c.version"
        " where c.tenant_id = current_tenant()"
        " and c.chain_id = %(chain_id)s for no key update of c",
        {"chain_id": chain.chain_id},
    )
    return [(row.version, row.content_hash) for row in rows] == [
        (chain.version, chain.content_hash)
    ]


@dataclass(frozen=True)
class _ObservationTarget:
    target_id: UUID


def delete_older_chain_observations(
    access: TenantDb, chain_id: UUID, version: int, *, is_retry: bool
) -> list[UUID]:
    """Delete the observations of older versions of a chain, and with `is_retry` also of this
    version. Returns the ids of the nodes and edges that must be computed again. In a
    transaction."""
    rows = access.fetch(
        _ObservationTarget,
        """
        delete from graph_observations
        where tenant_id = current_tenant() and source_id = %(chain_id)s
            and (source_version < %(version)s or %(is_retry)s)
        returning target_id
        """,
        {"chain_id": chain_id, "version": version, "is_retry": is_retry},
    )
    return [row.target_id for row in rows]


def mark_chain_promoted(access: TenantDb, chain_id: UUID, version: int) -> None:
    """Record that this version of a chain is promoted. In a transaction, after
    `lock_chain_if_unchanged`."""
    access.execute(
        "update chains set promoted_version = %(version)s"
        " where tenant_id = current_tenant() and chain_id = %(chain_id)s",
        {"chain_id": chain_id, "version": version},
    )


@dataclass(frozen=True)
class StoredExtraction:
    """The stored decision on what was extracted from a version of a chain."""

    body: dict[str, Any]


def find_stored_extraction(
    access: TenantDb, chain: ChainToPromote, last_event_id: UUID
) -> StoredExtraction | None:
    """The latest stored extraction of this version of a chain, or None."""
    rows = access.fetch(
        StoredExtraction,
        """
        select body from decisions
        where tenant_id = current_tenant() and scope_id = %(scope_id)s
            and event_id = %(event_id)s and kind = 'extracted'
            and body ->> 'chain_id' = %(chain_id)s and (body ->> 'version')::int = %(version)s
        order by attempt desc limit 1
        """,
        {
            "scope_id": chain.scope_id,
            "event_id": last_event_id,
            "chain_id": str(chain.chain_id),
            "version": chain.version,
        },
    )
    return rows[0] if rows else None
