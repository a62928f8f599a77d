"""SQL of provenance: the knowledge graph items derived from an event or a chain, and the events
that a node or an edge cites."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.topics.store_provenance import DescendantEvent


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
) -> Sequence[DescendantEvent]:
    """List the events that a node or an edge of the graph cites, after a seq of its scope, in
    order."""
    return access.fetch(
        DescendantEvent,
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
