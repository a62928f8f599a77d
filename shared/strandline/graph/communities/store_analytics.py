"""SQL of the analytics: the scopes and tenants that wait, the graph of some scopes, and its
communities."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb
from strandline.graph.communities.label_propagation import WeightedLink
from strandline.graph.nodes.node_types import NodeType
from strandline.jobs.store_failures import ANALYZE_KIND

TENANT_REF = "tenant"
"""The reference of a failure that concerns the whole tenant's graph."""
_DIGEST_VERSION = 1
"""The version of the algorithm. If it changes, every graph is analysed again."""
_ROWS_PER_STATEMENT = 10_000


def list_due_tenants(connection: Connection, now: datetime) -> list[str]:
    """The tenants whose graphs changed before the last 03:00 UTC and were not analysed since."""
    return fetch_tenant_ids(connection, "select * from tenants_to_analyse(%s)", (now,))


@dataclass(frozen=True)
class ScopeToAnalyse:
    """A scope whose graph has changed, or whose last analysis failed."""

    scope_id: UUID
    participants: list[str]
    changes: int
    """The number of the last change."""
    digest: bytes | None
    """The digest of the graph whose communities are stored."""


def list_scopes_to_analyse(access: TenantDb) -> Sequence[ScopeToAnalyse]:
    """The tenant's scopes that wait, the longest waiting first."""
    return access.fetch(
        ScopeToAnalyse,
        """
        select a.scope_id, a.participants, a.changes, a.digest from graph_analyses a
        where a.changes > a.analysed_changes or exists (
            select from jobs j where j.kind = %(kind)s and j.ref = a.scope_id::text
                and j.state <> 'done')
        order by a.changed_at, a.scope_id
        """,
        {"kind": ANALYZE_KIND},
    )


def enqueue_unanalysed_scopes(access: TenantDb, now: datetime) -> int:
    """Mark scopes as waiting whose graph was written before changes were counted. Returns how many.
    In a transaction."""
    return access.execute(
        """
        insert into graph_analyses (tenant_id, scope_id, participants, changes, changed_at)
        select distinct n.tenant_id, n.scope_id, n.participants, 1, %(now)s::timestamptz
        from graph_nodes n
        where not exists (select from graph_analyses a where a.scope_id = n.scope_id)
        on conflict do nothing
        """,
        {"now": now},
    )


@dataclass(frozen=True)
class TenantAnalysisState:
    """The state of the analysis of the tenant's whole graph."""

    scope_ids: list[UUID]
    """All scopes with a graph."""
    digest: bytes | None
    """The digest of the graph whose communities are stored; None: none are stored."""
    has_failed: bool
    """Whether the last analysis failed."""


def read_tenant_analysis_state(access: TenantDb) -> TenantAnalysisState:
    """Read the scopes and the state of the tenant's whole graph."""
    (row,) = access.fetch(
        TenantAnalysisState,
        """
        select coalesce((select array_agg(scope_id order by scope_id) from graph_analyses), '{}')
                as scope_ids,
            (select digest from graph_tenant_analyses) as digest,
            exists (select from jobs where kind = %(kind)s and ref = %(ref)s and state <> 'done')
                as has_failed
        """,
        {"kind": ANALYZE_KIND, "ref": TENANT_REF},
    )
    return row


@dataclass(frozen=True)
class GraphNode:
    """A node of the analysed graph that holds now."""

    node_id: UUID
    type: NodeType
    identity: str
    """In hex. Nodes with the same type and identity are one vertex."""


@dataclass(frozen=True)
class _LinkRow:
    first: int
    second: int
    weight: int


@dataclass(frozen=True)
class AnalysisGraph:
    """The graph of some scopes. Its order depends only on its contents."""

    nodes: Sequence[GraphNode]
    vertices: Sequence[int]
    """The number of each node's vertex."""
    links: Sequence[WeightedLink]
    """Between vertices."""
    digest: bytes
    """Equal for equal graphs."""


def read_graph_within_limits(
    access: TenantDb, scope_ids: Sequence[UUID], max_nodes: int, max_links: int
) -> AnalysisGraph | None:
    """Read the nodes of these scopes that hold and are not archived, and the edges between them.
    Returns None if there are more than `max_nodes` or `max_links`. In a snapshot transaction. A
    link's weight is the sum over its edges of the confidence in percent, multiplied by the number
    of observations."""
    params: dict[str, object] = {"scope_ids": list(scope_ids), "limit": max_nodes + 1}
    nodes = access.fetch(
        GraphNode,
        """
        select n.node_id, n.type, encode(n.identity, 'hex') as identity from graph_nodes n
        where n.scope_id = any (%(scope_ids)s) and n.valid_to is null and not n.archived
        order by n.type collate "C", n.identity, n.node_id limit %(limit)s
        """,
        params,
    )
    if len(nodes) > max_nodes:
        return None
    # The planner underestimates the rows that pass the policies, and would choose nested loops.
    access.execute("set local enable_nestloop = off", {})
    rows = access.fetch(
        _LinkRow,
        """
        with vertices as (
            select n.node_id,
                dense_rank() over (order by n.type collate "C", n.identity)::int - 1 as number
            from graph_nodes n
            where n.scope_id = any (%(scope_ids)s) and n.valid_to is null and not n.archived)
        select least(f.number, t.number) as first, greatest(f.number, t.number) as second,
            sum(e.weight * greatest(1, round(e.confidence * 100)))::bigint as weight
        from vertices f
        join graph_edges e on e.from_id = f.node_id and e.valid_to is null
            and e.scope_id = any (%(scope_ids)s)
        join vertices t on t.node_id = e.to_id
        where f.number <> t.number
        group by 1, 2 order by 1, 2 limit %(limit)s
        """,
        {**params, "limit": max_links + 1},
    )
    if len(rows) > max_links:
        return None
    return _make_analysis_graph(
        nodes, [WeightedLink(row.first, row.second, row.weight) for row in rows]
    )


def _make_analysis_graph(
    nodes: Sequence[GraphNode], links: Sequence[WeightedLink]
) -> AnalysisGraph:
    vertices: list[int] = []
    digest = hashlib.sha256(f"{_DIGEST_VERSION} {len(nodes)}".encode())
    for n, node in enumerate(nodes):
        before = nodes[n - 1] if n else node
        is_new = (node.type, node.identity) != (before.type, before.identity)
        vertices.append(vertices[-1] + is_new if vertices else 0)
        digest.update(f"\n{node.node_id} {node.type} {node.identity}".encode())
    for link in links:
        digest.update(f"\n{link.first} {link.second} {link.weight}".encode())
    return AnalysisGraph(nodes, vertices, links, digest.digest())


@dataclass(frozen=True)
class GraphSize:
    """How large a graph is."""

    nodes: int
    edges: int


def count_nodes_and_edges(access: TenantDb, scope_ids: Sequence[UUID]) -> GraphSize:
    """The size of the graph of these scopes."""
    (row,) = access.fetch(
        GraphSize,
        """
        select (select count(*) from graph_nodes n where n.scope_id = any (%(scope_ids)s)
                and n.valid_to is null and not n.archived) as nodes,
            (select count(*) from graph_edges e where e.scope_id = any (%(scope_ids)s)
                and e.valid_to is null) as edges
        """,
        {"scope_ids": list(scope_ids)},
    )
    return row


@dataclass(frozen=True)
class CommunityRow:
    """A community to be stored."""

    community_id: UUID
    size: int
    bridges: int
    neighbours: Sequence[tuple[UUID, int]]


@dataclass(frozen=True)
class CommunityMemberRow:
    """A node's place in a community, to be stored."""

    node_id: UUID
    community_id: UUID
    rank: int
    bridge_score: float
    is_bridge: bool


def mark_scope_analysed(access: TenantDb, scope: ScopeToAnalyse, digest: bytes | None) -> None:
    """Record that the scope's graph is analysed, up to the changes that were read. With a `digest`,
    its communities will be replaced. In a transaction, before anything else: writers of the graph
    lock this row before the nodes."""
    access.execute(
        "update graph_analyses set analysed_changes = %(changes)s,"
        " changed_at = case when changes > %(changes)s then clock_timestamp() else changed_at end,"
        " digest = coalesce(%(digest)s, digest) where scope_id = %(scope_id)s",
        {"scope_id": scope.scope_id, "changes": scope.changes, "digest": digest},
    )


def replace_scope_communities(
    access: TenantDb,
    scope: ScopeToAnalyse,
    communities: Sequence[CommunityRow],
    members: Sequence[CommunityMemberRow],
    now: datetime,
) -> None:
    """Replace all communities of the scope. Nodes that were deleted in the meantime are left out.
    In a transaction, after `mark_scope_analysed`."""
    own: dict[str, object] = {"scope_id": scope.scope_id, "participants": scope.participants}
    access.execute("delete from graph_communities where scope_id = %(scope_id)s", own)
    for batch in _split_into_batches(communities):
        access.execute(
            """
            insert into graph_communities (tenant_id, community_id, scope_id, participants, size,
                bridges, neighbours, analysed_at)
            select current_tenant(), c.community_id, %(scope_id)s, %(participants)s::text[],
                c.size, c.bridges, c.neighbours, %(now)s
            from jsonb_to_recordset(%(rows)s::jsonb) c
                (community_id uuid, size int, bridges int, neighbours jsonb)
            """,
            {**own, "now": now, "rows": _encode_communities(batch)},
        )
    for batch in _split_into_batches(members):
        access.execute(
            """
            insert into graph_members (tenant_id, node_id, scope_id, participants, community_id,
                rank, bridge_score, is_bridge)
            select current_tenant(), m.node_id, %(scope_id)s, %(participants)s::text[],
                m.community_id, m.rank, m.bridge_score, m.is_bridge
            from jsonb_to_recordset(%(rows)s::jsonb) m (node_id uuid, community_id uuid, rank int,
                bridge_score float8, is_bridge boolean)
            join graph_nodes n on n.node_id = m.node_id
            """,
            {**own, "rows": _encode_community_members(batch)},
        )


def replace_tenant_communities(
    access: TenantDb,
    digest: bytes,
    communities: Sequence[CommunityRow],
    members: Sequence[CommunityMemberRow],
    now: datetime,
) -> None:
    """Replace all communities of the tenant's whole graph. Nodes that were deleted in the meantime
    are left out. In a transaction."""
    access.execute(
        "insert into graph_tenant_analyses (tenant_id, digest) values (current_tenant(),"
        " %(digest)s) on conflict (tenant_id) do update set digest = excluded.digest",
        {"digest": digest},
    )
    access.execute("delete from graph_tenant_communities", {})
    for batch in _split_into_batches(communities):
        access.execute(
            """
            insert into graph_tenant_communities (tenant_id, community_id, size, bridges,
                neighbours, analysed_at)
            select current_tenant(), c.community_id, c.size, c.bridges, c.neighbours, %(now)s
            from jsonb_to_recordset(%(rows)s::jsonb) c
                (community_id uuid, size int, bridges int, neighbours jsonb)
            """,
            {"now": now, "rows": _encode_communities(batch)},
        )
    for batch in _split_into_batches(members):
        access.execute(
            """
            insert into graph_tenant_members (tenant_id, node_id, community_id, rank, bridge_score,
                is_bridge)
            select current_tenant(), m.node_id, m.community_id, m.rank, m.bridge_score, m.is_bridge
            from jsonb_to_recordset(%(rows)s::jsonb) m (node_id uuid, community_id uuid, rank int,
                bridge_score float8, is_bridge boolean)
            join graph_nodes n on n.node_id = m.node_id
            """,
            {"rows": _encode_community_members(batch)},
        )


def _split_into_batches[Row](rows: Sequence[Row]) -> list[Sequence[Row]]:
    starts = range(0, len(rows), _ROWS_PER_STATEMENT)
    return [rows[start : start + _ROWS_PER_STATEMENT] for start in starts]


def _encode_communities(rows: Sequence[CommunityRow]) -> str:
    return json.dumps([vars(row) for row in rows], default=str)


def _encode_community_members(rows: Sequence[CommunityMemberRow]) -> str:
    return json.dumps([vars(row) for row in rows], default=str)
