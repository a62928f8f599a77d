"""SQL of provenance: what kind of row an id belongs to, what is above and below it, and what of the
knowledge graph is derived from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.provenance.schemas import (
    ProvenanceChainVersion,
    ProvenanceCitingEdge,
    ProvenanceEventReference,
    ProvenanceScopeTree,
    ProvenanceTopicSlot,
    ProvenanceVector,
)
from strandline.topics.store_references_query import IN_VERSION


@dataclass(frozen=True)
class ResolvedId:
    """The kind and place of the row that an id belongs to."""

    kind: str
    """event, chain, topic, snapshot, node or graph_edge."""
    scope_id: UUID | None
    slot: UUID | None
    """For a chain or a topic."""
    version: int | None
    """The version of the snapshot to read; None if none is published."""


def resolve_row_id(access: TenantDb, row_id: UUID) -> ResolvedId | None:
    """Resolve a visible id; None if there is none. A topic that the active snapshot does not have
    is looked up in the last one that had it."""
    rows = access.fetch(
        ResolvedId,
        """
        with pin as materialized (
            select max(version) as version from active_snapshot
            where tenant_id = current_tenant())
        select o.kind, o.scope_id, o.slot, o.version from (
            select 1 as place, 'event' as kind, e.scope_id, null::uuid as slot, pin.version
            from events e, pin
            where e.tenant_id = current_tenant() and e.event_id = %(id)s and e.erased_at is null
            union all
            select 2, 'chain', c.scope_id, c.chain_id, pin.version from chains c, pin
            where c.tenant_id = current_tenant() and c.chain_id = %(id)s
            union all
            (select 3, 'topic', t.scope_id, t.slot, least(t.to_version - 1, pin.version)
            from topic_tree t, pin
            where t.tenant_id = current_tenant() and t.slot = %(id)s
            order by t.from_version desc limit 1)
            union all
            (select 4, 'topic', t.scope_id, t.slot, least(t.to_version - 1, pin.version)
            from topic_tree t, pin
            where t.tenant_id = current_tenant() and t.node_id = %(id)s
            order by t.from_version desc limit 1)
            union all
            select 5, 'snapshot', null, null, s.version from snapshots s
            where s.tenant_id = current_tenant() and s.snapshot_id = %(id)s
            union all
            select 6, 'node', n.scope_id, null, pin.version from graph_nodes n, pin
            where n.tenant_id = current_tenant() and n.node_id = %(id)s
            union all
            select 7, 'graph_edge', g.scope_id, null, pin.version from graph_edges g, pin
            where g.tenant_id = current_tenant() and g.edge_id = %(id)s) o
        order by o.place limit 1
        """,
        {"id": row_id},
    )
    return rows[0] if rows else None


def list_path_to_root(
    access: TenantDb, version: int, scope_id: UUID, *, slot: UUID | None, event_id: UUID | None
) -> Sequence[ProvenanceTopicSlot]:
    """List a slot, or the leaf that holds an event, and all of its ancestors, up to the root."""
    return access.fetch(
        ProvenanceTopicSlot,
        "with recursive"  # noqa: S608
        """
        start as (
            select %(slot)s::uuid as slot where %(slot)s::uuid is not null
            union all
            select t.slot from topic_events e
            join topic_tree t on t.tenant_id = e.tenant_id and t.scope_id = e.scope_id
                and t.slot = e.chain_id and t.is_leaf and e.since_version <= t.chain_version
            where e.tenant_id = current_tenant() and e.event_id = %(event_id)s and"""
        + IN_VERSION
        + """),
        path as (
            select t.slot, t.node_id, t.is_leaf, t.parent_slot, 0 as height
            from start join topic_tree t on t.tenant_id = current_tenant()
                and t.scope_id = %(scope_id)s and t.slot = start.slot and"""
        + IN_VERSION
        + """
            union all
            select t.slot, t.node_id, t.is_leaf, t.parent_slot, p.height + 1
            from path p join topic_tree t on t.tenant_id = current_tenant()
                and t.scope_id = %(scope_id)s and t.slot = p.parent_slot and"""
        + IN_VERSION
        + """)
        select case when is_leaf then 'leaf' else 'inner' end as kind, slot, node_id
        from path order by height
        """,
        {"version": version, "scope_id": scope_id, "slot": slot, "event_id": event_id},
    )


def list_chain_versions(
    access: TenantDb, chain_id: UUID | None, event_id: UUID | None, limit: int
) -> Sequence[ProvenanceChainVersion]:
    """List the versions of a chain, newest first, or the current version of the chain that holds an
    event."""
    return access.fetch(
        ProvenanceChainVersion,
        """
        select v.chain_id, v.version, v.version = c.version as is_current, v.first_seq, v.last_seq,
            v.event_count, v.created_at_seq
        from chains c
        join chain_versions v on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
            and (%(event_id)s::uuid is null or v.version = c.version)
        where c.tenant_id = current_tenant() and c.chain_id = coalesce(%(chain_id)s::uuid, (
            select e.chain_id from chain_events e
            where e.tenant_id = current_tenant() and e.event_id = %(event_id)s))
        order by v.version desc limit %(limit)s
        """,
        {"chain_id": chain_id, "event_id": event_id, "limit": limit},
    )


def list_chain_events(
    access: TenantDb, chain_id: UUID, after_seq: int, limit: int
) -> Sequence[ProvenanceEventReference]:
    """List the events of a chain after a seq, in order."""
    return access.fetch(
        ProvenanceEventReference,
        """
        select event_id, scope_id, seq, chain_id from chain_events
        where tenant_id = current_tenant() and chain_id = %(chain_id)s and seq > %(after)s
        order by seq limit %(limit)s
        """,
        {"chain_id": chain_id, "after": after_seq, "limit": limit},
    )


def list_topic_events(
    access: TenantDb, version: int, scope_id: UUID, slot: UUID, after: tuple[UUID, int], limit: int
) -> Sequence[ProvenanceEventReference]:
    """List the events below a slot after a chain and a seq, ordered by chain id and seq."""
    return access.fetch(
        ProvenanceEventReference,
        "with recursive"  # noqa: S608
        """
        below as (
            select t.slot, t.is_leaf, t.chain_version from topic_tree t
            where t.tenant_id = current_tenant() and t.scope_id = %(scope_id)s
                and t.slot = %(slot)s and"""
        + IN_VERSION
        + """
            union all
            select t.slot, t.is_leaf, t.chain_version
            from below b join topic_tree t on t.tenant_id = current_tenant()
                and t.scope_id = %(scope_id)s and t.parent_slot = b.slot and"""
        + IN_VERSION
        + """),
        leaves as (
            select slot, chain_version from below
            where is_leaf and slot >= %(chain_id)s order by slot limit %(limit)s)
        select e.event_id, e.scope_id, e.seq, e.chain_id
        from leaves l
        cross join lateral (
            select * from topic_events e
            where e.tenant_id = current_tenant() and e.chain_id = l.slot
                and e.since_version <= l.chain_version
                and (e.chain_id, e.seq) > (%(chain_id)s, %(seq)s)) e
        order by e.chain_id, e.seq limit %(limit)s
        """,
        {
            "version": version,
            "scope_id": scope_id,
            "slot": slot,
            "chain_id": after[0],
            "seq": after[1],
            "limit": limit,
        },
    )


def list_citing_events(
    access: TenantDb, event_id: UUID, after: UUID, limit: int
) -> Sequence[ProvenanceCitingEdge]:
    """List the visible events whose edges cite this one, after an event id, ordered by event id."""
    return access.fetch(
        ProvenanceCitingEdge,
        """
        select m.event_id, m.weight from memory_edges m
        join events e on e.tenant_id = m.tenant_id and e.event_id = m.event_id
            and e.erased_at is null
        where m.tenant_id = current_tenant() and m.cited_id = %(event_id)s
            and m.event_id > %(after)s
        order by m.event_id limit %(limit)s
        """,
        {"event_id": event_id, "after": after, "limit": limit},
    )


def list_vectors_of_event(
    access: TenantDb, scope_id: UUID, event_id: UUID
) -> Sequence[ProvenanceVector]:
    """List the embedding spaces in which an event has a vector or was refused."""
    return access.fetch(
        ProvenanceVector,
        """
        select v.space, v.embedded_at, v.embedding is null as is_refused
        from (select distinct space from embedding_progress
            where tenant_id = current_tenant() and scope_id = %(scope_id)s) p
        join event_vectors v on v.tenant_id = current_tenant() and v.space = p.space
            and v.scope_id = %(scope_id)s and v.event_id = %(event_id)s
        order by v.space
        """,
        {"scope_id": scope_id, "event_id": event_id},
    )


def list_snapshot_trees(
    access: TenantDb, version: int, after: UUID, limit: int
) -> Sequence[ProvenanceScopeTree]:
    """List the visible trees of a snapshot, after a scope id, ordered by scope id."""
    return access.fetch(
        ProvenanceScopeTree,
        ""  # noqa: S608
        """
        with view as materialized (select scopes_in_view() as scope_ids)
        select t.scope_id, t.participants, t.root_slot, t.root_id, t.cutoff, t.leaf_count,
            t.event_count
        from view, snapshot_scopes t
        where t.tenant_id = current_tenant() and t.scope_id > %(after)s
            and (view.scope_ids is null or t.scope_id = any (view.scope_ids)) and"""
        + IN_VERSION
        + """ order by t.scope_id limit %(limit)s
        """,
        {"version": version, "after": after, "limit": limit},
    )


@dataclass(frozen=True)
class GraphItem:
    """A node or an edge of the knowledge graph."""

    kind: str
    row_id: UUID
    type: str


def list_graph_items(
    access: TenantDb, event_id: UUID | None, chain_id: UUID | None, limit: int
) -> Sequence[GraphItem]:
    """List the nodes and edges of the graph that are derived from an event or a chain, nodes
    first."""
    return access.fetch(
        GraphItem,
        """
        with targets as materialized (
            select s.target_id from graph_sources s
            where s.tenant_id = current_tenant() and s.event_id = %(event_id)s
            union
            select o.target_id from graph_observations o
            where o.tenant_id = current_tenant() and o.source_id = %(chain_id)s)
        select found.kind, found.row_id, found.type from (
            select 1 as place, 'node' as kind, n.node_id as row_id, n.type
            from targets t join graph_nodes n on n.tenant_id = current_tenant()
                and n.node_id = t.target_id
            union all
            select 2, 'graph_edge', g.edge_id, g.type
            from targets t join graph_edges g on g.tenant_id = current_tenant()
                and g.edge_id = t.target_id) found
        order by found.place, found.row_id limit %(limit)s
        """,
        {"event_id": event_id, "chain_id": chain_id, "limit": limit},
    )


def list_cited_events(
    access: TenantDb, target_id: UUID, after_seq: int, limit: int
) -> Sequence[ProvenanceEventReference]:
    """List the events that a node or an edge of the graph cites, after a seq of its scope, in
    order."""
    return access.fetch(
        ProvenanceEventReference,
        """
        select e.event_id, e.scope_id, e.seq, c.chain_id
        from (select distinct s.event_id from graph_sources s
            where s.tenant_id = current_tenant() and s.target_id = %(target_id)s) s
        join events e on e.tenant_id = current_tenant() and e.event_id = s.event_id
            and e.erased_at is null and e.seq > %(after)s
        left join lateral (
            select s2.source_id as chain_id from graph_sources s2
            where s2.tenant_id = current_tenant() and s2.target_id = %(target_id)s
                and s2.event_id = e.event_id and s2.source_id <> e.event_id
            order by s2.source_id limit 1) c on true
        order by e.seq limit %(limit)s
        """,
        {"target_id": target_id, "after": after_seq, "limit": limit},
    )
