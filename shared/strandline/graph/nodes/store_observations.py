"""SQL that stores observations, and computes nodes and edges from them."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.errors import NotFound
from strandline.graph.nodes.identity import derive_edge_id, derive_node_id
from strandline.graph.nodes.observations import (
    EdgeObservation,
    GraphWriteResult,
    NodeObservation,
    ObservationSource,
)

type _Row = dict[str, object]

# `offset 0` keeps each look for observations a look by index, once for a row. As an anti-join, it
# is planned by statistics, which do not know a new tenant yet: for each row, the join then reads
# all observations of the tenant.


def write_observations(
    access: TenantDb,
    nodes: Sequence[NodeObservation],
    edges: Sequence[EdgeObservation] = (),
    *,
    combines_by_halving: bool = False,
) -> GraphWriteResult:
    """Store observations, and compute the nodes and edges that they concern. The number of SQL
    statements does not depend on the number of observations. Repeated observations change nothing.
    Observations of older versions of a chain are deleted if this version does not have them. In a
    transaction. Raises NotFound for a node that is observed by its id and was erased meanwhile."""
    sources = list({o.source.source_id: o.source for o in (*nodes, *edges)}.values())
    lock_scope_graphs(access, {source.scope_id for source in sources})
    _require_nodes(access, {node.node_id for node in nodes if node.node_id})
    node_ids = _resolve_node_ids(access, nodes)
    edge_ids = [_derive_edge_id(access.caller.tenant, edge, node_ids) for edge in edges]
    node_count = _insert_nodes(access, nodes, node_ids)
    edge_count = _insert_edges(access, edges, edge_ids, node_ids)
    rows = _make_observation_rows(
        [*zip(nodes, node_ids, strict=True), *zip(edges, edge_ids, strict=True)]
    )
    target_ids = _replace_observations(access, sources, rows)
    ids = list({*target_ids, *node_ids, *edge_ids})
    recompute_nodes_and_edges(access, ids, combines_by_halving=combines_by_halving)
    return GraphWriteResult(node_ids, edge_ids, node_count, edge_count)


def recompute_nodes_and_edges(
    access: TenantDb, ids: Sequence[UUID], *, combines_by_halving: bool = False
) -> None:
    """Compute these nodes and edges from their observations, and delete those without any. In a
    transaction."""
    access.execute_all(
        (
            """
            delete from graph_edges e where e.edge_id = any (%(ids)s) and not exists (
                select from graph_observations o
                where o.tenant_id = e.tenant_id and o.target_id = e.edge_id offset 0)
            """,
            """
            delete from graph_nodes n where n.node_id = any (%(ids)s) and not exists (
                select from graph_observations o
                where o.tenant_id = n.tenant_id and o.target_id = n.node_id offset 0)
            """,
            """
            with s as materialized (
                select * from observed_state(%(ids)s, null, %(halves)s)),
            nodes as (
                update graph_nodes n set properties = s.properties,
                    identity = coalesce(s.identity, n.name_hash), confidence = s.confidence,
                    weight = s.weight, heat = s.heat, trust = s.trust, valid_from = s.valid_from,
                    valid_to = s.valid_to, archived = s.archived, updated_at = s.last_at
                from s where n.node_id = s.target_id and n.node_id = any (%(ids)s))
            update graph_edges e set properties = s.properties, confidence = s.confidence,
                weight = s.weight, heat = s.heat, trust = s.trust, valid_from = s.valid_from,
                valid_to = s.valid_to, last_seen = s.last_at
            from s where e.edge_id = s.target_id and e.edge_id = any (%(ids)s)
            """,
        ),
        {"ids": list(ids), "halves": combines_by_halving},
    )


def lock_scope_graphs(access: TenantDb, scope_ids: Iterable[UUID]) -> None:
    """Lock the graph of these scopes against other writers until the end of the transaction, so
    that two of them do not both create the next node of a name."""
    access.execute(
        """
        select pg_advisory_xact_lock(hashtextextended(current_tenant() || ' graph ' || id, 0))
        from (select id from unnest(%(scope_ids)s::uuid[]) id order by id) ids
        """,
        {"scope_ids": list(scope_ids)},
    )


@dataclass(frozen=True)
class _NodeCount:
    nodes: int


def _require_nodes(access: TenantDb, node_ids: Collection[UUID]) -> None:
    """Raise NotFound unless all of these nodes exist."""
    (row,) = access.fetch(
        _NodeCount,
        """
        select count(*) as nodes from graph_nodes
        where tenant_id = current_tenant() and node_id = any (%(ids)s)
        """,
        {"ids": list(node_ids)},
    )
    if row.nodes < len(node_ids):
        raise NotFound(
            "there is no such node in view: one that is named here was erased meanwhile. Repeat"
            " the request: it then says which"
        )


@dataclass(frozen=True)
class _NodeOrdinal:
    n: int
    ordinal: int


def _resolve_node_ids(access: TenantDb, nodes: Sequence[NodeObservation]) -> list[UUID]:
    """The id of each node: the newest node of its name, or a new one if that was already
    invalidated at the time of the observation."""
    drafts = [
        {
            "n": n,
            "scope_id": str(node.source.scope_id),
            "type": node.type,
            "name_hash": node.name_hash.hex(),
            "valid_from": (node.valid_from or node.source.valid_from).isoformat(),
        }
        for n, node in enumerate(nodes)
        if node.node_id is None
    ]
    rows = access.fetch(
        _NodeOrdinal,
        """
        select d.n, case
            when g.ordinal is null then 0
            when g.valid_to is null or d.valid_from < g.valid_to then g.ordinal
            else g.ordinal + 1 end as ordinal
        from jsonb_to_recordset(%(drafts)s::jsonb) d
            (n int, scope_id uuid, type text, name_hash text, valid_from timestamptz)
        left join lateral (
            select g.ordinal, g.valid_to from graph_nodes g
            where g.tenant_id = current_tenant() and g.scope_id = d.scope_id and g.type = d.type
                and g.name_hash = decode(d.name_hash, 'hex')
            order by g.ordinal desc limit 1) g on true
        """,
        {"drafts": json.dumps(drafts)},
    )
    ordinals = {row.n: row.ordinal for row in rows}
    tenant = access.caller.tenant
    return [
        node.node_id
        or derive_node_id(tenant, node.source.scope_id, node.type, node.name_hash, ordinals[n])
        for n, node in enumerate(nodes)
    ]


def _derive_edge_id(tenant: str, edge: EdgeObservation, node_ids: Sequence[UUID]) -> UUID:
    ends = node_ids[edge.from_node], node_ids[edge.to_node]
    return derive_edge_id(tenant, edge.source.scope_id, *ends, edge.type, edge.label)


def _insert_nodes(
    access: TenantDb, nodes: Sequence[NodeObservation], node_ids: Sequence[UUID]
) -> int:
    rows = [
        {
            "node_id": str(node_id),
            **_make_source_columns(node.source),
            "type": node.type,
            "name": node.name,
            "name_hash": node.name_hash.hex(),
        }
        for node, node_id in zip(nodes, node_ids, strict=True)
        if node.node_id is None
    ]
    return access.execute(
        """
        insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name, name_hash,
            ordinal, identity, trust, valid_from, created_at, updated_at)
        select current_tenant(), d.node_id, d.scope_id, d.participants, d.type, d.name,
            decode(d.name_hash, 'hex'), coalesce((
                select g.ordinal + 1 from graph_nodes g
                where g.tenant_id = current_tenant() and g.scope_id = d.scope_id
                    and g.type = d.type and g.name_hash = decode(d.name_hash, 'hex')
                order by g.ordinal desc limit 1), 0),
            decode(d.name_hash, 'hex'), d.trust, d.observed_at, d.observed_at, d.observed_at
        from (
            select distinct on (node_id) * from jsonb_to_recordset(%(rows)s::jsonb) d
                (node_id uuid, scope_id uuid, participants text[], type text, name text,
                name_hash text, trust text, observed_at timestamptz)
            order by node_id, observed_at) d
        on conflict do nothing
        """,
        {"rows": json.dumps(rows)},
    )


def _insert_edges(
    access: TenantDb,
    edges: Sequence[EdgeObservation],
    edge_ids: Sequence[UUID],
    node_ids: Sequence[UUID],
) -> int:
    rows = [
        {
            "edge_id": str(edge_id),
            **_make_source_columns(edge.source),
            "from_id": str(node_ids[edge.from_node]),
            "to_id": str(node_ids[edge.to_node]),
            "type": edge.type,
            "label": edge.label,
        }
        for edge, edge_id in zip(edges, edge_ids, strict=True)
    ]
    return access.execute(
        """
        insert into graph_edges (tenant_id, edge_id, scope_id, participants, from_id, to_id, type,
            label, trust, valid_from, created_at, last_seen)
        select current_tenant(), d.edge_id, d.scope_id, d.participants, d.from_id, d.to_id, d.type,
            d.label, d.trust, d.observed_at, d.observed_at, d.observed_at
        from (
            select distinct on (edge_id) * from jsonb_to_recordset(%(rows)s::jsonb) d
                (edge_id uuid, scope_id uuid, participants text[], from_id uuid, to_id uuid,
                type text, label text, trust text, observed_at timestamptz)
            order by edge_id, observed_at) d
        on conflict (tenant_id, edge_id) do nothing
        """,
        {"rows": json.dumps(rows)},
    )


def _make_source_columns(source: ObservationSource) -> _Row:
    return {
        "scope_id": str(source.scope_id),
        "participants": list(source.participants),
        "trust": source.trust,
        "observed_at": source.observed_at.isoformat(),
    }


def _make_observation_rows(
    observations: Iterable[tuple[NodeObservation | EdgeObservation, UUID]],
) -> list[_Row]:
    """The rows of observations with the ids of their targets. Observations of one target by one
    source become one row."""
    rows: dict[tuple[UUID, UUID], _Row] = {}
    patches: defaultdict[tuple[UUID, UUID], dict[str, Any]] = defaultdict(dict)
    for observation, target_id in observations:
        source = observation.source
        key = target_id, source.source_id
        patches[key] |= observation.patch
        rows[key] = {
            **_make_source_columns(source),
            "target_id": str(target_id),
            "source_id": str(source.source_id),
            "source_version": source.version,
            "patch": patches[key],
            "confidence": observation.confidence,
            "heat": observation.heat,
            "valid_from": (observation.valid_from or source.valid_from).isoformat(),
            "event_ids": [str(event_id) for event_id in source.event_ids],
        }
    return list(rows.values())


@dataclass(frozen=True)
class _ObservationTarget:
    target_id: UUID


def _replace_observations(
    access: TenantDb, sources: Iterable[ObservationSource], rows: Sequence[_Row]
) -> list[UUID]:
    """Store these rows as all observations of their sources. Skips chains of which a newer version
    has already written observations. Returns the ids of the nodes and edges that must be
    computed."""
    old_rows = _delete_older_observations(access, sources)
    return list({row.target_id for row in [*old_rows, *_insert_new_observations(access, rows)]})


def _delete_older_observations(
    access: TenantDb, sources: Iterable[ObservationSource]
) -> Sequence[_ObservationTarget]:
    """Delete the observations of older versions of chains. Returns their targets."""
    versions = [
        {"source_id": str(source.source_id), "version": source.version} for source in sources
    ]
    return access.fetch(
        _ObservationTarget,
        """
        delete from graph_observations o
        using jsonb_to_recordset(%(versions)s::jsonb) v (source_id uuid, version int)
        where o.tenant_id = current_tenant() and o.source_id = v.source_id
            and o.source_version < v.version
        returning o.target_id
        """,
        {"versions": json.dumps(versions)},
    )


def _insert_new_observations(
    access: TenantDb, rows: Sequence[_Row]
) -> Sequence[_ObservationTarget]:
    """Store observations with the events they cite, except for existing ones and those of chains
    with observations of a newer version. Returns the targets of the new ones."""
    return access.fetch(
        _ObservationTarget,
        """
        with said as materialized (
            select * from jsonb_to_recordset(%(rows)s::jsonb) d
                (target_id uuid, source_id uuid, scope_id uuid, participants text[],
                source_version int, patch jsonb, confidence float8, heat float8, trust text,
                observed_at timestamptz, valid_from timestamptz, event_ids uuid[])),
        stored as (
            insert into graph_observations (tenant_id, target_id, source_id, scope_id, participants,
                source_version, patch, confidence, heat, trust, observed_at, valid_from)
            select current_tenant(), target_id, source_id, scope_id, participants, source_version,
                patch, confidence, heat, trust, observed_at, valid_from
            from said s
            where not exists (
                select from graph_observations o
                where o.tenant_id = current_tenant() and o.source_id = s.source_id
                    and o.source_version >= s.source_version offset 0)
            on conflict (tenant_id, target_id, source_id) do nothing
            returning target_id, source_id),
        cited as (
            insert into graph_sources (tenant_id, target_id, source_id, event_id, scope_id,
                participants)
            select distinct current_tenant(), s.target_id, s.source_id, e.event_id, s.scope_id,
                s.participants
            from stored join said s using (target_id, source_id)
            cross join lateral unnest(s.event_ids) e (event_id))
        select target_id from stored
        """,
        {"rows": json.dumps(rows)},
    )
