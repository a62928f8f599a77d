"""SQL that reads many nodes, each joined over the scopes in view, and edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.pipeline import RowQuery
from strandline.graph.store_read import NodeRow


@dataclass(frozen=True)
class JoinedNode(NodeRow):
    """A node as all nodes of its identity in view describe it together."""

    archived: bool
    heat: float
    participants: list[str]
    """Of the scope of the node that leads."""


MEMBERS: LiteralString = """
        cross join lateral (
            select merge_patches(m.properties order by m.updated_at, m.node_id) as properties,
                sum(m.confidence * m.weight) / nullif(sum(m.weight), 0) as confidence,
                sum(m.weight)::int as weight, max(m.heat) as heat,
                (array_agg(m.trust order by trust_rank(m.trust)))[1] as trust,
                min(m.valid_from) as valid_from, bool_and(m.archived) as archived,
                min(m.created_at) as created_at, max(m.updated_at) as updated_at,
                array_agg(m.node_id order by m.node_id) as member_ids
            from graph_nodes m
            where m.tenant_id = current_tenant() and m.type = l.type and m.identity = l.identity
                and (m.node_id = l.node_id or l.valid_to is null and m.valid_to is null)) j
"""
"""What all nodes in view of the identity of a node `l` say together, as `j`: a literal of this
source."""


def query_nodes(node_ids: Sequence[UUID], as_of: datetime | None) -> RowQuery[JoinedNode]:
    """Gives the visible ones of these nodes in this order, those of one identity once under the
    first of their ids; as they were observed up to `as_of`. Which nodes are of one identity is
    told as of now."""
    if as_of is not None:
        return _query_nodes_as_of(node_ids, as_of)
    return RowQuery(
        JoinedNode,
        """
        with leads as materialized (
            select distinct on (g.type, g.identity, case when g.valid_to is not null
                then g.node_id end) a.n, g.*
            from unnest(%(ids)s::uuid[]) with ordinality a (node_id, n)
            cross join lateral (
                select g.node_id, g.type, g.name, g.identity, g.valid_to, g.participants
                from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = a.node_id offset 0) g
            order by g.type, g.identity, case when g.valid_to is not null then g.node_id end, a.n)
        select l.node_id, l.type, l.name, j.properties, coalesce(j.confidence, 0) as confidence,
            j.weight, j.trust, j.valid_from, l.valid_to, j.created_at, j.updated_at, j.member_ids,
            j.archived, j.heat, l.participants
        from leads l
        """  # noqa: S608
        + MEMBERS
        + """
        order by l.n
        """,
        {"ids": list(node_ids)},
    )


def _query_nodes_as_of(node_ids: Sequence[UUID], as_of: datetime) -> RowQuery[JoinedNode]:
    return RowQuery(
        JoinedNode,
        """
        with leads as materialized (
            select distinct on (g.type, g.identity, case when g.valid_to is not null
                then g.node_id end) a.n, g.*
            from unnest(%(ids)s::uuid[]) with ordinality a (node_id, n)
            cross join lateral (
                select g.node_id, g.type, g.name, g.identity, g.valid_to, g.participants
                from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = a.node_id offset 0) g
            order by g.type, g.identity, case when g.valid_to is not null then g.node_id end, a.n),
        members as materialized (
            select l.node_id as lead_id, m.node_id
            from leads l
            cross join lateral (
                select m.node_id from graph_nodes m
                where m.tenant_id = current_tenant() and m.type = l.type
                    and m.identity = l.identity
                    and (m.node_id = l.node_id or l.valid_to is null and m.valid_to is null)) m),
        joined as (
            select m.lead_id,
                merge_patches(s.properties order by s.last_at, m.node_id) as properties,
                sum(s.confidence * s.weight) / sum(s.weight) as confidence,
                sum(s.weight)::int as weight, max(s.heat) as heat,
                (array_agg(s.trust order by trust_rank(s.trust)))[1] as trust,
                min(s.valid_from) as valid_from,
                (array_agg(s.valid_to) filter (where m.node_id = m.lead_id))[1] as valid_to,
                bool_and(s.archived) as archived, min(s.first_at) as created_at,
                max(s.last_at) as updated_at, array_agg(m.node_id order by m.node_id) as member_ids
            from observed_state(array(select node_id from members), %(as_of)s, false) s
            join members m on m.node_id = s.target_id
            group by m.lead_id having bool_or(m.node_id = m.lead_id))
        select l.node_id, l.type, l.name, j.properties, j.confidence, j.weight, j.trust,
            j.valid_from, j.valid_to, j.created_at, j.updated_at, j.member_ids, j.archived, j.heat,
            l.participants
        from joined j join leads l on l.node_id = j.lead_id
        order by l.n
        """,
        {"ids": list(node_ids), "as_of": as_of},
    )


def read_nodes(
    access: TenantDb, node_ids: Sequence[UUID], as_of: datetime | None
) -> Sequence[JoinedNode]:
    """The rows of `query_nodes`."""
    query = query_nodes(node_ids, as_of)
    return access.fetch(query.row_type, query.statement, query.params)


@dataclass(frozen=True)
class EdgeRow:
    """An edge of one scope."""

    edge_id: UUID
    from_id: UUID
    to_id: UUID
    type: str
    label: str
    properties: dict[str, Any]
    confidence: float
    weight: int
    heat: float
    trust: str
    valid_from: datetime
    valid_to: datetime | None
    last_seen: datetime


def query_edges(edge_ids: Sequence[UUID], as_of: datetime | None) -> RowQuery[EdgeRow]:
    """Gives the visible ones of these edges, by id, as they were observed up to `as_of`."""
    if as_of is None:
        return RowQuery(
            EdgeRow,
            """
            select e.edge_id, e.from_id, e.to_id, e.type, e.label, e.properties, e.confidence,
                e.weight, e.heat, e.trust, e.valid_from, e.valid_to, e.last_seen
            from graph_edges e
            where e.tenant_id = current_tenant() and e.edge_id = any (%(ids)s)
            order by e.edge_id
            """,
            {"ids": list(edge_ids)},
        )
    return RowQuery(
        EdgeRow,
        """
        with edges as materialized (
            select e.edge_id, e.from_id, e.to_id, e.type, e.label from graph_edges e
            where e.tenant_id = current_tenant() and e.edge_id = any (%(ids)s))
        select e.edge_id, e.from_id, e.to_id, e.type, e.label, s.properties, s.confidence, s.weight,
            s.heat, s.trust, s.valid_from, s.valid_to, s.last_at as last_seen
        from observed_state(array(select edge_id from edges), %(as_of)s, false) s
        join edges e on e.edge_id = s.target_id
        order by e.edge_id
        """,
        {"ids": list(edge_ids), "as_of": as_of},
    )


def read_graph(
    access: TenantDb,
    node_ids: Sequence[UUID],
    edge_ids: Sequence[UUID],
    as_of: datetime | None,
) -> tuple[Sequence[JoinedNode], Sequence[EdgeRow]]:
    """The rows of `query_nodes` and of `query_edges`, in one round trip."""
    return access.fetch_pair(query_nodes(node_ids, as_of), query_edges(edge_ids, as_of))


def leads_by_member(nodes: Sequence[JoinedNode]) -> Mapping[UUID, JoinedNode]:
    """The node that an answer names, by the id of each of its members."""
    return {member: node for node in nodes for member in node.member_ids}
