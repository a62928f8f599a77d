"""SQL that reads what the graph holds about a question: the nodes that it names, the nodes within
two edges, and the edges between them, each with the events it cites; and which statements state a
fact that holds no longer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.store_joined import MEMBERS, EdgeRow, NodeAcrossScopes
from strandline.graph.nodes.store_walk import MAX_NODES
from strandline.graph.search.schemas import MIN_CONFIDENCE
from strandline.graph.search.store import MATCHES, NodeQuery

HOPS = 2
LIMIT = 50
"""The most nodes, and the most edges, of an answer."""
_MAX_STARTS = 20
"""The most nodes named by a question from which edges are followed."""
_MAX_REPLACEMENTS = 10
"""How many successive replacements of a fact are followed."""
_MAX_EVENTS = 20
"""How many of the newest events that a node or an edge cites are read."""
_MAX_EDGE_ROWS = 500
"""How many edges are read before edges of several scopes are joined."""

_EVENTS: LiteralString = """
        cross join lateral (
            select coalesce(array_agg(e.event_id order by e.observed_at desc, e.event_id desc),
                '{}') as event_ids, coalesce(bool_or(e.is_stated), false) as is_stated
            from (
                select s.event_id, max(o.observed_at) as observed_at,
                    bool_or(o.source_version is null) as is_stated  -- by no chain
                from graph_sources s
                join graph_observations o on o.tenant_id = s.tenant_id
                    and o.target_id = s.target_id and o.source_id = s.source_id
                where s.tenant_id = current_tenant() and s.target_id = any (cited.target_ids)
                    and not o.patch ? 'upkeep'  -- an end or a merge is no evidence
                group by s.event_id
                order by observed_at desc, s.event_id desc
                limit %(max_events)s) e offset 0) c
"""
"""The events that the nodes or edges `cited.target_ids` cite, newest first, as `c`, and whether
one of them is a statement to the graph."""


@dataclass(frozen=True)
class RelevantNodeRow(NodeAcrossScopes):
    """A node that concerns a question."""

    hops: int
    """How many edges it is away from a node that the question names; 0: the question names it."""
    score: float | None
    """The rank of a node that the question names, among such nodes."""
    is_named: bool | None
    """Whether the question contains its whole name; None: it was reached along an edge."""
    has_words: bool | None
    similarity: float | None
    """The cosine of its vector and the question's; None if either is missing."""
    event_ids: list[UUID]
    is_stated: bool
    """Whether it was stated to the graph, and not only drawn from what was said."""


_REACHED_NODES: LiteralString = """,
        starts as materialized (
            select b.node_id, b.score, b.is_named, b.has_words,
                row_number() over (order by b.is_named desc, b.score desc, b.node_id) as place
            from best b order by place limit %(max_starts)s),
        ended as materialized (  -- of the facts about what is named
            select w.node_id
            from walk_graph(array(select s.node_id from starts s),
                array['fact_entity', 'fact_topic'], 1, %(max_nodes)s, %(min_confidence)s, null,
                false, true) w (hop, edge_id, node_id)
            cross join lateral (
                select g.valid_to from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = w.node_id offset 0) g
            where g.valid_to <= now()),
        steps as materialized (
            select w.hop, w.edge_id, w.node_id
            from walk_graph(array(select s.node_id from starts s), null, %(hops)s, %(max_nodes)s,
                %(min_confidence)s, null, false, false) w (hop, edge_id, node_id)
            union all
            select %(hops)s, w.edge_id, w.node_id  -- a replacement may be about nothing itself
            from walk_graph(array(select e.node_id from ended e), array['invalidates'],
                %(max_replacements)s, %(max_nodes)s, 0, null, false, true)
                w (hop, edge_id, node_id)),
        reached as materialized (  -- each by the heaviest edge of its hop
            select distinct on (r.node_id) r.*
            from (
                select s.node_id, 0 as hop, s.place, null::int as edge_weight,
                    null::float8 as edge_heat, s.score, s.is_named, s.has_words
                from starts s
                union all
                select s.node_id, s.hop, null, e.weight, e.heat, null, null, null
                from steps s
                cross join lateral (
                    select e.weight, e.heat from graph_edges e
                    where e.tenant_id = current_tenant() and e.edge_id = s.edge_id offset 0) e) r
            order by r.node_id, r.hop, r.edge_weight desc, r.edge_heat desc)
"""
"""The nodes that edges lead to from `best` of MATCHES, each with its heaviest edge, as
`reached`."""
_LEADS: LiteralString = """,
        identities as materialized (
            select distinct on (g.type, g.identity, case when g.valid_to is not null
                then g.node_id end) r.*, g.type, g.name, g.identity, g.valid_to, g.participants,
                1 - (node_vector(%(space)s, g.space, g.embedding, g.next_space, g.next_embedding)
                    <=> %(vector)s::halfvec) as similarity
            from reached r
            cross join lateral (
                select g.* from graph_nodes g
                where g.tenant_id = current_tenant() and g.node_id = r.node_id
                    and g.type = any (%(known_types)s) and g.confidence >= %(min_confidence)s
                    and g.valid_from <= now()
                    and may_hold(g.valid_from, g.valid_to, g.archived, null, false) offset 0) g
            order by g.type, g.identity, case when g.valid_to is not null then g.node_id end,
                r.hop, r.place, r.edge_weight desc, r.edge_heat desc, r.node_id),
        leads as materialized (
            select i.*, row_number() over (order by i.place, i.edge_weight desc, i.edge_heat desc,
                i.hop, i.node_id) as n
            from identities i order by n limit %(limit)s)
"""
"""The nodes of `reached` that hold, one for each identity, in the order of an answer, as
`leads`."""


def read_nodes_around_question(
    access: TenantDb, query: NodeQuery, types: Sequence[NodeType]
) -> Sequence[RelevantNodeRow]:
    """The visible nodes of these types that a question names, by their whole names or by words; the
    nodes within two edges of them; and the facts that replaced facts that it names. Named nodes
    come first, then the others by the weight of the edge that leads to them, then by heat. All of
    them hold, and none is archived or of low confidence."""
    return access.fetch(
        RelevantNodeRow,
        "with"  # noqa: S608
        + MATCHES
        + _REACHED_NODES
        + _LEADS
        + """
        select l.node_id, l.type, l.name, j.properties, j.confidence, j.weight, j.trust,
            j.valid_from, l.valid_to, j.created_at, j.updated_at, j.member_ids, j.archived, j.heat,
            l.participants, l.hop as hops, l.score, l.is_named, l.has_words, l.similarity,
            c.event_ids, c.is_stated
        from leads l
        """
        + MEMBERS
        + """
        cross join lateral (select j.member_ids as target_ids) cited
        """
        + _EVENTS
        + """
        where j.confidence >= %(min_confidence)s and cardinality(c.event_ids) > 0
            and (l.type <> 'decision' or coalesce(j.properties ->> 'status', 'active') = 'active')
        order by l.n
        """,
        {
            **query.to_params(),
            "known_types": list(types),
            "hops": HOPS,
            "max_nodes": MAX_NODES,
            "min_confidence": MIN_CONFIDENCE,
            "max_starts": _MAX_STARTS,
            "max_replacements": _MAX_REPLACEMENTS,
            "max_events": _MAX_EVENTS,
            "limit": LIMIT,
        },
    )


@dataclass(frozen=True)
class RelevantEdgeRow(EdgeRow):
    """An edge of one scope, with the events it cites."""

    event_ids: list[UUID]
    is_stated: bool
    """Whether it was stated to the graph, and not only drawn from what was said."""


def read_edges_between(access: TenantDb, node_ids: Sequence[UUID]) -> Sequence[RelevantEdgeRow]:
    """The visible edges between these nodes that hold and are not of low confidence, ordered by
    weight, then by heat."""
    return access.fetch(
        RelevantEdgeRow,
        """
        with heaviest as materialized (
            select e.* from graph_edges e
            where e.tenant_id = current_tenant() and e.from_id = any (%(ids)s::uuid[])
                and e.to_id = any (%(ids)s::uuid[]) and e.confidence >= %(min_confidence)s
                and e.valid_from <= now()
                and may_hold(e.valid_from, e.valid_to, false, null, false)
            order by e.weight desc, e.heat desc, e.edge_id limit %(max_rows)s)
        select e.edge_id, e.from_id, e.to_id, e.type, e.label, e.properties, e.confidence, e.weight,
            e.heat, e.trust, e.valid_from, e.valid_to, e.created_at, e.last_seen,
            c.event_ids, c.is_stated
        from heaviest e
        cross join lateral (select array[e.edge_id] as target_ids) cited
        """  # noqa: S608
        + _EVENTS
        + """
        order by e.weight desc, e.heat desc, e.edge_id
        """,
        {
            "ids": list(node_ids),
            "min_confidence": MIN_CONFIDENCE,
            "max_rows": _MAX_EDGE_ROWS,
            "max_events": _MAX_EVENTS,
        },
    )


@dataclass(frozen=True)
class _StatementId:
    event_id: UUID


def list_statements_of_ended_facts(
    access: TenantDb, event_ids: Sequence[UUID], as_of: datetime | None = None
) -> set[UUID]:
    """Those of these statements that state a fact which holds no longer, or held no longer at
    `as_of`, as far as visible."""
    if not event_ids:
        return set()
    rows = access.fetch(
        _StatementId,
        """
        select o.source_id as event_id
        from graph_observations o
        cross join lateral (
            select g.valid_to from graph_nodes g
            where g.tenant_id = o.tenant_id and g.node_id = o.target_id and g.type = 'fact'
            offset 0) g
        where o.tenant_id = current_tenant() and o.source_id = any (%(event_ids)s)
            and o.source_version is null and not o.patch ? 'upkeep'
                and g.valid_to <= coalesce(%(as_of)s::timestamptz, now())
        """,
        {"event_ids": list(event_ids), "as_of": as_of},
    )
    return {row.event_id for row in rows}
