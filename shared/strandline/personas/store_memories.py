"""SQL for the events that sonas were active in, and the sums of their vectors."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class SonaMention:
    """An event that names a sona in its metadata, as `sona`."""

    event_id: UUID
    writer: str
    sona: str


def list_sona_mentions(access: TenantDb, event_ids: Sequence[UUID]) -> Sequence[SonaMention]:
    """Those of these events that name a sona."""
    return access.fetch(
        SonaMention,
        """
        select e.event_id, e.writer, e.metadata ->> 'sona' as sona
        from unnest(%(event_ids)s::uuid[]) w (event_id)
        cross join lateral (  -- by key: the planner may read all events for a join
            select * from events e
            where e.tenant_id = current_tenant() and e.event_id = w.event_id
                and e.erased_at is null and jsonb_typeof(e.metadata -> 'sona') = 'string'
            offset 0) e
        """,
        {"event_ids": list(event_ids)},
    )


@dataclass(frozen=True)
class _EventId:
    event_id: UUID


def list_visible_events(access: TenantDb, event_ids: Sequence[UUID]) -> list[UUID]:
    """Those of these events that the caller sees."""
    rows = access.fetch(
        _EventId,
        "select e.event_id from events e where e.tenant_id = current_tenant()"
        " and e.event_id = any (%(event_ids)s::uuid[]) and e.erased_at is null",
        {"event_ids": list(event_ids)},
    )
    return [row.event_id for row in rows]


def insert_sona_memories(
    access: TenantDb, sona_id: UUID, event_ids: Sequence[UUID], space: str
) -> list[UUID]:
    """Record that a sona of the writer was active in these visible events, and count the vectors of
    those that have one in this space. Returns the events that are new to it; none if there is no
    such sona. In a transaction."""
    params: dict[str, object] = {
        "sona_id": sona_id,
        "event_ids": sorted(event_ids),
        "space": space,
    }
    rows = access.fetch(
        _EventId,
        """
        with sona as materialized (  -- it is not merged meanwhile
            select coalesce(s.merged_into, s.sona_id) as sona_id from sonas s
            where s.tenant_id = current_tenant() and s.sona_id = %(sona_id)s for share),
        family as materialized (
            select s.sona_id from sonas s join sona r on r.sona_id in (s.sona_id, s.merged_into)
            where s.tenant_id = current_tenant())
        insert into sona_members (tenant_id, sona_id, event_id, scope_id, participants)
        select current_tenant(), sona.sona_id, e.event_id, e.scope_id, e.participants
        from sona
        cross join unnest(%(event_ids)s::uuid[]) w (event_id)
        cross join lateral (
            select e.event_id, e.scope_id, e.participants from events e
            where e.tenant_id = current_tenant() and e.event_id = w.event_id
                and e.erased_at is null offset 0) e
        where not exists (
            select from sona_members m
            where m.tenant_id = current_tenant() and m.event_id = e.event_id
                and m.sona_id in (select sona_id from family))
        order by e.event_id
        on conflict do nothing
        returning event_id
        """,
        params,
    )
    new_ids = [row.event_id for row in rows]
    if new_ids:
        add_vectors_to_centroids(access, new_ids, space)
    return new_ids


def list_events_missing_in_centroids(access: TenantDb, space: str, limit: int) -> list[UUID]:
    """Events with a vector in this space that a sona was active in, and whose vector is not in the
    sona's sum."""
    rows = access.fetch(
        _EventId,
        """
        select distinct m.event_id from sona_members m
        join event_vectors v on v.tenant_id = m.tenant_id and v.space = %(space)s
            and v.scope_id = m.scope_id and v.event_id = m.event_id and v.embedding is not null
        where m.tenant_id = current_tenant() and not (%(space)s = any (m.counted_in))
        limit %(limit)s
        """,
        {"space": space, "limit": limit},
    )
    return [row.event_id for row in rows]


def add_vectors_to_centroids(access: TenantDb, event_ids: Sequence[UUID], space: str) -> None:
    """Add the vectors of these events to the sums of the sonas that were active in them. Repeated
    calls count each vector once. In a transaction, after their vectors or memberships are stored.

    Call it both after storing a vector and after storing a membership. The lock of the scope makes
    the later of the two see what the earlier one stored.
    """
    access.execute_all(
        (
            """
        select pg_advisory_xact_lock(
            hashtextextended(current_tenant() || ' sona ' || s.scope_id, 0))
        from (
            select distinct e.scope_id from unnest(%(event_ids)s::uuid[]) w (event_id)
            cross join lateral (
                select e.scope_id from events e
                where e.tenant_id = current_tenant() and e.event_id = w.event_id offset 0) e
            order by e.scope_id) s
        """,
            """
        with due as (
            update sona_members m set counted_in = m.counted_in || %(space)s::text
            from event_vectors v
            where m.tenant_id = current_tenant() and m.event_id = any (%(event_ids)s::uuid[])
                and not (%(space)s = any (m.counted_in))
                and v.tenant_id = current_tenant() and v.space = %(space)s
                and v.scope_id = m.scope_id and v.event_id = m.event_id
                and v.embedding is not null
            returning m.sona_id, m.scope_id, m.participants, v.embedding)
        insert into sona_centroids as c
            (tenant_id, sona_id, scope_id, space, participants, total, memories)
        select current_tenant(), d.sona_id, d.scope_id, %(space)s, d.participants,
            sum(d.embedding::vector), count(*)
        from due d
        group by d.sona_id, d.scope_id, d.participants
        order by d.sona_id, d.scope_id
        on conflict (tenant_id, sona_id, scope_id, space) do update
        set total = c.total + excluded.total, memories = c.memories + excluded.memories
        """,
        ),
        {"event_ids": list(event_ids), "space": space},
    )


@dataclass(frozen=True)
class _TableCount:
    name: str
    total: int


def delete_persona_rows_of_events(access: TenantDb, event_ids: Sequence[UUID]) -> dict[str, int]:
    """Delete the traces of events that are being erased: memberships of sonas, acts tied to them,
    and turns that rest on them. Returns the number of rows in each table. In a transaction that
    holds the locks of the events' rows."""
    rows = access.fetch(
        _TableCount,
        "select f.name, f.total from forget_in_personas(%(event_ids)s::uuid[]) f",
        {"event_ids": list(event_ids)},
    )
    return {row.name: row.total for row in rows}


@dataclass(frozen=True)
class _Total:
    total: int


def delete_all_sona_names(access: TenantDb) -> int:
    """Delete the names of all sonas of the tenant, for an unbound caller. Returns how many. In a
    transaction."""
    (row,) = access.fetch(_Total, "select forget_sona_names() as total", {})
    return row.total


def delete_all_turns(access: TenantDb) -> int:
    """Delete all turns of the tenant, for an unbound caller. Returns how many. In a transaction."""
    (row,) = access.fetch(_Total, "select forget_all_turns() as total", {})
    return row.total


@dataclass(frozen=True)
class _DeletedCounts:
    sona_names: int
    turns: int


def delete_names_and_turns(access: TenantDb, writer: str) -> dict[str, int]:
    """Delete the names that a user gave to sonas, and the turns that this user asked; for a bound
    user, only that user's own. Returns the number of rows in each table. In a transaction."""
    rows = access.fetch(
        _DeletedCounts,
        "select sona_names, turns from forget_words_of_writer(%(writer)s)",
        {"writer": writer},
    )
    return {name: total for row in rows for name, total in asdict(row).items() if total}


@dataclass(frozen=True)
class _ChangedSonasAndScopes:
    sona_ids: list[UUID] | None
    scope_ids: list[UUID] | None


def delete_shared_memories_before_merge(access: TenantDb, from_id: UUID, into_id: UUID) -> None:
    """Before a merge, delete the memberships of one sona, and of those merged into it, that the
    other sona has as well, so that no event counts twice. In a transaction of a caller who sees all
    scopes."""
    (places,) = access.fetch(
        _ChangedSonasAndScopes,
        """
        with family as materialized (
            select s.sona_id, coalesce(s.merged_into, s.sona_id) = %(from_id)s as leaves
            from sonas s
            where s.tenant_id = current_tenant()
                and (%(from_id)s in (s.sona_id, s.merged_into)
                    or %(into_id)s in (s.sona_id, s.merged_into))),
        gone as (
            delete from sona_members m
            where m.tenant_id = current_tenant()
                and m.sona_id in (select sona_id from family where leaves)
                and exists (
                    select from sona_members o
                    where o.tenant_id = current_tenant() and o.event_id = m.event_id
                        and o.sona_id in (select sona_id from family where not leaves))
            returning m.sona_id, m.scope_id)
        select array_agg(distinct g.sona_id) as sona_ids,
            array_agg(distinct g.scope_id) as scope_ids
        from gone g
        """,
        {"from_id": from_id, "into_id": into_id},
    )
    if places.sona_ids:
        access.execute(
            "select renew_sona_centroids(%(sona_ids)s::uuid[], %(scope_ids)s::uuid[])",
            {"sona_ids": places.sona_ids, "scope_ids": places.scope_ids},
        )
