"""SQL that reads the observations about a node, and a fact's chain of revisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb

MAX_REVISIONS = 100
"""The most facts of a chain of revisions."""


@dataclass(frozen=True)
class HistoryPosition:
    """The position of an observation in a history."""

    observed_at: datetime
    source_id: UUID
    target_id: UUID


@dataclass(frozen=True)
class ObservationRow:
    """A source's observation of one node."""

    target_id: UUID
    source_id: UUID
    source_version: int | None
    patch: dict[str, Any]
    merged_into: UUID | None
    """The node into which the patch merges this one."""
    confidence: float | None
    trust: str
    observed_at: datetime
    valid_from: datetime
    event_ids: list[UUID]
    speakers: list[str]
    pg_snapshot: str
    """The database snapshot of the page."""


def list_observations(
    access: TenantDb, node_ids: Sequence[UUID], after: HistoryPosition | None, limit: int
) -> Sequence[ObservationRow]:
    """The observations about these nodes, oldest first."""
    return access.fetch(
        ObservationRow,
        """
        with page as materialized (
            select * from graph_observations o
            where o.tenant_id = current_tenant() and o.target_id = any (%(ids)s)
                and (%(after_at)s::timestamptz is null
                    or (o.observed_at, o.source_id, o.target_id)
                        > (%(after_at)s::timestamptz, %(after_source)s::uuid,
                            %(after_target)s::uuid))
            order by o.observed_at, o.source_id, o.target_id limit %(limit)s)
        select p.target_id, p.source_id, p.source_version, p.patch,
            into_node.node_id as merged_into, p.confidence, p.trust, p.observed_at, p.valid_from,
            cited.event_ids, cited.speakers, pg_current_snapshot()::text as pg_snapshot
        from page p
        cross join lateral (
            select coalesce(array_agg(e.event_id order by e.seq), '{}') as event_ids,
                coalesce(array_agg(distinct e.speaker)
                    filter (where e.speaker is not null), '{}') as speakers
            from graph_sources s
            join events e on e.tenant_id = s.tenant_id and e.event_id = s.event_id
            where s.tenant_id = p.tenant_id and s.target_id = p.target_id
                and s.source_id = p.source_id) cited
        left join lateral (
            select g.node_id from graph_nodes n
            join graph_nodes g on g.tenant_id = n.tenant_id and g.scope_id = n.scope_id
                and g.type = n.type and g.name_hash = decode(p.patch ->> 'identity', 'hex')
            where n.tenant_id = p.tenant_id and n.node_id = p.target_id
            order by g.ordinal desc limit 1) into_node on true
        order by p.observed_at, p.source_id, p.target_id
        """,
        {
            "ids": list(node_ids),
            "limit": limit,
            "after_at": after.observed_at if after else None,
            "after_source": after.source_id if after else None,
            "after_target": after.target_id if after else None,
        },
    )


@dataclass(frozen=True)
class FactLineageRow:
    """A fact in a chain of revisions."""

    node_id: UUID
    content: str
    valid_from: datetime
    valid_to: datetime | None
    reason: str | None
    """Why it no longer holds."""
    replaced_by: list[UUID]


def list_fact_lineage(access: TenantDb, node_ids: Sequence[UUID]) -> Sequence[FactLineageRow]:
    """These facts, and all facts that they replaced or were replaced by, directly or indirectly,
    oldest first; at most `MAX_REVISIONS`, the nearest."""
    return access.fetch(
        FactLineageRow,
        """
        with recursive chain (node_id) as (
            select unnest(%(ids)s::uuid[])
            union
            select o.node_id from chain c
            cross join lateral (
                select e.to_id as node_id from graph_edges e
                where e.tenant_id = current_tenant() and e.from_id = c.node_id
                    and e.type = 'invalidates'
                union all
                select e.from_id from graph_edges e
                where e.tenant_id = current_tenant() and e.to_id = c.node_id
                    and e.type = 'invalidates') o),
        facts as materialized (select node_id from chain limit %(limit)s)
        select n.node_id, n.name as content, n.valid_from, n.valid_to,
            n.properties ->> 'reason' as reason, array(
                select e.from_id from graph_edges e
                where e.tenant_id = current_tenant() and e.to_id = n.node_id
                    and e.type = 'invalidates'
                order by e.created_at, e.from_id) as replaced_by
        from facts f
        join graph_nodes n on n.tenant_id = current_tenant() and n.node_id = f.node_id
        order by n.valid_from, n.node_id
        """,
        {"ids": list(node_ids), "limit": MAX_REVISIONS},
    )
