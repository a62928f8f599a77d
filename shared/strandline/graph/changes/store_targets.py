"""SQL that looks up the nodes, edges and merges that a change names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType


@dataclass(frozen=True)
class NodeTarget:
    """A node of one scope, with what a change needs to know of it."""

    node_id: UUID
    scope_id: UUID
    type: NodeType
    name: str
    ordinal: int
    identity: bytes
    """The hash of its own name, or of the name that it was merged into."""
    valid_from: datetime
    valid_to: datetime | None


def find_target_nodes(access: TenantDb, node_ids: Sequence[UUID]) -> Mapping[UUID, NodeTarget]:
    """The visible ones of these nodes, by id."""
    rows = access.fetch(
        NodeTarget,
        """
        select node_id, scope_id, type, name, ordinal, identity, valid_from, valid_to
        from graph_nodes where tenant_id = current_tenant() and node_id = any (%(ids)s)
        """,
        {"ids": list(node_ids)},
    )
    return {row.node_id: row for row in rows}


def list_merge_group(
    access: TenantDb, scope_id: UUID, node_type: NodeType, identity: bytes
) -> Sequence[NodeTarget]:
    """The nodes of a scope that are merged into one."""
    return access.fetch(
        NodeTarget,
        """
        select node_id, scope_id, type, name, ordinal, identity, valid_from, valid_to
        from graph_nodes
        where tenant_id = current_tenant() and type = %(type)s and identity = %(identity)s
            and scope_id = %(scope_id)s
        order by node_id
        """,
        {"scope_id": scope_id, "type": node_type, "identity": identity},
    )


@dataclass(frozen=True)
class EdgeWithEnds:
    """An edge with its ends."""

    edge_id: UUID
    scope_id: UUID
    type: str
    label: str
    valid_from: datetime
    valid_to: datetime | None
    from_id: UUID
    from_type: NodeType
    from_name: str
    from_ordinal: int
    to_id: UUID
    to_type: NodeType
    to_name: str
    to_ordinal: int


def find_edge(access: TenantDb, edge_id: UUID) -> EdgeWithEnds | None:
    """An edge in view."""
    rows = access.fetch(
        EdgeWithEnds,
        """
        select e.edge_id, e.scope_id, e.type, e.label, e.valid_from, e.valid_to,
            e.from_id, f.type as from_type, f.name as from_name, f.ordinal as from_ordinal,
            e.to_id, t.type as to_type, t.name as to_name, t.ordinal as to_ordinal
        from graph_edges e
        join graph_nodes f on f.tenant_id = e.tenant_id and f.node_id = e.from_id
        join graph_nodes t on t.tenant_id = e.tenant_id and t.node_id = e.to_id
        where e.tenant_id = current_tenant() and e.edge_id = %(edge_id)s
        """,
        {"edge_id": edge_id},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class MergedNode:
    """A node whose identity a merge changed."""

    node_id: UUID
    scope_id: UUID
    type: NodeType
    name: str
    former_identity: str | None
    """The identity in hex from an earlier merge; None: the identity of its own name."""
    latest_id: UUID
    """The statement that last set its identity."""
    is_current: bool
    """Whether it still has the identity from this merge."""


def list_merged_nodes(access: TenantDb, merge_id: UUID) -> Sequence[MergedNode]:
    """The nodes that a merge moved, if the merge is in view."""
    return access.fetch(
        MergedNode,
        """
        select n.node_id, n.scope_id, n.type, n.name, former.identity as former_identity,
            latest.source_id as latest_id,
            latest.identity is not distinct from o.patch ->> 'identity' as is_current
        from graph_observations o
        join graph_nodes n on n.tenant_id = o.tenant_id and n.node_id = o.target_id
        cross join lateral (
            select l.source_id, l.patch ->> 'identity' as identity from graph_observations l
            where l.tenant_id = o.tenant_id and l.target_id = o.target_id and l.patch ? 'identity'
            order by l.observed_at desc, l.source_id desc limit 1) latest
        left join lateral (
            select f.patch ->> 'identity' as identity from graph_observations f
            where f.tenant_id = o.tenant_id and f.target_id = o.target_id and f.patch ? 'identity'
                and (f.observed_at, f.source_id) < (o.observed_at, o.source_id)
            order by f.observed_at desc, f.source_id desc limit 1) former on true
        where o.tenant_id = current_tenant() and o.source_id = %(merge_id)s
            and o.patch ? 'identity'
        order by n.node_id
        """,
        {"merge_id": merge_id},
    )
