"""SQL that lists nodes, joined over the scopes in view."""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.graph.nodes.store_read_nodes import BasicNodeAcrossScopes


@dataclass(frozen=True)
class NodeListFilter:
    """The filters and the order of a list."""

    type: str | None
    category: str | None
    """A fact's category, or an entity's kind."""
    status: str | None
    as_of: datetime | None
    archived: bool
    """Include archived nodes."""
    valid_only: bool
    """Only nodes that hold at that time."""
    sort: str
    descending: bool


@dataclass(frozen=True)
class NodeListPosition:
    """The position of a row in the list: its sort values."""

    number: float
    text: str
    node_id: UUID


@dataclass(frozen=True)
class ListedNode(BasicNodeAcrossScopes):
    """A node of a list."""

    sort_number: float
    sort_text: str
    read_at: datetime
    """The time at which the list was read."""
    pg_snapshot: str
    """The database snapshot of the page."""


_NOW: LiteralString = """
    with states as materialized (
        select node_id, type, name, name_hash, identity, properties, category, status, confidence,
            weight, trust, valid_from, valid_to, archived, created_at, updated_at
        from graph_nodes
        where tenant_id = current_tenant()
            and (%(type)s::text is null or type = %(type)s)),
"""
_AS_OF: LiteralString = """
    with nodes as materialized (
        select node_id, type, name, name_hash from graph_nodes
        where tenant_id = current_tenant()
            and (%(type)s::text is null or type = %(type)s)),
    states as materialized (
        select n.node_id, n.type, n.name, n.name_hash,
            coalesce(s.identity, n.name_hash) as identity, s.properties,
            s.properties ->> 'category' as category, s.properties ->> 'status' as status,
            s.confidence, s.weight, s.trust, s.valid_from, s.valid_to, s.archived,
            s.first_at as created_at, s.last_at as updated_at
        from nodes n
        join observed_state(array(select node_id from nodes), %(as_of)s, %(halves)s) s
            on s.target_id = n.node_id),
"""
# Only nodes that hold are joined. A node that has ended is a row of its own, as when it is read by
# id.
_GROUPS: LiteralString = """
    read as (select coalesce(%(as_of)s::timestamptz, now()) as at),
    groups as (
        select (array_agg(s.node_id order by s.name_hash = s.identity desc, s.created_at,
                s.node_id))[1] as node_id,
            s.type,
            (array_agg(s.name order by s.name_hash = s.identity desc, s.created_at,
                s.node_id))[1] as name,
            (array_agg(s.category order by s.updated_at desc, s.node_id desc)
                filter (where s.category is not null))[1] as category,
            (array_agg(s.status order by s.updated_at desc, s.node_id desc)
                filter (where s.status is not null))[1] as status,
            sum(s.confidence * greatest(s.weight, 1)) / sum(greatest(s.weight, 1)) as confidence,
            sum(s.weight)::int as weight,
            (array_agg(s.trust order by trust_rank(s.trust)))[1] as trust,
            min(s.valid_from) as valid_from,
            (array_agg(s.valid_to order by s.name_hash = s.identity desc, s.created_at,
                s.node_id))[1] as valid_to,
            bool_and(s.archived) as archived,
            min(s.created_at) as created_at, max(s.updated_at) as updated_at,
            array_agg(s.node_id order by s.node_id) as member_ids, max(r.at) as read_at
        from states s cross join read r
        where not %(valid_only)s::boolean
            or s.valid_from <= r.at and (s.valid_to is null or s.valid_to > r.at)
        group by s.type, s.identity, case when s.valid_to <= r.at then s.node_id end),
    keyed as (
        select g.*,
            case %(sort)s::text
                when 'updated_at' then (extract(epoch from g.updated_at) * 1000000)::float8
                when 'created_at' then (extract(epoch from g.created_at) * 1000000)::float8
                when 'weight' then g.weight::float8
                when 'confidence' then round(g.confidence::numeric, 9)::float8
                else 0 end as sort_number,
            (case when %(sort)s::text = 'name' then left(lower(g.name), 100) else '' end)
                collate "C" as sort_text
        from groups g
        where (%(category)s::text is null or %(category)s = coalesce(g.category,
                case g.type when 'fact' then 'general' when 'entity' then 'other' end))
            and (%(status)s::text is null or %(status)s = coalesce(g.status,
                case g.type when 'decision' then 'active' end))
            and (%(archived)s::boolean or not g.archived)),
"""
_DOWN: LiteralString = """
    page as (
        select * from keyed k
        where %(after_id)s::uuid is null or (k.sort_number, k.sort_text, k.node_id)
            < (%(after_number)s::float8, %(after_text)s::text, %(after_id)s::uuid)
        order by k.sort_number desc, k.sort_text desc, k.node_id desc limit %(limit)s)
"""
_UP: LiteralString = """
    page as (
        select * from keyed k
        where %(after_id)s::uuid is null or (k.sort_number, k.sort_text, k.node_id)
            > (%(after_number)s::float8, %(after_text)s::text, %(after_id)s::uuid)
        order by k.sort_number, k.sort_text, k.node_id limit %(limit)s)
"""
_ROWS: LiteralString = """
    select p.node_id, p.type, p.name, merged.properties, p.confidence, p.weight, p.trust,
        p.valid_from, p.valid_to, p.archived, p.created_at, p.updated_at, p.member_ids,
        p.sort_number, p.sort_text, p.read_at, pg_current_snapshot()::text as pg_snapshot
    from page p
    join (
        select q.node_id, merge_patches(s.properties order by s.updated_at, s.node_id)
            as properties
        from page q cross join lateral unnest(q.member_ids) m (node_id)
        join states s on s.node_id = m.node_id
        group by q.node_id) merged on merged.node_id = p.node_id
"""
_ROWS_DOWN: LiteralString = _ROWS + " order by p.sort_number desc, p.sort_text desc, p.node_id desc"
_ROWS_UP: LiteralString = _ROWS + " order by p.sort_number, p.sort_text, p.node_id"


def list_nodes(
    access: TenantDb,
    list_filter: NodeListFilter,
    after: NodeListPosition | None,
    limit: int,
    *,
    combines_by_halving: bool = False,
) -> list[ListedNode]:
    """A page of the nodes in view. Without `as_of`, reads the stored nodes. With it, computes all
    nodes of the type from their observations up to then."""
    states = _NOW if list_filter.as_of is None else _AS_OF
    page, rows = (_DOWN, _ROWS_DOWN) if list_filter.descending else (_UP, _ROWS_UP)
    params = {
        **vars(list_filter),
        "halves": combines_by_halving,
        "limit": limit,
        "after_number": after.number if after else None,
        "after_text": after.text if after else None,
        "after_id": after.node_id if after else None,
    }
    return list(access.fetch(ListedNode, states + _GROUPS + page + rows, params))
