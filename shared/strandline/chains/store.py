"""SQL for chains: heads, immutable versions, and their links to events."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector


@dataclass(frozen=True)
class ChainHead:
    """A chain's current state: its row, and the content of its newest version."""

    chain_id: UUID
    scope_id: UUID
    session_id: str
    version: int
    status: str
    strength: float
    accessed_at: datetime
    closed_by: str
    merged: bool
    first_seq: int
    last_seq: int
    event_count: int
    started_at: datetime
    last_event_at: datetime
    topic: str | None
    summary: str
    entities: list[dict[str, str]]
    importance: float
    density: float
    coherence: float | None


@dataclass(frozen=True)
class MergeTarget(ChainHead):
    """A chain that a run may join."""

    described_by: str | None
    """The model that its summary, topic and entities come from."""


_SELECT_HEAD = """
    select c.chain_id, c.scope_id, c.session_id, c.version, c.status, c.strength, c.accessed_at,
        v.closed_by, v.merged, v.first_seq, v.last_seq, v.event_count, v.started_at,
        v.last_event_at, v.topic, v.summary, v.entities, v.importance, v.density, v.coherence
    from chains c
    join chain_versions v on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
        and v.version = c.version
"""


_MAX_CANDIDATES = 500
"""How many chains of a scope a run is compared with for a merge. The limit keeps the cost
independent of the scope's size."""


_SELECT_NEAREST = """
    -- vectors first: joining all chains costs twenty times as much
    with nearest as materialized (
        select n.chain_id, e.distance
        from newest_chains(%(scope_id)s, %(candidates)s) n
        cross join lateral (  -- by key: the planner would read all vectors of a large scope
            select e.embedding <=> %(vector)s::halfvec as distance from chain_vectors e
            where e.tenant_id = current_tenant() and e.space = %(space)s
                and e.scope_id = %(scope_id)s and e.chain_id = n.chain_id offset 0) e
        where 1 - e.distance >= %(min_similarity)s)
    select c.chain_id, c.scope_id, c.session_id, c.version, c.status, c.strength, c.accessed_at,
        v.closed_by, v.merged, v.first_seq, v.last_seq, v.event_count, v.started_at,
        v.last_event_at, v.topic, v.summary, v.entities, v.importance, v.density, v.coherence,
        v.models #>> '{summarise,model}' as described_by
    from nearest n
    cross join lateral (
        select * from chains c
        where c.tenant_id = current_tenant() and c.chain_id = n.chain_id
            and c.status = 'active' offset 0) c
    cross join lateral (
        select * from chain_versions v
        where v.tenant_id = current_tenant() and v.chain_id = n.chain_id
            and v.version = c.version and v.event_count <= %(max_events)s offset 0) v
    order by n.distance, n.chain_id limit 1
"""


def find_merge_target(
    access: TenantDb,
    scope_id: UUID,
    space: str,
    vector: PackedVector,
    min_similarity: float,
    max_events: int,
) -> MergeTarget | None:
    """Among the scope's newest chains (by last event), find the active one whose summary vector is
    closest to `vector`, with a cosine of at least `min_similarity` and at most `max_events` events;
    None if there is none."""
    rows = access.fetch(
        MergeTarget,
        _SELECT_NEAREST,
        {
            "scope_id": scope_id,
            "space": space,
            "vector": vector,
            "min_similarity": min_similarity,
            "max_events": max_events,
            "candidates": _MAX_CANDIDATES,
        },
    )
    return rows[0] if rows else None


def read_chain_head(access: TenantDb, chain_id: UUID) -> ChainHead | None:
    """Read a chain's head, or None. In a transaction, the row is locked until its end, and recalls
    wait."""
    rows = access.fetch(
        ChainHead,
        _SELECT_HEAD + "where c.chain_id = %(chain_id)s for no key update of c",
        {"chain_id": chain_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


def list_event_ids(access: TenantDb, chain_id: UUID) -> list[UUID]:
    """The ids of a chain's events, by seq."""
    rows = access.fetch(
        _EventId,
        "select event_id from chain_events where chain_id = %(chain_id)s order by seq",
        {"chain_id": chain_id},
    )
    return [row.event_id for row in rows]


@dataclass(frozen=True)
class ChainEvent:
    """An event that a version adds to its chain."""

    event_id: UUID
    seq: int


@dataclass(frozen=True)
class ChainVersionToStore:
    """A chain's new version, and the new state of the chain's row."""

    chain_id: UUID
    version: int
    scope_id: UUID
    participants: Sequence[str]
    session_id: str
    lane: str
    """The session of the run that this version added."""
    created_at_seq: int
    closed_by: str
    merged: bool
    first_seq: int
    last_seq: int
    event_count: int
    started_at: datetime
    last_event_at: datetime
    topic: str | None
    summary: str
    entities: Sequence[dict[str, str]]
    importance: float
    density: float
    coherence: float | None
    quality: float
    rejected: str | None
    settings: dict[str, Any]
    models: dict[str, Any]
    content_hash: bytes
    status: str
    formed_at: datetime
    strength: float
    accessed_at: datetime
    boosted_at: datetime | None
    archived_at: datetime | None
    cold_at: datetime
    promote_until: datetime


def insert_chain_version(
    access: TenantDb,
    version: ChainVersionToStore,
    links: Sequence[ChainEvent],
    space: str,
    vector: PackedVector | None,
) -> None:
    """Write a version, its chain, its links and its vector. `vector` is that of the summary, and is
    given only for a listed chain. Must run in the transaction that moves the scope's
    `folded_seq`."""
    params: dict[str, object] = {
        **vars(version),
        "participants": list(version.participants),
        "entities": json.dumps(version.entities),
        "settings": json.dumps(version.settings),
        "models": json.dumps(version.models),
        "links": json.dumps([{"event_id": str(link.event_id), "seq": link.seq} for link in links]),
        "space": space,
        "vector": vector,
    }
    delete_vector = (
        _DELETE_VECTOR if version.version > 1 else ""
    )  # a first version has no earlier vector
    insert_vector = _INSERT_VECTOR if vector is not None else ""
    statements: tuple[LiteralString, ...] = (
        *(_INSERT_VERSION, _UPSERT_CHAIN, _INSERT_LINKS if links else "", _MARK_CHANGE),
        *(delete_vector, _DELETE_USE, insert_vector),
    )
    access.execute_all([statement for statement in statements if statement], params)


_INSERT_VERSION = """
    insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,
        created_at_seq, closed_by, merged, first_seq, last_seq, event_count, started_at,
        last_event_at,
        topic, summary, entities, importance, density, coherence, quality, rejected, settings,
        models, content_hash, trust)
    values (current_tenant(), %(chain_id)s, %(version)s, %(scope_id)s, %(participants)s, %(lane)s,
        %(created_at_seq)s, %(closed_by)s, %(merged)s, %(first_seq)s, %(last_seq)s, %(event_count)s,
        %(started_at)s, %(last_event_at)s, %(topic)s, %(summary)s, %(entities)s::jsonb,
        %(importance)s, %(density)s, %(coherence)s, %(quality)s, %(rejected)s,
        %(settings)s::jsonb, %(models)s::jsonb, %(content_hash)s, (
            -- Of the chain's events and of those that it adds. Each is looked up by its id: the
            -- planner estimates the added ones at a hundred rows and would read all events.
            select e.origin
            from (
                select c.event_id from chain_events c
                where c.tenant_id = current_tenant() and c.chain_id = %(chain_id)s
                union all
                select r.event_id from jsonb_to_recordset(%(links)s::jsonb) r (event_id uuid)) link
            cross join lateral (
                select h.origin from events h
                where h.tenant_id = current_tenant() and h.event_id = link.event_id
                offset 0) e
            order by trust_rank(e.origin) limit 1))
"""
_UPSERT_CHAIN = """
    insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version, status,
        last_event_at, created_at, importance, density, strength, accessed_at, boosted_at, cold_at,
        promote_until, archived_at)
    values (current_tenant(), %(chain_id)s, %(scope_id)s, %(participants)s, %(session_id)s,
        %(version)s, %(status)s, %(last_event_at)s, %(formed_at)s, %(importance)s, %(density)s,
        %(strength)s, %(accessed_at)s, %(boosted_at)s, %(cold_at)s, %(promote_until)s,
        %(archived_at)s)
    on conflict (tenant_id, chain_id) do update set version = excluded.version,
        status = excluded.status, last_event_at = excluded.last_event_at,
        importance = excluded.importance, density = excluded.density,
        accessed_at = excluded.accessed_at, cold_at = excluded.cold_at,
        promote_until = excluded.promote_until,
        archived_at = case when excluded.status = 'archived'
            then coalesce(chains.archived_at, excluded.archived_at) end
"""
_INSERT_LINKS = """
    insert into chain_events
        (tenant_id, event_id, chain_id, scope_id, participants, seq, since_version)
    select current_tenant(), r.event_id, %(chain_id)s, %(scope_id)s, %(participants)s, r.seq,
        %(version)s
    from jsonb_to_recordset(%(links)s::jsonb) r (event_id uuid, seq bigint)
"""
_MARK_CHANGE = """
    update chains c set bears_change = d.bears_change
    from (
        select exists (
            select from chain_events l
            cross join lateral (  -- in the order of the key, or it would read the scope's decisions
                select from decisions d
                where d.tenant_id = current_tenant() and d.scope_id = l.scope_id
                    and d.event_id = l.event_id and d.kind = 'slots'
                    and (d.body ->> 'is_change')::boolean order by d.attempt offset 0) d
            where l.tenant_id = current_tenant() and l.chain_id = %(chain_id)s) as bears_change) d
    where c.tenant_id = current_tenant() and c.chain_id = %(chain_id)s
        and c.bears_change <> d.bears_change
"""
_DELETE_VECTOR = (
    "delete from chain_vectors where scope_id = %(scope_id)s and chain_id = %(chain_id)s"
)
_DELETE_USE = (
    "delete from dropped_chain_state where chain_id = %(chain_id)s and version <= %(version)s"
)
_INSERT_VECTOR = """
    insert into chain_vectors (tenant_id, space, scope_id, chain_id, participants, embedding)
    values (current_tenant(), %(space)s, %(scope_id)s, %(chain_id)s, %(participants)s,
        %(vector)s::halfvec)
"""
