"""SQL that clears what was derived from events: chains, topic trees, graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class _ScopeId:
    scope_id: UUID


def lock_scopes_of_events(access: TenantDb, event_ids: Sequence[UUID]) -> list[UUID]:
    """Lock the scopes of these events, in the order in which appends lock them. Returns their ids.
    In a transaction."""
    rows = access.fetch(
        _ScopeId,
        """
        select s.scope_id from scopes s
        where s.tenant_id = current_tenant() and s.scope_id in (
            select e.scope_id from events e
            where e.tenant_id = current_tenant() and e.event_id = any (%(event_ids)s::uuid[]))
        order by s.scope_id for no key update
        """,
        {"event_ids": list(event_ids)},
    )
    return [row.scope_id for row in rows]


@dataclass(frozen=True)
class _ChainId:
    chain_id: UUID


def list_chains_of_topic_leaves(access: TenantDb, event_ids: Sequence[UUID]) -> list[UUID]:
    """The chains whose leaves in topic trees hold these events, including chains that wait to be
    folded again."""
    rows = access.fetch(
        _ChainId,
        "select distinct chain_id from topic_events where tenant_id = current_tenant()"
        " and event_id = any (%(event_ids)s::uuid[])",
        {"event_ids": list(event_ids)},
    )
    return [row.chain_id for row in rows]


def lock_chains_of_events(
    access: TenantDb, event_ids: Sequence[UUID], more_ids: Sequence[UUID]
) -> list[UUID]:
    """Lock the chains of these events, and the chains of `more_ids` that exist. Returns their ids.
    In a transaction, with the scopes locked, so that no fold can link another chain."""
    rows = access.fetch(
        _ChainId,
        """
        select c.chain_id from chains c
        where c.tenant_id = current_tenant() and c.chain_id in (
            select l.chain_id from chain_events l
            where l.tenant_id = current_tenant() and l.event_id = any (%(event_ids)s::uuid[])
            union all
            select unnest(%(more_ids)s::uuid[]))
        order by c.chain_id for no key update
        """,
        {"event_ids": list(event_ids), "more_ids": list(more_ids)},
    )
    return [row.chain_id for row in rows]


def unlink_events_from_chains_and_trees(
    access: TenantDb, event_ids: Sequence[UUID]
) -> dict[str, int]:
    """Remove these events from chains and trees. Returns the number of rows in each table. In a
    transaction."""
    params: dict[str, object] = {"event_ids": list(event_ids)}
    return {
        "chain_events": access.execute(
            "delete from chain_events where tenant_id = current_tenant()"
            " and event_id = any (%(event_ids)s::uuid[])",
            params,
        ),
        "topic_events": access.execute(
            "delete from topic_events where tenant_id = current_tenant()"
            " and event_id = any (%(event_ids)s::uuid[])",
            params,
        ),
    }


_EMPTY = """
    c.tenant_id = current_tenant() and c.chain_id = any (%(chain_ids)s::uuid[]) and not exists (
        select from chain_events l
        where l.tenant_id = c.tenant_id and l.chain_id = c.chain_id)
"""
"""Chains without events."""


def queue_chains_for_rebuild(access: TenantDb, chain_ids: Sequence[UUID], erasure_id: UUID) -> int:
    """Queue those of these chains that still have events to be rebuilt. Returns how many. In a
    transaction, before `delete_or_hide_chains`."""
    return access.execute(
        """
        insert into erased_chains as w
            (tenant_id, chain_id, scope_id, participants, erasure_id, was_promoted)
        select c.tenant_id, c.chain_id, c.scope_id, c.participants, %(erasure_id)s,
            c.promoted_version > 0
        from chains c
        where c.tenant_id = current_tenant() and c.chain_id = any (%(chain_ids)s::uuid[])
            and exists (
                select from chain_events l
                where l.tenant_id = c.tenant_id and l.chain_id = c.chain_id)
        order by c.chain_id
        on conflict (tenant_id, chain_id, erasure_id) do update
        set was_promoted = w.was_promoted or excluded.was_promoted, attempts = 0
        """,
        {"chain_ids": list(chain_ids), "erasure_id": erasure_id},
    )


def delete_or_hide_chains(access: TenantDb, chain_ids: Sequence[UUID]) -> dict[str, int]:
    """Delete those of these chains that have no events left, and hide the others until they are
    rebuilt. Returns the number of rows in each table. In a transaction, after their texts are
    blanked."""
    params: dict[str, object] = {"chain_ids": list(chain_ids)}
    return {
        table: access.execute(statement, params) for table, statement in _SETTLE_STATEMENTS.items()
    }


_SETTLE_STATEMENTS: dict[str, LiteralString] = {
    "chain_vectors": "delete from chain_vectors where tenant_id = current_tenant()"
    " and chain_id = any (%(chain_ids)s::uuid[])",
    # No index finds the folded ones of a chain: the tenant's are read once, not for each chain.
    "recalls": "delete from recalls where tenant_id = current_tenant()"  # noqa: S608
    f" and chain_id = any (array(select c.chain_id from chains c where {_EMPTY}))",
    "dropped_chain_state": "delete from dropped_chain_state where tenant_id = current_tenant()"
    " and chain_id = any (%(chain_ids)s::uuid[])",
    "erased_chains": "delete from erased_chains w using chains c"  # noqa: S608
    " where w.tenant_id = c.tenant_id"
    f" and w.chain_id = c.chain_id and {_EMPTY}",
    "chains": f"delete from chains c where {_EMPTY}",  # noqa: S608
    "chains_hidden": """
    update chains c set status = case c.status when 'active' then 'rejected' else c.status end,
        promoted_version = 0, last_event_at = v.last_event_at
    from chain_versions v
    where c.tenant_id = current_tenant() and c.chain_id = any (%(chain_ids)s::uuid[])
        and v.tenant_id = c.tenant_id and v.chain_id = c.chain_id and v.version = c.version
    """,
}


# topic index --------------------------------------------------------------------------------------


def delete_or_queue_trees(
    access: TenantDb, scope_ids: Sequence[UUID], now: datetime
) -> dict[str, int]:
    """Mark the trees of these scopes to be rebuilt. Delete the trees of scopes without a chain, and
    the inner nodes that no tree holds. Returns the number of rows in each table. In a
    transaction."""
    params: dict[str, object] = {"scope_ids": list(scope_ids), "now": now}
    return {
        table: access.execute(statement, params) for table, statement in _TREE_STATEMENTS.items()
    }


_CHAINLESS = """
    tenant_id = current_tenant() and scope_id = any (%(scope_ids)s::uuid[])
        and scope_id not in (
            select v.scope_id from chain_versions v
            where v.tenant_id = current_tenant() and v.scope_id = any (%(scope_ids)s::uuid[]))
"""
_TREE_STATEMENTS: dict[str, LiteralString] = {
    "topic_tree": f"delete from topic_tree where {_CHAINLESS}",  # noqa: S608
    "snapshot_scopes": f"delete from snapshot_scopes where {_CHAINLESS}",  # noqa: S608
    "topic_work_done": f"delete from topic_work where {_CHAINLESS}",  # noqa: S608
    # Unpublished nodes, or nodes not collected yet: what they rest on is no longer known.
    "topic_nodes_deleted": """
    delete from topic_nodes n
    where n.tenant_id = current_tenant() and n.scope_id = any (%(scope_ids)s::uuid[])
        and not exists (
            select from topic_tree t where t.tenant_id = n.tenant_id and t.node_id = n.node_id)
        and not exists (
            select from snapshot_scopes s where s.tenant_id = n.tenant_id and s.root_id = n.node_id)
    """,
    "topic_work": """
    insert into topic_work as w (tenant_id, scope_id, participants, waiting, oldest_at, newest_at,
        last_position)
    select v.tenant_id, v.scope_id, v.participants, 1, %(now)s, %(now)s, max(v.position)
    from chain_versions v
    where v.tenant_id = current_tenant() and v.scope_id = any (%(scope_ids)s::uuid[])
    group by v.tenant_id, v.scope_id, v.participants having max(v.position) is not null
    order by v.scope_id
    on conflict (tenant_id, scope_id) do update set waiting = greatest(w.waiting, 1),
        last_position = greatest(w.last_position, excluded.last_position)
    """,
}


# graph --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TargetId:
    target_id: UUID


def delete_graph_observations(
    access: TenantDb, event_ids: Sequence[UUID], chain_ids: Sequence[UUID]
) -> list[UUID]:
    """Delete the observations of these events and chains. Returns the ids of the nodes and edges
    that must be computed again. In a transaction, with the scopes' graph locked."""
    rows = access.fetch(
        _TargetId,
        """
        with said as materialized (
            select o.target_id, o.source_id from graph_observations o
            where o.tenant_id = current_tenant() and o.source_id = any (%(source_ids)s::uuid[])
            union
            select s.target_id, s.source_id from graph_sources s
            where s.tenant_id = current_tenant() and s.event_id = any (%(event_ids)s::uuid[]))
        delete from graph_observations o using said
        where o.tenant_id = current_tenant() and o.target_id = said.target_id
            and o.source_id = said.source_id
        returning o.target_id
        """,
        {"event_ids": list(event_ids), "source_ids": [*event_ids, *chain_ids]},
    )
    return [row.target_id for row in rows]


@dataclass(frozen=True)
class _TopicField:
    node_id: UUID
    field: str


def delete_field_revisions(access: TenantDb, event_ids: Sequence[UUID]) -> tuple[int, list[UUID]]:
    """Delete the revisions of fields that these events stated. The previous revision becomes the
    newest and its observation of the topic is restored. Returns the number of revisions, and the
    topics that must be computed again. In a transaction."""
    fields = access.fetch(
        _TopicField,
        "delete from topic_field_revisions where tenant_id = current_tenant()"
        " and event_id = any (%(event_ids)s::uuid[]) returning node_id, field",
        {"event_ids": list(event_ids)},
    )
    params: dict[str, object] = {
        "node_ids": [field.node_id for field in fields],
        "fields": [field.field for field in fields],
    }
    for statement in _FIELD_STATEMENTS if fields else ():
        access.execute(statement, params)
    return len(fields), [field.node_id for field in fields]


_CHANGED = """
    f.tenant_id = current_tenant() and (f.node_id, f.field) in (
        select * from unnest(%(node_ids)s::uuid[], %(fields)s::text[]))
"""
_FIELD_STATEMENTS: tuple[LiteralString, ...] = (
    f"""
    delete from topic_fields f where {_CHANGED} and not exists (
        select from topic_field_revisions r
        where r.tenant_id = f.tenant_id and r.node_id = f.node_id and r.field = f.field)
    """,  # noqa: S608
    f"""
    update topic_fields f set revision = (
        select max(r.revision) from topic_field_revisions r
        where r.tenant_id = f.tenant_id and r.node_id = f.node_id and r.field = f.field)
    where {_CHANGED}
    """,  # noqa: S608
    f"""
    with said as (
        select f.tenant_id, f.node_id, r.event_id, r.scope_id, r.participants, e.origin,
            e.recorded_at
        from topic_fields f
        join topic_field_revisions r on r.tenant_id = f.tenant_id and r.node_id = f.node_id
            and r.field = f.field and r.revision = f.revision
        join events e on e.tenant_id = r.tenant_id and e.event_id = r.event_id
        where {_CHANGED}),
    stored as (
        insert into graph_observations (tenant_id, target_id, source_id, scope_id, participants,
            patch, trust, observed_at, valid_from)
        select s.tenant_id, s.node_id, s.event_id, s.scope_id, s.participants, '{{}}', s.origin,
            s.recorded_at, s.recorded_at
        from said s
        on conflict (tenant_id, target_id, source_id) do nothing
        returning target_id, source_id)
    insert into graph_sources (tenant_id, target_id, source_id, event_id, scope_id, participants)
    select s.tenant_id, o.target_id, o.source_id, s.event_id, s.scope_id, s.participants
    from stored o join said s on s.node_id = o.target_id and s.event_id = o.source_id
    """,  # noqa: S608
    """
    update graph_nodes g set salience = coalesce((
        select avg(f.salience) from topic_fields f
        where f.tenant_id = g.tenant_id and f.node_id = g.node_id), 0)
    where g.tenant_id = current_tenant() and g.node_id = any (%(node_ids)s::uuid[])
    """,
)
