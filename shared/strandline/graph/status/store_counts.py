"""SQL that counts the graph in view: it reads the rows of the scopes in view."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from strandline.db.database import TenantDb
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.schemas import RelationType
from strandline.jobs.store_failures import ANALYZE_KIND, PROMOTE_KIND

_VIEW: LiteralString = """
    with view as materialized (
        select coalesce(scopes_in_view(), array(
            select s.scope_id from scopes s where s.tenant_id = current_tenant())) as ids)
"""

_COUNT_NODES: LiteralString = """
    select g.type, count(*) as total,
        count(*) filter (where (g.valid_to is null or g.valid_to > now())
            and not g.archived and g.identity = g.name_hash) as current,
        count(*) filter (where g.valid_to <= now()) as ended,
        count(*) filter (where g.archived) as archived,
        count(*) filter (where g.identity <> g.name_hash) as merged,
        sum(pg_column_size(g.name) + pg_column_size(g.properties)
            + pg_column_size(g.text))::bigint as bytes,
        coalesce(sum(pg_column_size(g.embedding) + pg_column_size(g.code)), 0)::bigint
            as vector_bytes,
        count(*) filter (where g.space is null) as unembedded,
        count(*) filter (where g.space is not null and g.embedding is null) as refused
    from graph_nodes g
    where g.tenant_id = current_tenant() and g.scope_id = any ((select ids from view)::uuid[])
    group by g.type order by g.type
"""
_COUNT_EDGES: LiteralString = """
    select e.type, count(*) as total,
        count(*) filter (where e.valid_to is null or e.valid_to > now()) as current,
        count(*) filter (where e.valid_to <= now()) as ended,
        sum(pg_column_size(e.label) + pg_column_size(e.properties))::bigint as bytes
    from graph_edges e
    where e.tenant_id = current_tenant() and e.scope_id = any ((select ids from view)::uuid[])
    group by e.type order by e.type
"""
_COUNT_FOUNDATIONS: LiteralString = """,
    said as (
        select count(*) as observations, count(distinct o.scope_id) as scopes,
            coalesce(sum(pg_column_size(o.patch)), 0)::bigint as bytes,
            count(distinct o.source_id) filter (where o.source_version is null) as statements,
            count(distinct o.source_id) filter (where o.source_version is not null) as chains,
            max(o.observed_at) as observed_at
        from graph_observations o
        where o.tenant_id = current_tenant()
            and o.scope_id = any ((select ids from view)::uuid[])),
    revised as (
        select count(*) as revisions, count(distinct (r.node_id, r.field)) as fields,
            coalesce(sum(pg_column_size(r.value)), 0)::bigint as bytes,
            count(*) filter (where not exists (
                select from graph_observations o
                where o.tenant_id = r.tenant_id and o.source_id = r.event_id)) as replaced
        from topic_field_revisions r
        where r.tenant_id = current_tenant()
            and r.scope_id = any ((select ids from view)::uuid[]))
    select s.scopes, s.observations, s.bytes as observation_bytes,
        s.statements + r.replaced as statements, s.chains, s.observed_at, r.fields, r.revisions,
        r.bytes as revision_bytes
    from said s, revised r
"""
_READ_PROGRESS: LiteralString = """,
    promoted as (
        select max(last.decided_at) as promoted_at from view v
        cross join lateral unnest(v.ids) s (scope_id)
        cross join lateral (
            select d.decided_at from decisions d
            where d.tenant_id = current_tenant() and d.scope_id = s.scope_id
                and d.kind = 'extracted'
            order by d.decided_at desc limit 1) last),
    failed as (
        select count(*) filter (where j.kind = %(promote)s) as promotions,
            count(*) filter (where j.kind = %(analyze)s) as analyses
        from jobs j
        where j.tenant_id = current_tenant() and j.ref is not null and j.state <> 'done'
            and j.kind in (%(promote)s, %(analyze)s)),
    found as (
        select count(*) as communities, max(c.analysed_at) as analysed_at
        from graph_communities c
        where c.tenant_id = current_tenant()
            and c.scope_id = any ((select ids from view)::uuid[])),
    used as (
        select count(*) as answers, max(a.recalled_at) as answered_at from recall_answers a
        where a.tenant_id = current_tenant()
            and a.recalled_at > %(now)s::timestamptz - interval '30 days')
    select p.promoted_at, (
            select count(*) from chains c
            where c.tenant_id = current_tenant() and c.status = 'active'
                and c.promoted_version < c.version
                and (c.promote_until >= %(now)s or c.bears_change)) as chains_due,
        f.promotions as promotions_failed, m.communities, m.analysed_at, (
            select count(*) from graph_analyses a
            where a.tenant_id = current_tenant()
                and a.changes > a.analysed_changes) as scopes_to_analyse,
        f.analyses as analyses_failed, u.answers, u.answered_at
    from promoted p, failed f, found m, used u
"""


@dataclass(frozen=True)
class NodeTypeTotals:
    """The counts of nodes of one type."""

    type: NodeType
    total: int
    current: int
    ended: int
    archived: int
    merged: int
    bytes: int
    vector_bytes: int
    unembedded: int
    refused: int


def count_nodes(access: TenantDb) -> Sequence[NodeTypeTotals]:
    """Count the nodes in view by type. A type without nodes has no row."""
    return access.fetch(
        NodeTypeTotals,
        _VIEW + _COUNT_NODES,
        {},
    )


@dataclass(frozen=True)
class EdgeTypeTotals:
    """The counts of edges of one type."""

    type: RelationType
    total: int
    current: int
    ended: int
    bytes: int


def count_edges(access: TenantDb) -> Sequence[EdgeTypeTotals]:
    """Count the edges in view by type. A type without edges has no row."""
    return access.fetch(
        EdgeTypeTotals,
        _VIEW + _COUNT_EDGES,
        {},
    )


@dataclass(frozen=True)
class SourceTotals:
    """The sources that the graph in view rests on."""

    scopes: int
    observations: int
    observation_bytes: int
    statements: int
    chains: int
    observed_at: datetime | None
    fields: int
    revisions: int
    revision_bytes: int


def count_sources(access: TenantDb) -> SourceTotals:
    """Count the sources that the graph in view rests on. A statement whose only observation was
    replaced, as for an older revision, is counted by its revision."""
    (row,) = access.fetch(
        SourceTotals,
        _VIEW + _COUNT_FOUNDATIONS,
        {},
    )
    return row


@dataclass(frozen=True)
class BackgroundProgress:
    """The progress of background work, and how often the graph in view was used."""

    promoted_at: datetime | None
    chains_due: int
    promotions_failed: int
    communities: int
    analysed_at: datetime | None
    scopes_to_analyse: int
    analyses_failed: int
    answers: int
    answered_at: datetime | None


def read_background_progress(access: TenantDb, now: datetime) -> BackgroundProgress:
    """Read the progress of background work in the scopes in view."""
    (row,) = access.fetch(
        BackgroundProgress,
        _VIEW + _READ_PROGRESS,
        {"now": now, "promote": PROMOTE_KIND, "analyze": ANALYZE_KIND},
    )
    return row
