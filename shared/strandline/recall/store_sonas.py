"""SQL that reads sonas for a search: finding a sona, and how much events belong to it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.vector_formats import pack_vector


@dataclass(frozen=True)
class _SonaId:
    sona_id: UUID


def resolve_merged_sona_id(access: TenantDb, sona_id: UUID) -> UUID | None:
    """The writer's sona with this id, or the one that it was merged into; None if there is none."""
    rows = access.fetch(
        _SonaId,
        "select coalesce(s.merged_into, s.sona_id) as sona_id from sonas s"
        " where s.tenant_id = current_tenant() and s.sona_id = %(sona_id)s",
        {"sona_id": sona_id},
    )
    return rows[0].sona_id if rows else None


def find_sona_by_name_key(access: TenantDb, name_key: str) -> UUID | None:
    """The writer's sona that has a name with this key; None if there is none."""
    rows = access.fetch(
        _SonaId,
        "select coalesce(s.merged_into, s.sona_id) as sona_id"
        " from sona_names n join sonas s on s.tenant_id = n.tenant_id and s.sona_id = n.sona_id"
        " where n.tenant_id = current_tenant() and n.writer = current_writer()"
        " and n.name_key = %(name_key)s",
        {"name_key": name_key},
    )
    return rows[0].sona_id if rows else None


def find_sona_by_nearest_name(
    access: TenantDb, vector: Sequence[float], space: str, min_cosine: float
) -> UUID | None:
    """The writer's sona with the name closest to a vector; None if none has a cosine of at least
    `min_cosine`."""
    rows = access.fetch(
        _SonaId,
        """
        select n.sona_id from (
            select coalesce(s.merged_into, s.sona_id) as sona_id,
                1 - (n.embedding <=> %(vector)s::halfvec) as cosine
            from sona_names n
            join sonas s on s.tenant_id = n.tenant_id and s.sona_id = n.sona_id
            where n.tenant_id = current_tenant() and n.writer = current_writer()
                and n.space = %(space)s) n
        where n.cosine >= %(min_cosine)s
        order by n.cosine desc, n.sona_id limit 1
        """,
        {
            "vector": pack_vector(vector),
            "space": space,
            "min_cosine": min_cosine,
        },
    )
    return rows[0].sona_id if rows else None


@dataclass(frozen=True)
class _EventSonaAffinity:
    event_id: UUID
    belonging: float


def read_event_sona_affinities(
    access: TenantDb, sona_id: UUID, events: Sequence[tuple[UUID, UUID]], space: str
) -> Mapping[UUID, float]:
    """How much each of these visible events (given with its scope) belongs to a sona: 1 if the sona
    was active in it, else the cosine similarity of the event and the sona's centroid over the
    visible events, at least 0."""
    rows = access.fetch(
        _EventSonaAffinity,
        """
        with sona as materialized (
            select s.sona_id from sonas s
            where s.tenant_id = current_tenant()
                and %(sona_id)s in (s.sona_id, s.merged_into)),
        centroid as materialized (
            select sum(c.total) as total from sona_centroids c
            where c.tenant_id = current_tenant() and c.space = %(space)s
                and c.sona_id in (select sona_id from sona)),
        wanted as materialized (
            select w.* from jsonb_to_recordset(%(events)s::jsonb) w (event_id uuid, scope_id uuid)),
        active as materialized (
            select distinct m.event_id from sona cross join lateral (
                select m.event_id from sona_members m
                where m.tenant_id = current_tenant() and m.sona_id = sona.sona_id
                    and m.event_id = any (array(select event_id from wanted)) offset 0) m)
        select w.event_id, case
            when a.event_id is not null then 1
            when vector_norm(centroid.total) > 0 and vector_norm(v.embedding::vector) > 0
                then greatest(0, 1 - (v.embedding::vector <=> centroid.total))
            else 0 end::float8 as belonging
        from wanted w
        cross join centroid
        left join active a on a.event_id = w.event_id
        left join lateral (  -- by key: the planner may read all vectors for a join
            select v.embedding from event_vectors v
            where v.tenant_id = current_tenant() and v.space = %(space)s
                and v.scope_id = w.scope_id and v.event_id = w.event_id offset 0) v on true
        """,
        {
            "sona_id": sona_id,
            "space": space,
            "events": json.dumps(
                [{"event_id": str(event_id), "scope_id": str(scope)} for event_id, scope in events]
            ),
        },
    )
    return {row.event_id: row.belonging for row in rows}
