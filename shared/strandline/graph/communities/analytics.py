"""The analytics job: find the communities of each scope's graph and of the tenant's whole graph,
and the nodes that bridge them."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.errors import StrandlineError
from strandline.graph.communities import store_analytics
from strandline.graph.communities.label_propagation import (
    Communities,
    find_groups,
    rank_nodes_and_score_bridges,
)
from strandline.graph.communities.store_analytics import (
    TENANT_REF,
    AnalysisGraph,
    CommunityMemberRow,
    CommunityRow,
    GraphNode,
    ScopeToAnalyse,
)
from strandline.graph.nodes.identity import derive_community_id
from strandline.jobs import store_failures
from strandline.jobs.runner import JobResources, Lease, LeaseLost, Shard, error_code, skip_clean_up
from strandline.observability import logger

name = "analytics"
MAX_NODES = 250_000
"""The most nodes of a graph that is analysed."""
MAX_LINKS = 1_000_000
"""The most pairs of nodes that edges may join in it. A graph with both maximum sizes fits the
function's memory and time limit; docs/graph.md has the measurements."""
_MAX_NEIGHBOURS = 20
"""How many neighbours of a community are kept, the heaviest first."""
_FAILURE_ADVICE = (
    "The communities found before stay. Every run tries it again. If it fails again, look for the"
    " reason in the log of the function analytics."
)
_METRICS = {
    "communities": "CommunitiesFound",
    "bridges": "BridgesFound",
    "graphs_refused": "GraphsRefused",
}
"""The metric for each count of a shard."""


class GraphTooLarge(StrandlineError):
    """The graph is too large to be analysed."""

    code = "graph_too_large"


def plan_shards(resources: JobResources, now: datetime, only_tenant: str | None) -> Sequence[Shard]:
    """List one shard for each tenant whose graph changed before the last 03:00 UTC. With
    `only_tenant`, only that tenant, whether or not it has work."""
    if only_tenant is not None:
        return [Shard(only_tenant)]
    due = store_analytics.list_due_tenants(resources.database.connection(), now)
    return [Shard(tenant_id) for tenant_id in due]


def work_on_shard(
    resources: JobResources, lease: Lease, shard: Shard, now: datetime
) -> Mapping[str, int]:
    """Analyse the graphs of a tenant's scopes one by one, then the tenant's whole graph. A failure
    of one does not stop the others. Returns counts. Graphs that are not reached stay due."""
    del resources, shard
    totals = Counter[str]()
    with lease.transaction():
        store_analytics.enqueue_unanalysed_scopes(lease.access, now)
    waiting = store_analytics.list_scopes_to_analyse(lease.access)
    for n, scope in enumerate(waiting):
        if lease.is_out_of_time():
            totals["graphs_postponed"] += len(waiting) - n
            break
        _analyse_graph_and_record(lease, scope, [scope.scope_id], now, totals)
    else:
        _analyse_tenant_graph(lease, now, totals)
    counters = {metric: totals[key] for key, metric in _METRICS.items()}
    lease.tally.counters.update(counters)
    return {key: count for key, count in totals.items() if count}


clean_up_after_run = skip_clean_up
"""Each analysis replaces the previous one."""


def _analyse_tenant_graph(lease: Lease, now: datetime, totals: Counter[str]) -> None:
    """Analyse the tenant's graph as a whole, if the graph of one of its scopes has changed since
    the last analysis."""
    state = store_analytics.read_tenant_analysis_state(lease.access)
    has_changed = totals["graphs_analysed"] or totals["graphs_refused"] or state.digest is None
    if state.scope_ids and (has_changed or state.has_failed):
        _analyse_graph_and_record(lease, None, state.scope_ids, now, totals, state.digest)


def _analyse_graph_and_record(
    lease: Lease,
    scope: ScopeToAnalyse | None,
    scope_ids: Sequence[UUID],
    now: datetime,
    totals: Counter[str],
    digest: bytes | None = None,
) -> None:
    """Analyse the graph of a scope, or of the tenant (None), and record the outcome. Raises
    LeaseLost."""
    access = lease.access
    try:
        graph = _read_graph(access, scope_ids)
        if graph.digest == (scope.digest if scope else digest):
            with lease.transaction():
                _mark_graph_analysed(access, scope, now)
            totals["graphs_unchanged"] += 1
            return
        communities = _detect_communities(graph, lease.tally.counters)
        rows = _make_community_rows(
            access.caller.tenant, scope and scope.scope_id, graph, communities
        )
        with lease.transaction():
            _replace_communities(access, scope, graph.digest, rows, now)
    except LeaseLost:
        raise
    except Exception as error:  # the other graphs are still analysed
        with lease.transaction():
            _record_analysis_failure(access, scope, error)
        is_refused = isinstance(error, GraphTooLarge)
        totals["graphs_refused" if is_refused else "graphs_failed"] += 1
        return
    totals["graphs_analysed"] += 1
    if scope:  # the tenant's graph has the same nodes: do not count them twice
        totals["communities"] += len(communities.groups)
        totals["bridges"] += len(communities.bridges)


def _read_graph(access: TenantDb, scope_ids: Sequence[UUID]) -> AnalysisGraph:
    """The graph of these scopes. Raises GraphTooLarge."""
    with access.snapshot_transaction():
        graph = store_analytics.read_graph_within_limits(access, scope_ids, MAX_NODES, MAX_LINKS)
        if graph is not None:
            return graph
        size = store_analytics.count_nodes_and_edges(access, scope_ids)
    raise GraphTooLarge(
        f"The graph has {size.nodes} nodes and {size.edges} edges; at most {MAX_NODES} nodes and"
        f" {MAX_LINKS} pairs of nodes with edges are analysed. The communities found before stay."
        " Use the communities of the scopes instead of the tenant's; archive nodes that are not"
        " needed; or read the tables graph_nodes and graph_edges from a replica into a graph"
        " library on a larger machine."
    )


def _detect_communities(graph: AnalysisGraph, counters: Counter[str]) -> Communities:
    start = time.monotonic()
    groups = find_groups(graph.links)
    middle = time.monotonic()
    communities = rank_nodes_and_score_bridges(graph.links, groups)
    counters["LabelPropagationMilliseconds"] += round((middle - start) * 1000)
    counters["BridgeScoreMilliseconds"] += round((time.monotonic() - middle) * 1000)
    return communities


def _make_community_rows(
    tenant: str, scope_id: UUID | None, graph: AnalysisGraph, communities: Communities
) -> tuple[list[CommunityRow], list[CommunityMemberRow]]:
    """The rows of a graph's communities and of all nodes in them."""
    first_nodes = _index_nodes_by_vertex(graph)
    leaders = [first_nodes[group.nodes[0]] for group in communities.groups]
    ids = [derive_community_id(tenant, scope_id, node.type, node.identity) for node in leaders]
    bridges, scores = communities.bridges, communities.bridge_scores
    rows = [
        CommunityRow(
            ids[n],
            len(group.nodes),
            sum(vertex in bridges for vertex in group.nodes),
            [(ids[other], weight) for other, weight in group.neighbours[:_MAX_NEIGHBOURS]],
        )
        for n, group in enumerate(communities.groups)
    ]
    places = {
        vertex: (ids[n], rank)
        for n, group in enumerate(communities.groups)
        for rank, vertex in enumerate(group.nodes, 1)
    }
    members = [
        CommunityMemberRow(node.node_id, *places[vertex], scores[vertex], vertex in bridges)
        for node, vertex in zip(graph.nodes, graph.vertices, strict=True)
        if vertex in places
    ]
    return rows, members


def _index_nodes_by_vertex(graph: AnalysisGraph) -> Mapping[int, GraphNode]:
    """A node of each vertex, for its type and identity."""
    return dict(zip(graph.vertices, graph.nodes, strict=True))


def _replace_communities(
    access: TenantDb,
    scope: ScopeToAnalyse | None,
    digest: bytes,
    rows: tuple[Sequence[CommunityRow], Sequence[CommunityMemberRow]],
    now: datetime,
) -> None:
    """Replace the communities of a scope or of the tenant. In a transaction."""
    _mark_graph_analysed(access, scope, now, digest)
    if scope:
        store_analytics.replace_scope_communities(access, scope, *rows, now)
    else:
        store_analytics.replace_tenant_communities(access, digest, *rows, now)


def _mark_graph_analysed(
    access: TenantDb, scope: ScopeToAnalyse | None, now: datetime, digest: bytes | None = None
) -> None:
    """Record that a graph is analysed, and resolve its failure. In a transaction."""
    ref = scope.scope_id if scope else TENANT_REF
    store_failures.resolve_failures(access, store_failures.ANALYZE_KIND, [ref], now)
    if scope:
        store_analytics.mark_scope_analysed(access, scope, digest)


def _record_analysis_failure(
    access: TenantDb, scope: ScopeToAnalyse | None, error: Exception
) -> None:
    """Record a graph that could not be analysed as a failure that an admin can retry. A graph that
    is too large is not due again before it changes. In a transaction."""
    is_refused = isinstance(error, GraphTooLarge)
    reason = error_code(error)
    logger.warning(
        "graph not analysed", extra={"scopes": [scope and scope.scope_id], "reason": reason}
    )
    if scope and is_refused:
        store_analytics.mark_scope_analysed(access, scope, None)
    store_failures.record_retryable_failure(
        access,
        kind=store_failures.ANALYZE_KIND,
        scope_id=scope and scope.scope_id,
        participants=scope.participants if scope else [],
        reason=reason,
        advice=str(error) if is_refused else _FAILURE_ADVICE,
        ref=scope.scope_id if scope else TENANT_REF,
    )
