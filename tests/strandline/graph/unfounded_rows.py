"""Nodes and edges that no visible event founds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class UnfoundedRow:
    """What a reader sees of the graph, and what of it rests on nothing that the reader sees."""

    seen: int
    without_source: int
    without_event: int
    of_other_scope: int
    of_other_trust: int


CHECK = """
    with targets as (
        select node_id as id, scope_id, trust from graph_nodes
        union all select edge_id, scope_id, trust from graph_edges),
    cited as (
        select o.target_id, o.source_id, e.scope_id, e.origin
        from graph_observations o
        left join graph_sources s on s.target_id = o.target_id and s.source_id = o.source_id
        left join events e on e.event_id = s.event_id)
    select (select count(*) from targets)::int as seen,
        (select count(*) from targets t where not exists (
            select from cited c where c.target_id = t.id))::int as without_source,
        (select count(*) from cited where scope_id is null)::int as without_event,
        (select count(*) from targets t join cited c on c.target_id = t.id
            where c.scope_id <> t.scope_id)::int as of_other_scope,
        (select count(*) from targets t where trust_rank(t.trust) <> (
            select min(trust_rank(c.origin)) from cited c
            where c.target_id = t.id))::int as of_other_trust
"""
