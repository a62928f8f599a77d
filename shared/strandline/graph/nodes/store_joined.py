"""SQL that reads many nodes, each joined over the scopes in view, and edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.pipeline import RowQuery
from strandline.graph.nodes.store_read_nodes import BasicNodeAcrossScopes
from strandline.graph.nodes.store_walk import WalkFilter


@dataclass(frozen=True)
class NodeAcrossScopes(BasicNodeAcrossScopes):
    """A node joined from all nodes of its identity in view."""

    archived: bool
    heat: float
    participants: list[str]
    """The participants of the scope of the node whose id is shown."""


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
"""Joins all nodes in view that have the identity of a node `l`, as `j`. A literal SQL fragment."""


def make_nodes_query(
    node_ids: Sequence[UUID], as_of: datetime | None, *, combines_by_halving: bool = False
) -> RowQuery[NodeAcrossScopes]:
    """Query the visible ones of these nodes, in this order. Nodes of one identity appear once,
    under the first of their ids. With `as_of`, the nodes as they were observed up to then and
    joined as they were then."""
    if as_of is not None:
        return _make_nodes_query_as_of(node_ids, as_of, combines_by_halving)
    return RowQuery(
        NodeAcrossScopes,
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


def _make_nodes_query_as_of(
    node_ids: Sequence[UUID], as_of: datetime, combines_by_halving: bool
) -> RowQuery[NodeAcrossScopes]:
    return RowQuery(
        NodeAcrossScopes,
        """
        with states as materialized (
            select s.*, a.n, case when not s.holds then s.target_id end as ended_id
            from joined_at(%(ids)s::uuid[], %(as_of)s, %(halves)s) s
            left join unnest(%(ids)s::uuid[]) with ordinality a (node_id, n)
                on a.node_id = s.target_id),
        leads as (
            select distinct on (s.type, s.identity, s.ended_id) s.* from states s
            where s.n is not null order by s.type, s.identity, s.ended_id, s.n),
        joined as (
            select l.n, l.target_id as node_id, l.type, l.name, l.valid_to,
                merge_patches(m.properties order by m.last_at, m.target_id) as properties,
                sum(m.confidence * greatest(m.weight, 1)) / sum(greatest(m.weight, 1))
                    as confidence,
                sum(m.weight)::int as weight, max(m.heat) as heat,
                (array_agg(m.trust order by trust_rank(m.trust)))[1] as trust,
                min(m.valid_from) as valid_from, bool_and(m.archived) as archived,
                min(m.first_at) as created_at, max(m.last_at) as updated_at,
                array_agg(m.target_id order by m.target_id) as member_ids
            from leads l join states m on m.type = l.type and m.identity = l.identity
                and (m.target_id = l.target_id or l.holds and m.holds)
            group by l.n, l.target_id, l.type, l.name, l.valid_to)
        select j.*, g.participants
        from joined j
        cross join lateral (
            select g.participants from graph_nodes g
            where g.tenant_id = current_tenant() and g.node_id = j.node_id offset 0) g
        order by j.n
        """,
        {"ids": list(node_ids), "as_of": as_of, "halves": combines_by_halving},
    )


def read_nodes_across_scopes(
    access: TenantDb,
    node_ids: Sequence[UUID],
    as_of: datetime | None,
    *,
    combines_by_halving: bool = False,
) -> Sequence[NodeAcrossScopes]:
    """The rows of `make_nodes_query`."""
    query = make_nodes_query(node_ids, as_of, combines_by_halving=combines_by_halving)
    return access.fetch(query.row_type, query.statement, query.params)


MAX_EDGES_BETWEEN = 1000
"""How many edges between the nodes of a walk are read, in addition to those that it followed."""
_EDGES: LiteralString = """
        with others as (
            select e.edge_id from graph_edges e
            where e.tenant_id = current_tenant() and e.from_id = any (%(node_ids)s::uuid[])
                and e.to_id = any (%(node_ids)s::uuid[]) and e.edge_id <> all (%(ids)s::uuid[])
                and (%(types)s::text[] is null or e.type = any (%(types)s))
                and e.confidence >= %(min_confidence)s::float8
                and (%(ended)s::boolean
                    or may_hold(e.valid_from, e.valid_to, false, %(as_of)s, true))
            order by e.weight desc, e.heat desc, e.edge_id limit %(between)s),
        wanted as materialized (
            select array(
                select unnest(%(ids)s::uuid[]) union all select o.edge_id from others o) as ids)
"""
_EDGES_NOW: LiteralString = """
        select e.edge_id, e.from_id, e.to_id, e.type, e.label, e.properties, e.confidence, e.weight,
            e.heat, e.trust, e.valid_from, e.valid_to, e.created_at, e.last_seen
        from graph_edges e
        where e.tenant_id = current_tenant() and e.edge_id = any ((select ids from wanted)::uuid[])
        order by e.weight desc, e.heat desc, e.edge_id
"""
_EDGES_AS_OF: LiteralString = """
        select s.target_id as edge_id, e.from_id, e.to_id, e.type, e.label, s.properties,
            s.confidence, s.weight, s.heat, s.trust, s.valid_from, s.valid_to,
            s.first_at as created_at, s.last_at as last_seen
        from observed_state((select ids from wanted), %(as_of)s, %(halves)s) s
        cross join lateral (
            select e.from_id, e.to_id, e.type, e.label from graph_edges e
            where e.tenant_id = current_tenant() and e.edge_id = s.target_id offset 0) e
        where %(ended)s::boolean or s.valid_from <= %(as_of)s
            and (s.valid_to is null or s.valid_to > %(as_of)s)
        order by s.weight desc, s.heat desc, s.target_id
"""


@dataclass(frozen=True)
class ScopeEdge:
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


@dataclass(frozen=True)
class EdgeRow(ScopeEdge):
    """An edge of one scope, with the times of its first and last observation."""

    created_at: datetime
    last_seen: datetime


def make_subgraph_edges_query(
    edge_ids: Sequence[UUID], node_ids: Sequence[UUID], walk: WalkFilter
) -> RowQuery[EdgeRow]:
    """Query the visible ones of these edges, and the MAX_EDGES_BETWEEN heaviest edges between these
    nodes that the walk may follow, plus one if there are more. Edges are read as they were observed
    up to the walk's `as_of`. The heaviest come first."""
    params: dict[str, object] = {
        "ids": list(edge_ids),
        "node_ids": list(node_ids),
        "types": None if walk.edge_types is None else list(walk.edge_types),
        "min_confidence": walk.min_confidence,
        "as_of": walk.as_of,
        "ended": walk.ended,
        "halves": walk.combines_by_halving,
        "between": MAX_EDGES_BETWEEN + 1,
    }
    state = _EDGES_NOW if walk.as_of is None else _EDGES_AS_OF
    return RowQuery(EdgeRow, _EDGES + state, params)


def read_nodes_and_edges(
    access: TenantDb, node_ids: Sequence[UUID], edge_ids: Sequence[UUID], walk: WalkFilter
) -> tuple[Sequence[NodeAcrossScopes], Sequence[EdgeRow]]:
    """The rows of `make_nodes_query` and of `make_subgraph_edges_query`, in one round trip."""
    return access.fetch_pair(
        make_nodes_query(node_ids, walk.as_of, combines_by_halving=walk.combines_by_halving),
        make_subgraph_edges_query(edge_ids, node_ids, walk),
    )


def map_nodes_by_member(nodes: Sequence[NodeAcrossScopes]) -> Mapping[UUID, NodeAcrossScopes]:
    """Map the id of each member to the node that represents it in the answer."""
    return {member: node for node in nodes for member in node.member_ids}
