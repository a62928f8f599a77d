"""SQL for sonas: their names, and their centroids in the embedding space. A caller sees the sonas
of its own writer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.cursors import Position
from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector, PackedVectors


def lock_writer_sonas(access: TenantDb) -> None:
    """Serialise changes of the writer's sonas and their names until the end of the transaction."""
    access.execute(
        "select pg_advisory_xact_lock(hashtextextended("
        "current_tenant() || ' sonas of ' || current_writer(), 0))",
        {},
    )


@dataclass(frozen=True)
class Sona:
    """A sona that was not merged into another one."""

    sona_id: UUID
    names: list[str]
    created_at: datetime


def find_sona_or_merge_target(access: TenantDb, sona_id: UUID) -> Sona | None:
    """The writer's sona with this id, or the one that it was merged into; None if there is none."""
    rows = access.fetch(
        Sona,
        """
        select r.sona_id, r.created_at, array(
            select n.name from sonas f
            join sona_names n on n.tenant_id = f.tenant_id and n.sona_id = f.sona_id
            where f.tenant_id = r.tenant_id and r.sona_id in (f.sona_id, f.merged_into)
            order by f.sona_id <> r.sona_id, f.created_at, n.place, n.name_key) as names
        from sonas s
        join sonas r on r.tenant_id = s.tenant_id
            and r.sona_id = coalesce(s.merged_into, s.sona_id)
        where s.tenant_id = current_tenant() and s.sona_id = %(sona_id)s
        """,
        {"sona_id": sona_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class ListedSona(Sona):
    """A sona on a page of a list, with the database snapshot that the list shows."""

    pg_snapshot: str


def list_newest_sonas(access: TenantDb, after: Position | None, limit: int) -> Sequence[ListedSona]:
    """The writer's sonas, newest first. Later pages show the database snapshot of the first."""
    return access.fetch(
        ListedSona,
        """
        select s.sona_id, s.created_at, array(
            select n.name from sonas f
            join sona_names n on n.tenant_id = f.tenant_id and n.sona_id = f.sona_id
            where f.tenant_id = s.tenant_id and s.sona_id in (f.sona_id, f.merged_into)
            order by f.sona_id <> s.sona_id, f.created_at, n.place, n.name_key) as names,
            coalesce(%(pg_snapshot)s, pg_current_snapshot())::text as pg_snapshot
        from sonas s
        where s.tenant_id = current_tenant() and s.writer = current_writer()
            and s.merged_into is null
            and (%(pg_snapshot)s is null or is_in_snapshot(s.xid, %(pg_snapshot)s))
            and (%(at)s::timestamptz is null
                or (s.created_at, s.sona_id) < (%(at)s, %(sona_id)s::uuid))
        order by s.created_at desc, s.sona_id desc
        limit %(limit)s
        """,
        {
            "pg_snapshot": after and after.pg_snapshot,
            "at": after and after.at,
            "sona_id": after and after.row_id,
            "limit": limit,
        },
    )


def insert_sona(access: TenantDb, sona_id: UUID) -> None:
    """Store a new sona of the writer. In a transaction."""
    access.execute(
        "insert into sonas (tenant_id, sona_id, writer)"
        " values (current_tenant(), %(sona_id)s, current_writer())",
        {"sona_id": sona_id},
    )


@dataclass(frozen=True)
class _NameKey:
    name_key: str


def replace_sona_names(
    access: TenantDb, sona_id: UUID, names: Sequence[tuple[str, str]]
) -> list[str]:
    """Replace all names of a sona with these (key, name) pairs. Returns the keys that another sona
    has; if there are any, nothing is stored. In a transaction, with the sonas locked."""
    params: dict[str, object] = {
        "sona_id": sona_id,
        "names": json.dumps(
            [{"key": key, "name": name, "place": n} for n, (key, name) in enumerate(names)]
        ),
    }
    if taken_keys := _list_taken_keys(access, params):
        return taken_keys
    access.execute(  # names of sonas that were merged into it become its own
        """
        delete from sona_names n using sonas f
        where n.tenant_id = current_tenant() and f.tenant_id = n.tenant_id
            and f.sona_id = n.sona_id and %(sona_id)s in (f.sona_id, f.merged_into)
            and (f.sona_id <> %(sona_id)s or n.name_key not in (
                select w.key from jsonb_to_recordset(%(names)s::jsonb) w (key text)))
        """,
        params,
    )
    access.execute(  # a name that it keeps is embedded again if its spelling changed
        """
        insert into sona_names as n (tenant_id, writer, name_key, name, sona_id, place)
        select current_tenant(), current_writer(), w.key, w.name, %(sona_id)s, w.place
        from jsonb_to_recordset(%(names)s::jsonb) w (key text, name text, place int)
        on conflict (tenant_id, writer, name_key) do update
        set name = excluded.name, place = excluded.place,
            space = case when n.name = excluded.name then n.space end,
            embedding = case when n.name = excluded.name then n.embedding end
        """,
        params,
    )
    return []


def _list_taken_keys(access: TenantDb, params: Mapping[str, object]) -> list[str]:
    """The keys of these names that another sona already has."""
    rows = access.fetch(
        _NameKey,
        """
        select n.name_key from sona_names n
        join sonas f on f.tenant_id = n.tenant_id and f.sona_id = n.sona_id
        where n.tenant_id = current_tenant() and n.writer = current_writer()
            and %(sona_id)s not in (f.sona_id, coalesce(f.merged_into, f.sona_id))
            and n.name_key in (
                select w.key from jsonb_to_recordset(%(names)s::jsonb) w (key text))
        """,
        params,
    )
    return [row.name_key for row in rows]


def lock_against_new_memories(access: TenantDb, sona_ids: Sequence[UUID]) -> None:
    """Prevent new memories for these sonas, and for sonas merged into them, until the transaction
    ends."""
    access.execute(
        "select from sonas s where s.tenant_id = current_tenant()"
        " and (s.sona_id = any (%(sona_ids)s::uuid[])"
        " or s.merged_into = any (%(sona_ids)s::uuid[]))"
        " order by s.sona_id for no key update",
        {"sona_ids": list(sona_ids)},
    )


def mark_sona_merged_into(access: TenantDb, from_id: UUID, into_id: UUID) -> None:
    """Merge a sona, and all sonas merged into it, into another one. In a transaction, with the
    sonas locked."""
    access.execute(
        "update sonas set merged_into = %(into_id)s where tenant_id = current_tenant()"
        " and %(from_id)s in (sona_id, merged_into)",
        {"from_id": from_id, "into_id": into_id},
    )


@dataclass(frozen=True)
class UnembeddedName:
    """A name without a vector in the requested space."""

    name_key: str
    name: str


def list_unembedded_names(access: TenantDb, space: str, limit: int) -> Sequence[UnembeddedName]:
    """Names of the writer's sonas without a vector in this space, at most `limit`."""
    return access.fetch(
        UnembeddedName,
        "select n.name_key, n.name from sona_names n where n.tenant_id = current_tenant()"
        " and n.writer = current_writer() and n.space is distinct from %(space)s"
        " order by n.name_key limit %(limit)s",
        {"space": space, "limit": limit},
    )


def store_name_vectors(
    access: TenantDb, space: str, vectors: Sequence[tuple[UnembeddedName, PackedVector]]
) -> None:
    """Store the vectors of names. In a transaction."""
    access.execute(
        """
        update sona_names n set space = %(space)s, embedding = w.embedding
        from unnest(%(keys)s::text[], %(names)s::text[], %(vectors)s::halfvec[])
            w (key, name, embedding)
        where n.tenant_id = current_tenant() and n.writer = current_writer()
            and n.name_key = w.key and n.name = w.name
        """,
        {
            "space": space,
            "keys": [name.name_key for name, _ in vectors],
            "names": [name.name for name, _ in vectors],
            "vectors": PackedVectors(vector for _, vector in vectors),
        },
    )


@dataclass(frozen=True)
class CentroidAndMemoryCount:
    """A sona's centroid in an embedding space, over the events in view."""

    memories: int
    centroid: str | None
    """The mean of their vectors, in Postgres' text format; None if there are none."""


def read_sona_centroid(access: TenantDb, sona_id: UUID, space: str) -> CentroidAndMemoryCount:
    """The centroid of a sona and of those merged into it."""
    (place,) = access.fetch(
        CentroidAndMemoryCount,
        """
        select coalesce(t.memories, 0)::bigint as memories, (
            select array_agg(e.total / t.memories::float8 order by e.n)::vector::text
            from unnest(t.total::real[]) with ordinality e (total, n)) as centroid
        from (
            select sum(c.total) as total, sum(c.memories) as memories from sona_centroids c
            where c.tenant_id = current_tenant() and c.space = %(space)s and c.sona_id in (
                select s.sona_id from sonas s
                where s.tenant_id = current_tenant()
                    and %(sona_id)s in (s.sona_id, s.merged_into))) t
        """,
        {"sona_id": sona_id, "space": space},
    )
    return place
